"""Warm-up of samplers that propose in whitened coordinates: the step of the random walk is tuned, nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallbayes.contract import Policy
from tallbayes.moves import tuning
from tallbayes.moves.move import Move


class ProposalPolicy(Policy):
    """The one warm-up of samplers with a proposal: `fixed` are their options, whose field `kernel` it fills.

    `state` makes a blank state at a position; `indicator` names the column that tells whether a proposal was accepted.
    """

    def __init__(
        self, move: Move, dim: int, fixed: Any, state: Callable[[np.ndarray], Any], indicator: str = "acceptance_rate"
    ) -> None:
        self.move, self.dim, self.fixed, self.state, self.indicator = move, dim, fixed, state, indicator

    def begin(self) -> Any:
        """Identity covariance in whitened coordinates."""
        return tuning.begin(self.move, np.eye(self.dim), surrogate=True)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """Step size of the random walk from the iterations that used it."""
        walked = info["component"] == 1
        return tuning.update_step(self.move, state, info[self.indicator][walked]) if walked.any() else state

    def options(self, state: Any, final: bool) -> Any:
        """The fixed options with the present kernel."""
        return self.fixed._replace(kernel=tuning.kernel(self.move, state, final))

    def blank(self, theta: np.ndarray) -> Any:
        """What the sampler makes of a position."""
        return self.state(theta.copy())

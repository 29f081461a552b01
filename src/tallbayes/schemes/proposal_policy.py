"""Warm-up of samplers that propose in whitened coordinates: the step of the random walk is tuned, nothing else is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from tallbayes.contract import Policy
from tallbayes.moves import tuning
from tallbayes.moves.proposals import ProposalMove


class ProposalPolicy(Policy):
    """A leaf puts the kernel into its options, in `compiled`, and names what its steps report of acceptance."""

    indicator: ClassVar[str] = "accepted"

    def __init__(self, move: ProposalMove, dim: int) -> None:
        self.move, self.dim = move, dim

    def begin(self) -> Any:
        """Identity covariance in whitened coordinates."""
        return tuning.begin(self.move, np.eye(self.dim))

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """Step size of the random walk from the iterations that used it."""
        walked = info["component"] == 1
        return tuning.update_step(self.move, state, info[self.indicator][walked]) if walked.any() else state

    def options(self, state: Any, final: bool) -> Any:
        """Kernel and what the sampler adds."""
        return self.compiled(tuning.kernel(self.move, state, final))

    @abstractmethod
    def compiled(self, kernel: Any) -> Any:
        """Options around a kernel."""

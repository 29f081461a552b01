"""Full-data MCMC: any move on log p(theta) + sum_i l_i(theta), which it leaves invariant. EXACT, n evaluations or more a step.

The baseline of every comparison, and the fallback where subsampling does not pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Guarantee, Policy, Sampler, Setup, init, step
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, MoveInfo, hmc, mala, nuts, random_walk, tuning
from tallbayes.moves import slice as slice_move
from tallbayes.moves.move import Point, log_density, log_density_gradient, move, start
from tallbayes.moves.proposals import Located, ProposalMove
from tallbayes.target import NOT_FINITE, Target, log_posterior, log_posterior_gradient, stop_run


class FullPosterior(NamedTuple):
    """The posterior on all rows as a density for moves."""

    target: Target


class FullDataOptions(NamedTuple):
    """Compiled options: the kernel of the move."""

    kernel: Any


@log_density.register(FullPosterior)
def _log_density(density: FullPosterior, theta: np.ndarray) -> float:
    return log_posterior(density.target, theta)


@log_density_gradient.register(FullPosterior)
def _log_density_gradient(density: FullPosterior, theta: np.ndarray, gradient: np.ndarray) -> float:
    return log_posterior_gradient(density.target, theta, gradient)


@init.register(FullDataOptions)
def _init(rng: np.random.Generator, target: Target, options: FullDataOptions, theta: np.ndarray) -> Any:
    point = start(options.kernel, FullPosterior(target), theta)
    if not abs(point.log_density) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return point


@step.register(FullDataOptions)
def _step(rng: np.random.Generator, target: Target, options: FullDataOptions, state: Any, info: np.ndarray) -> Any:
    return move(rng, options.kernel, FullPosterior(target), state, info)


class MovePolicy(Policy):
    """Warm-up of a move on the full posterior."""

    def __init__(self, move: Move, mode: Mode) -> None:
        self.move, self.covariance, self.factor, self.mode = move, mode.covariance, mode.factor, mode

    def begin(self) -> tuning.Tuning:
        """Laplace covariance, first step size."""
        return tuning.begin(self.move, self.covariance)

    def window_ends(self, warmup: int) -> list[int]:
        """As `tuning` has them."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> tuning.Tuning:
        """Dual averaging and covariance; proposals from the Laplace fit stay as they are."""
        if isinstance(self.move, ProposalMove):
            return state
        return tuning.update(self.move, state, draws, info["acceptance_rate"], end, warmup)

    def options(self, state: Any, final: bool) -> FullDataOptions:
        """The kernel."""
        if isinstance(self.move, ProposalMove):
            inner = self.move.kernel(np.eye(self.covariance.shape[0]), 1.0)
            return FullDataOptions(Located(self.mode.reference, np.ascontiguousarray(self.factor), inner))
        return FullDataOptions(tuning.kernel(self.move, state, final))

    def blank(self, theta: np.ndarray) -> Point:
        """A point without density."""
        return Point(theta.copy(), 0.0, np.zeros(theta.size))


@dataclass(frozen=True)
class FullData(Sampler):
    """Full-data MCMC with any move.

    >>> import tallbayes as tb
    >>> tb.samplers.FullData(move=tb.moves.hmc()).name
    'hmc'
    """

    move: Move = field(default_factory=nuts)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT", "every transition leaves the posterior invariant; all rows are read", checked=("warm-up frozen",)
    )
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "mh": {"move": random_walk()},
        "mala": {"move": mala()},
        "hmc": {"move": hmc()},
        "nuts": {"move": nuts()},
        "slice": {"move": slice_move()},
    }
    Info: ClassVar[type] = MoveInfo
    cost: ClassVar[str] = "n a density evaluation"
    any_rows: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the move; "mh" for the random walk."""
        return "mh" if self.move.name == "random_walk" else self.move.name

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Nothing to prepare beyond the mode."""
        return Setup(model, MovePolicy(self.move, mode), why=f"full-data {self.name}, as asked")

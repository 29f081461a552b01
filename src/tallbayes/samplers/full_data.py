"""Full-data MCMC: any move on log p(theta) + sum_i l_i(theta), which it leaves invariant. EXACT, n evaluations or more per step.

The baseline of every comparison, and the fallback where subsampling does not pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Guarantee, Policy, Sampler, Setup, init, step
from tallbayes.engine.noncentred import natural, unconstrained
from tallbayes.errors import ModelError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import Move, MoveInfo, hmc, mala, nuts, random_walk, tuning
from tallbayes.moves import slice as slice_move
from tallbayes.moves.move import Point, log_density, log_density_gradient, move, start
from tallbayes.moves.proposals import Located, ProposalMove
from tallbayes.target import NOT_FINITE, Target, log_posterior, log_posterior_gradient, stop_run

MOST_PARAMETERS = 5000  # of a hierarchical model: 200 MB for a matrix, about as long for a step as a pass over 1e6 rows


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


class NonCentredOptions(NamedTuple):
    """Compiled options for a hierarchical model: the kernel of the move, and where z starts."""

    kernel: Any
    start: np.ndarray


class NonCentredState(NamedTuple):
    """theta in the parameters of the model and the effects of its levels; the point in unconstrained, non-centred coordinates."""

    theta: np.ndarray
    point: Point


@init.register(NonCentredOptions)
def _noncentred_init(rng: np.random.Generator, target: Target, options: NonCentredOptions, theta: np.ndarray) -> Any:
    inner = options.start.copy()
    unconstrained(target.rows, theta, inner)
    point = start(options.kernel, FullPosterior(target), inner)
    if not abs(point.log_density) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    whole = theta.copy()
    natural(target.rows, point.theta, whole)
    return NonCentredState(whole, point)


@step.register(NonCentredOptions)
def _noncentred_step(rng: np.random.Generator, target: Target, options: NonCentredOptions, state: Any, info: np.ndarray) -> Any:
    point = move(rng, options.kernel, FullPosterior(target), state.point, info)
    whole = np.empty(state.theta.size)
    natural(target.rows, point.theta, whole)
    return NonCentredState(whole, point)


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


class NonCentredPolicy(Policy):
    """Warm-up of a move on a hierarchical model. Windows report the model's parameters, so only the step size is tuned."""

    def __init__(self, move: Move, mode: HierarchicalMode) -> None:
        self.move, self.mode, self.model = move, mode, mode.model
        covariances = zip(mode.effects, mode.sigmas, mode.correlations, strict=True)
        white = [np.linalg.solve(np.linalg.cholesky(np.outer(s, s) * r), b.T).T.reshape(-1) for b, s, r in covariances]
        self.first = np.concatenate([np.zeros(self.model.dim), *white])
        self.covariance = self._covariance()

    def _covariance(self) -> np.ndarray:
        """The Laplace fit of the parameters, and of each z its variance given them."""
        assert isinstance(self.model, HierarchicalModel)
        at = self.model.data.d
        population = self.mode.covariance.copy()
        for factor, sigma in zip(self.model.factors, self.mode.sigmas, strict=True):
            q = len(factor.terms)
            pairs = self.mode.reference[at + q : at + q * (q + 1) // 2]
            unit = np.concatenate([1.0 / sigma, 1.0 / (1.0 - pairs**2)])
            part = slice(at, at + unit.size)
            population[part, part] *= np.outer(unit, unit)
            at += unit.size
        weak = [np.repeat(w, len(f.terms)) for w, f in zip(self.mode.weakness, self.model.factors, strict=True)]
        out = np.diag(np.concatenate([np.ones(self.model.dim), *weak]))
        out[: self.model.dim, : self.model.dim] = population
        return out

    def begin(self) -> tuning.Tuning:
        """First step size."""
        return tuning.begin(self.move, self.covariance)

    def window_ends(self, warmup: int) -> list[int]:
        """As `tuning` has them."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> tuning.Tuning:
        """Dual averaging."""
        return tuning.update_step(self.move, state, info["acceptance_rate"])

    def options(self, state: Any, final: bool) -> NonCentredOptions:
        """The kernel."""
        return NonCentredOptions(tuning.kernel(self.move, state, final), self.first)

    def blank(self, theta: np.ndarray) -> NonCentredState:
        """A state without density."""
        whole = np.zeros(self.first.size)
        whole[: self.model.dim] = theta[: self.model.dim]
        return NonCentredState(whole, Point(np.zeros(whole.size), 0.0, np.zeros(whole.size)))


@dataclass(frozen=True)
class FullData(Sampler):
    """Full-data MCMC with any move.

    >>> import tallbayes as tb
    >>> tb.samplers.FullData(move=tb.moves.hmc()).name
    'hmc'
    """

    move: Move = field(default_factory=nuts)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT", "targets the full-data posterior exactly; all rows are read", checked=("warm-up frozen",)
    )
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "mh": {"move": random_walk()},
        "mala": {"move": mala()},
        "hmc": {"move": hmc()},
        "nuts": {"move": nuts()},
        "slice": {"move": slice_move()},
    }
    Info: ClassVar[type] = MoveInfo
    cost: ClassVar[str] = "all n rows per density evaluation"
    any_rows: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the move; "mh" for the random walk."""
        return "mh" if self.move.name == "random_walk" else self.move.name

    @property
    def serves_groups(self) -> bool:
        """Only NUTS: the others mix too slowly over levels to be a reference."""
        return self.move.name == "nuts"

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Nothing to prepare beyond the mode."""
        if model.grouped:
            assert isinstance(mode, HierarchicalMode) and isinstance(model, HierarchicalModel)
            if model.nuisances:
                raise ModelError(
                    "nuts does not support a hierarchical gaussian model with unknown sigma; use 'minibatch-gibbs', or give "
                    "sigma=."
                )
            total = model.dim + model.level_count
            if total > MOST_PARAMETERS:
                raise ModelError(
                    f"nuts stores a matrix over all parameters and levels, and this model has {total:,} of them, more than "
                    f"{MOST_PARAMETERS:,}. Use 'minibatch-gibbs', or a coarser factor."
                )
            return Setup(
                model, NonCentredPolicy(self.move, mode), why=f"full-data {self.name} in non-centred coordinates, as requested"
            )
        return Setup(model, MovePolicy(self.move, mode), why=f"full-data {self.name}, as requested")

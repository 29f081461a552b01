"""Proposals with a known ratio, in whitened coordinates: w' given w, and log q(w | w') - log q(w' | w).

Independence and pCN proposals are reversible with respect to N(0, I), the Laplace fit in these coordinates, so the ratio is
the one of two normal densities. Independent draws of Student's t are reversible with respect to it: their ratio is that of two
of its densities. A mixture chooses a component at random; each is reversible, so the mixture is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic, inlinable
from tallbayes.errors import OptionError
from tallbayes.moves.linear import lower_times
from tallbayes.moves.move import MOVED, Move, Point, log_density, move, start
from tallbayes.moves.random_walk import RandomWalkMove
from tallbayes.option_types import checked
from tallbayes.validation import shown


class Autoregressive(NamedTuple):
    """pCN: w' = rho w + sqrt(1 - rho^2) xi; independence at rho = 0."""

    rho: float


class HeavyTailed(NamedTuple):
    """w' = xi sqrt(df / chi^2_df): independent draws of Student's t, whose tails are heavier than those of a likelihood."""

    df: float


class Walk(NamedTuple):
    """w' = w + step xi."""

    step: float


class Mixture(NamedTuple):
    """The first component with probability `share`, else the second."""

    first: Any
    second: Any
    share: float


@generic(argument=1)
@declared
def propose(rng: np.random.Generator, kernel: Any, white: np.ndarray, proposal: np.ndarray) -> tuple[float, int]:
    """Fill `proposal`; returns the log proposal ratio and the number of the component used."""
    raise TypeError


@propose.register(Autoregressive)
def _autoregressive(
    rng: np.random.Generator, kernel: Autoregressive, white: np.ndarray, proposal: np.ndarray
) -> tuple[float, int]:
    spread = math.sqrt(1.0 - kernel.rho * kernel.rho)
    ratio = 0.0
    for j in range(white.size):
        proposal[j] = kernel.rho * white[j] + spread * rng.standard_normal()
        ratio += 0.5 * (proposal[j] * proposal[j] - white[j] * white[j])
    return ratio, 0


@propose.register(HeavyTailed)
def _heavy_tailed(rng: np.random.Generator, kernel: HeavyTailed, white: np.ndarray, proposal: np.ndarray) -> tuple[float, int]:
    spread = math.sqrt(kernel.df / rng.chisquare(kernel.df))
    before, after = 0.0, 0.0
    for j in range(white.size):
        proposal[j] = spread * rng.standard_normal()
        before += white[j] * white[j]
        after += proposal[j] * proposal[j]
    return 0.5 * (kernel.df + white.size) * (math.log1p(after / kernel.df) - math.log1p(before / kernel.df)), 0


@propose.register(Walk)
def _walk(rng: np.random.Generator, kernel: Walk, white: np.ndarray, proposal: np.ndarray) -> tuple[float, int]:
    for j in range(white.size):
        proposal[j] = white[j] + kernel.step * rng.standard_normal()
    return 0.0, 1


@propose.register(Mixture)
def _mixture(rng: np.random.Generator, kernel: Mixture, white: np.ndarray, proposal: np.ndarray) -> tuple[float, int]:
    if rng.random() < kernel.share:
        return propose(rng, kernel.first, white, proposal)
    return propose(rng, kernel.second, white, proposal)


class Located(NamedTuple):
    """A proposal kernel around a centre: theta = centre + factor w. Full-data form of the proposals above."""

    centre: np.ndarray
    factor: np.ndarray
    kernel: Any


@inlinable
def _white(kernel: Located, theta: np.ndarray) -> np.ndarray:
    white = theta - kernel.centre
    for j in range(white.size):
        for k in range(j):
            white[j] -= kernel.factor[j, k] * white[k]
        white[j] /= kernel.factor[j, j]
    return white


@start.register(Located)
def _located_start(kernel: Located, density: Any, theta: np.ndarray) -> Point:
    return Point(theta.copy(), log_density(density, theta), np.zeros(theta.size))


@move.register(Located)
def _located_move(rng: np.random.Generator, kernel: Located, density: Any, point: Point, info: np.ndarray) -> Point:
    white = _white(kernel, point.theta)
    proposal, shift = np.empty(white.size), np.empty(white.size)
    ratio, _ = propose(rng, kernel.kernel, white, proposal)
    lower_times(kernel.factor, proposal, shift)
    theta = kernel.centre + shift
    value = log_density(density, theta)
    ratio += value - point.log_density
    finite = ratio == ratio
    info[MOVED.acceptance_rate] = math.exp(min(0.0, ratio)) if finite else 0.0
    info[MOVED.n_steps] = 1.0
    if finite and math.log(1.0 - rng.random()) < ratio:
        point = Point(theta, value, point.gradient)
    info[MOVED.lp] = point.log_density
    return point


@dataclass(frozen=True)
class ProposalMove(Move):
    """Options of proposals around the Laplace fit: an autoregressive share and a random-walk share."""

    rho: float = 0.0
    share: float = 0.8
    acceptance: float = 0.25
    name: ClassVar[str] = "independence"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel in whitened coordinates; `covariance` is the identity there."""
        d = covariance.shape[0]
        walk = Walk(step * 2.38 / math.sqrt(d))
        return Mixture(Autoregressive(self.rho), walk, self.share)

    def first_step(self, dim: int) -> float:
        """Relative to 2.38 / sqrt(d)."""
        return 1.0

    def target_acceptance(self, dim: int) -> float:
        """Of the random-walk share."""
        return self.acceptance


@dataclass(frozen=True)
class AutoregressiveMove(ProposalMove):
    """The same with rho > 0."""

    name: ClassVar[str] = "pcn"


@dataclass(frozen=True)
class HeavyTailedMove(ProposalMove):
    """Independent draws of Student's t around the Laplace fit, with `df` degrees of freedom, and a random-walk share."""

    df: float = 5.0
    name: ClassVar[str] = "independence-t"

    def __post_init__(self) -> None:
        if self.rho != 0.0:
            raise OptionError(f"Student-t draws are independent, so rho must be 0; got {self.rho}.")

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel in whitened coordinates."""
        return super().kernel(covariance, step)._replace(first=HeavyTailed(self.df))


@checked
def independence(share: float = 0.8, df: float | None = None) -> ProposalMove:
    """Draws from the Laplace fit with probability `share`, random walk otherwise.

    The random walk is needed because the tails of a likelihood are heavier than normal ones: independent proposals alone would
    not be uniformly ergodic. `share=1` disables it. With `df`, draws come from Student's t with that many degrees of freedom
    instead, centred and scaled as the Laplace fit: for posteriors with heavy tails. Exact minibatch should then decide in one
    stage, `two_stage=False`: a first stage that uses only the quadratic proxy would keep the chain in the tails.

    >>> independence()
    ProposalMove(rho=0.0, share=0.8, acceptance=0.25)
    >>> independence(df=5)
    HeavyTailedMove(rho=0.0, share=0.8, acceptance=0.25, df=5.0)
    """
    _check_share(share)
    if df is None:
        return ProposalMove(0.0, share)
    if not 0.0 < df < math.inf:
        raise OptionError(f"df, the degrees of freedom, must be positive and finite; got {df}. Omit it for normal draws.")
    return HeavyTailedMove(0.0, share, df=float(df))


@checked
def pcn(rho: float = 0.5, share: float = 0.8) -> AutoregressiveMove:
    """Preconditioned Crank-Nicolson: w' = rho w + sqrt(1 - rho^2) xi with probability `share`, random walk otherwise.

    >>> pcn(rho=0.9).rho
    0.9
    """
    _check_share(share)
    if not 0.0 <= rho < 1.0:
        raise OptionError(f"rho must be at least 0 and below 1; got {rho}.")
    return AutoregressiveMove(rho, share)


def _check_share(share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise OptionError(f"share is a probability; got {share}.")


def as_proposal(move: Move) -> ProposalMove:
    """The proposal form of a move, for samplers that decide acceptance themselves; refuses moves that have none."""
    if isinstance(move, ProposalMove):
        return move
    if not isinstance(move, Move):
        raise OptionError(f"a move is needed, such as tallbayes.moves.independence(); got {shown(move)}.")
    if isinstance(move, RandomWalkMove) and move.isotropic:
        raise OptionError(
            "this sampler proposes in coordinates whitened by the Laplace fit, where an isotropic walk has the shape of that fit; "
            "use random_walk() without isotropic=True, or a full-data or firefly sampler."
        )
    if isinstance(move, RandomWalkMove) and move.blocks is None:
        return ProposalMove(0.0, 0.0, move.acceptance or 0.25)
    raise OptionError(
        f"this sampler needs a move with a known proposal ratio: independence(), pcn() or random_walk(); got {move.name}."
    )

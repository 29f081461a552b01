"""Exact minibatch Metropolis-Hastings that crosses between separate modes: a reference, a proxy and a bound for each.

Every position belongs to one mode k(theta), the one with the largest share w_k N(theta; theta_k, Sigma_k) of the mixture of Laplace fits.
With probability `jump` a proposal is drawn from the mixture: a mode k', and theta' from its Laplace fit; otherwise from the local proposals
of exact minibatch around the present mode. A proposal that belongs to another mode than the one it was drawn for is rejected, so
the density of the first kind is w_k(theta) N(theta; theta_k, Sigma_k) in both directions.

Write the log-likelihood as the proxy sum of a position's own mode plus residuals r_ik, which vanish at theta_k. A move from mode k to
k' changes the residual energy by sum_i r_ik(theta) - sum_i r_ik'(theta'): 2 n terms, each with a symmetric bound, that of the pair
(theta, theta_k) in mode k or of (theta_k', theta') in mode k'. The Poisson minibatch of mh-ss is a product over terms, so the two
sums are decided as two minibatches whose log ratios add up. Detailed balance holds as for `exact_minibatch`. EXACT.

Where the model has no certified bound every decision reads all rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.bounds.bound import Bound, bound_of
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.tables import NoBound
from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, positions, step
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.several import important, shares
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import propose
from tallbayes.pointers import kind_of, member_maker, numbers_of
from tallbayes.priors import prior_value
from tallbayes.proxies.taylor import (
    ProxyTotal,
    Whitening,
    factor_of,
    proxy_value,
    reference_of,
    taylor,
    unwhiten,
    whiten,
    whitening_of,
)
from tallbayes.schemes.poisson_minibatch import MHSS, residual_ratio
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.target import Certified, Target, log_prior

FEW = 20  # changes of mode in all below which the shares of modes are rough


class Info(NamedTuple):
    """What a step reports, by position; the first ones are those of exact minibatch."""

    accepted: int
    acceptance_rate: int
    component: int
    stage_one: int
    rate: int
    rows: int
    full_read: int
    largest_ratio: int
    home: int
    changed: int


AT = positions(Info)


LEVEL, WEIGHT, CUMULATIVE = 0, 1, 2  # of `Homes.weights`


class Homes(NamedTuple):
    """What is known of the modes, by address: the type does not depend on their number."""

    fits: np.ndarray  # (modes, numbers of a `FittedMode`)
    weights: np.ndarray  # (3, modes): log-likelihood at each reference, log w_k - log |L_k|, sums of w


class FittedMode(NamedTuple):
    """Coordinates and proxies of a mode."""

    whitening: Whitening
    proxy: ProxyTotal
    bound: Bound


_fitted = member_maker(
    kind_of(FittedMode(Whitening(np.zeros((2, 1))), ProxyTotal(np.zeros(2), 0, 2, 0.0), Bound(0, 0, 0, 0, 0, 0, np.zeros(1))))
)


def homes_of(certified: list[Certified], weights: np.ndarray) -> Homes:
    """The modes by address; the arrays are kept."""
    fits = numbers_of(tuple(FittedMode(c.whitening, c.proxy, bound_of(c.bound)) for c in certified))
    return Homes(fits.reshape(len(certified), -1), weights)


class JumpingState(NamedTuple):
    """Position, the mode it belongs to, its whitened coordinates there, and the log surrogate: proxy sum plus log prior."""

    theta: np.ndarray
    home: int
    white: np.ndarray
    surrogate: float


class JumpingOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    rate: Any
    jump: float
    two_stage: bool


@inlinable
def _share(homes: Homes, k: int, white: np.ndarray) -> float:
    """Log of w_k N(theta; theta_k, Sigma_k), less a constant."""
    size = 0.0
    for j in range(white.size):
        size += white[j] * white[j]
    return homes.weights[WEIGHT, k] - 0.5 * size


@inlinable
def _home(homes: Homes, theta: np.ndarray) -> int:
    """The mode to which a position belongs."""
    best, most = 0, -np.inf
    for k in range(homes.weights.shape[1]):
        share = _share(homes, k, whiten(_fitted(homes.fits[k]).whitening, theta))
        if share > most:
            best, most = k, share
    return best


@inlinable
def _at(target: Target, k: int) -> Target[Certified]:
    """The target with the proxy of mode k."""
    fit = _fitted(target.proxy.fits[k])
    return Target(target.rows, target.prior, Certified(fit.whitening, fit.proxy, fit.bound), target.counters)


@inlinable
def _surrogate(target: Target, k: int, white: np.ndarray, theta: np.ndarray) -> float:
    homes = target.proxy
    return homes.weights[LEVEL, k] + proxy_value(_fitted(homes.fits[k]).proxy, white) + log_prior(target, theta)


@inlinable
def _residual(
    rng: np.random.Generator,
    target: Target,
    options: JumpingOptions,
    state: JumpingState,
    k: int,
    theta: np.ndarray,
    white: np.ndarray,
    info: np.ndarray,
) -> float:
    """The log ratio of the minibatch: of one mode, or of leaving one and arriving in another, through their references."""
    here = _at(target, state.home)
    if k == state.home:
        return residual_ratio(rng, here, options, state.theta, theta, state.white, white, info)
    there, origin = _at(target, k), np.zeros(white.size)
    ratio = residual_ratio(rng, here, options, state.theta, reference_of(here.proxy.whitening), state.white, origin, info)
    rate, rows, full = info[AT.rate], info[AT.rows], info[AT.full_read]
    ratio += residual_ratio(rng, there, options, reference_of(there.proxy.whitening), theta, origin, white, info)
    info[AT.rate] += rate
    info[AT.rows] += rows
    info[AT.full_read] = max(info[AT.full_read], full)
    return ratio


@init.register(JumpingOptions)
def _init(rng: np.random.Generator, target: Target, options: JumpingOptions, theta: np.ndarray) -> Any:
    home = _home(target.proxy, theta)
    white = whiten(_fitted(target.proxy.fits[home]).whitening, theta)
    return JumpingState(theta.copy(), home, white, _surrogate(target, home, white, theta))


@step.register(JumpingOptions)
def _step(rng: np.random.Generator, target: Target, options: JumpingOptions, state: Any, info: np.ndarray) -> Any:
    d, homes = state.theta.size, target.proxy
    white, theta, k = np.empty(d), np.empty(d), state.home
    info[:] = 0.0
    info[AT.home] = k
    if rng.random() < options.jump:
        goal, k = rng.random(), 0
        while k < homes.weights.shape[1] - 1 and goal >= homes.weights[CUMULATIVE, k]:
            k += 1
        for j in range(d):
            white[j] = rng.standard_normal()
        ratio = _share(homes, state.home, state.white) - _share(homes, k, white)
    else:
        ratio, component = propose(rng, options.kernel, state.white, white)
        info[AT.component] = component
    unwhiten(_fitted(homes.fits[k]).whitening, white, theta)
    if _home(homes, theta) != k:
        return state
    surrogate = _surrogate(target, k, white, theta)
    ratio += surrogate - state.surrogate
    level = math.log(1.0 - rng.random())
    if options.two_stage:
        if not level < ratio:
            return state
        ratio, level = 0.0, math.log(1.0 - rng.random())
        info[AT.stage_one] = 1.0
    ratio += _residual(rng, target, options, state, k, theta, white, info)
    if level < ratio:
        info[AT.accepted], info[AT.acceptance_rate] = 1.0, 1.0
        info[AT.home], info[AT.changed] = k, 1.0 if k != state.home else 0.0
        return JumpingState(theta, k, white, surrogate)
    return state


@dataclass(frozen=True)
class ModeJumping(Sampler):
    """Exact minibatch for posteriors with several separate modes.

    `jump` is the probability of a proposal from the mixture of the Laplace fits of all modes that the search for the mode found; `move`
    makes the other proposals, within the present mode. With one mode this is exact minibatch.

    >>> import numpy as np, tallbayes as tb
    >>> y = np.repeat([-5.0, 5.0], [10, 10])
    >>> model = tb.models.student_t(tb.Dataset.from_arrays(np.ones((20, 1)), y), nu=4.0, scale=2.0)
    >>> fit = tb.sample(model, "mode-jumping", draws=1000, chains=2, seed=1, progress=False)
    >>> bool(fit.stats["changed"].mean() > 0.05), bool(abs((fit.theta > 0).mean() - 0.5) < 0.2)
    (True, True)
    """

    jump: float = 0.5
    move: Move = field(default_factory=independence)
    two_stage: bool = True
    name: ClassVar[str] = "mode-jumping"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly, also between modes; rows are drawn at random under certified bounds, or all "
        "read",
        assumed=("the proven bound on the third derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, independent of n; all rows if there is no bound"
    crosses_modes: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range."""
        if not 0.0 < self.jump < 1.0:
            raise OptionError(f"jump must be between 0 and 1, both excluded; got {self.jump}.")
        as_proposal(self.move)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """How often chains changed their mode, and what share of the draws each mode has."""
        homes, changes = outcome.stats["home"], int(outcome.stats["changed"].sum())
        count = outcome.setup.proxy.weights.shape[1]
        notes = {"changes_of_mode": changes, "shares": [float((homes == k).mean()) for k in range(count)]}
        if count == 1 or changes >= FEW:
            return Diagnosis(notes)
        sentence = (
            f"chains changed between the {count} modes {changes:,} times in total, so the estimated shares of the modes are "
            "rough. Take more draws, raise jump=, or inspect the modes one by one."
        )
        return Diagnosis(notes, (sentence,))

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """A proxy and a bound for each mode: one pass each."""
        modes = important(mode)
        bounds, name = _bounds(modes, seed)
        certified = [Certified(whitening_of(m), taylor(m), b) for m, b in zip(modes, bounds, strict=True)]
        share = shares(modes)
        level = np.array([m.log_posterior - prior_value(model.prior_terms, m.reference) for m in modes])
        weight = np.log(share) - np.array([np.log(np.diag(factor_of(c.whitening))).sum() for c in certified])
        homes = homes_of(certified, np.array([level - level[0], weight, np.cumsum(share)]))
        options = JumpingOptions(None, MHSS(), self.jump, self.two_stage)
        policy = ProposalPolicy(
            as_proposal(self.move), model.dim, options, lambda theta: JumpingState(theta, 0, np.zeros_like(theta), 0.0)
        )
        count = "one mode" if len(modes) == 1 else f"{len(modes)} modes"
        return Setup(model, policy, homes, f"mode jumping between {count}, {name}")


def _bounds(modes: list[Mode], seed: int) -> tuple[list[Any], str]:
    """A bound of the same kind for every mode, and what it is."""
    try:
        first, name = certify(modes[0], seed=seed)
        return [
            first,
            *(certify(m, name if name != "given" else "auto", seed=seed)[0] for m in modes[1:]),
        ], f"with bound {name}"
    except ModelError:
        return [NoBound() for _ in modes], "which reads all rows: the model has no certified bound"

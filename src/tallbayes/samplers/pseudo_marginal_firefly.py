"""Pseudo-marginal Firefly (Bardenet, Doucet and Holmes 2017, equation 13): theta and all lights proposed together.

With lower bounds B_i <= L_i and any numbers 0 < I_i < 1, draw z_i = 1 with probability 1 - I_i. Then

    p^(theta) = p(theta) prod_i [(L_i - B_i) / (1 - I_i)]^z_i [B_i / I_i]^(1 - z_i)

has the expectation p(theta) prod_i L_i(theta): Metropolis-Hastings with p^ in place of the posterior, never estimated again at the
present state, leaves the posterior invariant. The I_i here are expected values of B_i / L_i, a number for each row and the same for
all theta; the paper has one integral for all rows, which is not needed. Rows are read where z_i = 1: sum_i (1 - I_i) of them, not
n I as printed. The estimator is useful while the variance of its logarithm,

    sum_i I_i (1 - I_i) log^2[ I_i / (1 - I_i) (L_i / B_i - 1) ]      (their equation 14, for any I_i),

is of order one: a model where it exceeds 10 is refused. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Sampler, Setup, init, positions, step
from tallbayes.diagnostics.light_checks import replay_gaps
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import propose
from tallbayes.proxies import lower_bounds
from tallbayes.proxies.lower_bounds import LowerBound, bound_value, gaps_at
from tallbayes.proxies.taylor import Whitening, unwhiten, whiten, whitening_of
from tallbayes.schemes.lights import Implicit, classes_of, log_odds, lower_gaps, marked_rows
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.streams import Stream, generator
from tallbayes.target import NOT_FINITE, Target, log_prior, row_total, stop_run, stopped

LARGEST_VARIANCE = 10.0
_DRAWS = 32  # of the Laplace fit, for expected brightness and variance
_BLOCK = 4096


class Info(NamedTuple):
    """What a step reports, by position."""

    acceptance_rate: int
    estimate: int
    rows: int
    component: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its whitened coordinates and the log of the estimated density, drawn once."""

    theta: np.ndarray
    white: np.ndarray
    estimate: float


class PseudoMarginalOptions(NamedTuple):
    """Compiled options: proposal, coordinates, and 1 - I_i with the rows in classes of it."""

    kernel: Any
    whitening: Whitening
    chance: Implicit


@inlinable
def lit_value(gap: float, chance: float) -> float:
    """What a lit row adds to the log estimate: log[I / (1 - I) (L/B - 1)]; unlit rows together add a constant."""
    return log_odds(gap) + math.log1p(-chance) - math.log(chance)


@inlinable
def _chance(options: PseudoMarginalOptions, row: int) -> float:
    return options.chance.rate[row] if options.chance.rate.size > 1 else options.chance.rate[0]


@inlinable
def _estimate(target: Target, options: PseudoMarginalOptions, theta: np.ndarray, rows: Any, gap: np.ndarray) -> float:
    value = log_prior(target, theta) + bound_value(target.proxy, theta)
    for k in range(rows.size):
        value += lit_value(gap[k], _chance(options, rows[k]))
    return value if abs(value) < np.inf else -np.inf


@init.register(PseudoMarginalOptions)
def _init(rng: np.random.Generator, target: Target, options: PseudoMarginalOptions, theta: np.ndarray) -> Any:
    """z from its law given theta under the extended target, in which z_i = 1 has probability 1 - B_i/L_i: n evaluations."""
    n, value = row_total(target), log_prior(target, theta) + bound_value(target.proxy, theta)
    gap = np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        if stopped(target):
            break
        size = min(_BLOCK, n - start)
        lower_gaps(target, np.arange(start, start + size), theta, gap[:size])
        for j in range(size):
            if rng.random() < -math.expm1(-gap[j]):
                value += lit_value(gap[j], _chance(options, start + j))
    if not abs(value) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return State(theta.copy(), whiten(options.whitening, theta), value)


@step.register(PseudoMarginalOptions)
def _step(rng: np.random.Generator, target: Target, options: PseudoMarginalOptions, state: Any, info: np.ndarray) -> Any:
    white, theta = np.empty(state.white.size), np.empty(state.white.size)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(options.whitening, white, theta)
    rows = marked_rows(rng, options.chance)
    gap = np.empty(rows.size)
    lower_gaps(target, rows, theta, gap)
    estimate = _estimate(target, options, theta, rows, gap)
    ratio += estimate - state.estimate
    info[AT.acceptance_rate] = math.exp(min(0.0, ratio)) if ratio == ratio else 0.0
    info[AT.rows] = rows.size
    info[AT.component] = component
    if math.log(1.0 - rng.random()) < ratio:
        state = State(theta, white, estimate)
    info[AT.estimate] = state.estimate
    return state


def log_variance(gap: np.ndarray, chance: np.ndarray) -> float:
    """Variance of the log estimate given theta, from the gaps of all rows: equation 14 with 1 - I_i = chance_i.

    >>> round(log_variance(np.log([2.0, 1.5]), np.array([0.5, 0.5])), 6)  # L/B - 1 is 1 and 0.5
    0.120113
    """
    odds = np.log(np.maximum(np.expm1(gap), 1e-300)) + np.log1p(-chance) - np.log(chance)
    return float(np.sum(np.where(gap > 0.0, chance * (1.0 - chance) * odds**2, 0.0)))


@dataclass(frozen=True)
class PseudoMarginalFirefly(Sampler):
    """Pseudo-marginal Firefly: included for comparison; it needs bounds so tight that almost no row is ever bright.

    `bound` as for `Firefly`; `move` any with a known proposal ratio.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(2000), rng.standard_normal(2000)])
    >>> y = (rng.random(2000) < 1 / (1 + np.exp(-X @ [0.1, 0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, "pseudo-marginal-firefly", draws=500, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 2)
    True
    """

    move: Move = field(default_factory=independence)
    bound: str = "tuned"
    xi: float | None = None
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly; the likelihood is replaced by an unbiased positive estimate",
        assumed=("the proven lower bound of the family", "arithmetic in double precision"),
        checked=("variance of the log estimate below 10 at draws of the Laplace fit", "no row read lies below its bound"),
    )
    name: ClassVar[str] = "pseudo-marginal-firefly"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, for tight bounds only"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.bound not in lower_bounds.NAMES:
            raise unknown("bound", self.bound, lower_bounds.NAMES)
        if self.xi is not None and self.bound != "untuned":
            raise OptionError(f"xi applies only to bound='untuned'; bound={self.bound!r} does not use it.")
        as_proposal(self.move)

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Sum the bounds, estimate I_i and the variance of the log estimate on draws of the Laplace fit; refuse a large one."""
        bound, label = lower_bounds.lower_bound(mode, self.bound, self.xi)
        chance = np.clip(lower_bounds.brightness(mode, bound, _DRAWS, seed), 1e-12, 0.5)
        variance = _expected_variance(mode, bound, chance, seed)
        if variance > LARGEST_VARIANCE:
            raise ModelError(
                f"the log-likelihood estimate has a variance of {variance:.3g} under {label} bounds, and above 10 "
                "pseudo-marginal chains rarely move; use 'firefly' or 'exact-minibatch'."
            )
        options = PseudoMarginalOptions(None, whitening_of(mode), classes_of(chance))
        policy = ProposalPolicy(
            as_proposal(self.move), model.dim, options, lambda theta: State(theta, np.zeros_like(theta), 0.0)
        )
        why = f"pseudo-marginal Firefly with {label} bounds, {chance.sum():.3g} rows per iteration, log variance {variance:.3g}"
        notes = {"bound": label, "log_variance": variance, "expected_rows": float(chance.sum())}
        return Setup(model, policy, bound, why, notes)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]]:
        """As for Firefly: gaps of all rows at a few draws."""
        return replay_gaps(self.bound, self.xi, model, fit, pairs, rng)


def _expected_variance(mode: Mode, bound: LowerBound, chance: np.ndarray, seed: int) -> float:
    draws = mode.laplace().draw(generator(seed, Stream.ESTIMATE_VARIANCE), _DRAWS)
    return float(np.mean([log_variance(gaps_at(mode.model.rows, bound, theta), chance) for theta in draws]))

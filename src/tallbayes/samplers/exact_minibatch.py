"""Exact minibatch Metropolis-Hastings: posterior draws that read a few rows an iteration, whatever n.

With residual energies U_i = -(l_i - q_i), dU_i = U_i(theta') - U_i(theta) and |dU_i| <= lambda_i(theta, theta') symmetric,
draw independent s_i ~ Poisson(phi_i(theta, theta')) for any phi_i >= 0 with phi_i(theta, theta') - phi_i(theta', theta) = dU_i.
Then accepting with probability

    min{1, e^(proxy, prior and proposal ratios) prod_i [phi_i(theta', theta) / phi_i(theta, theta')]^(s_i)}

satisfies detailed balance with respect to the posterior: the Poisson normalisers supply exp(-sum dU_i). Rates:

* mh-ss (Prado, Nemeth and Sherlock 2024): phi = lambda + min(0, dU).
* tuna (TunaMH: Zhang, Cooper and De Sa 2020): phi = chi lambda Lambda + (dU + lambda) / 2.
* smh (Cornish et al. 2019): phi = max(0, dU); any s_i > 0 rejects.

Two stages (the default) first accept on the proxy alone and read rows only if that passes. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import NAMES, certify
from tallbayes.bounds.tables import Zero, draw_row, rate_count, total_rate
from tallbayes.compile import declared, generic, inlinable, jit
from tallbayes.contract import Guarantee, Sampler, Setup, init, step
from tallbayes.engine import passes
from tallbayes.engine.rows import rounding
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import ProposalMove, propose
from tallbayes.proxies.sufficient_statistics import gaussian_moments
from tallbayes.proxies.taylor import proxy_value, taylor, unwhiten, whiten, whitening_of
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.target import (
    BOUND_EXCEEDED,
    EVALS,
    Certified,
    log_likelihood_gap,
    log_prior,
    residual_gaps,
    row_total,
    stop_run,
)


class State(NamedTuple):
    """Position, its whitened coordinates, and the log surrogate there: proxy sum plus log prior."""

    theta: np.ndarray
    white: np.ndarray
    surrogate: float


class MinibatchOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    rate: Any
    two_stage: bool


INFO = ("accepted", "acceptance_rate", "component", "stage_one", "rate", "rows", "full_read", "largest_ratio")


class MHSS(NamedTuple):
    """phi = lambda + min(0, dU)."""


class SMH(NamedTuple):
    """phi = max(0, dU)."""


class Tuna(NamedTuple):
    """phi = chi lambda Lambda + (dU + lambda) / 2."""

    chi: float


@generic
@declared
def dominating(rate: Any, total: float) -> float:
    """Rate of the Poisson number of candidate rows, given Lambda."""
    raise TypeError


@generic
@declared
def thin(rate: Any, share: float, total: float) -> tuple[float, float]:
    """Given dU/lambda and Lambda: the probability that a candidate is kept, and the log ratio a kept one contributes."""
    raise TypeError


@dominating.register(MHSS)
def _mhss_dominating(rate, total):
    return total


@thin.register(MHSS)
def _mhss_thin(rate, share, total):
    forward, backward = 1.0 + min(0.0, share), 1.0 - max(0.0, share)
    ratio = -np.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))
    return forward, ratio


@dominating.register(SMH)
def _smh_dominating(rate, total):
    return total


@thin.register(SMH)
def _smh_thin(rate, share, total):
    return max(0.0, share), -np.inf


@dominating.register(Tuna)
def _tuna_dominating(rate, total):
    return total * (1.0 + rate.chi * total)


@thin.register(Tuna)
def _tuna_thin(rate, share, total):
    extra = rate.chi * total
    forward, backward = extra + 0.5 * (1.0 + share), extra + 0.5 * (1.0 - share)
    ratio = -np.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))
    return forward / (extra + 1.0), ratio


@init.register(MinibatchOptions)
def _init(rng, target, options, theta):
    white = whiten(target.proxy.whitening, theta)
    return State(theta.copy(), white, proxy_value(target.proxy.proxy, white) + log_prior(target, theta))


@inlinable
def _residual_ratio(rng, target, options, theta, other, white, other_white, info):
    """Log of the product over kept rows, or the residual ratio on all rows where the rate exceeds their number."""
    bound = target.proxy.bound
    rates = np.zeros(rate_count(bound))
    total = total_rate(bound, white, other_white, rates)
    expected = dominating(options.rate, total)
    info[4] = expected
    n = row_total(target)
    if not expected < n:
        info[6] = 1.0
        info[5] = n
        proxies = proxy_value(target.proxy.proxy, other_white) - proxy_value(target.proxy.proxy, white)
        return log_likelihood_gap(target, theta, other) - proxies
    if expected <= 0.0:
        return 0.0
    count = rng.poisson(expected)
    info[5] = count
    index, limit, gap = np.empty(count, np.int64), np.empty(count), np.empty(count)
    for k in range(count):
        index[k], limit[k] = draw_row(rng, bound, rates, total)
    residual_gaps(target, index, theta, other, gap)
    ratio = 0.0
    for k in range(count):
        share = -gap[k] / limit[k]
        if not abs(gap[k]) <= limit[k] * (1.0 + 1e-9) + rounding(target.rows):  # not finite is exceeded too
            stop_run(target, BOUND_EXCEEDED, index[k])
        info[7] = max(info[7], abs(share))
        keep, contribution = thin(options.rate, min(1.0, max(-1.0, share)), total)
        if rng.random() < keep:
            ratio += contribution
    return ratio


@step.register(MinibatchOptions)
def _step(rng, target, options, state, info):
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    surrogate = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    ratio += surrogate - state.surrogate
    info[:] = 0.0
    info[2] = component
    level = math.log(1.0 - rng.random())
    if options.two_stage:
        if not level < ratio:
            return state
        ratio, level = 0.0, math.log(1.0 - rng.random())
        info[3] = 1.0
    ratio += _residual_ratio(rng, target, options, state.theta, theta, state.white, white, info)
    if level < ratio:
        info[0], info[1] = 1.0, 1.0
        return State(theta, white, surrogate)
    return state


class MinibatchPolicy(ProposalPolicy):
    """Warm-up of the proposal; reference, bound and tables are fixed before it."""

    def __init__(self, move: ProposalMove, rate: Any, two_stage: bool, dim: int) -> None:
        super().__init__(move, dim)
        self.rate, self.two_stage = rate, two_stage

    def compiled(self, kernel: Any) -> MinibatchOptions:
        """Kernel, rate and stages."""
        return MinibatchOptions(kernel, self.rate, self.two_stage)

    def blank(self, theta: np.ndarray) -> State:
        """A state without surrogate."""
        return State(theta.copy(), np.zeros(theta.size), 0.0)


@dataclass(frozen=True)
class ExactMinibatch(Sampler):
    """Exact minibatch Metropolis-Hastings.

    `rate` is "mh-ss", "tuna" (with `chi`) or "smh"; `bound` a name of `tallbayes.bounds.catalogue` or "auto"; `move` any
    with a known proposal ratio. Gaussian models use sufficient statistics and read no rows at all.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.ExactMinibatch(), draws=500, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 10)
    True
    """

    rate: str = "mh-ss"
    move: Move = field(default_factory=independence)
    bound: str = "auto"
    two_stage: bool = True
    chi: float | None = None
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every transition leaves the posterior invariant; rows are drawn at random under certified bounds",
        assumed=("the proven bound of the third derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    cost: ClassVar[str] = "a few rows, whatever n"

    def __post_init__(self) -> None:
        if self.rate not in RATES:
            raise unknown("rate", self.rate, RATES)
        if self.bound != "auto" and self.bound not in NAMES:
            raise unknown("bound", self.bound, [*NAMES, "auto"])
        if self.chi is not None and self.rate != "tuna":
            raise OptionError(f"chi belongs to rate='tuna'; rate={self.rate!r} has no such number.")
        if self.chi is not None and not self.chi >= 0.0:
            raise OptionError(f"chi must be at least 0; got {self.chi}.")
        as_proposal(self.move)

    @property
    def name(self) -> str:
        """Its string name."""
        return "exact-minibatch"

    @property
    def info(self) -> tuple[str, ...]:
        """What a step reports."""
        return INFO

    def diagnose(self, setup: Setup, theta: np.ndarray, stats: dict[str, np.ndarray]) -> list[str]:
        """Tails that proposals and first stage rarely reach."""
        from tallbayes.diagnostics.tails import heavy_tails

        remedy = "Use 'nuts', or ExactMinibatch(move=random_walk(), two_stage=False) and many draws."
        return heavy_tails(setup.proxy.whitening, theta, lambda white: _excess(setup, white), remedy)

    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Whiten, certify all rows (one pass), build the tables."""
        move, rate = as_proposal(self.move), RATES[self.rate](0.1 if self.chi is None else self.chi)
        policy = MinibatchPolicy(move, rate, self.two_stage, model.dim)
        whitening = whitening_of(mode)
        if model.unit_scale_member is not None:
            certified = Certified(whitening, gaussian_moments(mode), Zero())
            why = "a Gaussian likelihood is known from its sufficient statistics: no rows are read"
        else:
            bound, name = certify(mode, self.bound, seed=seed)
            certified = Certified(whitening, taylor(mode), bound)
            why = f"exact minibatch ({self.rate}) with bound {name}"
        return Setup(model, policy, certified, model.data.n, why)


RATES: dict[str, Any] = {"mh-ss": lambda chi: MHSS(), "smh": lambda chi: SMH(), "tuna": Tuna}


@jit
def replay(rng, target, options, white, other_white, out):
    """Fill `out` with independent log ratios of one pair of whitened positions: what a decision would have used."""
    d = white.size
    theta, other, info = np.empty(d), np.empty(d), np.zeros(8)
    unwhiten(target.proxy.whitening, white, theta)
    unwhiten(target.proxy.whitening, other_white, other)
    for k in range(out.size):
        out[k] = _residual_ratio(rng, target, options, theta, other, white, other_white, info)


def _excess(setup: Setup, white: np.ndarray, rows: int = 1000) -> tuple[float, float]:
    """Log of the posterior over the Laplace fit, both 1 at the reference, and its standard error: from rows drawn under the bound.

    The residuals of all rows add up to Lambda E[residual / lambda] for a row drawn with probability lambda / Lambda. What is read
    counts as preparation.
    """
    target, certified = setup.target(), setup.proxy
    reference, theta = certified.whitening.reference, np.empty(white.size)
    unwhiten(certified.whitening, white, theta)
    proxies = proxy_value(certified.proxy, white) - proxy_value(certified.proxy, np.zeros(white.size))
    known = proxies + log_prior(target, theta) - log_prior(target, reference) + 0.5 * float(white @ white)
    rates = np.zeros(rate_count(certified.bound))
    total = total_rate(certified.bound, np.zeros(white.size), white, rates)
    residual, error = 0.0, 0.0
    if not total < row_total(target) or row_total(target) <= rows:
        rows_at = [passes.total_value(setup.model.rows, at) for at in (theta, reference)]  # compiled, unlike this function
        residual = rows_at[0] - rows_at[1] - proxies
        target.counters[EVALS] += 2 * row_total(target)
    elif total > 0.0:
        rng = np.random.default_rng(0)
        drawn = [draw_row(rng, certified.bound, rates, total) for _ in range(rows)]
        gaps = np.empty(rows)
        residual_gaps(target, np.array([i for i, _ in drawn], np.int64), reference, theta, gaps)
        ratios = gaps / np.array([limit for _, limit in drawn])
        residual, error = total * float(ratios.mean()), total * float(ratios.std()) / math.sqrt(rows)
    setup.evaluations += int(target.counters[EVALS])
    return known + residual, error

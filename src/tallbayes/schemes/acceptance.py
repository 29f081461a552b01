"""Subsampled acceptance: Metropolis-Hastings whose accept/reject decision is made by a rule that reads some of the rows.

At theta with proposal theta', the full-data decision with u ~ U(0, 1) is

    log u < known + sum_i Delta_i(theta, theta'),    known = change of (proxy sum + log prior) + log q(theta|theta') / q(theta'|theta),

Delta_i the change of l_i - q_i; without a proxy (order 0) that of l_i. The iteration is here; a sampler of this kind gives
the rule, a NamedTuple that registers `decide`. Rows are drawn without replacement by a partial Fisher-Yates shuffle with fresh
randomness of one permutation per chain: uniform whatever order the last iteration left, 4 bytes per row and chain.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, STRICT, declared, generic, inlinable, jit
from tallbayes.contract import Diagnosis, Outcome, Sampler, Setup, init, positions, step
from tallbayes.engine.random_rows import draw_distinct_rows
from tallbayes.errors import OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import mode_at
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, random_walk
from tallbayes.moves.proposals import ProposalMove, propose
from tallbayes.proxies.taylor import proxy_value, proxy_value_at, taylor, unwhiten, unwhitened, whiten, whitened, whitening_of
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.target import PAPER, Cache, Certified, NoProxy, Target, log_prior, row_total, stopped, subsample_gaps

MOST_ROWS = 2**31 - 1  # the permutation is int32
BARKER = 0.158 / 0.234  # optimal acceptance rates of Barker's rule and of Metropolis-Hastings (Agrawal et al. 2023)


class AcceptanceInfo(NamedTuple):
    """What every iteration reports, by position: accept indicator, component of the proposal, rows read, whether all were.

    The `Info` of a leaf begins with these columns and goes on with those of its rule.
    """

    acceptance_rate: int
    component: int
    rows: int
    full_read: int


SHARED = positions(AcceptanceInfo)


class State(NamedTuple):
    """Position, whitened position, log surrogate (proxy sum plus log prior), permutation of rows, and what is cached."""

    theta: np.ndarray
    white: np.ndarray
    surrogate: float
    order: np.ndarray
    seen: Cache


class Pair(NamedTuple):
    """What a rule decides on: from theta to `other`; accept if `level` < `known` + sum of residual gaps, were all rows read."""

    theta: np.ndarray
    other: np.ndarray
    white: np.ndarray
    other_white: np.ndarray
    known: float
    level: float  # log u
    order: np.ndarray
    seen: Cache


class AcceptanceOptions(NamedTuple):
    """Compiled options: proposal kernel, rule, and whether rows are drawn without replacement."""

    kernel: Any
    rule: Any
    shuffled: bool


@generic(argument=2)
@declared
def decide(rng: np.random.Generator, target: Any, rule: Any, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    """Whether to accept, and the number of distinct rows read, n if all were; the rule's own numbers go to the columns of its leaf.

    A rule that draws with replacement writes the number of draws to info[SHARED.rows] and returns 0, since what it read is not all rows.
    """
    raise TypeError


@inlinable
def read_more(
    rng: np.random.Generator, target: Target, pair: Pair, start: int, stop: int, shift: float, sums: np.ndarray
) -> None:
    """Read rows start to stop of a draw without replacement; adds count, sum, sum of squares of gaps less `shift` to `sums`.

    With room for a fourth number, sums[3] gets the sum of absolute cubes.
    """
    gaps = np.empty(stop - start)
    draw_distinct_rows(rng, pair.order, start, stop)
    subsample_gaps(target, pair.order[start:stop].astype(np.int64), pair.theta, pair.other, pair.seen, gaps)
    sums[0] += gaps.size
    for k in range(gaps.size):
        gap = gaps[k] - shift
        sums[1] += gap
        sums[2] += gap * gap
    if sums.size > 3:
        for k in range(gaps.size):
            sums[3] += abs(gaps[k] - shift) ** 3


@inlinable
def noise_variance(sums: np.ndarray, n: int) -> float:
    """Estimated variance of n times the mean of rows drawn without replacement, from `sums`; 0 when all were read."""
    t = sums[0]
    mean = sums[1] / t
    return n * (n - t) / t * max(0.0, sums[2] / t - mean * mean) * t / max(t - 1.0, 1.0)


@inlinable(options={**STRICT, **INLINED})
def read_until(
    rng: np.random.Generator, target: Target, pair: Pair, sizes: np.ndarray, limit: float, sums: np.ndarray
) -> tuple[int, float]:
    """Look by look, until the estimated noise of the log ratio has at most the variance `limit`; rows read, and that variance."""
    start, variance = 0, 0.0
    for look in range(sizes.size):
        read_more(rng, target, pair, start, sizes[look], 0.0, sums)
        start = sizes[look]
        variance = noise_variance(sums, row_total(target))
        if variance <= limit or stopped(target):
            break
    return start, variance


def looks(batch: int, growth: float, n: int) -> np.ndarray:
    """Rows read at each look: `batch` at first, then `growth` times as many, n at last.

    >>> looks(100, 1.5, 1000)
    array([ 100,  150,  225,  338,  507,  761, 1000])
    """
    sizes = [min(batch, n)]
    while sizes[-1] < n:
        sizes.append(min(n, math.ceil(growth * sizes[-1])))
    return np.array(sizes, np.int64)


def check_looks(batch: int, growth: float, least: int) -> None:
    """Refuse a first look that is too small for the approximation behind a rule, and a subsample that does not grow."""
    if not isinstance(batch, int) or batch < least:
        raise OptionError(
            f"batch is the number of rows of the first look and must be a whole number of at least {least} for the normal "
            f"approximation to hold; got {batch!r}."
        )
    if not (1.0 < growth < np.inf):
        raise OptionError(f"growth is the factor between looks and must be above 1; got {growth}.")


@init.register(AcceptanceOptions)
def _init(rng: np.random.Generator, target: Target, options: AcceptanceOptions, theta: np.ndarray) -> Any:
    white = whiten(target.proxy.whitening, theta)
    surrogate = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    order = np.arange(row_total(target) if options.shuffled else 0).astype(np.int32)
    return State(theta.copy(), white, surrogate, order, Cache(False, False))


@inlinable
def iterate(rng: np.random.Generator, target: Target, kernel: Any, rule: Any, state: State, info: np.ndarray) -> State:
    """Propose, let the rule decide, account for what is cached then."""
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    surrogate = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    known = ratio + surrogate - state.surrogate
    level = math.log(1.0 - rng.random())
    info[:] = 0.0
    info[SHARED.component] = component
    accepted, rows, charged = False, 0, target.counters[PAPER]
    if abs(known) < np.inf:
        pair = Pair(state.theta, theta, state.white, white, known, level, state.order, state.seen)
        accepted, rows = decide(rng, target, rule, pair, info)
    n = row_total(target)
    charged = target.counters[PAPER] - charged
    seen = Cache(rows >= n or (state.seen.ours and not accepted), rows >= n and charged == 2 * n)
    info[SHARED.rows] = max(info[SHARED.rows], rows)
    info[SHARED.full_read] = 1.0 if rows >= n else 0.0
    if accepted:
        info[SHARED.acceptance_rate] = 1.0
        return State(theta, white, surrogate, state.order, seen)
    return State(state.theta, state.white, state.surrogate, state.order, seen)


@step.register(AcceptanceOptions)
def _step(rng: np.random.Generator, target: Target, options: AcceptanceOptions, state: Any, info: np.ndarray) -> Any:
    return iterate(rng, target, options.kernel, options.rule, state, info)


class AcceptancePolicy(ProposalPolicy):
    """Warm-up of the proposal on the accept indicator; rule, reference and whitening are fixed before it."""

    def __init__(self, move: Move, rule: Any, model: Model, shuffled: bool = True, barker: bool = False) -> None:
        options = AcceptanceOptions(None, rule, shuffled)
        super().__init__(as_tuned_proposal(move, model.dim, barker), model.dim, options, self._blank)
        self.rows = model.data.n if shuffled else 0

    def _blank(self, theta: np.ndarray) -> State:
        return State(theta, np.zeros(theta.size), 0.0, np.arange(self.rows, dtype=np.int32), Cache(False, False))


def as_tuned_proposal(move: Move, dim: int, barker: bool = False) -> ProposalMove:
    """The proposal form; a random walk without a stated acceptance aims at what it would aim at on the full data.

    Barker's rule accepts at most half of all small steps: its best rate is lower by the factor BARKER.
    """
    proposal = as_proposal(move)
    goal = move.target_acceptance(dim)
    if barker and getattr(move, "acceptance", None) is None:
        goal *= BARKER
    return proposal if isinstance(move, ProposalMove) else ProposalMove(proposal.rho, proposal.share, goal)


@dataclass(frozen=True, kw_only=True)
class SubsampledAcceptance(Sampler):
    """What samplers with a subsampled decision share: a `move` with a known proposal ratio, and the `order` of the Taylor proxy.

    A leaf gives `rule`, and an `Info` that begins with the fields of `AcceptanceInfo` if its rule reports numbers of its own.
    """

    move: Move = field(default_factory=random_walk)
    order: int = 2
    Info: ClassVar[type] = AcceptanceInfo
    coupled: ClassVar[bool] = True  # whether a decision with the same level on all rows is what the rule approximates
    barker: ClassVar[bool] = False  # whether it stands for Barker's rule, not for that of Metropolis
    shuffled: ClassVar[bool] = True  # whether the rule draws rows without replacement

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        as_proposal(self.move)
        if self.order not in (0, 1, 2):
            raise OptionError(f"order of the Taylor proxy must be 0 (none), 1 or 2; got {self.order!r}.")

    @abstractmethod
    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """The compiled rule, why it is as it is, and notes to keep with the fit."""

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Proxy at the mode, rule, policy; reads no row unless the rule does."""
        check_rows(model)
        rule, why, notes = self.rule(model, mode, seed)
        policy = AcceptancePolicy(self.move, rule, model, self.shuffled, self.barker)
        return Setup(model, policy, proxy_at(mode, self.order), why, notes)

    def exact_probability(self, ratio: np.ndarray) -> np.ndarray:
        """Acceptance probability of the full-data kernel that the rule stands for, given log ratios."""
        return 1.0 / (1.0 + np.exp(-np.clip(ratio, -700.0, 700.0))) if self.barker else np.exp(np.minimum(0.0, ratio))

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Whether plain Metropolis-Hastings would have been cheaper."""
        return Diagnosis(warnings=tuple(costs_more(outcome)))

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Decisions replayed on the full data."""
        return replayed_decisions(self, model, fit, pairs, repeats, rng)


def proxy_at(mode: Mode, order: int) -> Certified:
    """The Taylor proxy at the mode to an order, without a bound."""
    return Certified(whitening_of(mode), taylor(mode, order), NoProxy())


def check_rows(model: Model) -> None:
    """Refuse more rows than 32 bits can number."""
    if model.data.n > MOST_ROWS:
        raise OptionError(
            f"subsampling supports at most {MOST_ROWS:,} rows, and the data have {model.data.n:,}; use 'exact-minibatch'."
        )


def costs_more(outcome: Outcome) -> list[str]:
    """The sentence to warn with when iterations read more than plain Metropolis-Hastings, which needs n evaluations each."""
    n = outcome.setup.model.data.n
    share = float(np.mean(outcome.stats["evals"])) / (n * outcome.thin)
    if share <= 1.0:
        return []
    return [
        f"the run took {share:.2f} n evaluations per iteration on average, more than the n of plain Metropolis-Hastings (n = "
        f"{n:,}). Use sampler='mh', or a proxy of higher order."
    ]


@jit
def replay(
    rng: np.random.Generator, target: Target, rule: Any, pair: Pair, levels: np.ndarray, accepted: np.ndarray, info: np.ndarray
) -> None:
    """Independent decisions of a rule on one pair, a level each; nothing is cached."""
    for k in range(levels.size):
        seen = Cache(False, False)
        one = Pair(pair.theta, pair.other, pair.white, pair.other_white, pair.known, levels[k], pair.order, seen)
        info[:] = 0.0
        accepted[k] = decide(rng, target, rule, one, info)[0]


def replayed_decisions(
    sampler: SubsampledAcceptance, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[str]]:
    """Decisions at random proposals against those on all rows: acceptance rates and, where the level is shared, flips."""
    from scipy.stats import beta

    mode = mode_at(model, fit.laplace_mean)
    setup = sampler.setup(model, mode, fit.meta["seed"], False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    order = setup.policy.blank(fit.theta[0, 0]).order
    whitening, info, nothing = target.proxy.whitening, np.zeros(len(sampler.info)), Cache(False, False)
    flips, excess = 0, []
    for _ in range(pairs):
        theta = np.ascontiguousarray(fit.theta[rng.integers(fit.theta.shape[0]), rng.integers(fit.theta.shape[1])])
        white, other_white = whitened(whitening, theta), np.empty(model.dim)
        ratio, _ = propose(rng, options.kernel, white, other_white)
        other = unwhitened(whitening, other_white)
        proxies = proxy_value_at(target.proxy.proxy, other_white) - proxy_value_at(target.proxy.proxy, white)
        known = ratio + proxies + model.log_prior(other) - model.log_prior(theta)
        exact = ratio + model.log_posterior(other) - model.log_posterior(theta)
        levels, accepted = np.log1p(-rng.random(repeats)), np.empty(repeats, np.bool_)
        pair = Pair(theta, other, white, other_white, known, 0.0, order, nothing)
        replay(rng, target, options.rule, pair, levels, accepted, info)
        flips += int((accepted != (levels < exact)).sum())
        excess.append(float(accepted.mean() - sampler.exact_probability(np.array(exact))))
    trials = pairs * repeats
    facts: dict[str, Any] = {"decisions replayed": trials, "pairs read on all rows": pairs}
    if sampler.coupled:
        low = 0.0 if flips == 0 else float(beta.ppf(0.025, flips, trials - flips + 1))
        high = 1.0 if flips == trials else float(beta.ppf(0.975, flips + 1, trials - flips))
        facts["flip rate"] = flips / trials
        facts["flip rate, 95 % interval"] = f"{low:.4f} to {high:.4f}"
    facts["acceptance rate less that on all rows"] = float(np.mean(excess))
    facts["mean |difference| of acceptance rates of a pair"] = float(np.mean(np.abs(excess)))
    return facts, []

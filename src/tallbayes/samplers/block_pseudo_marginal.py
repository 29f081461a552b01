"""Block pseudo-marginal Metropolis-Hastings: (theta, u) move together, a block of the rows u at a time.

The law on parameters and row numbers u that every transition leaves invariant is proportional to

    L-hat(theta; u) p(theta) p(u),   log L-hat = l-hat - s^2/2,

the penalty estimator of a difference estimator with Taylor control variates. theta' comes from a proposal and u' from u with one
of G blocks redrawn; both are accepted with probability min{1, L-hat(theta'; u') p(theta') q / (L-hat(theta; u) p(theta))}.
Estimates at successive states then have a correlation of 1 - 1/G, and their variance may be larger than without blocks. The
estimate at the current state is kept, never made anew. Tran et al. (2016); Quiroz, Kohn, Villani and Tran (2019). ASYMPTOTIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, step
from tallbayes.diagnostics import likelihood_estimates
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import ProposalMove, propose
from tallbayes.proxies.difference import PenaltyEstimator, combine, difference, fresh_rows, proxy_sum, refreshed_rows
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes import learned_rows
from tallbayes.schemes.estimates import AT, Info, at_wall, control_values, inside, pulled_in
from tallbayes.schemes.learned_rows import LearnedOptions, LearnedState
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.streams import Stream, generator
from tallbayes.target import NOT_FINITE, Target, log_prior, stop_run


class State(NamedTuple):
    """Position, its whitened coordinates, rows u, and the estimate there."""

    theta: np.ndarray
    white: np.ndarray
    indices: np.ndarray
    scale: np.ndarray
    log_likelihood: float
    variance: float
    log_target: float


class BlockOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    estimator: PenaltyEstimator


@init.register(BlockOptions)
def _init(rng: np.random.Generator, target: Target, options: BlockOptions, theta: np.ndarray) -> Any:
    theta = pulled_in(target, theta)
    indices, scale, _ = fresh_rows(rng, options.estimator, target.proxy.scheme)
    values = np.empty(indices.size)
    control_values(target, indices, theta, values)
    total, _, variance = combine(options.estimator, np.zeros(0, np.int64), values * scale, np.empty(indices.size))
    estimate = proxy_sum(target.proxy, theta) + total
    log_target = estimate + log_prior(target, theta)
    if not abs(log_target) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    white = whiten(target.proxy.whitening, theta)
    return State(theta, white, indices, scale, estimate, variance, log_target)


@step.register(BlockOptions)
def _step(rng: np.random.Generator, target: Target, options: BlockOptions, state: Any, info: np.ndarray) -> Any:
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    indices, scale, counts, _ = refreshed_rows(
        rng, options.estimator, target.proxy.scheme, state.indices, state.scale, np.zeros(0, np.int64)
    )
    level = math.log(1.0 - rng.random())
    info[:] = 0.0
    info[AT.component] = component
    if inside(target, theta):
        values = np.empty(indices.size)
        control_values(target, indices, theta, values)
        total, _, variance = combine(options.estimator, counts, values * scale, np.empty(indices.size))
        estimate = proxy_sum(target.proxy, theta) + total
        log_target = estimate + log_prior(target, theta)
        ratio += log_target - state.log_target
        info[AT.acceptance_rate] = math.exp(min(0.0, ratio)) if ratio == ratio else 0.0
        if level < ratio:
            info[AT.accepted], info[AT.u_accepted] = 1.0, 1.0
            state = State(theta, white, indices, scale, estimate, variance, log_target)
    info[AT.log_likelihood], info[AT.variance], info[AT.wall] = (
        state.log_likelihood,
        state.variance,
        at_wall(target, state.white),
    )
    return state


class BlockPolicy(ProposalPolicy):
    """Warm-up of the proposal; estimator and rows are fixed before it, by a pilot that judges the draws too."""

    def __init__(self, move: ProposalMove, dim: int, estimator: PenaltyEstimator, pilot: pilots.SubsamplePilot) -> None:
        super().__init__(move, dim, BlockOptions(None, estimator), _blank, "accepted")
        self.pilot = pilot


def _blank(theta: np.ndarray) -> State:
    return State(theta, np.zeros(theta.size), np.zeros(0, np.int64), np.zeros(0), 0.0, 0.0, 0.0)


def _blank_learned(theta: np.ndarray) -> LearnedState:
    return LearnedState(theta, np.zeros(theta.size), np.zeros((2, 0)), 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class BlockPseudoMarginal(Sampler):
    """Block pseudo-marginal Metropolis-Hastings.

    `subsample` rows (None: chosen so that Var log L-hat is about `variance`) in `blocks` blocks; `order` of the control variates (2);
    `rows` "uniform", "weighted" (drawn by their whitened norms) or "learned" (by a log-likelihood learned in data space, without
    control variates, as many as the variance asks for); `move` any with a known proposal ratio.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.BlockPseudoMarginal(), draws=200, warmup=100, chains=2, seed=1, progress=False)
    >>> fit.evals.max(), fit.guarantee.kind
    (np.int64(100), 'ASYMPTOTIC')
    """

    subsample: int | None = None
    blocks: int = 100
    order: int | None = None
    rows: str = "uniform"
    variance: float = 1.0
    move: Move = field(default_factory=independence)
    CONTROLLED: ClassVar[Guarantee] = Guarantee(
        "ASYMPTOTIC",
        "the distribution of the draws is within O(1/(n m^2)) of the posterior in total variation, for m rows",
        assumed=("the reference is near the mode of all rows", "the estimate of the log-likelihood is nearly normal"),
        checked=("variance of the estimate", "bias of the estimate at pilot points and draws", "distance from the reference"),
    )
    UNCONTROLLED: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "the estimate of the log-likelihood is taken to be normal; its variance is controlled, its bias is not",
        checked=("variance of the estimate",),
    )
    name: ClassVar[str] = "block-pseudo-marginal"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m rows, m set by a pilot run"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.order not in (None, 0, 1, 2):
            raise OptionError(f"order of the control variates must be 0, 1 or 2; got {self.order!r}.")
        if self.order is not None and self.rows == "learned":
            raise OptionError(
                "rows='learned' does not use control variates, so order= has no effect; omit it, or use rows='weighted'."
            )
        if self.rows not in ("uniform", "weighted", "learned"):
            raise unknown("rows", self.rows, ("uniform", "weighted", "learned"))
        if self.subsample is not None and self.subsample < 1:
            raise OptionError(
                f"subsample must be a whole number of at least 1, or None to choose it automatically; got {self.subsample!r}."
            )
        if self.blocks < 1:
            raise OptionError(f"blocks must be a whole number of at least 1; got {self.blocks!r}.")
        if not (self.variance > 0.0 and math.isfinite(self.variance)):
            raise OptionError(f"variance must be positive and finite; got {self.variance!r}.")
        as_proposal(self.move)

    @property
    def info(self) -> tuple[str, ...]:
        """The number of rows is reported where it varies."""
        return Info._fields if self.rows == "learned" else Info._fields[: AT.rows]

    @property
    def guarantee(self) -> Guarantee:
        """That of the rows."""
        return self.UNCONTROLLED if self.rows == "learned" else self.CONTROLLED

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Rows to draw, and a pilot that chooses how many."""
        rng = generator(seed, Stream.LIKELIHOOD_ESTIMATES)
        pilots.require_proxies(model)
        if self.rows == "learned":
            return self._learned(model, mode, rng)
        order = 2 if self.order is None else self.order
        pilot, scheme, samples, radius = pilots.prepare(mode, order, self.rows, rng)
        m, blocks, notes = pilots.choose_size(
            samples,
            [pilot.at(t) for t in pilot.guard_points(rng)],
            model.dim,
            model.data.n,
            self.variance,
            self.subsample,
            self.blocks,
        )
        notes.update(order=order, rows=self.rows, radius=radius, reference=mode.reference.tolist())
        policy = BlockPolicy(as_proposal(self.move), model.dim, PenaltyEstimator(m, blocks), pilot)
        why = (
            f"block pseudo-marginal, {m} of {model.data.n:,} rows in {blocks} blocks, predicted Var log L-hat "
            f"{notes['variance_predicted']:.2g}"
        )
        proxy = difference(mode, order, scheme, radius)
        return Setup(model, policy, proxy, why, notes)

    def _learned(self, model: Model, mode: Mode, rng: np.random.Generator) -> Setup:
        radius = math.sqrt(model.dim) + 5.0
        groups = learned_rows.group(mode, radius)
        m, gamma = learned_rows.needed(mode, groups, self.variance, rng)
        least = 2 * (model.dim + 1)
        size = max(least, m) if self.subsample is None else int(self.subsample)
        if size < least:
            raise OptionError(
                f"subsample={size} is below 2 (d + 1) = {least}: the variance cannot be estimated from so few rows. Use at least {least}."
            )
        blocks = min(self.blocks, size)
        notes: dict[str, Any] = {
            "gamma": gamma,
            "subsample": size,
            "blocks": blocks,
            "at_least": least,
            "groups": groups.start.size - 1,
        }
        notes.update(rows=self.rows, radius=radius, reference=mode.reference.tolist())
        options = LearnedOptions(None, size, max(least, size // 8), blocks, self.variance)
        policy = ProposalPolicy(as_proposal(self.move), model.dim, options, _blank_learned, "accepted")
        why = f"block pseudo-marginal, at most {size:,} of {model.data.n:,} rows drawn by a likelihood learned in {notes['groups']} groups"
        return Setup(model, policy, groups, why, notes)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Variance and bias of the estimate at draws, and the wall."""
        return likelihood_estimates.check(outcome, "'exact-minibatch'")

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]]:
        """Estimates against the full data at random draws."""
        return likelihood_estimates.audit(model, fit, pairs, rng)

"""Delayed acceptance: reject early on part of the information, read the rest only for proposals that survive. EXACT.

Product (Banterle, Grazian, Lee and Robert 2019): with the rows in B batches, accept with probability

    prod_b min(1, rho_b),    rho_b = [p(theta') q(theta|theta') / (p(theta) q(theta'|theta))]^(1/B) L_b(theta') / L_b(theta),

stopping at the first rejection. Each rho_b is inverted when theta and theta' are exchanged and their product is the ratio of
Metropolis-Hastings, which gives detailed balance with respect to the posterior. (Bardenet, Doucet and Holmes 2017, 5.2, print
the whole ratio of q in every factor: wrong for asymmetric q.)

Surrogate (Christen and Fox 2005; Quiroz, Tran, Villani and Kohn 2018): accept with probability

    min(1, e^(a)) min(1, e^(r - a)),    r the log ratio on all rows, a that of a surrogate: the Taylor proxy, plus, with
    `subsample`, n times the mean of its residual gaps over rows redrawn in every iteration, independently of theta.

Accepted proposals have been read on all rows: at least the acceptance rate times n evaluations per iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, positions, step
from tallbayes.engine.random_rows import draw_distinct_rows
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, random_walk
from tallbayes.moves.proposals import propose
from tallbayes.proxies.taylor import proxy_value, unwhiten, whiten
from tallbayes.schemes.acceptance import as_tuned_proposal, check_rows, costs_more, proxy_at
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.streams import Stream, generator
from tallbayes.target import Cache, Target, log_posterior, log_prior, row_total, stopped, subsample_gaps, subsample_values

FORMS = ("product", "surrogate")
STAGE_TWO = 0.7  # acceptance of the second stage below which the surrogate is too poor


class Info(NamedTuple):
    """What a step reports, by position."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    stages: int
    lp: int


AT = positions(Info)


class State(NamedTuple):
    """Position, whitened position, log prior or log surrogate, log-likelihood of each batch or log posterior, permutation."""

    theta: np.ndarray
    white: np.ndarray
    cheap: float
    values: np.ndarray
    order: np.ndarray


class ProductOptions(NamedTuple):
    """Compiled options: rows in a frozen random order, where batches begin and end, and the power of prior and proposal ratios."""

    kernel: Any
    order: np.ndarray
    bounds: np.ndarray
    power: float


class SurrogateOptions(NamedTuple):
    """Compiled options: rows of the difference estimator, 0 for the proxy alone."""

    kernel: Any
    subsample: int


@inlinable
def _batch_value(target: Target, options: ProductOptions, b: int, theta: np.ndarray) -> float:
    index = options.order[options.bounds[b] : options.bounds[b + 1]].astype(np.int64)
    values = np.empty(index.size)
    subsample_values(target, index, theta, values)
    return values.sum()


@init.register(ProductOptions)
def _product_init(rng: np.random.Generator, target: Target, options: ProductOptions, theta: np.ndarray) -> Any:
    values = np.empty(options.bounds.size - 1)
    for b in range(values.size):
        values[b] = _batch_value(target, options, b, theta)
    white = whiten(target.proxy.whitening, theta)
    return State(theta.copy(), white, log_prior(target, theta), values, np.empty(0, np.int32))


@step.register(ProductOptions)
def _product_step(rng: np.random.Generator, target: Target, options: ProductOptions, state: Any, info: np.ndarray) -> Any:
    d = state.theta.size
    white, theta, values = np.empty(d), np.empty(d), np.empty(state.values.size)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    prior = log_prior(target, theta)
    share = options.power * (ratio + prior - state.cheap)
    level, total = math.log(1.0 - rng.random()), 0.0  # one uniform number against the running product is one for each factor
    info[:] = 0.0
    info[AT.component] = component
    for b in range(values.size):
        values[b] = _batch_value(target, options, b, theta)
        total += min(0.0, share + values[b] - state.values[b])
        info[AT.rows] = options.bounds[b + 1]
        info[AT.stages] = b + 1
        if not level < total or stopped(target):
            info[AT.lp] = state.cheap + state.values.sum()
            return state
    info[AT.acceptance_rate], info[AT.full_read], info[AT.lp] = 1.0, 1.0, prior + values.sum()
    return State(theta, white, prior, values, state.order)


@init.register(SurrogateOptions)
def _surrogate_init(rng: np.random.Generator, target: Target, options: SurrogateOptions, theta: np.ndarray) -> Any:
    white = whiten(target.proxy.whitening, theta)
    order = np.arange(row_total(target) if options.subsample else 0).astype(np.int32)
    values = np.array([log_posterior(target, theta)])
    return State(theta.copy(), white, proxy_value(target.proxy.proxy, white) + log_prior(target, theta), values, order)


@step.register(SurrogateOptions)
def _surrogate_step(rng: np.random.Generator, target: Target, options: SurrogateOptions, state: Any, info: np.ndarray) -> Any:
    d, n, m = state.theta.size, row_total(target), options.subsample
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    cheap = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    change = cheap - state.cheap
    if m > 0:
        gaps = np.empty(m)
        draw_distinct_rows(rng, state.order, 0, m)
        subsample_gaps(target, state.order[:m].astype(np.int64), state.theta, theta, Cache(True, False), gaps)
        change += n * gaps.mean()
    info[:] = 0.0
    info[AT.component], info[AT.rows], info[AT.stages], info[AT.lp] = component, m, 1.0, state.values[0]
    if not math.log(1.0 - rng.random()) < ratio + change:
        return state
    info[AT.rows], info[AT.full_read], info[AT.stages] = n, 1.0, 2.0
    values = np.array([log_posterior(target, theta)])
    if math.log(1.0 - rng.random()) < values[0] - state.values[0] - change:
        info[AT.acceptance_rate], info[AT.lp] = 1.0, values[0]
        return State(theta, white, cheap, values, state.order)
    return state


@dataclass(frozen=True)
class DelayedAcceptance(Sampler):
    """Delayed acceptance: `form` "surrogate" or "product".

    The surrogate is a Taylor proxy of `order` (2 unless given), sharpened by `subsample` rows; the product form has `batches` of
    rows (10 unless given).

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(500), rng.standard_normal(500)])
    >>> y = (rng.random(500) < 1 / (1 + np.exp(-X @ [0.1, 0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.DelayedAcceptance(), draws=200, warmup=100, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 500)
    True
    """

    form: str = "surrogate"
    order: int | None = None
    subsample: int = 0
    batches: int | None = None
    move: Move = field(default_factory=random_walk)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly; accepted proposals are evaluated on all rows",
        checked=("warm-up frozen",),
    )
    cost: ClassVar[str] = "all n rows for proposals that pass the first stage"
    name: ClassVar[str] = "delayed-acceptance"
    Info: ClassVar[type] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        as_proposal(self.move)
        if self.form not in FORMS:
            raise unknown("form", self.form, FORMS)
        if self.order not in (None, 0, 1, 2):
            raise OptionError(f"order of the Taylor proxy must be 0 (none), 1 or 2; got {self.order!r}.")
        if self.form == "product" and self.order is not None:
            raise OptionError("order applies only to form='surrogate'; the product form has no proxy. Omit it.")
        if self.form == "surrogate" and self.batches is not None:
            raise OptionError("batches applies only to form='product'; the surrogate has order= and subsample=. Omit it.")
        if self.subsample < 0:
            raise OptionError(
                "subsample is the number of rows in the surrogate and must be a whole number, 0 for none; got "
                f"{self.subsample!r}."
            )
        if self.subsample and self.form == "product":
            raise OptionError("subsample applies only to form='surrogate'; the product form has batches=.")
        if self.form == "surrogate" and self.order == 0 and self.subsample == 0:
            raise OptionError("a surrogate needs a proxy or rows: order=1 or 2, or subsample of at least 1.")
        if self.batches is not None and self.batches < 1:
            raise OptionError(f"batches must be a whole number of at least 1; got {self.batches!r}.")

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """The proxy, or the batches: rows in a random order, so that a sorted file does no harm."""
        check_rows(model)
        n, order = model.data.n, 2 if self.order is None else self.order
        rule: ProductOptions | SurrogateOptions
        if self.form == "product":
            rng = generator(seed, Stream.ROW_ORDER)
            batches = min(10 if self.batches is None else self.batches, n)
            bounds = np.linspace(0, n, batches + 1).round().astype(np.int64)
            rule = ProductOptions(None, rng.permutation(n).astype(np.int32), bounds, 1.0 / batches)
            why = f"{batches} batches of rows, stopping at the first rejection, as requested"
        else:
            rule = SurrogateOptions(None, min(self.subsample, n))
            why = f"a surrogate of order {order} and {min(self.subsample, n):,} rows decides first, as requested"
        values, rows = np.zeros(rule.bounds.size - 1 if isinstance(rule, ProductOptions) else 1), n if self.subsample else 0

        def blank(theta: np.ndarray) -> State:
            return State(theta, np.zeros_like(theta), 0.0, values.copy(), np.arange(rows, dtype=np.int32))

        policy = ProposalPolicy(as_tuned_proposal(self.move, model.dim), model.dim, rule, blank)
        return Setup(model, policy, proxy_at(mode, order), why)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost, and a second stage that rejects too much."""
        warnings, stats = costs_more(outcome), outcome.stats
        passed = float(np.mean(stats["stages"] - 1.0))
        if self.form == "surrogate" and passed > 0.0:
            share = float(np.mean(stats["acceptance_rate"])) / passed
            if share < STAGE_TWO:
                warnings.append(
                    f"the second stage rejected {1 - share:.0%} of the proposals that the surrogate had accepted, after "
                    "reading all rows for each. Raise order or subsample."
                )
        return Diagnosis(warnings=tuple(warnings))

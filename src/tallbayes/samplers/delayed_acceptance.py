"""Delayed acceptance: reject early on part of the information, read the rest only for proposals that survive. EXACT.

Product (Banterle, Grazian, Lee and Robert 2019): with the rows in B batches, accept with probability

    prod_b min(1, rho_b),    rho_b = [p(theta') q(theta|theta') / (p(theta) q(theta'|theta))]^(1/B) L_b(theta') / L_b(theta),

stopping at the first rejection. Each rho_b is inverted when theta and theta' are exchanged and their product is the ratio of
Metropolis-Hastings, which gives detailed balance with respect to the posterior. (Bardenet, Doucet and Holmes 2017, 5.2, print
the whole ratio of q in every factor: wrong for asymmetric q.)

Surrogate (Christen and Fox 2005; Quiroz, Tran, Villani and Kohn 2018): accept with probability

    min(1, e^(a)) min(1, e^(r - a)),    r the log ratio on all rows, a that of a surrogate: the Taylor proxy, plus, with
    `subsample`, n times the mean of its residual gaps over rows drawn anew in every iteration, independently of theta.

Accepted proposals have been read on all rows: at least the acceptance rate times n evaluations an iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Sampler, Setup, init, step
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, random_walk
from tallbayes.moves.proposals import propose
from tallbayes.proxies.taylor import proxy_value, unwhiten, whiten
from tallbayes.schemes.acceptance import INFO, AcceptancePolicy, check_rows, costs_more, draw_rows, proxy_at
from tallbayes.streams import Stream, generator
from tallbayes.target import Seen, log_posterior, log_prior, row_total, subsample_gaps, subsample_values

FORMS = ("product", "surrogate")
STAGE_TWO = 0.7  # acceptance of the second stage below which the surrogate is too poor


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
def _batch_value(target, options, b, theta):
    index = options.order[options.bounds[b] : options.bounds[b + 1]]
    values = np.empty(index.size)
    subsample_values(target, index, theta, values)
    return values.sum()


@init.register(ProductOptions)
def _product_init(rng, target, options, theta):
    values = np.empty(options.bounds.size - 1)
    for b in range(values.size):
        values[b] = _batch_value(target, options, b, theta)
    white = whiten(target.proxy.whitening, theta)
    return State(theta.copy(), white, log_prior(target, theta), values, np.empty(0, np.int32))


@step.register(ProductOptions)
def _product_step(rng, target, options, state, info):
    d = state.theta.size
    white, theta, values = np.empty(d), np.empty(d), np.empty(state.values.size)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    prior = log_prior(target, theta)
    share = options.power * (ratio + prior - state.cheap)
    level, total = math.log(1.0 - rng.random()), 0.0  # one uniform number against the running product is one for each factor
    info[:] = 0.0
    info[1] = component
    for b in range(values.size):
        values[b] = _batch_value(target, options, b, theta)
        total += min(0.0, share + values[b] - state.values[b])
        info[2] = options.bounds[b + 1]
        info[4] = b + 1
        if not level < total:
            info[5] = state.cheap + state.values.sum()
            return state
    info[0], info[3], info[5] = 1.0, 1.0, prior + values.sum()
    return State(theta, white, prior, values, state.order)


@init.register(SurrogateOptions)
def _surrogate_init(rng, target, options, theta):
    white = whiten(target.proxy.whitening, theta)
    order = np.arange(row_total(target) if options.subsample else 0).astype(np.int32)
    values = np.array([log_posterior(target, theta)])
    return State(theta.copy(), white, proxy_value(target.proxy.proxy, white) + log_prior(target, theta), values, order)


@step.register(SurrogateOptions)
def _surrogate_step(rng, target, options, state, info):
    d, n, m = state.theta.size, row_total(target), options.subsample
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    cheap = proxy_value(target.proxy.proxy, white) + log_prior(target, theta)
    change = cheap - state.cheap
    if m > 0:
        gaps = np.empty(m)
        draw_rows(rng, state.order, 0, m)
        subsample_gaps(target, state.order[:m], state.theta, theta, Seen(True, False), gaps)
        change += n * gaps.mean()
    info[:] = 0.0
    info[1], info[2], info[4], info[5] = component, m, 1.0, state.values[0]
    if not math.log(1.0 - rng.random()) < ratio + change:
        return state
    info[2], info[3], info[4] = n, 1.0, 2.0
    values = np.array([log_posterior(target, theta)])
    if math.log(1.0 - rng.random()) < values[0] - state.values[0] - change:
        info[0], info[5] = 1.0, values[0]
        return State(theta, white, cheap, values, state.order)
    return state


class DelayedPolicy(AcceptancePolicy):
    """The shared warm-up with the options and the state of this sampler."""

    def compiled(self, kernel: Any) -> Any:
        """The present kernel."""
        return self.rule._replace(kernel=kernel)

    def blank(self, theta: np.ndarray) -> Any:
        """A state without values."""
        batches = self.rule.bounds.size - 1 if isinstance(self.rule, ProductOptions) else 1
        return State(theta.copy(), np.zeros(theta.size), 0.0, np.zeros(batches), np.arange(self.rows, dtype=np.int32))


@dataclass(frozen=True)
class DelayedAcceptance(Sampler):
    """Delayed acceptance: `form` "surrogate" (a Taylor proxy of `order`, sharpened by `subsample` rows) or "product" (`batches`).

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
    order: int = 2
    subsample: int = 0
    batches: int = 10
    move: Move = field(default_factory=random_walk)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every transition leaves the posterior invariant; accepted proposals were read on all rows",
        checked=("warm-up frozen",),
    )
    cost: ClassVar[str] = "n for proposals that pass the first stage"
    name: ClassVar[str] = "delayed-acceptance"
    info: ClassVar[tuple[str, ...]] = (*INFO, "stages", "lp")

    def __post_init__(self) -> None:
        as_proposal(self.move)
        if self.form not in FORMS:
            raise unknown("form", self.form, FORMS)
        if self.order not in (0, 1, 2):
            raise OptionError(f"order is that of the Taylor proxy, 0 (none), 1 or 2; got {self.order!r}.")
        if not isinstance(self.subsample, int) or self.subsample < 0:
            raise OptionError(f"subsample is the rows of the surrogate, a whole number, 0 for none; got {self.subsample!r}.")
        if self.subsample and self.form == "product":
            raise OptionError("subsample belongs to form='surrogate'; the product form has `batches`.")
        if self.form == "surrogate" and self.order == 0 and self.subsample == 0:
            raise OptionError("a surrogate needs a proxy or rows: order=1 or 2, or subsample of at least 1.")
        if not isinstance(self.batches, int) or self.batches < 1:
            raise OptionError(f"batches is a whole number of at least 1; got {self.batches!r}.")

    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """The proxy, or the batches: rows in a random order, so that a sorted file does no harm."""
        check_rows(model)
        n = model.data.n
        rule: ProductOptions | SurrogateOptions
        if self.form == "product":
            rng = generator(seed, Stream.ROW_ORDER)
            batches = min(self.batches, n)
            bounds = np.linspace(0, n, batches + 1).round().astype(np.int64)
            rule = ProductOptions(None, rng.permutation(n).astype(np.int32), bounds, 1.0 / batches)
            why = f"{batches} batches of rows, rejecting at the first that is against, as asked"
        else:
            rule = SurrogateOptions(None, min(self.subsample, n))
            why = f"a surrogate of order {self.order} and {min(self.subsample, n):,} rows decides first, as asked"
        policy = DelayedPolicy(self.move, rule, model, shuffled=self.subsample > 0)
        return Setup(model, policy, proxy_at(mode, self.order), 0, why)

    def diagnose(self, setup: Setup, theta: np.ndarray, stats: dict[str, np.ndarray]) -> list[str]:
        """Cost, and a second stage that rejects too much."""
        found = costs_more(stats, setup.model.data.n)
        passed = stats["stages"] == 2.0
        if self.form == "surrogate" and passed.any():
            share = float(stats["acceptance_rate"][passed].mean())
            if share < STAGE_TWO:
                found.append(
                    f"the second stage rejected {1 - share:.0%} of the proposals that the surrogate had accepted, each read on all "
                    "rows for nothing: raise order or subsample."
                )
        return found

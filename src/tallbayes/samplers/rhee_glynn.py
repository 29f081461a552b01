"""Pseudo-marginal Metropolis-Hastings with Rhee and Glynn's unbiased estimate of the likelihood: exact, and a lesson.

theta' with a fresh estimate is accepted with probability min{1, Y(theta') p(theta') q / (Y(theta) p(theta))},

    Y = e^(sum q + a) [1 + sum_{k <= N} (1 + eps)^k prod_{j <= k} D_j / k!],   P(N >= k) = (1 + eps)^-k,

with independent D_j >= 0 of mean sum_i d_i - a, each (n/t) times the sum of t random residuals less a = n min_i d_i. E Y = L, and
Y >= 0, so the posterior is invariant (Andrieu and Roberts 2009). Bardenet, Doucet and Holmes (2017), section 4.2, equation 9,
where d_i is the log-likelihood itself (`order=None`).

It is impractical, as their Proposition 4.1 says: the relative variance of Y grows exponentially unless n^2 sigma^2, the variance
of one D_j, is of order one, and the bound a(theta) must hold for all rows, which here costs a pass over them. Settings with
n^2 sigma^2 > 10 are refused. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Guarantee, Sampler, Setup, init, positions, step
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.engine.random_rows import UniformRows
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import propose
from tallbayes.proxies.difference import difference
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.schemes.unbiased_series import log_likelihood_estimate
from tallbayes.streams import Stream, generator
from tallbayes.target import NOT_FINITE, Target, log_prior, stop_run

LARGEST_VARIANCE = 10.0  # of one D_j; beyond, the relative variance of Y is hopeless
SETTLING = 30  # estimates tried at the start
MOST_BATCH = 10  # times n: rows of one D_j beyond which the method is refused


class Info(NamedTuple):
    """What a step reports, by position."""

    accepted: int
    acceptance_rate: int
    component: int
    log_likelihood: int
    terms: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its whitened coordinates, and the estimate there."""

    theta: np.ndarray
    white: np.ndarray
    log_likelihood: float
    log_target: float


class SeriesOptions(NamedTuple):
    """Compiled options: rows of one D_j, epsilon, whether residuals of proxies are used, and all row numbers."""

    kernel: Any
    batch: int
    epsilon: float
    proxies: bool
    everything: np.ndarray


@init.register(SeriesOptions)
def _init(rng: np.random.Generator, target: Target, options: SeriesOptions, theta: np.ndarray) -> Any:
    estimate, _ = log_likelihood_estimate(rng, target, options, theta)
    for _ in range(SETTLING):  # towards the law of the estimate given theta, which is that of a fresh one weighted by itself
        other, _ = log_likelihood_estimate(rng, target, options, theta)
        if math.log(1.0 - rng.random()) < other - estimate:
            estimate = other
    log_target = estimate + log_prior(target, theta)
    if not abs(log_target) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return State(theta.copy(), whiten(target.proxy.whitening, theta), estimate, log_target)


@step.register(SeriesOptions)
def _step(rng: np.random.Generator, target: Target, options: SeriesOptions, state: Any, info: np.ndarray) -> Any:
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    estimate, terms = log_likelihood_estimate(rng, target, options, theta)
    log_target = estimate + log_prior(target, theta)
    ratio += log_target - state.log_target
    accepted = math.log(1.0 - rng.random()) < ratio
    info[AT.accepted] = 1.0 if accepted else 0.0
    info[AT.acceptance_rate] = math.exp(min(0.0, ratio)) if ratio == ratio else 0.0
    info[AT.component] = component
    info[AT.terms] = terms
    if accepted:
        state = State(theta, white, estimate, log_target)
    info[AT.log_likelihood] = state.log_likelihood
    return state


@dataclass(frozen=True)
class RheeGlynn(Sampler):
    """Rhee and Glynn's estimate in pseudo-marginal Metropolis-Hastings: exact but impractical, and refused where it cannot work.

    `order` 0, 1 or 2 uses residuals of Taylor proxies, None the log-likelihoods as in the paper. `batch` rows per term (None: so
    many that the variance of a term is 1, at least 10), `epsilon` of the law of the number of terms (None: so that both its cost and its
    variance stay small).

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.integers(0, 2, 300)))
    >>> fit = tb.sample(model, "rhee-glynn", draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> bool(fit.evals.min() >= 300), fit.guarantee.kind
    (True, 'EXACT')
    """

    order: int | None = 2
    batch: int | None = None
    epsilon: float | None = None
    move: Move = field(default_factory=independence)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly; the likelihood is estimated without bias and never negative",
        checked=("variance of a term of the series",),
    )
    name: ClassVar[str] = "rhee-glynn"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "n rows or more"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.order not in (None, 0, 1, 2):
            raise OptionError(f"order of the control variates is 0, 1 or 2, or None for none; got {self.order!r}.")
        if self.batch is not None and (not isinstance(self.batch, int | np.integer) or self.batch < 1):
            raise OptionError(
                f"batch must be a whole number of at least 1, or None to choose it automatically; got {self.batch!r}."
            )
        if self.epsilon is not None and not (self.epsilon > 0.0 and math.isfinite(self.epsilon)):
            raise OptionError(f"epsilon must be positive and finite, or None to choose it automatically; got {self.epsilon!r}.")
        as_proposal(self.move)

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Variance of a term from a pilot; refuses what cannot mix."""
        pilots.require_proxies(model)
        n = model.data.n
        rng = generator(seed, Stream.LIKELIHOOD_ESTIMATES)
        order = 0 if self.order is None else self.order
        samples = pilots.all_residuals(mode, self.order, mode.laplace().draw(rng, pilots.POINTS))
        gamma = float(np.quantile([n * n * d.var() for d in samples], 0.95))
        batch = max(10, math.ceil(gamma)) if self.batch is None else int(self.batch)
        if gamma / batch > LARGEST_VARIANCE or batch > MOST_BATCH * n:
            raise ModelError(
                f"Rhee and Glynn's estimate is impractical here: n^2 sigma^2 is {gamma / batch:.3g} with {batch:,} rows per "
                f"term (at most {LARGEST_VARIANCE:g} with {MOST_BATCH * n:,} is accepted), and its relative variance grows "
                "exponentially in it. Use 'exact-minibatch', 'hmc-ecs' or a full-data sampler such as 'nuts'."
            )
        room = float(np.quantile([n * (d.mean() - d.min()) for d in samples], 0.95))
        epsilon = 0.5 / max(room, 1.0) if self.epsilon is None else float(self.epsilon)
        options = SeriesOptions(None, batch, epsilon, self.order is not None, np.arange(n))
        blank = lambda theta: State(theta, np.zeros_like(theta), 0.0, 0.0)  # noqa: E731
        policy = ProposalPolicy(as_proposal(self.move), model.dim, options, blank, "accepted")
        notes = {"gamma": gamma, "batch": batch, "epsilon": epsilon, "room": room, "order": self.order}
        why = f"Rhee-Glynn, {batch} rows per term and {1 / epsilon:.3g} terms on average, in addition to all {n:,} rows for the bound"
        proxy = difference(mode, order, UniformRows(n), math.inf)
        return Setup(model, policy, proxy, why, notes)

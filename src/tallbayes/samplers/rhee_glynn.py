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

from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Sampler, Setup, init, step
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.moves.proposals import ProposalMove, propose
from tallbayes.proxies.difference import UniformRows, difference, proxy_sum
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.streams import Stream, generator
from tallbayes.target import NOT_FINITE, control_values, log_prior, stop_run, subsample_values

INFO = ("accepted", "acceptance_rate", "component", "log_likelihood", "terms")
LARGEST_VARIANCE = 10.0  # of one D_j; beyond, the relative variance of Y is hopeless
SETTLING = 30  # estimates tried at the start
MOST_BATCH = 10  # times n: rows of one D_j beyond which the method is refused


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


@inlinable
def series_terms(rng, epsilon):
    """N with P(N >= k) = (1 + eps)^-k, k = 0, 1, ..: its support begins at 0."""
    return int(-math.log(1.0 - rng.random()) / math.log1p(epsilon))


@inlinable
def log_series(epsilon, differences):
    """log [1 + sum_k (1 + eps)^k prod_{j <= k} D_j / k!]."""
    total, product = 0.0, 0.0  # logarithms
    for k in range(differences.size):
        if differences[k] <= 0.0:
            break
        product += math.log(differences[k]) + math.log1p(epsilon) - math.log(k + 1.0)
        top = max(total, product)
        total = top + math.log(math.exp(total - top) + math.exp(product - top))
    return total


@inlinable
def log_likelihood_estimate(rng, target, options, theta):
    """log Y and the number of terms."""
    n = options.everything.size
    values = np.empty(n)
    if options.proxies:
        control_values(target, options.everything, theta, values)
        total = proxy_sum(target.proxy, theta)
    else:
        subsample_values(target, options.everything, theta, values)
        total = 0.0
    lowest = n * values.min()
    terms = series_terms(rng, options.epsilon)
    differences = np.empty(terms)
    index, drawn = np.empty(options.batch, np.int64), np.empty(options.batch)
    for k in range(terms):
        for r in range(options.batch):
            index[r] = min(int(rng.random() * n), n - 1)
        if options.proxies:
            control_values(target, index, theta, drawn)
        else:
            subsample_values(target, index, theta, drawn)
        differences[k] = n * drawn.sum() / options.batch - lowest
    return total + lowest + log_series(options.epsilon, differences), terms


@init.register(SeriesOptions)
def _init(rng, target, options, theta):
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
def _step(rng, target, options, state, info):
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    estimate, terms = log_likelihood_estimate(rng, target, options, theta)
    log_target = estimate + log_prior(target, theta)
    ratio += log_target - state.log_target
    accepted = math.log(1.0 - rng.random()) < ratio
    info[0] = 1.0 if accepted else 0.0
    info[1] = math.exp(min(0.0, ratio)) if ratio == ratio else 0.0
    info[2] = component
    info[4] = terms
    if accepted:
        state = State(theta, white, estimate, log_target)
    info[3] = state.log_likelihood
    return state


class SeriesPolicy(ProposalPolicy):
    """Warm-up of the proposal; batch and epsilon are fixed before it."""

    def __init__(self, move: ProposalMove, dim: int, batch: int, epsilon: float, proxies: bool, n: int) -> None:
        super().__init__(move, dim)
        self.batch, self.epsilon, self.proxies, self.everything = batch, epsilon, proxies, np.arange(n)

    def compiled(self, kernel: Any) -> SeriesOptions:
        """Kernel and the numbers of the series."""
        return SeriesOptions(kernel, self.batch, self.epsilon, self.proxies, self.everything)

    def blank(self, theta: np.ndarray) -> State:
        """A state without estimate."""
        return State(theta.copy(), np.zeros(theta.size), 0.0, 0.0)


@dataclass(frozen=True)
class RheeGlynn(Sampler):
    """Rhee and Glynn's estimate in pseudo-marginal Metropolis-Hastings: exact, impractical, refused where it is hopeless.

    `order` 0, 1 or 2 uses residuals of Taylor proxies, None the log-likelihoods as in the paper. `batch` rows a term (None: so
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
        "every transition leaves the posterior invariant; the likelihood is estimated without bias and never negative",
        checked=("variance of a term of the series",),
    )
    cost: ClassVar[str] = "n and more"

    def __post_init__(self) -> None:
        if self.order not in (None, 0, 1, 2):
            raise OptionError(f"order of the control variates is 0, 1 or 2, or None for none; got {self.order!r}.")
        if self.batch is not None and (not isinstance(self.batch, int | np.integer) or self.batch < 1):
            raise OptionError(f"batch must be a whole number of at least 1, or None to have it chosen; got {self.batch!r}.")
        if self.epsilon is not None and not (self.epsilon > 0.0 and math.isfinite(self.epsilon)):
            raise OptionError(f"epsilon must be positive and finite, or None to have it chosen; got {self.epsilon!r}.")
        as_proposal(self.move)

    @property
    def name(self) -> str:
        """Its string name."""
        return "rhee-glynn"

    @property
    def info(self) -> tuple[str, ...]:
        """What a step reports."""
        return INFO

    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Variance of a term from a pilot; refuses what cannot mix."""
        pilots.require_proxies(model)
        n = model.data.n
        rng = generator(seed, Stream.LIKELIHOOD_ESTIMATES)
        order = 0 if self.order is None else self.order
        samples = self._samples(model, mode, rng, order)
        gamma = float(np.quantile([n * n * d.var() for d in samples], 0.95))
        batch = max(10, math.ceil(gamma)) if self.batch is None else int(self.batch)
        if gamma / batch > LARGEST_VARIANCE or batch > MOST_BATCH * n:
            raise ModelError(
                f"Rhee and Glynn's estimate is hopeless here: n^2 sigma^2 is {gamma / batch:.3g} with {batch:,} rows a term (at most "
                f"{LARGEST_VARIANCE:g} with {MOST_BATCH * n:,} is accepted), and its relative variance grows exponentially in it. Use "
                "'exact-minibatch', 'hmc-ecs' or a full-data sampler such as 'nuts'."
            )
        room = float(np.quantile([n * (d.mean() - d.min()) for d in samples], 0.95))
        epsilon = 0.5 / max(room, 1.0) if self.epsilon is None else float(self.epsilon)
        policy = SeriesPolicy(as_proposal(self.move), model.dim, batch, epsilon, self.order is not None, n)
        notes = {"gamma": gamma, "batch": batch, "epsilon": epsilon, "room": room, "order": self.order}
        why = f"Rhee-Glynn, {batch} rows a term and {1 / epsilon:.3g} terms on average, beside all {n:,} rows for the bound"
        proxy = difference(mode, order, UniformRows(n), math.inf)
        return Setup(model, policy, proxy, n * len(samples), why, notes)

    def _samples(self, model: Model, mode: Mode, rng: np.random.Generator, order: int) -> list[np.ndarray]:
        from tallbayes.engine import passes
        from tallbayes.engine.residuals import control_residuals

        everything, points = np.arange(model.data.n), mode.laplace().draw(rng, pilots.POINTS)
        if self.order is None:
            return [passes.values_at(model.rows, everything, t) for t in points]
        return [control_residuals(model.rows, everything, t, mode.reference, order) for t in points]

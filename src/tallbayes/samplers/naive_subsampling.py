"""Naive subsampling: Metropolis-Hastings with a log-likelihood estimated from a random share of the rows at every new theta.

With independent z_i ~ Bernoulli(w) drawn for each proposal, and the estimate of the present state kept, the law of theta is

    p(theta) prod_i [w p(x_i|theta)^(1/w) + 1 - w]    for the estimate sum_i z_i l_i / w ("unbiased"),
    p(theta) prod_i [w p(x_i|theta) + 1 - w]          for sum_i z_i l_i ("biased"),

which is not the posterior (Bardenet, Doucet and Holmes 2017, 6.1; they print l_i^(1/w) for p(x_i|theta)^(1/w)). The law even
changes with constant factors of the likelihood, which a family may leave out. A baseline that shows what goes wrong. HEURISTIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Sampler, Setup, init, positions, step
from tallbayes.diagnostics.pair_pilot import values_at_mode
from tallbayes.engine.random_rows import draw_distinct_rows
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, as_proposal, random_walk
from tallbayes.moves.proposals import propose
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.acceptance import as_tuned_proposal, check_rows, costs_more, proxy_at
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.target import Target, log_prior, row_total, subsample_values

ESTIMATORS = ("biased", "unbiased")


class Info(NamedTuple):
    """What a step reports, by position."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    estimate: int


AT = positions(Info)


class State(NamedTuple):
    """Position, whitened position, the estimated log posterior that was accepted there, permutation of rows."""

    theta: np.ndarray
    white: np.ndarray
    estimate: float
    order: np.ndarray


class NaiveOptions(NamedTuple):
    """Compiled options: w, and the power 1 / w or 1 that a row in the sample gets."""

    kernel: Any
    share: float
    power: float


@inlinable
def _estimate(
    rng: np.random.Generator, target: Target, options: NaiveOptions, theta: np.ndarray, order: np.ndarray
) -> tuple[Any, int]:
    """Estimated log posterior, and the number of rows in the sample."""
    m = rng.binomial(row_total(target), options.share)
    values = np.empty(m)
    draw_distinct_rows(rng, order, 0, m)
    subsample_values(target, order[:m].astype(np.int64), theta, values)
    return options.power * values.sum() + log_prior(target, theta), m


@init.register(NaiveOptions)
def _init(rng: np.random.Generator, target: Target, options: NaiveOptions, theta: np.ndarray) -> Any:
    order = np.arange(row_total(target)).astype(np.int32)
    estimate, _ = _estimate(rng, target, options, theta, order)
    return State(theta.copy(), whiten(target.proxy.whitening, theta), estimate, order)


@step.register(NaiveOptions)
def _step(rng: np.random.Generator, target: Target, options: NaiveOptions, state: Any, info: np.ndarray) -> Any:
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    estimate, rows = _estimate(rng, target, options, theta, state.order)
    ratio += estimate - state.estimate
    info[AT.acceptance_rate], info[AT.component], info[AT.rows] = 0.0, component, rows
    info[AT.full_read] = 1.0 if rows == row_total(target) else 0.0
    if math.log(1.0 - rng.random()) < ratio:
        info[AT.acceptance_rate], info[AT.estimate] = 1.0, estimate
        return State(theta, white, estimate, state.order)
    info[AT.estimate] = state.estimate
    return state


@dataclass(frozen=True)
class NaiveSubsampling(Sampler):
    """Metropolis-Hastings on a random `share` of the rows, redrawn for every proposal; `estimator` "unbiased" or "biased".

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(500), rng.standard_normal(500)])
    >>> y = (rng.random(500) < 1 / (1 + np.exp(-X @ [0.1, 0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.NaiveSubsampling(share=0.999), draws=200, warmup=100, seed=1, progress=False)
    >>> bool(490 < fit.evals.mean() < 500)
    True
    """

    share: float = 0.1
    estimator: str = "unbiased"
    move: Move = field(default_factory=random_walk)
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "the draws follow p(theta) prod [w p_i^(1/w) + 1 - w], a mixture of the likelihoods of all subsets of rows, not the "
        "posterior",
    )
    cost: ClassVar[str] = "a fixed share of the rows"
    name: ClassVar[str] = "naive-subsampling"
    Info: ClassVar[type] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        as_proposal(self.move)
        if self.estimator not in ESTIMATORS:
            raise unknown("estimator", self.estimator, ESTIMATORS)
        if not 0.0 < self.share <= 1.0:
            raise OptionError(
                f"share is the probability that a row is read and must be above 0 and at most 1; got {self.share}."
            )

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """The variance of the estimate at the mode, from at most 200,000 rows."""
        check_rows(model)
        power = 1.0 / self.share if self.estimator == "unbiased" else 1.0
        values = values_at_mode(model, mode, seed)
        variance = power**2 * self.share * (1.0 - self.share) * model.data.n * float(np.mean(values**2))
        options = NaiveOptions(None, self.share, power)
        move, n = as_tuned_proposal(self.move, model.dim), model.data.n

        def blank(theta: np.ndarray) -> State:
            return State(theta, np.zeros_like(theta), 0.0, np.arange(n, dtype=np.int32))

        policy = ProposalPolicy(move, model.dim, options, blank)
        why = f"a share of {self.share:g} of the rows, as requested"
        return Setup(model, policy, proxy_at(mode, 0), why, {"estimate_variance": variance})

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost, and noise that stops the chain."""
        warnings = costs_more(outcome)
        variance = outcome.setup.notes["estimate_variance"]
        accepted = float(np.mean(outcome.stats["acceptance_rate"]))
        if variance > 3.0:
            warnings.append(
                f"the log-likelihood is estimated with a variance of {variance:.3g} at the mode, where 1 to 3 would be "
                f"efficient; {accepted:.2%} of proposals were accepted. The draws cannot be trusted; use 'exact-minibatch'."
            )
        return Diagnosis(warnings=tuple(warnings))

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """The estimates of a few draws against the log posterior on all rows."""
        chains, draws = fit.theta.shape[:2]
        chosen = [(rng.integers(chains), rng.integers(draws)) for _ in range(pairs)]
        errors = np.array([fit.stats["estimate"][c] - model.log_posterior(fit.theta[c]) for c in chosen])
        facts = {
            "draws read on all rows": pairs,
            "mean error of the estimated log posterior": float(errors.mean()),
            "its standard deviation": float(errors.std()),
        }
        return facts, []

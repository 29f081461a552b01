"""Surrogate transitions: exact posteriors under priors of unknown scale (ridge, horseshoe), at a few rows an iteration.

A palindromic kernel moves coefficients and scales under the surrogate posterior, in which the log-likelihood is its second-order
expansion; one test on residuals of rows drawn at random under a certified bound makes it exact:

    accept (beta', phi') with probability min{1, e^(rho(beta') - rho(beta))}, estimated as in `exact_minibatch`.

Otherwise a random walk of beta given phi, in two stages. Scales given coefficients are drawn without reading a row. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import certify
from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Sampler, Setup, init, step
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.mode.shrinkage import ShrinkageMode, surrogate_parts
from tallbayes.model import Model
from tallbayes.models.penalised import PenalisedModel
from tallbayes.moves import independence
from tallbayes.prior_terms import PriorTerms, prior_gradient, prior_precision, prior_value
from tallbayes.proxies.taylor import proxy_value, taylor, unwhiten, whiten, whitening_of
from tallbayes.schemes.poisson_minibatch import AT, RATES, Info, residual_ratio
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.schemes.surrogate_transitions import (
    ShrinkageSurrogate,
    conditional_prior,
    draw_global_scales,
    draw_local_scales,
    fresh_local_scale,
    palindrome,
)
from tallbayes.target import Certified, Target


class State(NamedTuple):
    """Coefficients and log tau; whitened coefficients; local scales."""

    theta: np.ndarray
    white: np.ndarray
    local: np.ndarray


class SurrogateOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    rate: Any
    sweeps: int
    surrogate: ShrinkageSurrogate
    rest: PriorTerms  # prior of the other coefficients
    slope: np.ndarray  # its gradient at the reference, and the curvature of the surrogate
    curvature: np.ndarray


@inlinable
def rest_excess(target: Target, options: SurrogateOptions, beta: np.ndarray) -> float:
    """Log prior of the other coefficients less what the surrogate takes for it."""
    reference, d = target.proxy.whitening.reference, beta.size
    total = prior_value(options.rest, beta)
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += options.curvature[j, k] * (beta[k] - reference[k])
        total -= (beta[j] - reference[j]) * (options.slope[j] - 0.5 * inner)
    return total


@init.register(SurrogateOptions)
def _init(rng: np.random.Generator, target: Target, options: SurrogateOptions, theta: np.ndarray) -> Any:
    surrogate = options.surrogate
    d = surrogate.group.size
    local = np.ones(d)
    for j in range(d):
        k = surrogate.group[j]
        if k >= 0 and surrogate.local[k] == 1:
            ratio = theta[j] / (math.exp(theta[d + k]) * surrogate.unit[j])
            local[j] = fresh_local_scale(rng, 0.5 * ratio * ratio)
    return State(theta.copy(), whiten(target.proxy.whitening, theta[:d].copy()), local)


@step.register(SurrogateOptions)
def _step(rng: np.random.Generator, target: Target, options: SurrogateOptions, state: Any, info: np.ndarray) -> Any:
    surrogate, whitening = options.surrogate, target.proxy.whitening
    d = surrogate.group.size
    here, log_tau, local = state.theta[:d].copy(), state.theta[d:].copy(), state.local.copy()
    white = np.empty(d)
    info[:] = 0.0
    if rng.random() < options.kernel.share:
        beta = here.copy()
        palindrome(rng, surrogate, options.sweeps, beta, local, log_tau)
        white[:] = whiten(whitening, beta)
        ratio = rest_excess(target, options, beta) - rest_excess(target, options, here)
    else:
        info[AT.component] = 1.0
        beta = np.empty(d)
        for j in range(d):
            white[j] = state.white[j] + options.kernel.second.step * rng.standard_normal()
        unwhiten(whitening, white, beta)
        ratio = proxy_value(target.proxy.proxy, white) - proxy_value(target.proxy.proxy, state.white)
        ratio += prior_value(options.rest, beta) - prior_value(options.rest, here)
        ratio += conditional_prior(surrogate, beta, local, log_tau) - conditional_prior(surrogate, here, local, log_tau)
    accepted = False
    if math.log(1.0 - rng.random()) < ratio:
        info[AT.stage_one] = 1.0
        level = math.log(1.0 - rng.random())
        accepted = level < residual_ratio(rng, target, options, here, beta, state.white, white, info)
    theta = np.empty(state.theta.size)
    if accepted:
        info[AT.accepted], info[AT.acceptance_rate] = 1.0, 1.0
    else:
        beta, white = here, state.white.copy()
        local, log_tau = state.local.copy(), state.theta[d:].copy()
    draw_global_scales(rng, surrogate, beta, local, log_tau)
    draw_local_scales(rng, surrogate, beta, local, log_tau)
    theta[:d], theta[d:] = beta, log_tau
    return State(theta, white, local)


@dataclass(frozen=True)
class SurrogateTransition(Sampler):
    """Exact draws under ridge and horseshoe priors: a palindrome of `sweeps` surrogate sweeps, then one test on a few rows.

    With probability `share` the surrogate moves coefficients and scales, else a random walk moves the coefficients. `rate` and `bound` are
    those of `ExactMinibatch`.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 5))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X[:, 1]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.horseshoe())
    >>> fit = tb.sample(model, "surrogate-transition", draws=200, chains=2, seed=1, progress=False)
    >>> fit.names[-1], bool(fit.evals.mean() < 20)
    ('log_tau', True)
    """

    sweeps: int = 2
    share: float = 0.9
    rate: str = "mh-ss"
    bound: str = "auto"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every transition leaves the posterior of coefficients and scales invariant; rows are drawn at random under certified bounds",
        assumed=("the proven bound of the third derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    name: ClassVar[str] = "surrogate-transition"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, whatever n; none for the scales"
    needs_hyperpriors: ClassVar[bool] = True
    serves_hyperpriors: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range."""
        if self.sweeps < 1:
            raise OptionError(f"sweeps must be at least 1; got {self.sweeps}.")
        if self.rate not in RATES:
            raise unknown("rate", self.rate, RATES)
        if not 0.0 < self.share <= 1.0:
            raise OptionError(f"share must be above 0 and at most 1; got {self.share}.")

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Whiten, certify all rows (one pass), and expand the log-likelihood at the reference."""
        assert isinstance(model, PenalisedModel)
        if not isinstance(mode, ShrinkageMode):  # of a run that is resumed
            mode = find_mode(model, seed=seed, progress=progress)
        assert isinstance(mode, ShrinkageMode) and mode.coefficients is not None
        inner, terms = mode.coefficients, model.prior_terms
        precision, linear = surrogate_parts(model, inner)
        d, count = model.data.d, len(model.shrunk)
        slope = np.zeros(d)
        prior_gradient(terms.rest, inner.reference, slope)
        values, vectors = np.linalg.eigh(prior_precision(terms.rest, inner.reference))
        curvature = np.ascontiguousarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
        surrogate = ShrinkageSurrogate(precision, linear, terms.group, terms.unit, terms.local, terms.scale)
        bound, name = certify(inner, self.bound, seed=seed)
        options = SurrogateOptions(None, RATES[self.rate](0.1), self.sweeps, surrogate, terms.rest, slope, curvature)
        blank = lambda theta: State(theta, np.zeros(d), np.ones(d))  # noqa: E731
        policy = ProposalPolicy(independence(self.share), d, options, blank)
        why = (
            f"surrogate transitions ({self.rate}, {self.sweeps} sweeps) with bound {name}; {count} unknown scales read no rows"
        )
        return Setup(model, policy, Certified(whitening_of(inner), taylor(inner), bound), why)

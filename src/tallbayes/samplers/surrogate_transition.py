"""Surrogate transitions: coefficients and the unknown scales of their prior, drawn exactly at a few rows per iteration.

Rows depend on the coefficients alone. With the Taylor proxies in place of the likelihood the posterior of coefficients and scales can be
sampled by Gibbs sweeps that read no row (`engine.scale_sweeps`). Any kernel that is reversible with respect to that surrogate posterior is
a proposal whose Metropolis-Hastings ratio is that of posterior to surrogate alone (Liu 2001; Christen and Fox 2005): the residuals of the
rows, decided by the Poisson minibatch of `exact_minibatch`, and what the fixed part of the prior differs from its expansion. A rejected
proposal restores the scales too; then they are drawn given the coefficients, which is exact and needs no test. A share of the
iterations proposes coefficients by a random walk, given the scales, because the tails of the surrogate are too light. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import NAMES, certify
from tallbayes.bounds.tables import NoBound, Zero
from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Sampler, Setup, init, positions, step
from tallbayes.engine.scale_sweeps import (
    Blocks,
    Quadratic,
    Scales,
    copied,
    prior_precisions,
    quadratic_value,
    sweep,
    update_scales,
)
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.surrogate_reference import SurrogateMode
from tallbayes.model import Model
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.moves import Move, as_proposal, independence
from tallbayes.proxies.sufficient_statistics import gaussian_moments
from tallbayes.proxies.taylor import ProxyTotal, proxy_value, taylor, unwhiten, whiten, whitening_of
from tallbayes.schemes.poisson_minibatch import MHSS, residual_ratio
from tallbayes.schemes.proposal_policy import ProposalPolicy
from tallbayes.target import Certified, Target, log_prior


class Info(NamedTuple):
    """What a step reports, by position; the first ones are those of exact minibatch."""

    accepted: int
    acceptance_rate: int
    component: int
    stage_one: int
    rate: int
    rows: int
    full_read: int
    largest_ratio: int


AT = positions(Info)


class ScaledState(NamedTuple):
    """Draw (coefficients and scales), coefficients, their whitened coordinates, and the scales with their mixing variables."""

    theta: np.ndarray
    beta: np.ndarray
    white: np.ndarray
    scales: Scales


class ScaledOptions(NamedTuple):
    """Compiled options; the kernel's second part is the random walk, its share that of surrogate transitions."""

    kernel: Any
    rate: Any
    sweeps: int
    blocks: Blocks
    quadratic: Quadratic
    reference: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    expansion: ProxyTotal


@inlinable
def _beyond(proxy: ProxyTotal, expansion: ProxyTotal, white: np.ndarray) -> float:
    """What a proxy has beyond its second-order expansion: nothing, where it is that expansion."""
    return 0.0 if proxy.value == expansion.value else proxy_value(proxy, white) - proxy_value(expansion, white)


@inlinable
def _correction(target: Target, options: ScaledOptions, beta: np.ndarray) -> float:
    """Log of the fixed prior less its second-order expansion."""
    linear, quadratic = 0.0, 0.0
    for j in range(beta.size):
        inner, h = 0.0, beta[j] - options.reference[j]
        for k in range(beta.size):
            inner += options.curvature[j, k] * (beta[k] - options.reference[k])
        linear += options.slope[j] * h
        quadratic += inner * h
    return log_prior(target, beta) - linear + 0.5 * quadratic


@inlinable
def _drawn(beta: np.ndarray, scales: Scales) -> np.ndarray:
    theta = np.empty(beta.size + scales.shared.size)
    theta[: beta.size] = beta
    for b in range(scales.shared.size):
        theta[beta.size + b] = math.sqrt(scales.shared[b])
    return theta


@inlinable
def _walked(
    rng: np.random.Generator, options: ScaledOptions, state: ScaledState, beta: np.ndarray, white: np.ndarray, whitening: Any
) -> float:
    """A random walk of the coefficients; the log ratio of the surrogate given the scales."""
    d = beta.size
    scratch, precision = np.empty(d), np.empty(d)
    for j in range(d):
        white[j] = state.white[j] + options.kernel.second.step * rng.standard_normal()
    unwhiten(whitening, white, beta)
    prior_precisions(options.blocks, state.scales, precision)
    ratio = quadratic_value(options.quadratic, beta, scratch) - quadratic_value(options.quadratic, state.beta, scratch)
    for j in range(d):
        ratio -= 0.5 * precision[j] * (beta[j] * beta[j] - state.beta[j] * state.beta[j])
    return ratio


@init.register(ScaledOptions)
def _init(rng: np.random.Generator, target: Target, options: ScaledOptions, theta: np.ndarray) -> Any:
    d = options.reference.size
    beta = theta[:d].copy()
    shared = theta[d:] ** 2
    scales = Scales(shared, np.ones(shared.size), np.ones(d), np.ones(d))
    update_scales(rng, options.blocks, scales, beta)
    return ScaledState(_drawn(beta, scales), beta, whiten(target.proxy.whitening, beta), scales)


@step.register(ScaledOptions)
def _step(rng: np.random.Generator, target: Target, options: ScaledOptions, state: Any, info: np.ndarray) -> Any:
    info[:] = 0.0
    beta, scales, whitening = state.beta.copy(), copied(state.scales), target.proxy.whitening
    if rng.random() < options.kernel.share:
        sweep(rng, options.quadratic, options.blocks, scales, beta, options.sweeps, rng.random() < 0.5)
        white, ratio = whiten(whitening, beta), 0.0
    else:
        info[AT.component] = 1.0
        white = np.empty(beta.size)
        ratio = _walked(rng, options, state, beta, white, whitening)
    ratio += _correction(target, options, beta) - _correction(target, options, state.beta)
    proxy = target.proxy.proxy
    ratio += _beyond(proxy, options.expansion, white) - _beyond(proxy, options.expansion, state.white)
    if math.log(1.0 - rng.random()) < ratio:
        info[AT.stage_one] = 1.0
        residual = residual_ratio(rng, target, options, state.beta, beta, state.white, white, info)
        if math.log(1.0 - rng.random()) < residual:
            info[AT.accepted], info[AT.acceptance_rate] = 1.0, 1.0
            state = ScaledState(state.theta, beta, white, scales)
    kept = copied(state.scales)
    update_scales(rng, options.blocks, kept, state.beta)
    return ScaledState(_drawn(state.beta, kept), state.beta, state.white, kept)


@dataclass(frozen=True)
class SurrogateTransition(Sampler):
    """Exact draws of coefficients and of the unknown scales of their prior: ridge, horseshoe, smooths.

    `sweeps` is the number of Gibbs sweeps on the surrogate before a proposal is decided. `move.share` is the share of such proposals; the
    others are random walks.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 10))])
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X[:, 1]))
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.horseshoe(0.1))
    >>> fit = tb.sample(model, draws=500, chains=2, seed=1, progress=False)
    >>> fit.names[-1], bool(fit.evals.mean() < 10)
    ('horseshoe_tau', True)
    """

    sweeps: int = 4
    move: Move = field(default_factory=lambda: independence(0.8))
    bound: str = "auto"
    name: ClassVar[str] = "surrogate-transition"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every transition leaves the posterior of coefficients and scales invariant; rows are drawn at random under certified bounds",
        assumed=("the proven bound of the third derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows, independent of n"
    needs_unknown_scales: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range."""
        if self.sweeps < 1:
            raise OptionError(f"sweeps must be at least 1; got {self.sweeps}.")
        if self.bound != "auto" and self.bound not in NAMES:
            raise unknown("bound", self.bound, [*NAMES, "auto"])
        as_proposal(self.move)

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Certify all rows (one pass) at the reference of the coefficients."""
        assert isinstance(mode, SurrogateMode)
        assert isinstance(model, UnknownScaleModel)
        assert mode.inner is not None
        assert mode.quadratic is not None
        assert mode.fixed_gradient is not None
        assert mode.fixed_information is not None
        inner, d = mode.inner, model.coordinates
        whitening, expansion = whitening_of(inner), taylor(inner)
        if inner.model.unit_scale_member is not None:
            proxy: Certified = Certified(whitening, gaussian_moments(inner), Zero())
            why = "surrogate transitions; the Gaussian likelihood follows from sufficient statistics, so no rows are read"
        else:
            bound, name = self._bound(inner, seed)
            proxy = Certified(whitening, expansion, bound)
            why = f"surrogate transitions with {name}: scales never read rows"
        options = ScaledOptions(
            None,
            MHSS(),
            self.sweeps,
            model.blocks,
            mode.quadratic,
            inner.reference,
            mode.fixed_gradient,
            mode.fixed_information,
            expansion,
        )
        count = len(model.members)

        def blank(theta: np.ndarray) -> ScaledState:
            scales = Scales(np.ones(count), np.ones(count), np.ones(d), np.ones(d))
            return ScaledState(theta, np.zeros(d), np.zeros(d), scales)

        policy = ProposalPolicy(as_proposal(self.move), d, options, blank)
        return Setup(model, policy, proxy, why)

    def _bound(self, inner: Mode, seed: int) -> tuple[Any, str]:
        """The certified bound of the residuals; a family that has none is decided on all rows."""
        try:
            bound, name = certify(inner, self.bound, seed=seed)
        except ModelError:
            if inner.model.partitions is not None and self.bound == "auto":
                raise ModelError(
                    f"priors with unknown scales, such as those of smooths, ridge and horseshoe, need a certified bound where rows are in "
                    f"partitions, and this {inner.model.family.name} model has none there. Read the rows with "
                    "tallbayes.read(..., memory='disk'), or give all coefficients a prior such as tallbayes.priors.normal(1.0)."
                ) from None
            if self.bound != "auto":
                raise
            return (
                NoBound(),
                f"no certified bound for this {inner.model.family.name} model, so every decision reads all rows",
            )
        return bound, f"bound {name}"

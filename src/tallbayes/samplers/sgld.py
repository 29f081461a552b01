"""Stochastic-gradient Langevin dynamics (Welling and Teh 2011; Bardenet, Doucet and Holmes 2017, section 5.1).

In whitened coordinates, with g an unbiased estimate of the gradient of the log posterior and xi standard normal,

    w' = w + (step / 2) g(w) + sqrt(step) xi.

There is no acceptance test, so the posterior is not invariant. On a Gaussian posterior with gradient noise of covariance V the
stationary covariance is (I + step V / 4) / (1 - step / 4), which tends to the posterior's as the step goes to 0. ASYMPTOTIC.

`corrected` injects noise of covariance step ((1 - step / 4) I - step V / 4) instead, which is exact for Gaussian posteriors and
noise that does not depend on theta. `decay` lets steps decrease; draws are then weighted by their steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import init, positions, step
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.minibatch_gradient import noisy_gradient
from tallbayes.schemes.stochastic_gradient import (
    REMOVED,
    StochasticGradient,
    add_noise,
    largest_step,
    near,
    present_step,
)
from tallbayes.target import DIVERGED, Target, stop_run

DRIFT = 0.5  # of the step: with noise of variance `step`, a drift of the whole step would target the posterior's square


class Info(NamedTuple):
    """What a step reports, by position; the weight of a draw is its step, if that varies."""

    acceptance_rate: int
    step: int
    noise: int
    weight: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its whitened coordinates, and the iterations made."""

    theta: np.ndarray
    white: np.ndarray
    iteration: int


class LangevinOptions(NamedTuple):
    """Compiled options."""

    step: float
    decay: float
    delay: float
    subsample: int
    corrected: bool
    weighted: bool
    noise: np.ndarray  # eigenvalues of V
    vectors: np.ndarray


@init.register(LangevinOptions)
def _init(rng: np.random.Generator, target: Target, options: LangevinOptions, theta: np.ndarray) -> Any:
    return State(theta.copy(), whiten(target.proxy.whitening, theta), 0)


@step.register(LangevinOptions)
def _step(rng: np.random.Generator, target: Target, options: LangevinOptions, state: Any, info: np.ndarray) -> Any:
    d = state.white.size
    length = present_step(options, state.iteration)
    gradient, white, theta = np.empty(d), np.empty(d), np.empty(d)
    info[AT.acceptance_rate] = 1.0
    info[AT.step] = length
    info[AT.noise] = noisy_gradient(rng, target, options.subsample, state.white, state.theta, gradient)
    if options.weighted:
        info[AT.weight] = length
    for j in range(d):
        white[j] = state.white[j] + DRIFT * length * gradient[j]
    if options.corrected:
        add_noise(rng, options.vectors, length * (1.0 - 0.25 * length * (1.0 + options.noise)), white)
    else:
        scale = math.sqrt(length)
        for j in range(d):
            white[j] += scale * rng.standard_normal()
    if not near(white):
        stop_run(target, DIVERGED, 0)
        return state
    unwhiten(target.proxy.whitening, white, theta)
    return State(theta, white, state.iteration + 1)


@dataclass(frozen=True)
class SGLD(StochasticGradient):
    """Stochastic-gradient Langevin dynamics.

    `order` of the control variates (0 none), `subsample` rows per step, drawn "uniform" or "weighted" by their whitened norms to
    the power order + 1. `step` is in posterior variances; None takes the largest of which the predicted relative error of variances
    is `tolerance`. With `decay`, step k is step (1 + k / `delay`)^-decay and weights the draw.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.SGLD(), draws=500, seed=1, progress=False)
    >>> fit.guarantee.kind, int(fit.evals[0, 0]), bool(fit.meta["notes"]["predicted error of variances"] < 0.021)
    ('ASYMPTOTIC', 100, True)
    """

    corrected: bool = False
    name: ClassVar[str] = "sgld"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m rows, m the subsample"

    def variances(self, noise: np.ndarray, step: float) -> np.ndarray:
        """(1 + step V / 4) / (1 - step / 4), or 1 where the noise is corrected."""
        if self.corrected:
            return np.where(step * (1.0 + noise) < 4.0, 1.0, np.inf)
        return (1.0 + 0.25 * step * noise) / (1.0 - 0.25 * step)

    def step_for(self, noise: np.ndarray) -> float:
        """With corrected noise, the step of which the correction takes away a predicted inflation of a quarter."""
        if self.step is None and self.corrected:
            return largest_step(lambda step: float((0.25 * step * (1.0 + noise)).max()), REMOVED)
        return super().step_for(noise)

    def steps_per_draw(self, noise: np.ndarray, step: float) -> float:
        """4 / step: an autoregression of coefficient 1 - step / 2."""
        return 4.0 / step

    def compiled(self, step: float, noise: np.ndarray, vectors: np.ndarray, subsample: int) -> LangevinOptions:
        """Step, schedule and noise."""
        weighted = self.decay > 0.0
        return LangevinOptions(step, self.decay, self.delay, subsample, self.corrected, weighted, np.asarray(noise), vectors)

    def blank(self, theta: np.ndarray) -> Any:
        """A state without whitened coordinates."""
        return State(theta.copy(), np.zeros(theta.size), 0)

"""Stochastic-gradient Hamiltonian Monte Carlo with friction (Chen, Fox and Guestrin 2014; Dang et al. 2019, section 6.2).

In whitened coordinates with momentum r, friction C and g an unbiased estimate of the gradient of the log posterior,

    w' = w + step r
    r' = r + step g(w') - step C r + N(0, 2 (C - B) step),

repeated `steps` times per iteration; `refresh` draws a new momentum before each. B = 0, or step V / 2 with `corrected`, V the
covariance of the gradient's noise. There is no acceptance test. On a Gaussian posterior the stationary variance is

    (1 - step C / 2) (2 (C - B) + step V) / (C (2 - step C - step^2 / 2)) = 1 + step V / (2 C) + O(step^2)

without refreshed momenta, in each eigen-direction of V. ASYMPTOTIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import init, positions, step
from tallbayes.errors import OptionError
from tallbayes.moves.linear import dot, normal_vector
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.minibatch_gradient import noisy_gradient
from tallbayes.schemes.stochastic_gradient import (
    REMOVED,
    StochasticGradient,
    add_noise,
    friction_variances,
    largest_step,
    near,
    present_step,
)
from tallbayes.target import DIVERGED, Target, stop_run, stopped

MOST_STEPS = 200  # of one iteration, where the step is so small that the time asked for would take more


class Info(NamedTuple):
    """What a step reports, by position; the weight of a draw is its step, if that varies."""

    acceptance_rate: int
    step: int
    noise: int
    kinetic: int
    weight: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its whitened coordinates, momentum, and the iterations made."""

    theta: np.ndarray
    white: np.ndarray
    momentum: np.ndarray
    iteration: int


class FrictionOptions(NamedTuple):
    """Compiled options."""

    step: float
    decay: float
    delay: float
    subsample: int
    steps: int
    friction: float
    refresh: bool
    corrected: bool
    weighted: bool
    noise: np.ndarray  # eigenvalues of V
    vectors: np.ndarray


@init.register(FrictionOptions)
def _init(rng: np.random.Generator, target: Target, options: FrictionOptions, theta: np.ndarray) -> Any:
    return State(theta.copy(), whiten(target.proxy.whitening, theta), normal_vector(rng, theta.size), 0)


@step.register(FrictionOptions)
def _step(rng: np.random.Generator, target: Target, options: FrictionOptions, state: Any, info: np.ndarray) -> Any:
    d = state.white.size
    length = present_step(options, state.iteration)
    white, theta, gradient = state.white.copy(), np.empty(d), np.empty(d)
    momentum = normal_vector(rng, d) if options.refresh else state.momentum.copy()
    keep, scale, noise = 1.0 - length * options.friction, math.sqrt(2.0 * options.friction * length), 0.0
    for _ in range(options.steps):
        if stopped(target):
            return state
        for j in range(d):
            white[j] += length * momentum[j]
        unwhiten(target.proxy.whitening, white, theta)
        noise += noisy_gradient(rng, target, options.subsample, white, theta, gradient)
        for j in range(d):
            momentum[j] = keep * momentum[j] + length * gradient[j]
        if options.corrected:
            add_noise(rng, options.vectors, length * (2.0 * options.friction - length * options.noise), momentum)
        else:
            for j in range(d):
                momentum[j] += scale * rng.standard_normal()
    info[AT.acceptance_rate] = 1.0
    info[AT.step] = length
    info[AT.noise] = noise / options.steps
    info[AT.kinetic] = dot(momentum, momentum) / d
    if options.weighted:
        info[AT.weight] = length
    if not (near(white) and near(momentum)):
        stop_run(target, DIVERGED, 0)
        return state
    return State(theta, white, momentum, state.iteration + 1)


@dataclass(frozen=True)
class SGHMC(StochasticGradient):
    """Stochastic-gradient Hamiltonian Monte Carlo with friction.

    Options as for `SGLD`; a `step` is in posterior standard deviations. An iteration makes `steps` of them, by default those that
    take a `time` of 1.2 (at most 200), and keeps its momentum unless `refresh` is set.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.SGHMC(), draws=200, seed=1, progress=False)
    >>> fit.guarantee.kind, bool(fit.meta["notes"]["predicted error of variances"] < 0.021)
    ('ASYMPTOTIC', True)
    """

    friction: float = 1.0
    time: float = 1.2
    steps: int | None = None
    refresh: bool = False
    corrected: bool = False
    name: ClassVar[str] = "sghmc"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m rows per step, m the subsample"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        if not self.friction > 0.0:
            raise OptionError(f"friction must be positive; got {self.friction}.")
        if not self.time > 0.0:
            raise OptionError(f"time must be positive; got {self.time}.")
        if self.steps is not None and (not isinstance(self.steps, int) or self.steps < 1):
            raise OptionError(
                f"steps must be a whole number of at least 1, or None for those that time takes; got {self.steps!r}."
            )

    def count(self, step: float) -> int:
        """Steps of an iteration."""
        return self.steps if self.steps is not None else min(MOST_STEPS, max(1, round(self.time / step)))

    def variances(self, noise: np.ndarray, step: float) -> np.ndarray:
        """The formula of this module, or that of `count` steps between refreshed momenta."""
        removed = 0.5 * step * noise if self.corrected else np.zeros_like(noise)
        return friction_variances(noise, step, self.friction, removed, self.count(step) if self.refresh else 0)

    def step_for(self, noise: np.ndarray) -> float:
        """With corrected noise, also such that the correction takes away a predicted inflation of a quarter at most."""
        chosen = super().step_for(noise)
        if self.step is None and self.corrected:
            chosen = min(chosen, largest_step(lambda step: float((0.5 * step * noise).max()) / self.friction, REMOVED))
        return chosen

    def steps_per_draw(self, noise: np.ndarray, step: float) -> float:
        """2 C / step: the integrated autocorrelation of Langevin dynamics with friction C; at least an iteration."""
        return max(2.0 * self.friction / step, float(self.count(step)))

    def compiled(self, step: float, noise: np.ndarray, vectors: np.ndarray, subsample: int) -> FrictionOptions:
        """Step, schedule, friction and noise."""
        schedule = (step, self.decay, self.delay, subsample, self.count(step), self.friction)
        return FrictionOptions(*schedule, self.refresh, self.corrected, self.decay > 0.0, np.asarray(noise), vectors)

    def blank(self, theta: np.ndarray) -> Any:
        """A state without momentum."""
        return State(theta.copy(), np.zeros(theta.size), np.zeros(theta.size), 0)

"""Stochastic-gradient Nose-Hoover thermostat (Ding et al. 2014).

In whitened coordinates with momentum r, thermostat zeta, injected noise A and g an unbiased estimate of the gradient,

    r' = r - step zeta r + step g(w) + sqrt(2 A step) xi
    w' = w + step r'
    zeta' = zeta + step (r'.r' / d - 1).

The thermostat holds the mean kinetic energy at 1, so that it absorbs gradient noise that is the same in all directions without
knowing it: zeta settles near A + step V / 2. What is left on a Gaussian posterior is a variance of 1 - step zeta / 2, and in
directions of more or less noise than the average V one in proportion to 2 A + step V. ASYMPTOTIC.
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
from tallbayes.schemes.stochastic_gradient import StochasticGradient, near, present_step
from tallbayes.target import DIVERGED, Target, stop_run


class Info(NamedTuple):
    """What a step reports, by position; the weight of a draw is its step, if that varies."""

    acceptance_rate: int
    step: int
    noise: int
    thermostat: int
    weight: int


AT = positions(Info)


class State(NamedTuple):
    """Position, its whitened coordinates, momentum, thermostat, and the iterations made."""

    theta: np.ndarray
    white: np.ndarray
    momentum: np.ndarray
    thermostat: float
    iteration: int


class ThermostatOptions(NamedTuple):
    """Compiled options."""

    step: float
    decay: float
    delay: float
    subsample: int
    injected: float
    weighted: bool


@init.register(ThermostatOptions)
def _init(rng: np.random.Generator, target: Target, options: ThermostatOptions, theta: np.ndarray) -> Any:
    white = whiten(target.proxy.whitening, theta)
    return State(theta.copy(), white, normal_vector(rng, theta.size), options.injected, 0)


@step.register(ThermostatOptions)
def _step(rng: np.random.Generator, target: Target, options: ThermostatOptions, state: Any, info: np.ndarray) -> Any:
    d = state.white.size
    length = present_step(options, state.iteration)
    gradient, white, momentum, theta = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    info[AT.noise] = noisy_gradient(rng, target, options.subsample, state.white, state.theta, gradient)
    keep, scale = 1.0 - length * state.thermostat, math.sqrt(2.0 * options.injected * length)
    for j in range(d):
        momentum[j] = keep * state.momentum[j] + length * gradient[j] + scale * rng.standard_normal()
        white[j] = state.white[j] + length * momentum[j]
    kinetic = dot(momentum, momentum) / d
    thermostat = state.thermostat + length * (kinetic - 1.0)
    info[AT.acceptance_rate] = 1.0
    info[AT.step] = length
    info[AT.thermostat] = thermostat
    if options.weighted:
        info[AT.weight] = length
    if not (near(white) and near(momentum)):
        stop_run(target, DIVERGED, 0)
        return state
    unwhiten(target.proxy.whitening, white, theta)
    return State(theta, white, momentum, thermostat, state.iteration + 1)


@dataclass(frozen=True)
class SGNHT(StochasticGradient):
    """Stochastic-gradient Nose-Hoover thermostat.

    Options as for `SGLD`; a `step` is in posterior standard deviations, `injected` is A.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.SGNHT(), draws=20_000, seed=1, progress=False)
    >>> fit.guarantee.kind, bool(fit.meta["notes"]["predicted error of variances"] < 0.021)
    ('ASYMPTOTIC', True)
    """

    injected: float = 1.0
    name: ClassVar[str] = "sgnht"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "m rows, m the subsample"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        if not self.injected > 0.0:
            raise OptionError(f"injected must be positive: the variance of the noise added; got {self.injected}.")

    def settled(self, noise: np.ndarray, step: float) -> float:
        """zeta at which the mean kinetic energy is 1, its fluctuation neglected; inf if there is none."""
        middle, whole = 2.0 - 0.5 * step * step, 2.0 * self.injected + step * float(noise.mean())
        root = middle * middle - 4.0 * step * whole
        return (middle - math.sqrt(root)) / (2.0 * step) if root > 0.0 else math.inf

    def variances(self, noise: np.ndarray, step: float) -> np.ndarray:
        """(2 A + step V) (1 - step zeta / 2) / (zeta (2 - step zeta - step^2 / 2))."""
        zeta = self.settled(noise, step)
        if not step * zeta < 2.0 - 0.5 * step * step:
            return np.full(noise.size, np.inf)
        kinetic = (2.0 * self.injected + step * noise) / (zeta * (2.0 - step * zeta - 0.5 * step * step))
        return kinetic * (1.0 - 0.5 * step * zeta)

    def steps_per_draw(self, noise: np.ndarray, step: float) -> float:
        """2 zeta / step, as for Langevin dynamics with friction zeta."""
        return max(1.0, 2.0 * self.settled(noise, step) / step)

    def compiled(self, step: float, noise: np.ndarray, vectors: np.ndarray, subsample: int) -> ThermostatOptions:
        """Step, schedule and injected noise."""
        return ThermostatOptions(step, self.decay, self.delay, subsample, self.injected, self.decay > 0.0)

    def blank(self, theta: np.ndarray) -> Any:
        """A state without momentum."""
        return State(theta.copy(), np.zeros(theta.size), np.zeros(theta.size), 0.0, 0)

"""Naive subsampled HMC: a leapfrog trajectory along gradients of a minibatch, without control variates (Betancourt 2015).

In whitened coordinates theta = theta* + L w, momentum r ~ N(0, I) for every trajectory and g the gradient of the log posterior as
estimated from m rows drawn with replacement, L' [grad log p + (n/m) sum_u grad l_u], it repeats

    r += step g(w) / 2,  w += step r,  r += step g(w) / 2

with one minibatch on the way ("trajectory") or a fresh one at every point ("step"). The end is accepted ("none") or tested on the energy
that the last minibatch gives ("subsample"). A minibatch has a posterior of its own, N(b, 1) on a standard normal posterior, where b is
the noise of g with variance V, about n / m. The trajectory follows that one, also with its test. With the leapfrog matrix M of `steps`
steps, A = M[0,0] and B = M[0,1], the stationary variance without a test is not 1 but

    B^2 / (1 - A^2) + V (1 - A) / (1 + A)                              with one minibatch per trajectory,
    [B^2 + V step^2 (M_L[0,1]^2 / 4 + sum_k M_k[0,1]^2)] / (1 - A^2)   with fresh ones, k = 1 .. L - 1, M_k of k steps.

A baseline that shows what goes wrong (Dang, Quiroz, Kohn, Tran and Villani 2019, section 2.2); `hmc_ecs` is the remedy. HEURISTIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Policy, Sampler, Setup, init, positions, step
from tallbayes.engine.random_rows import draw_rows
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves.linear import dot, normal_vector
from tallbayes.proxies.taylor import unwhiten, whiten
from tallbayes.schemes.minibatch_gradient import make_controls, measure_noise, plain_gradient
from tallbayes.schemes.stochastic_gradient import POINTS, near
from tallbayes.streams import Stream, generator
from tallbayes.target import (
    DIVERGED,
    Target,
    log_prior,
    new_target,
    stop_run,
    stopped,
    subsample_values,
)

RENEWALS, TESTS = ("trajectory", "step"), ("none", "subsample")
WIDER = 1.1  # predicted variance that is warned of


class Info(NamedTuple):
    """What a step reports, by position; the error of the energy only if there is a test."""

    acceptance_rate: int
    energy_error: int


AT = positions(Info)


class State(NamedTuple):
    """Position, and its whitened coordinates."""

    theta: np.ndarray
    white: np.ndarray


class TrajectoryOptions(NamedTuple):
    """Compiled options."""

    step: float
    steps: int
    subsample: int
    fresh: bool
    tested: bool


@init.register(TrajectoryOptions)
def _init(rng: np.random.Generator, target: Target, options: TrajectoryOptions, theta: np.ndarray) -> Any:
    return State(theta.copy(), whiten(target.proxy.whitening, theta))


@inlinable
def _estimate(target: Target, index: np.ndarray, factors: np.ndarray, theta: np.ndarray) -> float:
    """The log posterior as the indexed rows estimate it."""
    values = np.empty(index.size)
    subsample_values(target, index, theta, values)
    return dot(factors, values) + log_prior(target, theta)


@step.register(TrajectoryOptions)
def _step(rng: np.random.Generator, target: Target, options: TrajectoryOptions, state: Any, info: np.ndarray) -> Any:
    d, m, scheme = state.white.size, options.subsample, target.proxy.scheme
    index, factors = np.empty(m, np.int64), np.empty(m)
    white, theta, gradient, momentum = state.white.copy(), state.theta.copy(), np.empty(d), normal_vector(rng, d)
    before, kinetic, after = 0.0, 0.5 * dot(momentum, momentum), 0.0
    draw_rows(rng, scheme, m, index, factors)
    held = options.tested and not options.fresh
    if held:
        before = _estimate(target, index, factors, theta)
    plain_gradient(target, index, factors, held, theta, gradient)
    for k in range(options.steps):
        if stopped(target):
            return state
        for j in range(d):
            momentum[j] += 0.5 * options.step * gradient[j]
            white[j] += options.step * momentum[j]
        unwhiten(target.proxy.whitening, white, theta)
        if options.fresh:
            draw_rows(rng, scheme, m, index, factors)
        last = options.tested and k == options.steps - 1
        if last:
            after = _estimate(target, index, factors, theta)
        plain_gradient(target, index, factors, last, theta, gradient)
        for j in range(d):
            momentum[j] += 0.5 * options.step * gradient[j]
    if not (near(white) and near(momentum)):
        stop_run(target, DIVERGED, 0)
        return state
    info[AT.acceptance_rate] = 1.0
    if options.tested:
        if options.fresh:
            before = _estimate(target, index, factors, state.theta)
        error = before - kinetic - after + 0.5 * dot(momentum, momentum)
        info[AT.energy_error] = error
        info[AT.acceptance_rate] = math.exp(min(0.0, -error))
        if not math.log(1.0 - rng.random()) < -error:
            return state
    return State(theta, white)


class FixedPolicy(Policy):
    """Nothing to tune: step and number of steps are what was asked for."""

    def __init__(self, fixed: TrajectoryOptions) -> None:
        self.fixed = fixed

    def begin(self) -> float:
        """No tuning numbers."""
        return 0.0

    def window_ends(self, warmup: int) -> list[int]:
        """One window."""
        return [warmup] if warmup else []

    def update(self, tuning: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """As before."""
        return tuning

    def options(self, tuning: Any, final: bool) -> TrajectoryOptions:
        """The fixed options."""
        return self.fixed

    def blank(self, theta: np.ndarray) -> State:
        """A state at theta."""
        return State(theta.copy(), np.zeros(theta.size))


@dataclass(frozen=True)
class NaiveHMC(Sampler):
    """HMC along gradients of `subsample` rows without control variates, a baseline; it is not the remedy that `HMCECS` is.

    `renew` says how long a minibatch is kept ("trajectory" or "step"), `test` how the end is accepted ("none" or "subsample"); a `step`
    is in posterior standard deviations, and a trajectory takes a `time` of 1.2.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((1000, 1)), rng.standard_normal(1000)), tb.priors.flat())
    >>> fit = tb.sample(model, tb.samplers.NaiveHMC(subsample=10_000), draws=200, seed=1, progress=False)
    >>> bool(1.0 < fit.meta["notes"]["predicted variance"] < 1.1)  # with ten times as many rows as there are
    True
    """

    subsample: int = 100
    step: float = 0.2
    time: float = 1.2
    renew: str = "trajectory"
    test: str = "none"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "every trajectory follows the posterior of its own minibatch, so the draws are too wide, by a variance in the order of n / m times "
        "that of the posterior",
    )
    cost: ClassVar[str] = "m rows per leapfrog step, m the subsample"
    name: ClassVar[str] = "naive-hmc"
    Info: ClassVar[Any] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.subsample < 1:
            raise OptionError(f"subsample must be a whole number of at least 1; got {self.subsample}.")
        if not 0.0 < self.step < 2.0:
            raise OptionError(
                f"step must be in (0, 2), in posterior standard deviations: leapfrog is unstable beyond; got {self.step}."
            )
        if not (self.time > 0.0 and math.isfinite(self.time)):
            raise OptionError(f"time is the length of a trajectory and must be positive and finite; got {self.time}.")
        if self.renew not in RENEWALS:
            raise unknown("renew", self.renew, RENEWALS)
        if self.test not in TESTS:
            raise unknown("test", self.test, TESTS)

    @property
    def info(self) -> tuple[str, ...]:
        """Without a test there is no energy to report."""
        names: tuple[str, ...] = self.Info._fields
        return names if self.test == "subsample" else names[:-1]

    @property
    def steps(self) -> int:
        """Leapfrog steps of a trajectory."""
        return max(1, round(self.time / self.step))

    def variances(self, noise: np.ndarray) -> np.ndarray:
        """Stationary variances on a standard normal posterior in directions where g has these noise variances: no test.

        >>> NaiveHMC().variances(np.array([0.0, 10.0])).round(2)
        array([1.01, 5.71])
        """
        half = 0.5 * self.step
        kick, drift = np.array([[1.0, 0.0], [-half, 1.0]]), np.array([[1.0, self.step], [0.0, 1.0]])
        once, power, reach = kick @ drift @ kick, np.eye(2), []
        for _ in range(self.steps):
            power = once @ power
            reach.append(power[0, 1])
        shifts = self.step * np.array([0.5 * reach[-1], *reach[:-1]])  # of the end, by the noise of each gradient
        spread = (shifts**2).sum() if self.renew == "step" else shifts.sum() ** 2
        return (reach[-1] ** 2 + noise * spread) / (1.0 - power[0, 0] ** 2)

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Measure the noise of the gradient at pilot points, for the warning."""
        controls, rng = make_controls(mode, 0, "uniform"), generator(seed, Stream.GRADIENT_NOISE)
        target = new_target(model, controls)
        noise = measure_noise(target, mode.laplace().draw(rng, POINTS), self.subsample, rng)
        options = TrajectoryOptions(self.step, self.steps, self.subsample, self.renew == "step", self.test == "subsample")
        notes = {
            "gradient noise, largest eigenvalue": float(noise.values[-1]),
            "predicted variance": float(self.variances(noise.values).max()),
        }
        why = f"{self.subsample} rows per gradient and {self.steps} steps of {self.step:g}, as requested"
        return Setup(model, FixedPolicy(options), controls, why, notes)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """How much too wide the draws are."""
        predicted = outcome.setup.notes["predicted variance"]
        if not predicted > WIDER:
            return Diagnosis()
        return Diagnosis(
            warnings=(
                f"the noise of the minibatch gradient makes variances up to about {predicted:.3g} times those of the posterior. The "
                "draws cannot be trusted; use 'hmc-ecs', whose subsample is part of the chain and has control variates.",
            )
        )

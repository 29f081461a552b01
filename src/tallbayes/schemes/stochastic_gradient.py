"""What stochastic-gradient samplers share: options, the step size that follows from the gradient's noise, and what is said of it.

On a Gaussian posterior the stationary variance of each sampler is known in the step and the covariance V of the noise of the
gradient (`minibatch_gradient`), so the step is chosen for a tolerated relative error of variances, and what it implies is reported.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, Policy, Sampler, Setup
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import mode_at
from tallbayes.model import Model
from tallbayes.moves import tuning as windows
from tallbayes.schemes.minibatch_gradient import Noise, make_controls, measure_noise, minibatch_gradients, noise_rows
from tallbayes.streams import Stream, generator
from tallbayes.target import new_target

POINTS = 20  # pilot points at which noise is measured
REMOVED = 0.25  # predicted inflation that corrected noise may take away: the rest of the noise stays well above zero
BLOCKS = 20  # of a chain at most, whose mean noise is compared
BLOCK = 200  # draws x dimensions in one of them at least: the mean then has a relative error of 10 %
VARIATION = 3.0  # of noise along the run that is warned of
FULL_DATA = 4.0  # passes over the data that an effective draw of full-data NUTS takes, about


@inlinable
def add_noise(rng: np.random.Generator, vectors: np.ndarray, variances: np.ndarray, out: np.ndarray) -> None:
    """Add a normal vector with covariance sum_k variances[k] v_k v_k', v_k the columns of `vectors`."""
    for k in range(out.size):
        z = np.sqrt(max(0.0, variances[k])) * rng.standard_normal()
        for j in range(out.size):
            out[j] += z * vectors[j, k]


@inlinable
def present_step(options: Any, iteration: int) -> float:
    """step (1 + k / delay)^-decay."""
    if options.decay == 0.0:
        return options.step
    return options.step * (1.0 + iteration / options.delay) ** -options.decay


@inlinable
def near(vector: np.ndarray) -> bool:
    """Whether a whitened vector is within 1e8 posterior standard deviations: NaN is not."""
    total = 0.0
    for j in range(vector.size):
        total += abs(vector[j])
    return total < 1e8


class NoiseTuning(NamedTuple):
    """What warm-up knows: noise seen in its second part, and the factor on the pilot's noise that follows."""

    seen: int
    total: float
    scale: float


class NoisePolicy(Policy):
    """Warm-up corrects the pilot's noise level by that of the chain itself, half-way and at its end; the step follows."""

    def __init__(self, sampler: StochasticGradient, noise: Noise, subsample: int) -> None:
        self.sampler, self.noise, self.subsample = sampler, noise, subsample

    def begin(self) -> NoiseTuning:
        """The pilot's noise."""
        return NoiseTuning(0, 0.0, 1.0)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return windows.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> NoiseTuning:
        """Noise is collected from a quarter of warm-up on, when the chain has left its start."""
        begun, level = end - draws.shape[0], float(self.noise.values.mean())
        if begun >= 0.25 * warmup:
            state = state._replace(seen=state.seen + draws.shape[0], total=state.total + float(info["noise"].sum()))
        if (begun < 0.5 * warmup <= end or end == warmup) and state.seen > 0 and level > 0.0:
            state = state._replace(scale=state.total / state.seen / level)
        return state

    def step(self, scale: float) -> float:
        """The step for the pilot's noise times `scale`."""
        return self.sampler.step_for(scale * self.noise.values)

    def rows_drawn(self, iterations: int) -> int:
        """Rows that a chain draws."""
        return self.subsample * iterations * getattr(self.options(self.begin(), True), "steps", 1)

    def options(self, state: Any, final: bool) -> Any:
        """Step, schedule and what the sampler adds."""
        return self.sampler.compiled(
            self.step(state.scale), state.scale * self.noise.values, self.noise.vectors, self.subsample
        )

    def blank(self, theta: np.ndarray) -> Any:
        """As the sampler has it."""
        return self.sampler.blank(theta)


@dataclass(frozen=True)
class StochasticGradient(Sampler):
    """Options of all stochastic-gradient samplers."""

    order: int = 2
    subsample: int = 100
    step: float | None = None
    tolerance: float = 0.02
    decay: float = 0.0
    delay: float = 1000.0
    rows: str = "uniform"
    streams: ClassVar[bool] = True
    guarantee: ClassVar[Guarantee] = Guarantee(
        "ASYMPTOTIC",
        "variances have an error proportional to the step, which is set for a predicted error; there is no accept-reject "
        "decision",
        assumed=("a posterior close to Gaussian", "gradient noise that barely depends on theta"),
        checked=("the noise of every gradient", "the error of variances that it predicts"),
    )

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.order not in (0, 1, 2):
            raise OptionError(f"order must be 0 (no control variate), 1 or 2; got {self.order!r}.")
        if not isinstance(self.subsample, int) or self.subsample < 2:
            raise OptionError(
                f"subsample must be a whole number of at least 2, so that its noise can be estimated; got {self.subsample!r}."
            )
        if self.step is not None and not 0.0 < self.step <= 1.0:
            raise OptionError(
                "step must be in (0, 1], in units of the posterior standard deviation, or None to set it from the gradient "
                f"noise; got {self.step}."
            )
        if not 0.0 < self.tolerance < 1.0:
            raise OptionError(f"tolerance must be in (0, 1): the relative error of variances allowed; got {self.tolerance}.")
        if not 0.0 <= self.decay < 1.0:
            raise OptionError(
                f"decay must be in [0, 1): steps decrease as k^-decay, and 1/3 is the usual choice; got {self.decay}."
            )
        if not self.delay > 0.0:
            raise OptionError(f"delay must be positive: the iterations after which steps decrease; got {self.delay}.")
        if self.rows not in ("uniform", "weighted"):
            raise unknown("rows", self.rows, ("uniform", "weighted"))

    @abstractmethod
    def variances(self, noise: np.ndarray, step: float) -> np.ndarray:
        """Stationary variances on a standard normal posterior, in directions with these noise variances; inf if unstable."""

    @abstractmethod
    def steps_per_draw(self, noise: np.ndarray, step: float) -> float:
        """Gradients per effective draw of a mean."""

    @abstractmethod
    def compiled(self, step: float, noise: np.ndarray, vectors: np.ndarray, subsample: int) -> Any:
        """Compiled options."""

    @abstractmethod
    def blank(self, theta: np.ndarray) -> Any:
        """A state at theta."""

    @property
    def info(self) -> tuple[str, ...]:
        """The last column, the weight of a draw, is reported where steps vary."""
        names: tuple[str, ...] = self.Info._fields
        return names if self.decay > 0.0 else names[:-1]

    def error(self, noise: np.ndarray, step: float) -> float:
        """Largest predicted relative error of a variance."""
        return float(np.abs(self.variances(noise, step) - 1.0).max())

    def step_for(self, noise: np.ndarray) -> float:
        """The step given, or the largest of which the predicted error of variances is within the tolerance."""
        return self.step if self.step is not None else largest_step(lambda step: self.error(noise, step), self.tolerance)

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Measure the noise of the gradient at pilot points; step and predicted error of variances follow."""
        subsample = min(self.subsample, max(2, model.data.n))
        controls = make_controls(mode, self.order, self.rows)
        rng = generator(seed, Stream.GRADIENT_NOISE)
        if model.partitions is None:
            target = new_target(model, controls)
        else:
            target = model.partitions.pilot_target(controls, POINTS * noise_rows(subsample, model.dim), seed)
        noise = measure_noise(target, mode.laplace().draw(rng, POINTS), subsample, rng)
        policy = NoisePolicy(self, noise, subsample)
        step = policy.step(1.0)
        error, cost = self.error(noise.values, step), subsample * self.steps_per_draw(noise.values, step)
        notes = {
            "subsample": subsample,
            "pilot noise, largest eigenvalue": float(noise.values[-1]),
            "pilot noise, mean": float(noise.values.mean()),
            "pilot step": step,
            "pilot predicted error of variances": error,
            "pilot predicted evaluations per effective draw": cost,
        }
        why = (
            f"{self.name} with control variates of order {self.order}, {subsample} rows per gradient; gradient noise up to "
            f"{noise.values[-1]:.3g} in units of the posterior: step {step:.3g}, predicted error of variances "
            f"{100 * error:.2g} %, about {cost:,.0f} evaluations per effective draw"
        )
        return Setup(model, policy, controls, why, notes)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Noise of the run against what the step was chosen for."""
        setup, theta, stats = outcome.setup, outcome.theta, outcome.stats
        policy: Any = setup.policy
        pilot, subsample, n = policy.noise.values, policy.subsample, setup.model.data.n
        level, step = float(stats["noise"].mean()), float(stats["step"][:, 0].max())
        noise = pilot * (level / pilot.mean()) if pilot.mean() > 0.0 else np.full(pilot.size, level)
        error = self.error(noise, step)
        cost = subsample * self.steps_per_draw(noise, step)
        notes = {
            "noise, mean": level,
            "noise, largest eigenvalue": float(noise[-1]),
            "step": step,
            "predicted error of variances": error,
            "predicted evaluations per effective draw": cost,
        }
        warnings = []
        if error > 1.25 * self.tolerance:
            warnings.append(
                f"the predicted error of variances is {100 * error:.2g} %, above the tolerance of {100 * self.tolerance:.2g} "
                f"%: the noise of the gradient is {noise[-1]:.3g} at step {step:.3g}. Use step={self.step_within(noise):.2g} "
                "or a larger subsample."
            )
        parts = min(BLOCKS, max(1, theta.shape[1] * theta.shape[2] // BLOCK))
        blocks = np.array([b.mean() for chain in stats["noise"] for b in np.array_split(chain, parts)])
        low, high = float(blocks.min()), float(blocks.max())
        if high > VARIATION * low and self.error(noise * (high / level), step) > 1.25 * self.tolerance:
            warnings.append(
                f"the noise of the gradient varies from {low:.3g} to {high:.3g} along the run: it depends on theta, and the "
                "predicted error of variances is an average. Use a larger subsample, a smaller tolerance, or an exact sampler."
            )
        if cost > FULL_DATA * n and noise[-1] > 1.0:
            warnings.append(
                f"each effective draw takes about {cost:,.0f} evaluations, {cost / n:.3g} passes over the data: noise of "
                f"{noise[-1]:.3g} leaves no gain over full-data samplers at any subsample size. Use order=2, or 'nuts'."
            )
        return Diagnosis(notes, tuple(warnings))

    def step_within(self, noise: np.ndarray) -> float:
        """The largest step within the tolerance, whatever step was given."""
        return largest_step(lambda step: self.error(noise, step), self.tolerance)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """At random draws: the mean of many minibatch gradients against the gradient on all rows."""
        mode = mode_at(model, fit.laplace_mean)
        setup = self.setup(model, mode, fit.meta["seed"], False)
        target, subsample, laplace = setup.target(), setup.policy.subsample, mode.laplace()  # type: ignore[attr-defined]
        chains, draws, d = fit.theta.shape
        worst, levels = 0.0, []
        for _ in range(pairs):
            theta = np.ascontiguousarray(fit.theta[rng.integers(chains), rng.integers(draws)])
            estimates = np.empty((repeats, d))
            minibatch_gradients(rng, target, subsample, laplace.whiten(theta), theta, estimates)
            exact = mode.factor.T @ model.gradient(theta)[1]
            levels.append(float(estimates.var(0).mean()))
            rounding = 1e-9 * (1.0 + np.abs(exact))
            error = np.sqrt(estimates.var(0) / repeats) + rounding
            worst = max(worst, float((np.abs(estimates.mean(0) - exact) / error).max()))
        facts = {
            "draws at which gradients were recomputed on all rows": pairs,
            "largest z of the minibatch gradient against the exact one": worst,
            "noise of the gradient at these draws": f"{min(levels):.3g} to {max(levels):.3g}",
            "predicted error of variances": fit.meta["notes"]["predicted error of variances"],
        }
        return facts, ["the minibatch gradient is not unbiased for the gradient on all rows"] if worst > 6.0 else []


def friction_variances(noise: np.ndarray, step: float, friction: float, removed: np.ndarray, refreshed: int) -> np.ndarray:
    """Stationary variances of Langevin dynamics with friction on a standard normal posterior, B = `removed`; inf if unstable.

    `refreshed` steps between new momenta, 0 if momenta are kept.
    """
    margin = 2.0 - step * friction - 0.5 * step * step
    if not margin > 0.0 or (removed.any() and (removed >= friction).any()):
        return np.full(noise.size, np.inf)
    injected = step * (2.0 * (friction - removed) + step * noise)
    once, power, spread = np.array([[1.0, step], [-step, 1.0 - step * friction - step * step]]), np.eye(2), 0.0
    for _ in range(refreshed):
        spread += power[0, 1] ** 2
        power = once @ power
    lost = 1.0 - power[0, 0] ** 2
    if lost > 1e-9:
        return (power[0, 1] ** 2 + injected * spread) / lost
    return (1.0 - 0.5 * step * friction) * injected / (step * friction * margin)  # kept, or nothing moves between them


def largest_step(error: Any, tolerance: float) -> float:
    """The largest step up to 1 with error(step) <= tolerance, by bisection of its logarithm."""
    low, high = np.log(1e-14), 0.0
    if error(1.0) <= tolerance:
        return 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if error(float(np.exp(middle))) <= tolerance:
            low = middle
        else:
            high = middle
    return float(np.exp(low))

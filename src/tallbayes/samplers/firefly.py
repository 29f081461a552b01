"""Firefly Monte Carlo (Maclaurin and Adams 2014): posterior draws that read the bright rows alone.

With lower bounds 0 < B_i <= L_i and one light z_i a row, it leaves invariant

    pi(theta, z)  ~  p(theta) prod_i B_i(theta) prod_{i: z_i = 1} (L_i(theta) / B_i(theta) - 1),

whose marginal of theta is the posterior: summed over z_i a row contributes B_i + (L_i - B_i) = L_i. The product of all B_i costs
O(d^2); L_i is needed where z_i = 1 only. Any moves of theta given z alternate with a resampling of z given theta:

* implicit (their Algorithm 2, whose line 10 must read L~/q > u): dark rows are proposed to brighten at rate q_i and accepted with
  probability min(1, L~_i / q_i), bright ones darken with probability min(1, q_i / L~_i), L~ = L/B - 1;
* explicit: a share of the z redrawn, at random with or without replacement, or in order (a sweep).

Bounds and rates are frozen before warm-up. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, Policy, Sampler, Setup, init, positions, step
from tallbayes.diagnostics.light_checks import light_mixing, replay_gaps
from tallbayes.errors import OptionError, unknown
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, random_walk
from tallbayes.moves.move import Point, move
from tallbayes.proxies import lower_bounds
from tallbayes.samplers.full_data import MovePolicy
from tallbayes.schemes import lights
from tallbayes.schemes.bright_posterior import BrightPosterior, pseudo_prior, pseudo_prior_gradient, sum_of_odds
from tallbayes.schemes.estimates import same
from tallbayes.schemes.lights import Lights, changed_gradient, first_lights, log_odds, no_lights, renew_gaps, resample, shuffles
from tallbayes.target import NOT_FINITE, Target, stop_run

RESAMPLE = ("implicit", "explicit", "explicit-without", "sweep")
GRADIENT_MOVES = ("mala", "hmc", "nuts")
_EXCESS = {"hmc": 1.0, "nuts": 1.0}  # other moves, 0.2: they take so many iterations to renew theta that z keeps up
_DRAWS = 16  # of the Laplace fit, for the expected brightness of rows
_STICKY = 20.0  # iterations per row may stay bright before it is worth a word
_FLOOR = 2.0  # rows without expected brightness proposed per iteration, all together: every row must have its turn


class Info(NamedTuple):
    """What a step reports, by position: the move's columns, with the joint density, and what happened to the lights."""

    joint: int
    acceptance_rate: int
    n_steps: int
    diverging: int
    tree_depth: int
    bright: int
    looked: int
    brightened: int
    darkened: int
    seen: int


AT = positions(Info)


class State(NamedTuple):
    """Position, joint log-density and its gradient (zero for moves without), and the lights."""

    theta: np.ndarray
    log_density: float
    gradient: np.ndarray
    lights: Lights


class FireflyOptions(NamedTuple):
    """Compiled options: the kernel of the move, whether it uses gradients, how z is resampled, and after how many moves."""

    kernel: Any
    gradient: bool
    scheme: Any
    theta_moves: int


@init.register(FireflyOptions)
def _init(rng: np.random.Generator, target: Target, options: FireflyOptions, theta: np.ndarray) -> Any:
    lights = first_lights(rng, target, theta, shuffles(options.scheme))
    gap, gradient = lights.gap[: lights.tally[0]], np.zeros(theta.size)
    value = pseudo_prior(target, theta) + sum_of_odds(gap)
    if options.gradient:
        pseudo_prior_gradient(target, theta, gradient)
        changed_gradient(target, lights.order[: gap.size], np.ones(gap.size), theta, gradient)
    if not abs(value) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return State(theta.copy(), value, gradient, lights)


@step.register(FireflyOptions)
def _step(rng: np.random.Generator, target: Target, options: FireflyOptions, state: Any, info: np.ndarray) -> Any:
    count = state.lights.tally[0]
    density = BrightPosterior(target, state.lights.order[:count], np.empty(count), np.full(state.theta.size, np.nan))
    point, moves = Point(state.theta, state.log_density, state.gradient), options.theta_moves
    acceptance, steps, diverging, depth = 0.0, 0.0, 0.0, 0.0
    for _ in range(moves):
        theta = point.theta
        point = move(rng, options.kernel, density, point, info)
        if not same(point.theta, theta):
            renew_gaps(target, point.theta, state.lights, density.gap, same(point.theta, density.at))
        acceptance += info[AT.acceptance_rate] / moves
        steps += info[AT.n_steps]
        diverging = max(diverging, info[AT.diverging])
        depth = max(depth, info[AT.tree_depth])
    info[AT.acceptance_rate], info[AT.n_steps], info[AT.diverging], info[AT.tree_depth] = acceptance, steps, diverging, depth
    lights, changes = resample(rng, target, options.scheme, point.theta, state.lights)
    value, brightened = point.log_density, 0
    for k in range(changes.row.size):
        value += changes.sign[k] * log_odds(changes.gap[k])
        if changes.sign[k] > 0.0:
            brightened += 1
    gradient = point.gradient
    if options.gradient and changes.row.size > 0:
        gradient = gradient.copy()
        changed_gradient(target, changes.row, changes.sign, point.theta, gradient)
    info[AT.joint] = value
    info[AT.bright] = lights.tally[0]
    info[AT.looked] = changes.looked
    info[AT.brightened] = brightened
    info[AT.darkened] = changes.row.size - brightened
    info[AT.seen] = lights.tally[2]
    return State(point.theta, value, gradient, lights)


class FireflyPolicy(Policy):
    """Warm-up of the move; bounds and rates are fixed before it."""

    def __init__(self, move: Move, mode: Mode, scheme: Any, theta_moves: int) -> None:
        self.inner, self.scheme, self.theta_moves = MovePolicy(move, mode), scheme, theta_moves
        self.gradient = move.name in GRADIENT_MOVES

    def begin(self) -> Any:
        """As for the move on all rows."""
        return self.inner.begin()

    def window_ends(self, warmup: int) -> list[int]:
        """As for the move on all rows."""
        return self.inner.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """As for the move on all rows."""
        return self.inner.update(state, draws, info, end, warmup)

    def options(self, state: Any, final: bool) -> FireflyOptions:
        """The kernel of the move and the resampling."""
        return FireflyOptions(self.inner.options(state, final).kernel, self.gradient, self.scheme, self.theta_moves)

    def blank(self, theta: np.ndarray) -> State:
        """A state without lights."""
        return State(theta.copy(), 0.0, np.zeros(theta.size), no_lights())


@dataclass(frozen=True)
class Firefly(Sampler):
    """Firefly Monte Carlo with any move.

    `bound` is "tuned" (tight at the mode), "untuned" (tight at one `xi` for all rows), "taylor" or "taylor-uniform"; see
    `tallbayes.proxies.lower_bounds`. `resample` is "implicit", or "explicit", "explicit-without" (replacement) and "sweep", which
    redraw a `fraction` (0.1) of all lights per iteration. Implicit resampling proposes dark rows at `rate`, one number for all rows as in
    the paper, or by default at `excess` times the expected brightness of each: 1 for HMC and NUTS and 0.2 for other moves, unless given.
    `theta_moves` moves of theta precede each resampling of z; with 8, and an `excess` of 0.8, a random walk takes a third less time.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.Firefly(), draws=500, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 50)
    True
    """

    move: Move = field(default_factory=random_walk)
    bound: str = "tuned"
    resample: str = "implicit"
    xi: float | None = None
    rate: float | None = None
    excess: float | None = None
    fraction: float | None = None
    theta_moves: int = 1
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "targets the full-data posterior exactly; only bright rows are read, under proven lower bounds",
        assumed=("the proven lower bound of the family", "arithmetic in double precision"),
        checked=("no row read lies below its bound",),
    )
    name: ClassVar[str] = "firefly"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "about d rows with a tuned bound, independent of n"

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        if self.bound not in lower_bounds.NAMES:
            raise unknown("bound", self.bound, lower_bounds.NAMES)
        if self.resample not in RESAMPLE:
            raise unknown("resample", self.resample, RESAMPLE)
        for name, value in (("rate", self.rate), ("fraction", self.fraction)):
            if value is not None and not 0.0 < value <= 1.0:
                raise OptionError(f"{name} must be a probability above 0; got {value}.")
        if self.theta_moves < 1:
            raise OptionError(
                f"theta_moves is the number of moves of theta per resampling of z, at least 1; got {self.theta_moves}."
            )
        if self.excess is not None and (self.rate is not None or self.resample != "implicit"):
            raise OptionError("excess applies only to resample='implicit' with one rate per row; omit rate.")
        if self.fraction is not None and self.resample == "implicit":
            raise OptionError(
                "fraction applies only to explicit resampling; resample='implicit' has rate= or excess=. Omit it."
            )
        if self.rate is not None and self.resample != "implicit":
            raise OptionError(f"rate applies only to resample='implicit'; resample={self.resample!r} has fraction=.")
        if self.excess is not None and not (self.excess > 0.0 and math.isfinite(self.excess)):
            raise OptionError(f"excess multiplies the expected brightness of a row and must be positive; got {self.excess}.")
        if self.xi is not None and self.bound != "untuned":
            raise OptionError(f"xi applies only to bound='untuned'; bound={self.bound!r} does not use it.")

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Sum the bounds and keep predictors (two passes), estimate the brightness of rows (16 passes), make the classes of rates."""
        n = model.data.n
        if n >= 2**31:
            raise OptionError(
                f"Firefly supports fewer than 2,147,483,648 rows, because it stores row numbers in 32 bits; got {n:,}."
            )
        bound, label = lower_bounds.lower_bound(mode, self.bound, self.xi)
        bound = lower_bounds.with_known_predictors(model, bound)
        share = lower_bounds.brightness(mode, bound, _DRAWS, seed)
        expected = float(share.sum())
        if self.resample != "implicit":
            scheme: Any = lights.Explicit(
                math.ceil((0.1 if self.fraction is None else self.fraction) * n), RESAMPLE.index(self.resample) - 1
            )
        elif self.rate is not None:
            scheme = lights.single_rate(self.rate, n)
        else:
            excess = self.excess or _EXCESS.get(self.move.name, 0.2)
            floor = max(_FLOOR, 0.1 * excess * expected) / n
            scheme = lights.classes_of(np.clip(excess * share, min(floor, 1.0), 1.0))
        why = f"Firefly with {label} bounds, {expected:.3g} of {n:,} rows expected bright"
        notes = {"bound": label, "expected_bright": expected}
        return Setup(
            model, FireflyPolicy(self.move, mode, scheme, self.theta_moves), lower_bounds.with_prior(model, bound), why, notes
        )

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Bright share, rows never looked at and autocorrelation of the bright count; sentences where they are bad."""
        theta, stats = outcome.theta, outcome.stats
        n, draws = outcome.setup.model.data.n, theta.shape[1]
        share, never = float(stats["bright"].mean() / n), float(n - stats["seen"][:, -1].mean())
        notes, warnings = {"bright_share": share, "rows_never_looked_at": never}, []
        if share > 0.5:
            warnings.append(
                f"{100 * share:.0f} % of the rows are bright: the bound is loose, and a full-data sampler would cost less. "
                + ("Use bound='tuned', or a full-data sampler." if self.bound == "untuned" else "Use a full-data sampler.")
            )
        if draws < 20 or not np.ptp(stats["bright"]) > 0:
            return Diagnosis(notes, tuple(warnings))
        from arviz_stats.base import array_stats

        factor = draws * theta.shape[0] * outcome.thin / float(array_stats.ess(stats["bright"], chain_axis=0, draw_axis=1))
        stays = float(stats["bright"].sum() / max(stats["darkened"].sum(), 1.0))
        notes |= {"bright_count_IF": factor, "iterations_bright": stays}
        remedy = "rate" if self.rate is not None else "excess" if self.resample == "implicit" else "fraction"
        if stays > _STICKY and stays > 0.02 * draws * outcome.thin:
            warnings.append(
                f"a bright row stays bright for {stays:.0f} iterations on average, and the bright count has an inefficiency of "
                f"{factor:.0f}: theta moves slowly because the set of bright rows changes slowly. Raise {remedy}, or use "
                "'exact-minibatch' or 'nuts'."
            )
        return Diagnosis(notes, tuple(warnings)) + light_mixing(self.move, theta, outcome.thin * self.theta_moves, remedy)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]]:
        """Gaps of all rows at a few draws, against the likelihood."""
        facts, problems = replay_gaps(self.bound, self.xi, model, fit, pairs, rng)
        return {**facts, "bright rows in the run": float(fit.stats["bright"].mean())}, problems

"""The Zig-Zag process with control variates and weighted rows (Bierkens, Fearnhead and Roberts 2019), in whitened coordinates.

(w, v) with v in {-1, 1}^d moves on straight lines, dw/dt = v, and v_k changes its sign at the rate

    (v_k dU_k(w))^+ + sum_i (v_k dR_ik(w))^+,     dU_k + sum_i dR_ik = - d log posterior / d w_k,

which leaves posterior x uniform on {-1, 1}^d invariant in continuous time. Here dU is the gradient of the Laplace fit, w less a
constant: its events are drawn exactly. What is left of row i is dR_i = -c_i, the gradient of its second-order Taylor residual,
with |c_i| <= 3 lambda_i |w|^2 proven. Rows are candidates at the rate 3 sqrt(d) sum_i lambda_i |w + v t|^2, drawn in proportion
to lambda_i; a candidate turns coordinate k with probability |c_ik| / (3 sqrt(d) lambda_i |w|^2) if v_k c_ik < 0. Its row alone
is read. Priors with tails of Student's t add a term of the same kind for each coefficient.

Draws are the path at equal times. EXACT: no discretisation, no acceptance test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable, jit
from tallbayes.engine.family import jet1, jet2, third_supremum
from tallbayes.errors import ModelError, OptionError, unknown
from tallbayes.models.base import Model
from tallbayes.models.mode import Mode, find_mode, mode_at
from tallbayes.models.priors import LAPLACE, STUDENT
from tallbayes.models.student_t import StudentT
from tallbayes.moves import tuning as windows
from tallbayes.moves.linear import dot, upper_times
from tallbayes.proxies.remainder import certify, draw_row, rate_count
from tallbayes.proxies.slopes import slope_rate
from tallbayes.proxies.taylor import taylor, unwhiten, whiten, whitening_of
from tallbayes.samplers.base import Guarantee, Policy, Sampler, Setup, init, step
from tallbayes.target import BOUND_EXCEEDED, DIVERGED, EVALS, STATUS, Certified, residual_gradient, stop_run

HORIZON = 0.25  # time after which bounds that grow with |w| are renewed
CORRELATION = 0.5  # of successive draws that warm-up aims at
BOUNDS = ("T6", "T9")


class State(NamedTuple):
    """Position, its whitened coordinates, and velocity."""

    theta: np.ndarray
    white: np.ndarray
    velocity: np.ndarray


class PriorRows(NamedTuple):
    """Coefficients whose prior has tails of Student's t, as rows with a residual."""

    direction: np.ndarray  # in theta
    white: np.ndarray  # L' direction
    location: np.ndarray
    scale: np.ndarray
    df: np.ndarray
    start: np.ndarray  # the coordinate at the reference
    weight: np.ndarray  # lambda of each


class ZigZagOptions(NamedTuple):
    """Compiled options."""

    interval: float
    centre: np.ndarray  # where the gradient of the Laplace fit is zero
    prior: PriorRows


INFO = ("acceptance_rate", "rows", "turns", "rate", "largest_ratio")


@init.register(ZigZagOptions)
def _init(rng, target, options, theta):
    velocity = np.empty(theta.size)
    for j in range(theta.size):
        velocity[j] = 1.0 if rng.random() < 0.5 else -1.0
    return State(theta.copy(), whiten(target.proxy.whitening, theta), velocity)


@inlinable
def squared_radius(square, cross, d, time):
    """|w + v t|^2 from |w|^2 and w.v; |v|^2 = d."""
    return square + time * (2.0 * cross + d * time)


@inlinable
def spread(d):
    """sum_k |c_k| <= spread |c|: candidates must be as frequent as the turns of all coordinates together."""
    return math.sqrt(d)


@inlinable
def path_square(square, cross, d, time):
    """Integral of |w + v u|^2 over u from 0 to t."""
    return time * (square + time * (cross + d * time / 3.0))


@inlinable
def candidate_time(level, square, cross, d, horizon):
    """t with integral_0^t |w + v u|^2 du = level, or the horizon if that is sooner."""
    low, high = 0.0, horizon
    if path_square(square, cross, d, high) <= level:
        return horizon
    time = 0.5 * high
    for _ in range(100):
        excess = path_square(square, cross, d, time) - level
        if excess > 0.0:
            high = time
        else:
            low = time
        slope = squared_radius(square, cross, d, time)
        moved = time - excess / slope if slope > 0.0 else 0.5 * (low + high)
        if not low < moved < high:
            moved = 0.5 * (low + high)
        if abs(moved - time) <= 1e-15 * horizon:
            break
        time = moved
    return time


@inlinable
def _prior_gradient(prior, row, theta, out):
    """Gradient in w of the residual of one prior term."""
    family = StudentT(prior.df[row], prior.scale[row])
    place, y = dot(prior.direction[row], theta), prior.location[row]
    _, slope, curvature = jet2(family, prior.start[row], y)
    change = jet1(family, place, y)[1] - slope - curvature * (place - prior.start[row])
    for j in range(out.size):
        out[j] = change * prior.white[row, j]


@inlinable
def draw_residual(rng, target, options, rates, data_rate, prior_rate, white, out):
    """A candidate (row, or -1 for the prior), its lambda; the gradient in w of its residual is written to `out`."""
    theta = np.empty(white.size)
    unwhiten(target.proxy.whitening, white, theta)
    goal = rng.random() * (data_rate + prior_rate)
    if goal < prior_rate:
        row = 0
        while row < options.prior.weight.size - 1 and goal >= options.prior.weight[row]:
            goal -= options.prior.weight[row]
            row += 1
        _prior_gradient(options.prior, row, theta, out)
        return -1, options.prior.weight[row]
    index, one, raw = np.empty(1, np.int64), np.ones(1), np.zeros(white.size)
    index[0], limit = draw_row(rng, target.proxy.bound, rates, data_rate)
    residual_gradient(target, index, one, theta, raw)
    upper_times(target.proxy.whitening.factor, raw, out)
    return index[0], limit


@inlinable
def _candidate(rng, target, options, rates, data_rate, prior_rate, white, velocity, info):
    """Draw a row and turn a coordinate or none; 1 if one turned."""
    d = white.size
    gradient = np.empty(d)
    row, limit = draw_residual(rng, target, options, rates, data_rate, prior_rate, white, gradient)
    size, ceiling = math.sqrt(dot(gradient, gradient)), 3.0 * limit * dot(white, white)
    info[1] += 1.0 if row >= 0 else 0.0
    if not size <= ceiling * (1.0 + 1e-9) + 1e-12 * limit ** (1.0 / 3.0):  # rounding of c, whose terms cancel; NaN exceeds
        stop_run(target, BOUND_EXCEEDED, row)
    if not (size > 0.0 and ceiling > 0.0):
        return 0.0
    info[4] = max(info[4], size / ceiling)
    goal, k = rng.random() * spread(d) * size, 0
    while k < d and goal >= abs(gradient[k]):
        goal -= abs(gradient[k])
        k += 1
    if k < d and velocity[k] * gradient[k] < 0.0 and rng.random() * ceiling < size:
        velocity[k] = -velocity[k]
        return 1.0
    return 0.0


@inlinable
def _add_segment(white, velocity, time, first, second):
    """Add the integrals of w and w w' over a straight piece."""
    half, third = 0.5 * time * time, time * time * time / 3.0
    for j in range(first.size):
        first[j] += white[j] * time + velocity[j] * half
        for k in range(first.size):
            cross = white[j] * velocity[k] + white[k] * velocity[j]
            second[j, k] += white[j] * white[k] * time + cross * half + velocity[j] * velocity[k] * third


@inlinable
def travel(rng, target, options, white, velocity, time, first, second, info):
    """Move (w, v) for a time in place; `first` and `second` receive integrals of the path unless they are empty."""
    d = white.size
    bound, centre = target.proxy.bound, options.centre
    rates = np.zeros(rate_count(bound))
    prior_rate = 0.0
    for j in range(options.prior.weight.size):
        prior_rate += options.prior.weight[j]
    left = time
    while left > 0.0:
        soonest, turned = min(left, HORIZON), -1
        square, cross = dot(white, white), dot(white, velocity)
        for k in range(d):
            base = velocity[k] * (white[k] - centre[k])
            clock = math.sqrt(max(0.0, base) ** 2 - 2.0 * math.log(1.0 - rng.random())) - base
            if clock < soonest:
                soonest, turned = clock, k
        reach = math.sqrt(max(square, squared_radius(square, cross, d, soonest)))
        data_rate = slope_rate(bound, reach * (1.0 + 1e-12), rates)
        rate = 3.0 * spread(d) * (data_rate + prior_rate)
        if not rate < np.inf:
            stop_run(target, DIVERGED, 0)
            return
        candidate = False
        if rate > 0.0:
            level = -math.log(1.0 - rng.random()) / rate
            sooner = candidate_time(level, square, cross, d, soonest)
            if sooner < soonest:
                soonest, candidate = sooner, True
            info[3] += rate * path_square(square, cross, d, soonest)
        if first.size > 0:
            _add_segment(white, velocity, soonest, first, second)
        for j in range(d):
            white[j] += velocity[j] * soonest
        left -= soonest
        if candidate:
            info[2] += _candidate(rng, target, options, rates, data_rate, prior_rate, white, velocity, info)
            if target.counters[STATUS] != 0:
                return
        elif turned >= 0:
            velocity[turned] = -velocity[turned]
            info[2] += 1.0


@step.register(ZigZagOptions)
def _step(rng, target, options, state, info):
    white, velocity, theta = state.white.copy(), state.velocity.copy(), np.empty(state.white.size)
    info[:] = 0.0
    none = np.empty(0)
    travel(rng, target, options, white, velocity, options.interval, none, np.empty((0, 0)), info)
    info[0] = 1.0
    info[3] /= options.interval
    unwhiten(target.proxy.whitening, white, theta)
    return State(theta, white, velocity)


@jit
def _integrate(rng, target, options, theta, time, first, second, info):
    state = init(rng, target, options, theta)
    white, velocity = state.white.copy(), state.velocity.copy()
    nothing = np.empty(0)
    travel(rng, target, options, white, velocity, 10.0, nothing, np.empty((0, 0)), info)
    travel(rng, target, options, white, velocity, time, first, second, info)


@jit
def _candidates(rng, target, options, white, gradients, limits):
    """Residual gradients of rows drawn as candidates at one point, and their lambda; returns the sum of all lambda."""
    rates = np.zeros(rate_count(target.proxy.bound))
    total = slope_rate(target.proxy.bound, math.sqrt(dot(white, white)), rates)
    for k in range(limits.size):
        _, limits[k] = draw_residual(rng, target, options, rates, total, 0.0, white, gradients[k])
    return total


class Tuning(NamedTuple):
    """What warm-up knows: sums of products of successive draws, and the time between draws."""

    products: np.ndarray
    squares: np.ndarray
    interval: float


class PathPolicy(Policy):
    """Warm-up sets the time between draws for a correlation of about one half; the process itself has nothing to tune."""

    def __init__(self, mode: Mode, centre: np.ndarray, prior: PriorRows, interval: float | None) -> None:
        self.laplace, self.centre, self.prior, self.interval = mode.laplace(), centre, prior, interval

    def begin(self) -> Tuning:
        """Time 1 in units of the posterior standard deviation."""
        zeros = np.zeros(self.centre.size)
        return Tuning(zeros, zeros.copy(), 1.0 if self.interval is None else self.interval)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return windows.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Tuning:
        """Half-way and at the end, from the largest lag-one correlation."""
        if self.interval is not None:
            return state
        white, begun = self.laplace.whiten(draws), end - draws.shape[0]
        products = state.products + (white[1:] * white[:-1]).sum(0)
        squares = state.squares + (white[1:] ** 2).sum(0)
        if not (begun < 0.5 * warmup <= end or end == warmup):
            return state._replace(products=products, squares=squares)
        ratio = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0.0)
        largest = min(max(float(ratio.max()), 0.05), 0.95)
        change = min(max(math.log(CORRELATION) / math.log(largest), 0.25), 4.0)
        zeros = np.zeros(white.shape[1])
        return Tuning(zeros, zeros.copy(), state.interval * change)

    def options(self, state: Any, final: bool) -> ZigZagOptions:
        """The interval, and what is fixed."""
        return ZigZagOptions(state.interval, self.centre, self.prior)

    def blank(self, theta: np.ndarray) -> State:
        """A state at rest."""
        return State(theta.copy(), np.zeros(theta.size), np.ones(theta.size))


@dataclass(frozen=True)
class ZigZag(Sampler):
    """The Zig-Zag process with control variates and weighted rows.

    `interval` is the time between draws, in posterior standard deviations at unit speed; None lets warm-up set it. `bound` is
    "T6", "T9" or "auto", as for `ExactMinibatch`.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5, -0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.ZigZag(), draws=500, seed=1, progress=False)
    >>> fit.guarantee.kind, bool(fit.evals.mean() < 10)
    ('EXACT', True)
    """

    interval: float | None = None
    bound: str = "auto"
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "the process leaves the posterior invariant in continuous time; rows are drawn at random under certified rates",
        assumed=("the proven bound of the third derivative of the family", "arithmetic in double precision"),
        checked=("every rate is within its bound",),
    )
    cost: ClassVar[str] = "a few rows, whatever n"

    def __post_init__(self) -> None:
        if self.interval is not None and not 0.0 < self.interval < math.inf:
            raise OptionError(f"interval must be a positive time between draws, or None to tune it; got {self.interval}.")
        if self.bound != "auto" and self.bound not in BOUNDS:
            raise unknown("bound", self.bound, [*BOUNDS, "auto"])

    @property
    def name(self) -> str:
        """Its string name."""
        return "zigzag"

    @property
    def info(self) -> tuple[str, ...]:
        """What a step reports."""
        return INFO

    def setup(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Certify all rows (one pass), build the tables."""
        prior = prior_rows(mode)
        bound, name = certify(mode, self.bound, seed=seed)
        policy = PathPolicy(mode, mode.factor.T @ mode.gradient, prior, self.interval)
        certified = Certified(whitening_of(mode), taylor(mode), bound)
        rates = np.zeros(rate_count(bound))
        rate = 3.0 * math.sqrt(model.dim) * model.dim * slope_rate(bound, math.sqrt(model.dim) + 1.0, rates)
        why = f"Zig-Zag process with bound {name}, about {rate:.3g} candidate rows in a unit of time"
        return Setup(model, policy, certified, model.data.n, why, {"candidate rows in a unit of time": float(rate)})

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """At random draws: candidates against their bounds, and their mean against the gradient on all rows."""
        mode = mode_at(model, fit.laplace_mean)
        setup = self.setup(model, mode, fit.meta["seed"], False)
        options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
        chains, draws, d = fit.theta.shape
        largest, score = float(fit.stats["largest_ratio"].max()), 0.0
        for _ in range(pairs):
            theta = np.ascontiguousarray(fit.theta[rng.integers(chains), rng.integers(draws)])
            white, gradients, limits = mode.laplace().whiten(theta), np.empty((repeats, d)), np.ones(repeats)
            total = _candidates(rng, target, options, white, gradients, limits) if not _none(setup) else 0.0
            if total == 0.0:
                break
            terms = gradients * (total / limits)[:, None]
            sizes = np.sqrt((gradients**2).sum(1))
            largest = max(largest, float((sizes / (3.0 * limits * (white @ white))).max()))
            exact = mode.factor.T @ model.gradient(theta)[1] - options.centre + white
            for row in range(options.prior.weight.size):
                part = np.empty(d)
                _prior_gradient(options.prior, row, theta, part)
                exact -= part
            error = terms.std(0) / math.sqrt(repeats) + 1e-9 * (1.0 + np.abs(exact) + np.abs(white))
            score = max(score, float((np.abs(terms.mean(0) - exact) / error).max()))
        facts = {
            "draws at which gradients were recomputed on all rows": pairs,
            "largest rate / bound": largest,
            "largest z of the candidates' mean against the gradient on all rows": score,
        }
        problems = ["a rate exceeds its certified bound"] if largest > 1.0 + 1e-9 else []
        return facts, problems + (["the candidates are not unbiased for the gradient"] if score > 6.0 else [])


def _none(setup: Setup) -> bool:
    """Whether the likelihood is its proxy, so that no row is ever a candidate."""
    return not setup.notes["candidate rows in a unit of time"] > 0.0


def prior_rows(mode: Mode) -> PriorRows:
    """Terms of the prior that are not quadratic."""
    terms, d = mode.model.prior_terms, mode.model.dim
    if (terms.kind == LAPLACE).any():
        raise ModelError(
            "the Zig-Zag process needs a prior with bounded third derivatives: normal, flat, student_t or cauchy. Use 'exact-minibatch' "
            "with a Laplace prior."
        )
    chosen = np.flatnonzero(terms.kind == STUDENT)
    direction = np.array([terms.centre if j == terms.intercept else np.eye(d)[j] for j in chosen]).reshape(-1, d)
    white = np.ascontiguousarray(direction @ mode.factor)
    supremum = [third_supremum(StudentT(float(terms.df[j]), float(terms.scale[j])), 0.0) for j in chosen]
    weight = np.asarray(supremum) * np.linalg.norm(white, axis=1) ** 3 / 6.0
    location, scale, df = (
        np.ascontiguousarray(values[chosen], np.float64) for values in (terms.location, terms.scale, terms.df)
    )
    return PriorRows(np.ascontiguousarray(direction), white, location, scale, df, direction @ mode.reference, weight)


class PathMoments(NamedTuple):
    """Averages along a path: mean, covariance, rows read, and the time it ran."""

    mean: np.ndarray
    covariance: np.ndarray
    evals: int
    time: float


def path_moments(
    model: Model, time: float = 1000.0, seed: int = 0, mode: Mode | None = None, sampler: ZigZag | None = None
) -> PathMoments:
    """Mean and covariance integrated exactly along the path of a Zig-Zag process: no draws are taken of it.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.samplers.zigzag import path_moments
    >>> X = np.column_stack([np.ones(100), np.linspace(-1, 1, 100)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, np.tile([0, 1], 50)), tb.priors.normal(2.0))
    >>> moments = path_moments(model, time=2000.0, seed=1)
    >>> bool(np.abs(moments.mean - tb.find_mode(model).reference).max() < 0.1)
    True
    """
    if not 0.0 < time < math.inf:
        raise OptionError(f"time must be positive; got {time}.")
    mode = find_mode(model, progress=False) if mode is None else mode
    setup = (sampler or ZigZag()).setup(model, mode, seed, False)
    options, target, d = setup.policy.options(setup.policy.begin(), True), setup.target(), model.dim
    rng, first, second = np.random.default_rng(seed), np.zeros(d), np.zeros((d, d))
    start = mode.laplace().draw(rng, 1)[0]
    _integrate(rng, target, options, start, time, first, second, np.zeros(len(INFO)))
    if target.counters[STATUS] != 0:
        raise ModelError("the path stopped: a rate exceeded its certified bound. Use a full-data sampler such as 'nuts'.")
    mean = first / time
    inner = second / time - np.outer(mean, mean)
    return PathMoments(
        mode.reference + mode.factor @ mean, mode.factor @ inner @ mode.factor.T, int(target.counters[EVALS]), float(time)
    )

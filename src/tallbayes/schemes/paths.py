"""Paths of the Zig-Zag process: straight lines, exact event times, one row read at a candidate event. The law is in `zigzag`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.tables import draw_candidates, rate_count
from tallbayes.compile import inlinable, jit
from tallbayes.contract import init, positions, step
from tallbayes.engine.student_density import student_jet
from tallbayes.moves.linear import dot, upper_times
from tallbayes.proxies.capabilities import HasBound
from tallbayes.proxies.taylor import factor_of, unwhiten, whiten
from tallbayes.schemes.minibatch_gradient import residual_gradient
from tallbayes.target import BOUND_EXCEEDED, DIVERGED, WAITING, Target, stop_run, stopped

HORIZON = 0.25  # time after which bounds that grow with |w| are renewed


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


class Info(NamedTuple):
    """What a step reports, by position."""

    acceptance_rate: int
    rows: int
    turns: int
    rate: int
    largest_ratio: int


AT = positions(Info)


@init.register(ZigZagOptions)
def _init(rng: np.random.Generator, target: Target[HasBound], options: ZigZagOptions, theta: np.ndarray) -> State:
    velocity = np.empty(theta.size)
    for j in range(theta.size):
        velocity[j] = 1.0 if rng.random() < 0.5 else -1.0
    return State(theta.copy(), whiten(target.proxy.whitening, theta), velocity)


@inlinable
def squared_radius(square: float, cross: float, d: int, time: float) -> float:
    """|w + v t|^2 from |w|^2 and w.v; |v|^2 = d."""
    return square + time * (2.0 * cross + d * time)


@inlinable
def spread(d: int) -> float:
    """sum_k |c_k| <= spread |c|: candidates must be as frequent as the turns of all coordinates together."""
    return math.sqrt(d)


@inlinable
def path_square(square: float, cross: float, d: int, time: float) -> float:
    """Integral of |w + v u|^2 over u from 0 to t."""
    return time * (square + time * (cross + d * time / 3.0))


@inlinable
def candidate_time(level: float, square: float, cross: float, d: int, horizon: float) -> float:
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
def prior_residual(prior: PriorRows, row: int, theta: np.ndarray, out: np.ndarray) -> None:
    """Gradient in w of the residual of one prior term."""
    nu, scale = prior.df[row], prior.scale[row]
    place, y = dot(prior.direction[row], theta), prior.location[row]
    _, slope, curvature = student_jet(nu, scale, (y - prior.start[row]) / scale)
    change = student_jet(nu, scale, (y - place) / scale)[1] - slope - curvature * (place - prior.start[row])
    for j in range(out.size):
        out[j] = change * prior.white[row, j]


@inlinable
def draw_residual(
    rng: np.random.Generator,
    target: Target[HasBound],
    options: ZigZagOptions,
    rates: np.ndarray,
    data_rate: float,
    prior_rate: float,
    white: np.ndarray,
    out: np.ndarray,
) -> tuple[int, float]:
    """A candidate (row, or -1 for the prior), its lambda; the gradient in w of its residual is written to `out`."""
    theta = np.empty(white.size)
    unwhiten(target.proxy.whitening, white, theta)
    goal = rng.random() * (data_rate + prior_rate)
    if goal < prior_rate:
        row = 0
        while row < options.prior.weight.size - 1 and goal >= options.prior.weight[row]:
            goal -= options.prior.weight[row]
            row += 1
        prior_residual(options.prior, row, theta, out)
        return -1, options.prior.weight[row]
    index, limit, one, raw = np.empty(1, np.int64), np.empty(1), np.ones(1), np.zeros(white.size)
    if draw_candidates(rng, target.proxy.bound, rates, data_rate, index, limit) == 0:
        stop_run(target, WAITING, -1)  # a stream has run dry: the chunk is run again when it has been refilled
        out[:] = 0.0
        return -1, 0.0
    residual_gradient(target, index, one, theta, raw)
    upper_times(factor_of(target.proxy.whitening), raw, out)
    return index[0], limit[0]


@inlinable
def turn(
    rng: np.random.Generator,
    target: Target[HasBound],
    options: ZigZagOptions,
    rates: np.ndarray,
    data_rate: float,
    prior_rate: float,
    white: np.ndarray,
    velocity: np.ndarray,
    info: np.ndarray,
) -> float:
    """Draw a row and turn a coordinate or none; 1 if one turned."""
    d = white.size
    gradient = np.empty(d)
    row, limit = draw_residual(rng, target, options, rates, data_rate, prior_rate, white, gradient)
    size, ceiling = math.sqrt(dot(gradient, gradient)), 3.0 * limit * dot(white, white)
    info[AT.rows] += 1.0 if row >= 0 else 0.0
    if not size <= ceiling * (1.0 + 1e-9) + 1e-12 * limit ** (1.0 / 3.0):  # rounding of c, whose terms cancel; NaN exceeds
        stop_run(target, BOUND_EXCEEDED, row)
    if not (size > 0.0 and ceiling > 0.0):
        return 0.0
    info[AT.largest_ratio] = max(info[AT.largest_ratio], size / ceiling)
    goal, k = rng.random() * spread(d) * size, 0
    while k < d and goal >= abs(gradient[k]):
        goal -= abs(gradient[k])
        k += 1
    if k < d and velocity[k] * gradient[k] < 0.0 and rng.random() * ceiling < size:
        velocity[k] = -velocity[k]
        return 1.0
    return 0.0


@inlinable
def _add_segment(white: np.ndarray, velocity: np.ndarray, time: float, first: np.ndarray, second: np.ndarray) -> None:
    """Add the integrals of w and w w' over a straight piece."""
    half, third = 0.5 * time * time, time * time * time / 3.0
    for j in range(first.size):
        first[j] += white[j] * time + velocity[j] * half
        for k in range(first.size):
            cross = white[j] * velocity[k] + white[k] * velocity[j]
            second[j, k] += white[j] * white[k] * time + cross * half + velocity[j] * velocity[k] * third


@inlinable
def travel(
    rng: np.random.Generator,
    target: Target[HasBound],
    options: ZigZagOptions,
    white: np.ndarray,
    velocity: np.ndarray,
    time: float,
    first: np.ndarray,
    second: np.ndarray,
    info: np.ndarray,
) -> None:
    """Move (w, v) for a time in place; `first` and `second` receive integrals of the path unless they are empty."""
    d = white.size
    bound, centre = target.proxy.bound, options.centre
    rates = np.zeros(rate_count(bound))
    prior_rate = 0.0
    for j in range(options.prior.weight.size):
        prior_rate += options.prior.weight[j]
    left = time
    while left > 0.0:
        if stopped(target):
            return
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
            info[AT.rate] += rate * path_square(square, cross, d, soonest)
        if first.size > 0:
            _add_segment(white, velocity, soonest, first, second)
        for j in range(d):
            white[j] += velocity[j] * soonest
        left -= soonest
        if candidate:
            info[AT.turns] += turn(rng, target, options, rates, data_rate, prior_rate, white, velocity, info)
        elif turned >= 0:
            velocity[turned] = -velocity[turned]
            info[AT.turns] += 1.0


@step.register(ZigZagOptions)
def _step(rng: np.random.Generator, target: Target[HasBound], options: ZigZagOptions, state: State, info: np.ndarray) -> State:
    white, velocity, theta = state.white.copy(), state.velocity.copy(), np.empty(state.white.size)
    info[:] = 0.0
    none = np.empty(0)
    travel(rng, target, options, white, velocity, options.interval, none, np.empty((0, 0)), info)
    info[AT.acceptance_rate] = 1.0
    info[AT.rate] /= options.interval
    unwhiten(target.proxy.whitening, white, theta)
    return State(theta, white, velocity)


@jit
def integrate(
    rng: np.random.Generator,
    target: Target[HasBound],
    options: ZigZagOptions,
    theta: np.ndarray,
    time: float,
    first: np.ndarray,
    second: np.ndarray,
    info: np.ndarray,
) -> None:
    """Integrals of w and w w' over a path from theta, after ten units of time that are not counted."""
    state = init(rng, target, options, theta)
    white, velocity = state.white.copy(), state.velocity.copy()
    nothing = np.empty(0)
    travel(rng, target, options, white, velocity, 10.0, nothing, np.empty((0, 0)), info)
    travel(rng, target, options, white, velocity, time, first, second, info)


@jit
def candidates(
    rng: np.random.Generator,
    target: Target[HasBound],
    options: ZigZagOptions,
    white: np.ndarray,
    gradients: np.ndarray,
    limits: np.ndarray,
) -> float:
    """Residual gradients of rows drawn as candidates at one point, and their lambda; returns the sum of all lambda."""
    rates = np.zeros(rate_count(target.proxy.bound))
    total = slope_rate(target.proxy.bound, math.sqrt(dot(white, white)), rates)
    for k in range(limits.size):
        _, limits[k] = draw_residual(rng, target, options, rates, total, 0.0, white, gradients[k])
    return total

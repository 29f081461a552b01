"""The posterior with an estimated likelihood, |L-hat(theta; u)| p(theta), as a density for moves: rows u stay fixed.

Shared by the pseudo-marginal samplers. Evaluated residuals and slopes are kept, so that drawing a part of u anew at the same
theta costs only the new rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import positions
from tallbayes.engine.residuals import add_curvatures, add_slopes, residual_slopes, residual_values, slope_count
from tallbayes.moves.move import log_density_gradient
from tallbayes.priors import prior_gradient, prior_value
from tallbayes.proxies.capabilities import HasDifference, HasWall
from tallbayes.proxies.difference import combine, fresh_rows, proxy_sum, proxy_sum_gradient, refreshed_rows
from tallbayes.proxies.taylor import Whitening, reference_of, whiten
from tallbayes.target import Target, count, stopped

LIKELIHOOD, SIGN, VARIANCE, BEYOND = 0, 1, 2, 3


class Info(NamedTuple):
    """What a step of a block pseudo-marginal sampler reports, by position."""

    accepted: int
    acceptance_rate: int
    component: int
    u_accepted: int
    log_likelihood: int
    variance: int
    wall: int
    rows: int


AT = positions(Info)


class Auxiliary(NamedTuple):
    """Auxiliary variables u and what is known of them at one theta."""

    indices: np.ndarray
    scale: np.ndarray  # 1 / p of each row
    counts: np.ndarray  # minibatches of each product; empty for the penalty
    values: np.ndarray  # residuals
    slopes: np.ndarray  # their derivatives


class EstimatedPosterior(NamedTuple):
    """A density for moves. `rows`, `at` and `marks` hold what the last evaluation found, and where."""

    target: Target
    estimator: Any
    rows: Auxiliary
    at: np.ndarray
    marks: np.ndarray  # log |L-hat|, sign, variance; evaluations beyond the wall


@inlinable
def control_values(target: Target[HasDifference], index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Residuals l_i - q_i of the indexed rows: one evaluation per row."""
    count(target, index.size, 0, index.size)
    residual_values(target.rows, index, theta, reference_of(target.proxy.whitening), target.proxy.order, out)


@inlinable
def control_slopes(
    target: Target[HasDifference], index: np.ndarray, theta: np.ndarray, out: np.ndarray, slopes: np.ndarray
) -> None:
    """The same with gradients, as derivatives in the linear predictors: one evaluation per row."""
    count(target, index.size, index.size, index.size)
    residual_slopes(target.rows, index, theta, reference_of(target.proxy.whitening), target.proxy.order, out, slopes)


@inlinable
def add_control_gradient(
    target: Target, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray
) -> None:
    """Add gradients that `control_slopes` has evaluated, times factors: no new evaluation."""
    add_slopes(target.rows, index, slopes, factors, gradient)


@inlinable
def add_reference_curvature(target: Target[HasDifference], index: np.ndarray, factors: np.ndarray, hessian: np.ndarray) -> None:
    """Add Hessians of the indexed rows at the reference, times factors: scalars at the reference are not counted."""
    add_curvatures(target.rows, index, factors, reference_of(target.proxy.whitening), hessian)


@inlinable
def assemble(
    target: Target[HasDifference], estimator: Any, rows: Auxiliary, theta: np.ndarray, gradient: np.ndarray, marks: np.ndarray
) -> float:
    """Log-density and its gradient from evaluated residuals."""
    factors = np.empty(rows.values.size)
    log_likelihood = _estimate(target.proxy, estimator, rows, theta, gradient, factors, marks)
    add_control_gradient(target, rows.indices, rows.slopes, factors, gradient)
    return log_likelihood + prior_gradient(target.prior, theta, gradient)


@inlinable
def _estimate(
    proxy: Any, estimator: Any, rows: Auxiliary, theta: np.ndarray, gradient: np.ndarray, factors: np.ndarray, marks: np.ndarray
) -> float:
    """log |L-hat|, with the gradient of the proxies and the factors by which slopes are to be added to it."""
    total, sign, variance = combine(estimator, rows.counts, rows.values * rows.scale, factors)
    for k in range(factors.size):
        factors[k] *= rows.scale[k]
    log_likelihood = proxy_sum_gradient(proxy, theta, gradient) + total
    marks[0], marks[1], marks[2] = log_likelihood, sign, variance
    return log_likelihood


@inlinable
def inside(target: Target[HasWall], theta: np.ndarray) -> bool:
    """Whether theta is within the radius of the proxy (F.1, guard iii)."""
    return within(target.proxy.whitening, target.proxy.radius, theta)


@inlinable
def within(whitening: Whitening, radius: float, theta: np.ndarray) -> bool:
    """Whether theta is at most `radius` from the reference, in whitened coordinates."""
    white = whiten(whitening, theta)
    square = 0.0
    for j in range(white.size):
        square += white[j] * white[j]
    return square <= radius * radius


@inlinable
def at_wall(target: Target[HasWall], white: np.ndarray) -> float:
    """1 if a state is in the outer tenth before the wall, where a posterior has no mass: proposals may well go beyond it."""
    return 1.0 if math.sqrt((white * white).sum()) > 0.9 * target.proxy.radius else 0.0


@inlinable
def pulled_in(target: Target[HasWall], theta: np.ndarray) -> np.ndarray:
    """theta, or the point of the segment to the reference that lies just inside the wall: chains may start far away."""
    white = whiten(target.proxy.whitening, theta)
    norm = math.sqrt((white * white).sum())
    reference = reference_of(target.proxy.whitening)
    if norm <= target.proxy.radius:
        return theta.copy()
    return reference + (theta - reference) * (0.99 * target.proxy.radius / norm)


@log_density_gradient.register(EstimatedPosterior)
def _log_density_gradient(density: EstimatedPosterior, theta: np.ndarray, gradient: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    rows = density.rows
    control_slopes(density.target, rows.indices, theta, rows.values, rows.slopes)
    density.at[:] = theta
    value = assemble(density.target, density.estimator, rows, theta, gradient, density.marks)
    if not inside(density.target, theta):
        density.marks[3] += 1.0
        return -np.inf
    return value


@inlinable
def same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two points are equal to the bit."""
    different = 0
    for j in range(first.size):
        if first[j] != second[j]:
            different += 1
    return different == 0


@inlinable
def first_rows(rng: np.random.Generator, target: Target[HasDifference], estimator: Any, theta: np.ndarray) -> Auxiliary:
    """u from its law, evaluated at theta."""
    index, scale, counts = fresh_rows(rng, estimator, target.proxy.scheme)
    values, slopes = np.empty(index.size), np.empty((index.size, slope_count(target.rows)))
    control_slopes(target, index, theta, values, slopes)
    return Auxiliary(index, scale, counts, values, slopes)


@inlinable
def renewed_rows(
    rng: np.random.Generator, target: Target[HasDifference], estimator: Any, rows: Auxiliary, theta: np.ndarray
) -> Auxiliary:
    """u with a part redrawn: only that part is evaluated, at the same theta."""
    index, scale, counts, origin = refreshed_rows(rng, estimator, target.proxy.scheme, rows.indices, rows.scale, rows.counts)
    values, slopes, place = _kept(rows, origin)
    fresh_values, fresh_slopes = np.empty(place.size), np.empty((place.size, slopes.shape[1]))
    control_slopes(target, index[place], theta, fresh_values, fresh_slopes)
    _put(values, slopes, place, fresh_values, fresh_slopes)
    return Auxiliary(index, scale, counts, values, slopes)


@inlinable
def _kept(rows: Auxiliary, origin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and slopes of the rows that stay, each moved from its old place, and the places of the others."""
    width = rows.slopes.shape[1]
    values, slopes = np.empty(origin.size), np.empty((origin.size, width))
    place, new = np.empty(origin.size, np.int64), 0
    for k in range(origin.size):
        old = origin[k]
        if old < 0:
            place[new] = k
            new += 1
        else:
            values[k] = rows.values[old]
            for j in range(width):
                slopes[k, j] = rows.slopes[old, j]
    return values, slopes, place[:new]


@inlinable
def _put(values: np.ndarray, slopes: np.ndarray, place: np.ndarray, fresh_values: np.ndarray, fresh_slopes: np.ndarray) -> None:
    for r in range(place.size):
        values[place[r]] = fresh_values[r]
        for j in range(slopes.shape[1]):
            slopes[place[r], j] = fresh_slopes[r, j]


@inlinable
def empty_like(rows: Auxiliary) -> Auxiliary:
    """The same u without values."""
    return Auxiliary(rows.indices, rows.scale, rows.counts, np.empty(rows.values.size), np.empty(rows.slopes.shape))


@inlinable
def log_estimate(target: Target[HasDifference], estimator: Any, rows: Auxiliary, theta: np.ndarray) -> tuple[float, float]:
    """log |L-hat| from evaluated residuals, and its sign."""
    total, sign, _ = combine(estimator, rows.counts, rows.values * rows.scale, np.empty(rows.values.size))
    return proxy_sum(target.proxy, theta) + total, sign


@inlinable
def log_prior_at(target: Target, theta: np.ndarray) -> float:
    """Log prior density."""
    return prior_value(target.prior, theta)


def blank_rows(rows: Any) -> Auxiliary:
    """No rows of this kind, with the right types."""
    width = int(slope_count(rows))
    return Auxiliary(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, width)))

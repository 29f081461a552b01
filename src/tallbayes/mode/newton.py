"""Newton's method for the log posterior, its steps shortened where they fail; kinks of Laplace priors and centred columns included."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tallbayes.errors import ModelError
from tallbayes.mode.ascent import LocalModel
from tallbayes.mode.centring import Centring
from tallbayes.mode.kinks import Kinks, kink_curvature, kinks_of
from tallbayes.mode.messages import exact_fit, name_flat_direction, no_maximum, separable
from tallbayes.model import Model
from tallbayes.priors import prior_gradient, prior_precision

_MAX_STEPS = 100
_FLAT = 1e-11  # relative size of an eigenvalue of the scaled precision that counts as zero
_EXACT = -25.0  # log of sigma relative to the response: errors of 1e-11 are rounding


class Point(NamedTuple):
    """The log posterior at theta; gradient and precision are of all but the kinks of a Laplace prior.

    With centring they and the Hessian are in its coordinates.
    """

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    hessian: np.ndarray  # of the log-likelihood
    precision: np.ndarray


def newton(
    model: Model,
    likelihood: Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]],
    theta: np.ndarray,
    scale: float,
    tolerance: float,
    centring: Centring | None,
) -> Point:
    """Maximise scale * likelihood + log prior by Newton's steps, of limited length once one of them has failed."""
    kinks = kinks_of(model.prior_terms)

    def evaluate(at: np.ndarray) -> Point:
        at = at if centring is None else centring.outwards(at)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that went too far is refused for its value
            return evaluated(model, likelihood(at), at, scale, kinks, centring)

    theta = theta if centring is None else centring.inwards(theta)
    point, radius, distance = evaluate(theta), np.inf, np.inf
    for _ in range(_MAX_STEPS):
        if not (np.isfinite(point.value) and np.isfinite(point.precision).all()):
            raise ModelError("the log posterior or its curvature is not finite; rescale columns with very large values.")
        local = _local_model(model, point, kinks, centring)
        slack = 1e-10 * (1.0 + abs(point.value))  # rounding of a sum over many rows
        goal, reach = local.step()
        distance = np.sqrt(local.curved(goal))
        if distance < tolerance:
            rising = local.rising()
            higher = None if rising is None else _climb(evaluate, local.theta, point.value, rising, slack)
            if higher is None:
                if not kinks.where.size:  # a Laplace prior is proper
                    _require_definite(model, point.precision, centring)
                return point
            point = higher
            continue
        while True:
            if reach > radius:
                goal, reach = local.step(radius)
            moved, gain = evaluate(goal), local.gain(goal)
            if moved.value >= point.value + 1e-4 * gain - slack:
                break
            radius = 0.5 * reach
            if radius < 1e-12:
                raise ModelError(
                    "the search for the mode stalled: no Newton step increases the log posterior. "
                    + (model.family.mode_advice or "Rescale columns with very large or very small values.")
                )
        if moved.value >= point.value + 0.5 * gain:
            radius *= 4.0
        point = moved
        if model.nuisances and point.theta[-1] < log_spread(model) + _EXACT:
            raise ModelError(exact_fit(model))
        if np.abs(point.theta).max() > 1e12:
            break
    raise ModelError(_divergence(model, point, distance))


def evaluated(
    model: Model,
    likelihood: tuple[float, np.ndarray, np.ndarray],
    theta: np.ndarray,
    scale: float,
    kinks: Kinks,
    centring: Centring | None,
) -> Point:
    """The log posterior from the likelihood of rows that count `scale` times."""
    value, gradient, hessian = likelihood
    value, gradient, hessian = value * scale, gradient * scale, hessian * scale
    if centring is not None:
        slope = np.zeros(theta.size)
        value += prior_gradient(model.prior_terms, theta, slope)
        precision = centring.curvature(prior_precision(model.prior_terms, theta)) - hessian
        return Point(theta, value, gradient + centring.gradient(slope), hessian, precision)
    value += prior_gradient(model.prior_terms, theta, gradient)
    gradient[kinks.where] += kinks.slope * kinks.signs(theta)
    return Point(theta, value, gradient, hessian, prior_precision(model.prior_terms, theta) - hessian)


def _local_model(model: Model, point: Point, kinks: Kinks, centring: Centring | None) -> LocalModel:
    flat = np.diag(point.precision) == 0.0
    flat[kinks.where] = False
    if flat.any():
        name_flat_direction(model, np.eye(flat.size)[int(np.argmax(flat))])
    theta = point.theta if centring is None else centring.inwards(point.theta)
    local = LocalModel(theta, point.gradient, point.precision, kinks)
    if local.newton is None and not model.prior.proper:
        values, vectors = local.eigen
        least = int(np.argmin(np.abs(values)))
        if abs(values[least]) < _FLAT:
            name_flat_direction(model, theta_direction(local.scale * vectors[:, least], centring))
    return local


def theta_direction(vector: np.ndarray, centring: Centring | None) -> np.ndarray:
    """A direction of the search in coordinates of theta."""
    return vector if centring is None else centring.outwards(vector)


def _climb(
    evaluate: Callable[[np.ndarray], Point], at: np.ndarray, value: float, rising: np.ndarray, slack: float
) -> Point | None:
    """A point higher than a saddle or minimum, in a direction that curves upwards; None if there is none."""
    for size in (1.0, 0.25, 1 / 16, 1 / 64):
        for step in (size * rising, -size * rising):
            moved = evaluate(at + step)
            if moved.value > value + slack:
                return moved
    return None


def whole_precision(point: Point, kinks: Kinks) -> np.ndarray:
    """The precision with the curvature that stands in for kinks."""
    if not kinks.where.size:
        return point.precision
    local = LocalModel(point.theta, point.gradient, point.precision, kinks)
    smooth = local.definite()
    smooth[kinks.where, kinks.where] += kink_curvature(smooth, point.gradient, kinks, point.theta)
    return smooth


def _require_definite(model: Model, precision: np.ndarray, centring: Centring | None) -> None:
    scale = 1.0 / np.sqrt(np.abs(np.diag(precision)))
    eigenvalues, vectors = np.linalg.eigh(precision * np.outer(scale, scale))
    if eigenvalues[0] < _FLAT:
        name_flat_direction(model, theta_direction(scale * vectors[:, 0], centring))


def _divergence(model: Model, point: Point, distance: float) -> str:
    if separable(model) and not model.prior.proper:
        spread = np.abs(point.theta) * np.maximum(model.data.moments.sd[: model.dim], 1e-300)
        return no_maximum(model, model.names[int(np.argmax(spread))])
    text = f"the search for the mode did not converge in {_MAX_STEPS} steps: "
    if np.abs(point.theta).max() > 1e12:
        worst = model.names[int(np.argmax(np.abs(point.theta)))]
        return f"{text}{worst!r} diverges. Use a proper prior such as tallbayes.priors.normal(10.0), or rescale its column."
    remedy = model.family.mode_advice or "Rescale the columns, drop collinear ones, or increase a small error scale."
    return f"{text}it is still about {distance:.2g} posterior standard deviations away. {remedy}"


def log_spread(model: Model) -> float:
    """Log spread of response less offset, about its mean if an intercept can take that, else about zero."""
    d, moments = model.data.d, model.data.moments
    centre = moments.mean[d] - moments.mean[d + 1] if model.data.intercept is None else 0.0
    if (moments.low[d : d + 2] == moments.high[d : d + 2]).all() and centre == 0.0:
        return -np.inf
    return float(np.log(np.hypot(np.hypot(moments.sd[d], moments.sd[d + 1]), centre)))

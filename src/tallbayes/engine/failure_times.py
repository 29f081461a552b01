"""Times until an event, some of them right-censored: laws of location and scale of log t, z = (log t - eta) / sigma, tau = log sigma.

The response is t for an event at t and -t for a row that was censored at t. A law registers `standard_jet`, the log density of z and three
derivatives where there was an event, and the log of P(Z > z) where there was none:

    f = h_1(z) - tau - log t  (event),    f = h_0(z)  (censored).

The third derivatives are those of any law of location and scale: G_0 = h''', G_1 = 2 h'' + z h''', G_2 = h' + 3 z h'' + z^2 h''' and
G_3 = z G_2, times powers of 1 / sigma. `standard_suprema` bounds the first three on intervals.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tallbayes.compile import declared, generic
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value


@generic
@declared
def standard_jet(law: Any, z: float, event: bool) -> tuple[float, float, float]:
    """h, h' and h'' at z."""
    raise TypeError


@functools.singledispatch
def standard_suprema(law: Any, low: np.ndarray, high: np.ndarray, event: np.ndarray) -> tuple[Any, Any, Any]:
    """sup |G_0|, sup |G_1| and sup |G_2| for z in [low, high]."""
    raise TypeError


def failure_value(family: Any, u: np.ndarray, y: float) -> float:
    """Log-likelihood of a row, without -log t."""
    event = y > 0.0
    h = standard_jet(family, (math.log(abs(y)) - u[0]) * math.exp(-u[1]), event)[0]
    return h - u[1] if event else h


def failure_gradient(family: Any, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    """The same with its gradient in eta and tau."""
    event, inverse = y > 0.0, math.exp(-u[1])
    z = (math.log(abs(y)) - u[0]) * inverse
    h, slope, _ = standard_jet(family, z, event)
    gradient[0] = -slope * inverse
    gradient[1] = -slope * z - (1.0 if event else 0.0)
    return h - u[1] if event else h


def failure_hessian(family: Any, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """The same with its Hessian."""
    event, inverse = y > 0.0, math.exp(-u[1])
    z = (math.log(abs(y)) - u[0]) * inverse
    h, slope, curvature = standard_jet(family, z, event)
    gradient[0] = -slope * inverse
    gradient[1] = -slope * z - (1.0 if event else 0.0)
    hessian[0, 0] = curvature * inverse * inverse
    hessian[0, 1] = (slope + curvature * z) * inverse
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = (slope + curvature * z) * z
    return h - u[1] if event else h


def failure_bounds(member: Any, near: Neighbourhood) -> np.ndarray:
    """The certificate: bounds of third derivatives along lines."""
    tau, t = near.nuisance(0), near.nuisance_speed(0)
    smallest, largest = (math.exp(end) for end in near.between(tau, t))
    times = np.log(np.abs(near.y))
    ends = np.stack([end / sigma for end in near.between(times - near.eta, near.speed) for sigma in (smallest, largest)])
    low, high = ends.min(0), ends.max(0)
    low, high = low - 1e-12 * np.abs(low), high + 1e-12 * np.abs(high)
    first, second, third = standard_suprema(member, low, high, near.y > 0.0)
    far = np.maximum(np.abs(low), np.abs(high))
    return cubic_form(near.speed / smallest, t, first, second, third, far * third)


def register_law(kind: type) -> None:
    """Make a law of failure times a family of two indices with a certificate."""
    vector_value.register(kind)(failure_value)
    vector_gradient.register(kind)(failure_gradient)
    vector_hessian.register(kind)(failure_hessian)
    third_bounds.register(kind)(failure_bounds)


def failure_normaliser(member: Any, y: np.ndarray) -> np.ndarray:
    """-log t where there was an event."""
    return np.where(y > 0.0, -np.log(np.abs(y)), 0.0)


def admits_times(y: np.ndarray) -> np.ndarray:
    """Times other than 0."""
    return np.isfinite(y) & (y != 0.0)


def start_times(model: Any) -> np.ndarray:
    """Location and spread of log t over a part of the rows."""
    theta, data = np.zeros(model.dim), model.data
    picked = np.asarray(data.records[:: max(1, data.n // 20_000), data.d : data.d + 2], float)
    times = np.log(np.abs(picked[:, 0])) - picked[:, 1]
    share = max(float(np.mean(picked[:, 0] > 0.0)), 0.02)
    if data.intercept is not None:
        theta[data.intercept] = float(np.mean(times)) - math.log(share)
    theta[-1] = math.log(max(0.7 * float(np.std(times)), 1e-6))
    return theta

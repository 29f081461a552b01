"""Scalar functions that generated families call: total in plain Python, where the mathematical library raises.

Outside its domain a function is NaN, at a pole infinite; nothing raises, so that both branches of a choice may be computed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import roots_jacobi

from tallbayes.compile import SCALAR, inlinable
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.several_functions import vector_hessian, vector_value
from tallbayes.families.probit import mills

_LN2 = 0.6931471805599453


@inlinable(options=SCALAR)
def inverse(x: float) -> float:
    """1 / x; infinite at 0."""
    safe = 1.0 if x == 0.0 else x
    ratio = 1.0 / safe
    return np.inf if x == 0.0 else ratio


@inlinable(options=SCALAR)
def log(x: float) -> float:
    """Natural logarithm."""
    inside = math.log(x if x > 0.0 else 1.0)
    outside = -np.inf if x == 0.0 else np.nan
    return inside if x > 0.0 else outside


@inlinable(options=SCALAR)
def log1p(x: float) -> float:
    """log(1 + x), accurate near 0."""
    inside = math.log1p(x if x > -1.0 else 0.0)
    outside = -np.inf if x == -1.0 else np.nan
    return inside if x > -1.0 else outside


@inlinable(options=SCALAR)
def expm1(x: float) -> float:
    """e^x - 1, accurate near 0; clipped like `exp`."""
    return math.expm1(min(max(x, -745.0), 709.0)) if x == x else x


@inlinable(options=SCALAR)
def root(x: float) -> float:
    """Square root."""
    inside = math.sqrt(max(x, 0.0))
    return inside if x >= 0.0 else np.nan


@inlinable(options=SCALAR)
def power(x: float, p: float) -> float:
    """x^p for x > 0 and any real p."""
    return exp(p * log(x))


@inlinable(options=SCALAR)
def logistic_parts(x: float) -> tuple[float, float, float, float, float]:
    """log(1 + e^x) in two parts, expit(x), expit(x) expit(-x) and 1 - 2 expit(x), none of them by cancellation."""
    z = exp(-abs(x))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    s = larger if x >= 0.0 else smaller
    skew = (1.0 - z) * larger
    opposite = -skew
    signed = opposite if x >= 0.0 else skew
    return max(x, 0.0), log1p_unit(z), s, smaller * larger, signed


@inlinable(options=SCALAR)
def log1mexp(x: float) -> float:
    """log(1 - e^-x) for x > 0."""
    safe = x if x > 0.0 else 1.0
    near = math.log(-math.expm1(-min(safe, 1.0)))
    far = math.log1p(-exp(-max(safe, 0.5)))
    inside = near if safe < _LN2 else far
    outside = -np.inf if x == 0.0 else np.nan
    return inside if x > 0.0 else outside


@inlinable(options=SCALAR)
def tanh_parts(x: float) -> tuple[float, float]:
    """tanh(x) and 1 - tanh(x)^2, neither by cancellation."""
    z = exp(-2.0 * abs(x))
    below = 1.0 / (1.0 + z)
    size = -math.expm1(-2.0 * min(abs(x), 354.0)) * below
    opposite = -size
    return size if x >= 0.0 else opposite, 4.0 * z * below * below


@inlinable(options=SCALAR)
def normal_parts(x: float) -> tuple[Any, float, float]:
    """log Phi(x), m = phi(x) / Phi(x) and x + m."""
    return mills(x)


@inlinable(options=SCALAR)
def normal_density(x: float) -> float:
    """phi(x)."""
    return exp(-0.5 * x * x - 0.9189385332046727)


@inlinable(options=SCALAR)
def normal_distribution(x: float) -> float:
    """Phi(x)."""
    return 0.5 * math.erfc(-x * 0.7071067811865476)


@inlinable
def _knot(knots: np.ndarray, y: float) -> int:
    """Number of the last knot at or below y, or -1."""
    low, high = 0, knots.size
    while low < high:
        middle = (low + high) // 2
        if knots[middle] <= y:
            low = middle + 1
        else:
            high = middle
    return low - 1


@inlinable
def _share(knots: np.ndarray, linked: np.ndarray, k: int, y: float) -> float:
    """How far y is from knot k to the next: 0 at the knot, NaN where no certificate covers y."""
    if k < 0:
        return np.nan
    if y == knots[k]:
        return 0.0
    if k + 1 >= knots.size or linked[k] == 0.0:
        return np.nan
    return (y - knots[k]) / (knots[k + 1] - knots[k])


@inlinable
def table_supremum(certificate: Any, y: float) -> float:
    """sup |f'''| over all eta: between two knots the chord, which is above a convex function of y; infinite outside."""
    at = certificate.knots[0] if certificate.location > 0.0 else y
    k = _knot(certificate.knots, at)
    share = _share(certificate.knots, certificate.linked, k, at)
    if not share >= 0.0:
        return np.inf
    if share == 0.0:
        return certificate.everywhere[k]
    return (1.0 - share) * certificate.everywhere[k] + share * certificate.everywhere[k + 1]


@inlinable
def table_supremum_on(certificate: Any, y: float, low: float, high: float) -> float:
    """sup |f'''| over [low, high]: the largest of the cells it meets; cells 0 and the last are the tails."""
    at, start, stop = y, low, high
    if certificate.location > 0.0:
        at, start, stop = certificate.knots[0], low - y, high - y
        slack = 4e-16 * (abs(low) + abs(high) + abs(y))  # rounding of the two differences
        start -= slack
        stop += slack
    k = _knot(certificate.knots, at)
    share = _share(certificate.knots, certificate.linked, k, at)
    if not (share >= 0.0 and start <= stop):
        return np.inf
    cell, largest = _knot(certificate.edges, start) + 1, 0.0
    while True:
        here = certificate.table[k, cell]
        if share > 0.0:
            here = (1.0 - share) * here + share * certificate.table[k + 1, cell]
        largest = max(largest, here)
        if cell >= certificate.edges.size or certificate.edges[cell] >= stop:
            return largest
        cell += 1


def residual_rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t and weights w with int_0^1 (1 - t) g(t) dt = sum of w g(t) for polynomials g up to degree 2 count - 1."""
    points, weights = roots_jacobi(count, 1.0, 0.0)
    return (points + 1.0) / 2.0, weights / 4.0


_POINTS, _WEIGHTS = residual_rule(5)


@inlinable
def integrated(family: Any, base: np.ndarray, shift: np.ndarray, y: float, points: np.ndarray, weights: np.ndarray) -> float:
    """f(base + shift) less its second-order expansion: the integral of (1 - t) (H(base + t shift) - H(base))[shift, shift]."""
    g, start, there = np.empty(2), np.empty((2, 2)), np.empty((2, 2))
    vector_hessian(family, base, y, g, start)
    total = 0.0
    for k in range(points.size):
        vector_hessian(family, base + points[k] * shift, y, g, there)
        bend = 0.0
        for i in range(2):
            for j in range(2):
                bend += (there[i, j] - start[i, j]) * shift[i] * shift[j]
        total += weights[k] * bend
    return total


@inlinable
def pair_residual(family: Any, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """f(base + shift) less its second-order expansion: the integral near `base`, where a difference would cancel."""
    if abs(shift[0]) * exp(-base[1]) + abs(shift[1]) <= family.window:
        return integrated(family, base, shift, y, _POINTS, _WEIGHTS)
    g, h = np.empty(2), np.empty((2, 2))
    f = vector_hessian(family, base, y, g, h)
    first = g[0] * shift[0] + g[1] * shift[1]
    second = h[0, 0] * shift[0] * shift[0] + 2.0 * h[0, 1] * shift[0] * shift[1] + h[1, 1] * shift[1] * shift[1]
    return vector_value(family, base + shift, y) - (f + first + 0.5 * second)

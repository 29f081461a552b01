"""Quadratic functions below a log-likelihood: what a row's gap log L - log B is, its slope, and log B at the reference.

Jaakkola-Jordan for logistic rows, the tangent in r^2 for Student-t rows, Boehning for softmax rows; and the second-order Taylor
expansion, which is a bound only with a penalty. Gaps are computed without cancellation: as the third-order residual of the family
plus the excess curvature of the bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, inlinable
from tallbayes.engine.arithmetic import exp, log1p_excess
from tallbayes.engine.family_functions import jet1, jet2, residual, slope_residual
from tallbayes.engine.lower_gaps import (
    lower_gap,
    lower_jet,
    lower_slope,
    vector_lower_gap,
    vector_lower_jet,
    vector_lower_slope,
)
from tallbayes.engine.multi_index import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.families.logistic import bernoulli_residual


class JaakkolaJordan(NamedTuple):
    """Quadratic bound of a logistic row, tangent at |eta| = xi; a negative xi is |eta| at the reference."""

    xi: float


class StudentTangent(NamedTuple):
    """Gaussian bound of a Student-t row, tangent at |r| = xi; a negative xi is |r| at the reference."""

    xi: float


class Boehning(NamedTuple):
    """Quadratic bound of a softmax row, tangent at the reference."""


class TaylorKind(NamedTuple):
    """Second-order Taylor expansion at the reference; a bound only with its penalties."""


@inlinable(options=SCALAR)
def _lambda(xi):
    """tanh(xi/2) / (4 xi), by its series near 0."""
    z = exp(-xi)
    q = 0.25 * xi * xi
    near = 0.125 * (1.0 - q * (1 / 3 - q * (2 / 15 - q * (17 / 315 - q * (62 / 2835)))))
    far = 0.25 * (1.0 - z) / ((1.0 + z) * max(xi, 0.1))
    return near if xi < 0.2 else far


@inlinable(options=SCALAR)
def _excess(xi):
    """lambda(xi) less half the curvature of the likelihood there, by its series near 0."""
    z = exp(-xi)
    larger = 1.0 / (1.0 + z)
    q = 0.25 * xi * xi
    near = 0.125 * q * (2 / 3 - q * (8 / 15 - q * (34 / 105 - q * (496 / 2835 - q * (2764 / 31185)))))
    far = 0.25 * (1.0 - z) * larger / max(xi, 0.1) - 0.5 * z * larger * larger
    return near if xi < 0.2 else far


@lower_gap.register(JaakkolaJordan)
def _jj_gap(kind, family, base, shift, y):
    """Both sides are even in eta: what is left beyond the tangent at xi >= 0, along |eta| - xi."""
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    step = abs(base + shift) - xi
    return bernoulli_residual(xi, step) + _excess(xi) * step * step


@lower_slope.register(JaakkolaJordan)
def _jj_slope(kind, family, base, shift, y):
    eta = base + shift
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    return 2.0 * _lambda(xi) * eta - 0.5 * math.tanh(0.5 * eta)


@lower_jet.register(JaakkolaJordan)
def _jj_jet(kind, family, base, y):
    f, slope = jet1(family, base, y)
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    return f - lower_gap(kind, family, base, 0.0, y), slope - lower_slope(kind, family, base, 0.0, y), -2.0 * _lambda(xi)


@inlinable(options=SCALAR)
def _t_parts(kind, family, base, shift, y):
    """Residual r, nu + xi^2, and the relative change x of nu + r^2 from the tangent point."""
    first = (y - base) / family.scale
    r = first - shift / family.scale
    xi = first if kind.xi < 0.0 else kind.xi
    level = family.nu + xi * xi
    return r, level, (r - xi) * (r + xi) / level


@lower_gap.register(StudentTangent)
def _t_gap(kind, family, base, shift, y):
    return -0.5 * (family.nu + 1.0) * log1p_excess(_t_parts(kind, family, base, shift, y)[2])


@lower_slope.register(StudentTangent)
def _t_slope(kind, family, base, shift, y):
    r, level, x = _t_parts(kind, family, base, shift, y)
    return -(family.nu + 1.0) * x / (1.0 + x) * r / (family.scale * level)


@lower_jet.register(StudentTangent)
def _t_jet(kind, family, base, y):
    f, slope = jet1(family, base, y)
    level = _t_parts(kind, family, base, 0.0, y)[1]
    curvature = -(family.nu + 1.0) / (family.scale * family.scale * level)
    return f - lower_gap(kind, family, base, 0.0, y), slope - lower_slope(kind, family, base, 0.0, y), curvature


@lower_gap.register(TaylorKind)
def _taylor_gap(kind, family, base, shift, y):
    return residual(family, base, y, shift)


@lower_slope.register(TaylorKind)
def _taylor_slope(kind, family, base, shift, y):
    return slope_residual(family, base, y, shift)


@lower_jet.register(TaylorKind)
def _taylor_jet(kind, family, base, y):
    return jet2(family, base, y)


@vector_lower_gap.register(TaylorKind)
def _taylor_vector_gap(kind, family, base, shift, y):
    return vector_residual(family, base, shift, y)


@vector_lower_slope.register(TaylorKind)
def _taylor_vector_slope(kind, family, base, shift, y, gradient):
    q = base.size
    start, hessian = np.empty(q), np.empty((q, q))
    vector_hessian(family, base, y, start, hessian)
    vector_gradient(family, base + shift, y, gradient)
    for k in range(q):
        gradient[k] -= start[k]
        for l in range(q):
            gradient[k] -= hessian[k, l] * shift[l]


@vector_lower_jet.register(TaylorKind)
def _taylor_vector_jet(kind, family, base, y, gradient, hessian):
    return vector_hessian(family, base, y, gradient, hessian)


@vector_lower_gap.register(Boehning)
def _boehning_gap(kind, family, base, shift, y):
    """Third-order residual plus the excess of A over the curvature for small shifts; values for large ones."""
    q = base.size
    g, h = np.empty(q), np.empty((q, q))
    f = vector_hessian(family, base, y, g, h)
    mean, largest = 0.0, 0.0
    for k in range(q):
        mean += shift[k] / q
    for k in range(q):
        largest = max(largest, abs(shift[k] - mean))
    if largest > 1.0:
        total = vector_value(family, base + shift, y) - f
        for k in range(q):
            total += 0.25 * (shift[k] - mean) * (shift[k] - mean) - g[k] * shift[k]
        return total
    total = vector_residual(family, base, shift, y)
    for k in range(q):
        v = shift[k] - mean
        total += 0.25 * v * v
        for l in range(q):
            total += 0.5 * h[k, l] * v * (shift[l] - mean)
    return total


@vector_lower_slope.register(Boehning)
def _boehning_slope(kind, family, base, shift, y, gradient):
    q = base.size
    start, mean = np.empty(q), 0.0
    vector_gradient(family, base, y, start)
    vector_gradient(family, base + shift, y, gradient)
    for k in range(q):
        mean += shift[k] / q
    for k in range(q):
        gradient[k] += 0.5 * (shift[k] - mean) - start[k]


@vector_lower_jet.register(Boehning)
def _boehning_jet(kind, family, base, y, gradient, hessian):
    f = vector_gradient(family, base, y, gradient)
    q = base.size
    for k in range(q):
        for l in range(q):
            hessian[k, l] = 0.5 / q
        hessian[k, k] -= 0.5
    return f

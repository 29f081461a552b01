"""The log density of Student's t: rows of the family `student_t` and terms of priors share it."""

from __future__ import annotations

import math

import numpy as np

from tallbayes.compile import SCALAR, inlinable
from tallbayes.engine.gamma_functions import binet, digamma, trigamma

INNER = math.sqrt(2.0) - 1.0  # where the third derivative is largest, in units of sqrt(nu)
OUTER = math.sqrt(2.0) + 1.0  # with INNER the critical points of f''' in units of sqrt(nu)
_CONSTANT = 2.0 * INNER * (3.0 - INNER**2) / (1.0 + INNER**2) ** 3  # 1.457107


@inlinable(options=SCALAR)
def student_jet(nu: float, scale: float, r: float) -> tuple[float, float, float]:
    """f = -(nu + 1)/2 log(1 + r^2/nu) and its first two derivatives in eta, r = (y - eta)/scale."""
    weight = 1.0 / (nu + r * r)
    slope = (nu + 1.0) * r * weight / scale
    curvature = -(nu + 1.0) * (nu - r * r) * weight * weight / (scale * scale)
    return -0.5 * (nu + 1.0) * math.log1p(r * r / nu), slope, curvature


@inlinable(options=SCALAR)
def student_third_supremum(nu: float, scale: float) -> float:
    """sup |f'''| over all r."""
    return _CONSTANT * (nu + 1.0) / (nu**1.5 * scale**3)


@inlinable(options=SCALAR)
def student_location_scale(
    nu: float, eta: float, tau: float, y: float, gradient: np.ndarray, hessian: np.ndarray
) -> tuple[float, float, float]:
    """f without its level, and its derivatives in eta and tau; also r^2 and nu + r^2."""
    inverse = math.exp(-tau)
    r = (y - eta) * inverse
    square = r * r
    spread, more = nu + square, nu + 1.0
    gradient[0] = more * r * inverse / spread
    gradient[1] = more * square / spread - 1.0
    hessian[0, 0] = more * (square - nu) / (spread * spread) * inverse * inverse
    hessian[0, 1] = -2.0 * nu * more * r / (spread * spread) * inverse
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = -2.0 * nu * more * square / (spread * spread)
    return -tau - 0.5 * more * math.log1p(square / nu), square, spread


@inlinable(options=SCALAR)
def student_level(nu: float) -> tuple[float, float, float]:
    """log Gamma((nu + 1)/2) - log Gamma(nu/2) - log(nu)/2, and two derivatives in log nu."""
    half = 0.5 * nu
    value = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(nu)
    if half > 50.0:  # where the difference would cancel: (x - 1/2) log x - x + mu(x) twice
        value = half * math.log1p(0.5 / half) - 0.5 - 0.5 * math.log(2.0) + binet(half + 0.5)[0] - binet(half)[0]
    slope = half * (digamma(half + 0.5) - digamma(half)) - 0.5
    return value, slope, slope + 0.5 + half * half * (trigamma(half + 0.5) - trigamma(half))


TURNS = tuple(
    tuple(sign * math.sqrt(v) for v in squares for sign in (-1.0, 1.0))
    for squares in (
        (INNER**2, OUTER**2),
        (0.0, 1.0),
        ((4.0 - math.sqrt(13.0)) / 3.0, (4.0 + math.sqrt(13.0)) / 3.0),
        (0.0, 2.0 - math.sqrt(3.0), 2.0 + math.sqrt(3.0)),
    )
)
THIRDS = (
    lambda x: 4.0 * x * (x * x - 3.0) / (1.0 + x * x) ** 3,
    lambda x: 4.0 * (1.0 - 3.0 * x * x) / (1.0 + x * x) ** 3,
    lambda x: 8.0 * x * (1.0 - x * x) / (1.0 + x * x) ** 3,
    lambda x: 8.0 * x * x * (1.0 - x * x) / (1.0 + x * x) ** 3,
)

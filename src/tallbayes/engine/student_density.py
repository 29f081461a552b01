"""The log density of Student's t: rows of the family `student_t` and terms of priors share it."""

from __future__ import annotations

import math

from tallbayes.compile import SCALAR, inlinable

INNER = math.sqrt(2.0) - 1.0  # where the third derivative is largest, in units of sqrt(nu)
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

"""Robust regression with Student-t errors, nu degrees of freedom and known scale s: with r = (y - eta) / s,
f(eta) = -(nu + 1)/2 log(1 + r^2 / nu).

Not log-concave: f'' reaches (nu + 1) / (8 nu s^2). |f'''| <= K (nu + 1) / (nu^(3/2) s^3), attained at r = (sqrt 2 - 1) sqrt nu.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import log1p_remainder
from tallbayes.engine.family_functions import (
    curvature_supremum,
    jet1,
    jet2,
    residual,
    slope_supremum,
    third,
    third_supremum,
    third_supremum_on,
    value,
)
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model
from tallbayes.priors import Prior

_INNER, _OUTER = math.sqrt(2.0) - 1.0, math.sqrt(2.0) + 1.0  # critical points of f''' in units of sqrt(nu)
_CONSTANT = 2.0 * _INNER * (3.0 - _INNER**2) / (1.0 + _INNER**2) ** 3  # 1.457107


class StudentT(NamedTuple):
    """Errors with a Student-t law."""

    nu: float
    scale: float


@value.register(StudentT)
def _value(family, eta, y):
    r = (y - eta) / family.scale
    return -0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu)


@jet1.register(StudentT)
def _jet1(family, eta, y):
    r = (y - eta) / family.scale
    weight = 1.0 / (family.nu + r * r)
    return -0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu), (family.nu + 1.0) * r * weight / family.scale


@jet2.register(StudentT)
def _jet2(family, eta, y):
    r = (y - eta) / family.scale
    weight = 1.0 / (family.nu + r * r)
    slope = (family.nu + 1.0) * r * weight / family.scale
    curvature = -(family.nu + 1.0) * (family.nu - r * r) * weight * weight / (family.scale * family.scale)
    return -0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu), slope, curvature


@third.register(StudentT)
def _third(family, eta, y):
    r = (y - eta) / family.scale
    weight = 1.0 / (family.nu + r * r)
    return -2.0 * (family.nu + 1.0) * r * (3.0 * family.nu - r * r) * weight**3 / family.scale**3


@slope_supremum.register(StudentT)
def _slope_supremum(family, y):
    """At r = sqrt(nu)."""
    return 0.5 * (family.nu + 1.0) / (family.scale * math.sqrt(family.nu))


@curvature_supremum.register(StudentT)
def _curvature_supremum(family, y):
    """At r = 0."""
    return (family.nu + 1.0) / (family.nu * family.scale * family.scale)


@third_supremum.register(StudentT)
def _third_supremum(family, y):
    return _CONSTANT * (family.nu + 1.0) / (family.nu**1.5 * family.scale**3)


@third_supremum_on.register(StudentT)
def _third_supremum_on(family, y, low, high):
    largest = max(abs(third(family, low, y)), abs(third(family, high, y)))
    root = math.sqrt(family.nu)
    for turn in (-_OUTER, -_INNER, _INNER, _OUTER):
        eta = y - family.scale * turn * root
        if low <= eta <= high:
            largest = max(largest, abs(third(family, eta, y)))
    return largest


@residual.register(StudentT)
def _residual(family, eta, y, shift):
    """With u the relative change of nu + r^2: its logarithm less the terms of first and second order in the shift."""
    r, step = (y - eta) / family.scale, -shift / family.scale
    weight = 1.0 / (family.nu + r * r)
    a, b = 2.0 * r * weight * step, weight * step * step
    u = a + b
    return -0.5 * (family.nu + 1.0) * (log1p_remainder(u) - a * b - 0.5 * b * b)


FAMILY = Family(
    name="student_t",
    support="a number",
    remedy="",
    admits=lambda y: np.isfinite(y),
    mean=lambda eta: eta,
    self_concordant=False,
    log_concave=False,
    examples=(StudentT(4.0, 1.0), StudentT(5.0, 0.5)),
    responses=(-2.0, 0.0, 1.5),
    response_scale=True,
    link=float,
)


def student_t(data: Dataset, prior: Prior | None = None, nu: float = 4.0, scale: float = 1.0) -> Model:
    """Robust regression with Student-t errors of known degrees of freedom and scale.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 1)), [-1.0, 0.0, 1.0, 0.0, 100.0])
    >>> bool(abs(tb.find_mode(tb.models.student_t(data, tb.priors.flat(), nu=4.0)).reference[0]) < 0.2)
    True
    """
    if not (np.isfinite(nu) and nu > 0 and np.isfinite(scale) and scale > 0):
        raise OptionError(f"nu and scale must be positive numbers; got nu={nu}, scale={scale}.")
    return Model(data, FAMILY, StudentT(float(nu), float(scale)), prior, options={"nu": float(nu), "scale": float(scale)})

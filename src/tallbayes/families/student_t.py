"""Robust regression with Student-t errors, nu degrees of freedom and known scale s: with r = (y - eta) / s,
f(eta) = -(nu + 1)/2 log(1 + r^2 / nu).

Not log-concave: f'' reaches (nu + 1) / (8 nu s^2). |f'''| <= K (nu + 1) / (nu^(3/2) s^3), attained at r = (sqrt 2 - 1) sqrt nu.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import log1p_excess, log1p_remainder
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
from tallbayes.engine.lower_gaps import lower_gap, lower_jet, lower_slope
from tallbayes.engine.student_density import INNER, student_jet, student_third_supremum
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model, Tangent
from tallbayes.named_priors import PriorLike

_OUTER = math.sqrt(2.0) + 1.0  # with INNER the critical points of f''' in units of sqrt(nu)


class StudentT(NamedTuple):
    """Errors with a Student-t law."""

    nu: float
    scale: float


@value.register(StudentT)
def _value(family: StudentT, eta: float, y: float) -> float:
    r = (y - eta) / family.scale
    return -0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu)


@jet1.register(StudentT)
def _jet1(family: StudentT, eta: float, y: float) -> tuple[float, float]:
    r = (y - eta) / family.scale
    weight = 1.0 / (family.nu + r * r)
    return -0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu), (family.nu + 1.0) * r * weight / family.scale


@jet2.register(StudentT)
def _jet2(family: StudentT, eta: float, y: float) -> tuple[float, float, float]:
    return student_jet(family.nu, family.scale, (y - eta) / family.scale)


@third.register(StudentT)
def _third(family: StudentT, eta: float, y: float) -> float:
    r = (y - eta) / family.scale
    weight = 1.0 / (family.nu + r * r)
    return -2.0 * (family.nu + 1.0) * r * (3.0 * family.nu - r * r) * weight**3 / family.scale**3


@slope_supremum.register(StudentT)
def _slope_supremum(family: StudentT, y: float) -> float:
    """At r = sqrt(nu)."""
    return 0.5 * (family.nu + 1.0) / (family.scale * math.sqrt(family.nu))


@curvature_supremum.register(StudentT)
def _curvature_supremum(family: StudentT, y: float) -> float:
    """At r = 0."""
    return (family.nu + 1.0) / (family.nu * family.scale * family.scale)


@third_supremum.register(StudentT)
def _third_supremum(family: StudentT, y: float) -> float:
    return student_third_supremum(family.nu, family.scale)


@third_supremum_on.register(StudentT)
def _third_supremum_on(family: StudentT, y: float, low: float, high: float) -> float:
    largest = max(abs(third(family, low, y)), abs(third(family, high, y)))
    root = math.sqrt(family.nu)
    for turn in (-_OUTER, -INNER, INNER, _OUTER):
        eta = y - family.scale * turn * root
        if low <= eta <= high:
            largest = max(largest, abs(third(family, eta, y)))
    return largest


@residual.register(StudentT)
def _residual(family: StudentT, eta: float, y: float, shift: float) -> float:
    """With u the relative change of nu + r^2: its logarithm less the terms of first and second order in the shift."""
    r, step = (y - eta) / family.scale, -shift / family.scale
    weight = 1.0 / (family.nu + r * r)
    a, b = 2.0 * r * weight * step, weight * step * step
    u = a + b
    return -0.5 * (family.nu + 1.0) * (log1p_remainder(u) - a * b - 0.5 * b * b)


class StudentTangent(NamedTuple):
    """Gaussian bound of a row, tangent at |r| = xi; a negative xi is |r| at the reference.

    log B = -(nu + 1)/2 [log(1 + xi^2/nu) + (r^2 - xi^2)/(nu + xi^2)]: f is convex in r^2.
    """

    xi: float


@inlinable(options=SCALAR)
def _tangent_parts(kind: StudentTangent, family: StudentT, base: float, shift: float, y: float) -> tuple[float, float, float]:
    """Residual r, nu + xi^2, and the relative change x of nu + r^2 from the tangent point."""
    first = (y - base) / family.scale
    r = first - shift / family.scale
    xi = first if kind.xi < 0.0 else kind.xi
    level = family.nu + xi * xi
    return r, level, (r - xi) * (r + xi) / level


@lower_gap.register(StudentTangent)
def _lower_gap(kind: StudentTangent, family: StudentT, base: float, shift: float, y: float) -> float:
    return -0.5 * (family.nu + 1.0) * log1p_excess(_tangent_parts(kind, family, base, shift, y)[2])


@lower_slope.register(StudentTangent)
def _lower_slope(kind: StudentTangent, family: StudentT, base: float, shift: float, y: float) -> float:
    r, level, x = _tangent_parts(kind, family, base, shift, y)
    return -(family.nu + 1.0) * x / (1.0 + x) * r / (family.scale * level)


@lower_jet.register(StudentTangent)
def _lower_jet(kind: StudentTangent, family: StudentT, base: float, y: float) -> tuple[float, float, float]:
    f, slope = jet1(family, base, y)
    level = _tangent_parts(kind, family, base, 0.0, y)[1]
    curvature = -(family.nu + 1.0) / (family.scale * family.scale * level)
    return f - lower_gap(kind, family, base, 0.0, y), slope - lower_slope(kind, family, base, 0.0, y), curvature


def _log_normaliser(member: StudentT, y: np.ndarray) -> np.ndarray:
    nu = member.nu
    level = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * math.log(nu * math.pi) - math.log(member.scale)
    return np.full(np.shape(y), level)


def _simulate(rng: np.random.Generator, member: StudentT, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return eta + member.scale * rng.standard_t(member.nu, eta.shape)


def _variance(member: StudentT, mean: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return np.full(mean.shape, member.scale**2 * member.nu / (member.nu - 2.0) if member.nu > 2.0 else np.inf)


FAMILY = Family(
    name="student_t",
    aliases=("t", "student"),
    variance=_variance,
    fourth_ratio=lambda member: 6.0 / (1.457106 * math.sqrt(member.nu) * member.scale),
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
    member_of=lambda nu, scale: StudentT(float(nu), float(scale)),
    log_normaliser=_log_normaliser,
    simulate=_simulate,
    tangent=Tangent("Student-t tangent", lambda xi: StudentTangent(-1.0 if xi is None else xi), xi=0.0),
)


def student_t(data: Dataset, prior: PriorLike = None, *, nu: float, scale: float) -> Model:
    """Robust regression with Student-t errors of known degrees of freedom and scale.

    Neither is estimated, and both decide how wide the posterior is; `tallbayes.models.family` has a `log_scale` that is.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 1)), [-1.0, 0.0, 1.0, 0.0, 100.0])
    >>> bool(abs(tb.find_mode(tb.models.student_t(data, tb.priors.flat(), nu=4.0, scale=1.0)).reference[0]) < 0.2)
    True
    """
    if not (np.isfinite(nu) and nu > 0 and np.isfinite(scale) and scale > 0):
        raise OptionError(f"nu and scale must be positive numbers; got nu={nu}, scale={scale}.")
    return Model(data, FAMILY, StudentT(float(nu), float(scale)), prior, options={"nu": float(nu), "scale": float(scale)})

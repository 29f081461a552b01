"""Robust regression with Student-t errors, nu degrees of freedom and scale s, known or in theta as logarithms: with r = (y - eta) / s,
f(eta) = -(nu + 1)/2 log(1 + r^2 / nu).

Not log-concave: f'' reaches (nu + 1) / (8 nu s^2). |f'''| <= K (nu + 1) / (nu^(3/2) s^3), attained at r = (sqrt 2 - 1) sqrt nu.

With tau = log s unknown it is a law of location and scale. In x = r / sqrt nu and v = x^2 its third derivatives are (nu + 1)/2 times

    eta eta eta   4 x (v - 3) / (1 + v)^3 (nu s^2)^(-3/2),     eta eta tau   4 (1 - 3 v) / (1 + v)^3 / (nu s^2),
    eta tau tau   8 x (1 - v) / (1 + v)^3 (nu s^2)^(-1/2),     tau tau tau   8 v (1 - v) / (1 + v)^3,

up to signs, with turning points in closed form: a certificate for bound T10. With nu unknown too there is none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.arithmetic import exp_remainder, log1p_excess, log1p_remainder
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
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, largest_on, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.engine.student_density import (
    INNER,
    OUTER,
    THIRDS,
    TURNS,
    student_jet,
    student_level,
    student_location_scale,
    student_third_supremum,
)
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model, Tangent, start_scales
from tallbayes.named_priors import PriorLike
from tallbayes.scale_priors import gamma
from tallbayes.validation import positive_number


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
    for turn in (-OUTER, -INNER, INNER, OUTER):
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


class StudentScale(NamedTuple):
    """Errors with a Student-t law of unknown scale e^tau."""

    nu: float


class StudentFree(NamedTuple):
    """Errors with a Student-t law of unknown scale e^tau and unknown degrees of freedom e^lambda."""


class PredictedStudent(NamedTuple):
    """The same with known degrees of freedom, tau a linear predictor of the last `second` columns."""

    nu: float
    second: int


class PredictedFree(NamedTuple):
    """The same with unknown degrees of freedom."""

    second: int


@vector_value.register(PredictedStudent)
@vector_value.register(StudentScale)
def _scale_value(family: StudentScale, u: np.ndarray, y: float) -> float:
    r = (y - u[0]) * math.exp(-u[1])
    return -u[1] - 0.5 * (family.nu + 1.0) * math.log1p(r * r / family.nu)


@vector_gradient.register(PredictedStudent)
@vector_gradient.register(StudentScale)
def _scale_gradient(family: StudentScale, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    return student_location_scale(family.nu, u[0], u[1], y, gradient, np.empty((2, 2)))[0]


@vector_hessian.register(PredictedStudent)
@vector_hessian.register(StudentScale)
def _scale_hessian(family: StudentScale, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return student_location_scale(family.nu, u[0], u[1], y, gradient, hessian)[0]


@vector_residual.register(PredictedStudent)
@vector_residual.register(StudentScale)
def _scale_residual(family: StudentScale, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """The relative change of nu + r^2 is u = u1 + u2 + u3 by order in the shifts; log(1 + u) less u1 + u2 - u1^2/2."""
    inverse, b = math.exp(-base[1]), shift[1]
    r, a = (y - base[0]) * inverse, shift[0] * inverse
    weight = 1.0 / (family.nu + r * r)
    third_order = exp_remainder(-2.0 * b)
    second_order = third_order + 2.0 * b * b
    first = -2.0 * weight * r * (b * r + a)
    second = weight * (2.0 * b * b * r * r + 4.0 * r * a * b + a * a)
    rest = weight * (r * r * third_order - 2.0 * r * a * second_order + a * a * (second_order - 2.0 * b))
    higher = second + rest
    return -0.5 * (family.nu + 1.0) * (rest - 0.5 * higher * (2.0 * first + higher) + log1p_remainder(first + higher))


@vector_value.register(PredictedFree)
@vector_value.register(StudentFree)
def _free_value(family: StudentFree, u: np.ndarray, y: float) -> float:
    nu = math.exp(u[2])
    r = (y - u[0]) * math.exp(-u[1])
    return -u[1] - 0.5 * (nu + 1.0) * math.log1p(r * r / nu) + student_level(nu)[0]


@vector_gradient.register(PredictedFree)
@vector_gradient.register(StudentFree)
def _free_gradient(family: StudentFree, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    return _free_jet(u, y, gradient, np.empty((3, 3)))


@vector_hessian.register(PredictedFree)
@vector_hessian.register(StudentFree)
def _free_hessian(family: StudentFree, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return _free_jet(u, y, gradient, hessian)


@inlinable(options=SCALAR)
def _free_jet(u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    nu = math.exp(u[2])
    level, slope, curvature = student_level(nu)
    f, square, spread = student_location_scale(nu, u[0], u[1], y, gradient, hessian)
    logarithm, share = math.log1p(square / nu), square / spread
    inverse = math.exp(-u[1])
    gradient[2] = slope - 0.5 * nu * logarithm + 0.5 * (nu + 1.0) * share
    hessian[0, 2] = nu * (y - u[0]) * inverse * inverse * (square - 1.0) / (spread * spread)
    hessian[1, 2] = nu * share * (square - 1.0) / spread
    hessian[2, 0], hessian[2, 1] = hessian[0, 2], hessian[1, 2]
    hessian[2, 2] = curvature + 0.5 * nu * (2.0 * share - logarithm) - 0.5 * (nu + 1.0) * nu * share / spread
    return f + level


@third_bounds.register(PredictedStudent)
@third_bounds.register(StudentScale)
def _third_bounds(member: Any, near: Neighbourhood) -> np.ndarray:
    tau, t = (near.other, near.other_speed) if near.second else (near.nuisance(0), near.nuisance_speed(0))
    smallest, largest = (np.exp(end) for end in near.between(tau, t))
    root = math.sqrt(member.nu)
    ends = np.stack(
        [end / (scale * root) for end in near.between(near.y - near.eta, near.speed) for scale in (smallest, largest)]
    )
    low, high = ends.min(0), ends.max(0)
    low, high = low - 1e-12 * np.abs(low), high + 1e-12 * np.abs(high)
    suprema = [largest_on(g, low, high, turns) for g, turns in zip(THIRDS, TURNS, strict=True)]
    unit = near.speed / (smallest * root)
    return 0.5 * (member.nu + 1.0) * cubic_form(unit, t, *suprema)


Member = StudentT | StudentScale | StudentFree | PredictedStudent | PredictedFree


def _log_normaliser(member: Member, y: np.ndarray) -> np.ndarray:
    if isinstance(member, StudentFree | PredictedFree):
        return np.full(np.shape(y), -0.5 * math.log(math.pi))
    nu, scale = member.nu, member.scale if isinstance(member, StudentT) else 1.0
    level = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * math.log(nu * math.pi) - math.log(scale)
    return np.full(np.shape(y), level)


def _numbers(member: Member, nuisances: np.ndarray) -> tuple[Any, Any]:
    """Degrees of freedom and scale, known or of each draw."""
    if isinstance(member, StudentT):
        return member.nu, member.scale
    scale = np.exp(nuisances[:, 0])
    return (member.nu if isinstance(member, StudentScale) else np.exp(nuisances[:, 1])), scale


def _simulate(rng: np.random.Generator, member: Member, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    if isinstance(member, PredictedStudent | PredictedFree):
        nu = member.nu if isinstance(member, PredictedStudent) else np.exp(nuisances[:, 0])
        return eta[..., 0] + np.exp(eta[..., 1]) * rng.standard_t(nu, eta.shape[:2])
    nu, scale = _numbers(member, nuisances)
    return eta + scale * rng.standard_t(nu, eta.shape)


def _variance(member: Member, mean: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    nu, scale = _numbers(member, nuisances)
    return np.broadcast_to(
        np.where(np.asarray(nu) > 2.0, scale**2 * nu / np.maximum(np.asarray(nu) - 2.0, 1e-300), np.inf), mean.shape
    )


def _start(model: Model) -> np.ndarray | None:
    """The scale from the spread of the middle half of the responses; nothing where it is known."""
    if not model.nuisances and not model.second:
        return None
    theta = start_scales(model)
    if "log_nu" in model.nuisances:
        theta[-1] = math.log(5.0)
    return theta


def _member(nu: float | None = None, scale: float | None = None, sigma: list[str] | None = None) -> Member:
    if sigma is not None:
        return PredictedFree(len(sigma)) if nu is None else PredictedStudent(float(nu), len(sigma))
    if nu is None:
        return StudentFree()
    return StudentScale(float(nu)) if scale is None else StudentT(float(nu), float(scale))


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
    examples=(
        StudentT(4.0, 1.0),
        StudentT(5.0, 0.5),
        StudentScale(4.0),
        StudentFree(),
        PredictedStudent(4.0, 2),
        PredictedFree(2),
    ),
    responses=(-2.0, 0.0, 1.5),
    response_scale=True,
    link=float,
    member_of=_member,
    predictors=lambda member: 2 if isinstance(member, PredictedStudent | PredictedFree) else 1,
    second=lambda member: member.second if isinstance(member, PredictedStudent | PredictedFree) else 0,
    second_name="sigma",
    nuisance_priors={"nu": gamma(2.0, 0.1)},
    start=_start,
    log_normaliser=_log_normaliser,
    simulate=_simulate,
    tangent=Tangent("Student-t tangent", lambda xi: StudentTangent(-1.0 if xi is None else xi), xi=0.0),
)


def student_t(
    data: Dataset,
    prior: PriorLike = None,
    *,
    nu: float | None = None,
    scale: float | None = None,
    sigma: str | list[str] | None = None,
) -> Model:
    """Robust regression with Student-t errors. Scale and degrees of freedom that are not given are learned, as logarithms in theta.

    An unknown scale has a flat prior of its logarithm; unknown degrees of freedom have a gamma prior with shape 2 and rate 0.1 (Juarez and
    Steel 2010). There is a certificate for exact minibatch with known `nu`; with unknown `nu` use 'nuts' or 'hmc-ecs'.
    `sigma="~ x"` makes the logarithm of the scale a linear predictor, as in `tallbayes.models.gaussian`.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 1)), [-1.0, 0.0, 1.0, 0.0, 100.0])
    >>> tb.models.student_t(data).names, tb.models.student_t(data, nu=4.0).names
    (('x0', 'log_scale', 'log_nu'), ('x0', 'log_scale'))
    >>> bool(abs(tb.find_mode(tb.models.student_t(data, tb.priors.flat(), nu=4.0, scale=1.0)).reference[0]) < 0.2)
    True
    """
    nu = None if nu is None else positive_number("nu", nu, ", or None to learn it")
    scale = None if scale is None else positive_number("scale", scale, ", or None to learn it")
    if sigma is not None:
        if scale is not None:
            raise OptionError("give scale= or sigma=, not both: sigma= is a formula of the logarithm of the scale.")
        columns = second_columns(data, "sigma", sigma)
        known = {"nu": nu, "sigma": columns}
        return Model(
            data, FAMILY, _member(nu, None, columns), prior, nuisances=("log_nu",) if nu is None else (), options=known
        )
    if nu is None and scale is not None:
        raise OptionError("with unknown degrees of freedom the scale is learned too; give nu= as well, or leave out scale=.")
    options = {"nu": nu, "scale": scale}
    names = () if scale is not None else ("log_scale",) if nu is not None else ("log_scale", "log_nu")
    return Model(data, FAMILY, _member(nu, scale), prior, nuisances=names, options=options)

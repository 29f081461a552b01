"""Gamma regression with log link, y > 0 with mean e^eta: f(eta) = -kappa (y e^-eta + eta), shape kappa known, or a = log kappa in theta.

f'' = -kappa y e^-eta and f''' = -f'': no global bound of the third derivative, but self-concordant.

With kappa unknown, w = log y - eta and q = e^w, f = kappa (w - q + 1) + [kappa (a - 1) - log Gamma(kappa)]. Third derivatives: kappa q,
-kappa q, kappa (q - 1) and kappa (w - q + 1) - (kappa mu' + 3 kappa^2 mu'' + kappa^3 mu''') in eta eta eta, eta eta a, eta a a and
a a a, mu Binet's function, whose derivatives alternate in sign and decrease: a certificate for bound T10.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.engine.gamma_functions import binet, gamma_level
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.validation import positive_number


class Gamma(NamedTuple):
    """Positive responses with mean e^eta and coefficient of variation shape^(-1/2)."""

    shape: float


@value.register(Gamma)
def _value(family: Gamma, eta: float, y: float) -> float:
    return -family.shape * (y * exp(-eta) + eta)


@jet1.register(Gamma)
def _jet1(family: Gamma, eta: float, y: float) -> tuple[float, float]:
    share = y * exp(-eta)
    return -family.shape * (share + eta), family.shape * (share - 1.0)


@jet2.register(Gamma)
def _jet2(family: Gamma, eta: float, y: float) -> tuple[float, float, float]:
    share = y * exp(-eta)
    return -family.shape * (share + eta), family.shape * (share - 1.0), -family.shape * share


@third.register(Gamma)
def _third(family: Gamma, eta: float, y: float) -> float:
    return family.shape * y * exp(-eta)


@third_supremum.register(Gamma)
def _third_supremum(family: Gamma, y: float) -> float:
    return np.inf


@third_supremum_on.register(Gamma)
def _third_supremum_on(family: Gamma, y: float, low: float, high: float) -> float:
    return family.shape * y * exp(-low)


@residual.register(Gamma)
def _residual(family: Gamma, eta: float, y: float, shift: float) -> float:
    """-kappa y e^-eta (e^-s - 1 + s - s^2/2)."""
    return -family.shape * y * exp(-eta) * exp_remainder(-shift)


class GammaShape(NamedTuple):
    """Positive responses with mean e^eta and unknown shape e^a."""


@vector_value.register(GammaShape)
def _vector_value(family: GammaShape, u: np.ndarray, y: float) -> float:
    w = math.log(y) - u[0]
    return math.exp(u[1]) * (w - exp(w) + 1.0) + gamma_level(u[1])[0]


@vector_gradient.register(GammaShape)
def _vector_gradient(family: GammaShape, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    w, shape = math.log(y) - u[0], math.exp(u[1])
    q = exp(w)
    level, slope, _, _ = gamma_level(u[1])
    gradient[0] = shape * (q - 1.0)
    gradient[1] = shape * (w - q + 1.0) + slope
    return shape * (w - q + 1.0) + level


@vector_hessian.register(GammaShape)
def _vector_hessian(family: GammaShape, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    w, shape = math.log(y) - u[0], math.exp(u[1])
    q = exp(w)
    level, slope, curvature, _ = gamma_level(u[1])
    gradient[0] = shape * (q - 1.0)
    gradient[1] = shape * (w - q + 1.0) + slope
    hessian[0, 0] = -shape * q
    hessian[0, 1] = shape * (q - 1.0)
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = shape * (w - q + 1.0) + curvature
    return shape * (w - q + 1.0) + level


@vector_residual.register(GammaShape)
def _vector_residual(family: GammaShape, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """kappa [e^b rho + E_3 h + E_2 h' s + E_1 h'' s^2 / 2] with h = w - q + 1, rho its residual, E_m = e^b less m terms; and that of
    the level, from its third derivative, by six nodes of Gauss near 0."""
    w, shape, s, b = math.log(y) - base[0], math.exp(base[1]), shift[0], shift[1]
    q, third_order = exp(w), exp_remainder(b)
    second_order = third_order + 0.5 * b * b
    first_order = second_order + b
    inner = -(1.0 + first_order) * q * exp_remainder(-s) + third_order * (w - q + 1.0)
    inner += second_order * (q - 1.0) * s - 0.5 * first_order * q * s * s
    return shape * inner + _level_residual(base[1], b)


_NODES, _WEIGHTS = (tuple(v.tolist()) for v in np.polynomial.legendre.leggauss(6))


@inlinable(options=SCALAR)
def _level_residual(a: float, b: float) -> float:
    if abs(b) > 0.5:
        level, slope, curvature, _ = gamma_level(a)
        return gamma_level(a + b)[0] - level - b * (slope + 0.5 * b * curvature)
    total = 0.0
    for node, weight in zip(_NODES, _WEIGHTS):  # noqa: B905
        v = 0.5 * (1.0 + node)
        total += weight * (1.0 - v) * (1.0 - v) * gamma_level(a + b * v)[3]
    return 0.25 * b * b * b * total


@third_bounds.register
def _third_bounds(member: GammaShape, near: Neighbourhood) -> np.ndarray:
    a, t = near.nuisance(0), near.nuisance_speed(0)
    smallest, largest = (math.exp(end) for end in near.between(a, t))
    low, high = near.between(np.log(near.y) - near.eta, near.speed)
    q, least = np.exp(high), np.exp(low)
    away = np.maximum(np.abs(q - 1.0), np.abs(least - 1.0))
    fall = np.maximum(q - 1.0 - high, least - 1.0 - low)  # q - 1 - w, convex in w
    _, m1, m2, m3 = binet(smallest)
    level = max(3.0 * largest**2 * m2, -largest * m1 - largest**3 * m3)
    return cubic_form(near.speed, t, largest * q, largest * q, largest * away, largest * fall + level)


def _log_normaliser(member: Gamma | GammaShape, y: np.ndarray) -> np.ndarray:
    if isinstance(member, GammaShape):
        return -np.log(y)
    shape = member.shape
    return shape * math.log(shape) - gammaln(shape) + (shape - 1.0) * np.log(y)


def _shape(member: Gamma | GammaShape, nuisances: np.ndarray) -> Any:
    return np.exp(nuisances[:, 0]) if isinstance(member, GammaShape) else member.shape


def _simulate(rng: np.random.Generator, member: Gamma | GammaShape, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    shape = _shape(member, nuisances)
    return np.exp(eta) * rng.standard_gamma(shape, eta.shape) / shape


def _start(model: Model) -> np.ndarray | None:
    """The shape from the coefficient of variation of the responses; nothing where it is known."""
    if not model.nuisances:
        return None
    theta, d, moments = np.zeros(model.dim), model.data.d, model.data.moments
    if model.data.intercept is not None:
        theta[model.data.intercept] = math.log(moments.mean[d]) - moments.mean[d + 1]
    theta[-1] = 2.0 * math.log(moments.mean[d] / max(moments.sd[d], 1e-3 * moments.mean[d]))
    return theta


FAMILY = Family(
    name="gamma",
    variance=lambda member, mean, nuisances: mean**2 / _shape(member, nuisances),
    start=_start,
    ratio="mean_ratio",
    support="a number > 0",
    remedy="Drop rows with a response of zero or less, or model them apart.",
    admits=lambda y: y > 0,
    mean=np.exp,
    self_concordant=True,
    log_concave=True,
    examples=(Gamma(1.0), Gamma(2.5), GammaShape()),
    responses=(0.1, 1.0, 7.5),
    response="positive",
    link=lambda mean: float(np.log(mean)),
    link_name="log",
    member_of=lambda shape=None: GammaShape() if shape is None else Gamma(float(shape)),
    log_normaliser=_log_normaliser,
    simulate=_simulate,
    published_bound="exponential",
)


def gamma(data: Dataset, prior: PriorLike = None, *, shape: float | None = None) -> Model:
    """Gamma regression with log link. With `shape=None` log shape is the last coordinate of theta, with a flat prior.

    Responses of mean mu have variance mu^2 / shape.

    Responses of mean mu have variance mu^2 / shape. The shape is not estimated, and decides how wide the posterior is.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [1.0, 2.0, 3.0, 2.0])
    >>> tb.models.gamma(data).names
    ('x0', 'log_shape')
    >>> bool(np.isclose(tb.find_mode(tb.models.gamma(data, tb.priors.flat(), shape=2.0)).reference[0], np.log(2.0)))
    True
    """
    if shape is None:
        return Model(data, FAMILY, GammaShape(), prior, nuisances=("log_shape",), options={"shape": None})
    shape = positive_number("shape", shape, ", or None to learn it")
    return Model(data, FAMILY, Gamma(shape), prior, options={"shape": shape})

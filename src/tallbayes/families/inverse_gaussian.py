"""Inverse Gaussian regression with log link: y > 0 with mean mu = e^eta and variance mu^3 / lambda, l = log lambda in theta.

f = l/2 - lambda A(eta), A = (y - mu)^2 / (2 mu^2 y). With q = e^-eta and r = y q the derivatives of A are q (1 - r), q (2 r - 1) and
q (1 - 4 r), so the third derivatives of f are lambda times these and A, bounded on intervals of eta: a certificate for bound T10.
Not log-concave.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


class InverseGaussian(NamedTuple):
    """Positive responses with mean e^eta and unknown shape e^l."""


@vector_value.register(InverseGaussian)
def _value(family: InverseGaussian, u: np.ndarray, y: float) -> float:
    away = y * exp(-u[0]) - 1.0
    return 0.5 * u[1] - 0.5 * math.exp(u[1]) * away * away / y


@vector_gradient.register(InverseGaussian)
def _gradient(family: InverseGaussian, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    q, shape = exp(-u[0]), math.exp(u[1])
    away = y * q - 1.0
    gradient[0] = shape * q * away
    gradient[1] = 0.5 - 0.5 * shape * away * away / y
    return 0.5 * u[1] - 0.5 * shape * away * away / y


@vector_hessian.register(InverseGaussian)
def _hessian(family: InverseGaussian, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    q, shape = exp(-u[0]), math.exp(u[1])
    away = y * q - 1.0
    gradient[0] = shape * q * away
    gradient[1] = 0.5 - 0.5 * shape * away * away / y
    hessian[0, 0] = -shape * q * (2.0 * away + 1.0)
    hessian[0, 1] = shape * q * away
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = -0.5 * shape * away * away / y
    return 0.5 * u[1] - 0.5 * shape * away * away / y


@vector_residual.register(InverseGaussian)
def _residual(family: InverseGaussian, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """-lambda [e^b rho + E_3 A + E_2 A' s + E_1 A'' s^2 / 2], rho the residual of A and E_m = e^b less m terms."""
    q, shape, s, b = exp(-base[0]), math.exp(base[1]), shift[0], shift[1]
    away = y * q - 1.0
    third_order = exp_remainder(b)
    second_order = third_order + 0.5 * b * b
    first_order = second_order + b
    rho = 0.5 * y * q * q * exp_remainder(-2.0 * s) - q * exp_remainder(-s)
    inner = (1.0 + first_order) * rho + third_order * 0.5 * away * away / y
    return -shape * (inner - second_order * q * away * s + 0.5 * first_order * q * (2.0 * away + 1.0) * s * s)


@third_bounds.register
def _third_bounds(member: InverseGaussian, near: Neighbourhood) -> np.ndarray:
    t = near.nuisance_speed(0)
    shape = math.exp(near.between(near.nuisance(0), t)[1])
    low, high = near.between(near.eta, near.speed)
    q, ratios = np.exp(-low), [near.y * np.exp(-end) for end in (low, high)]

    def largest(scale: float) -> np.ndarray:
        return np.maximum(*(np.abs(1.0 - scale * r) for r in ratios))

    loss = largest(1.0) ** 2 / (2.0 * near.y)
    return shape * cubic_form(near.speed, t, q * largest(4.0), q * largest(2.0), q * largest(1.0), loss)


def _simulate(rng: np.random.Generator, member: InverseGaussian, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return rng.wald(np.exp(eta), np.broadcast_to(np.exp(nuisances[:, 0]), eta.shape))


def _start(model: Model) -> np.ndarray:
    theta, d, moments = np.zeros(model.dim), model.data.d, model.data.moments
    mean = float(moments.mean[d])
    if model.data.intercept is not None:
        theta[model.data.intercept] = math.log(mean) - moments.mean[d + 1]
    theta[-1] = math.log(mean**3 / max(moments.sd[d] ** 2, 1e-6 * mean**2))
    return theta


FAMILY = Family(
    name="inverse_gaussian",
    variance=lambda member, mean, nuisances: mean**3 / np.exp(nuisances[:, 0]),
    ratio="mean_ratio",
    support="a number > 0",
    remedy="Drop rows with a response of zero or less, or model them apart.",
    admits=lambda y: np.isfinite(y) & (y > 0),
    mean=np.exp,
    self_concordant=False,
    log_concave=False,
    examples=(InverseGaussian(),),
    responses=(0.2, 1.0, 4.0),
    response="positive",
    link=lambda mean: float(np.log(mean)),
    link_name="log",
    start=_start,
    member_of=InverseGaussian,
    log_normaliser=lambda member, y: -0.5 * math.log(2.0 * math.pi) - 1.5 * np.log(y),
    simulate=_simulate,
)


def inverse_gaussian(data: Dataset, prior: PriorLike = None) -> Model:
    """Inverse Gaussian regression with log link; log shape is the last coordinate of theta, with a flat prior.

    >>> import numpy as np, tallbayes as tb
    >>> tb.models.inverse_gaussian(tb.Dataset.from_arrays(np.ones((4, 1)), [1.0, 2.0, 0.5, 3.0])).names
    ('x0', 'log_shape')
    """
    return Model(data, FAMILY, InverseGaussian(), prior, nuisances=("log_shape",))

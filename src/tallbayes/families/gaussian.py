"""Gaussian regression: f(eta) = -(y - eta)^2 / (2 sigma^2), sigma known, or log sigma as the last coordinate of theta, or predicted.

With sigma unknown, u = (eta, tau), tau = log sigma, z = (y - eta)/sigma: f = -tau - z^2/2, with a flat prior on tau. If tau is a second
linear predictor, the third derivatives bound rows: 0, 2 / sigma^2, 4 |z| / sigma and 4 z^2, a certificate for bound T10.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.arithmetic import exp_remainder
from tallbayes.engine.family_functions import (
    curvature_supremum,
    jet1,
    jet2,
    residual,
    third,
    third_supremum,
    third_supremum_on,
    value,
)
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.model import Family, Model, start_scales
from tallbayes.named_priors import PriorLike
from tallbayes.validation import positive_number


class Gaussian(NamedTuple):
    """Normal errors with a known standard deviation."""

    precision: float  # 1 / sigma^2


class GaussianScale(NamedTuple):
    """Normal errors with unknown standard deviation e^tau."""


class PredictedScale(NamedTuple):
    """Normal errors with standard deviation e^tau, tau a linear predictor of the last `second` columns."""

    second: int


@value.register(Gaussian)
def _value(family: Gaussian, eta: float, y: float) -> float:
    return -0.5 * family.precision * (y - eta) * (y - eta)


@jet1.register(Gaussian)
def _jet1(family: Gaussian, eta: float, y: float) -> tuple[float, float]:
    error = y - eta
    return -0.5 * family.precision * error * error, family.precision * error


@jet2.register(Gaussian)
def _jet2(family: Gaussian, eta: float, y: float) -> tuple[float, float, float]:
    error = y - eta
    return -0.5 * family.precision * error * error, family.precision * error, -family.precision


@third.register(Gaussian)
def _third(family: Gaussian, eta: float, y: float) -> float:
    return 0.0


@curvature_supremum.register(Gaussian)
def _curvature_supremum(family: Gaussian, y: float) -> float:
    return family.precision


@third_supremum.register(Gaussian)
def _third_supremum(family: Gaussian, y: float) -> float:
    return 0.0


@third_supremum_on.register(Gaussian)
def _third_supremum_on(family: Gaussian, y: float, low: float, high: float) -> float:
    return 0.0


@residual.register(Gaussian)
def _residual(family: Gaussian, eta: float, y: float, shift: float) -> float:
    return 0.0


@vector_value.register(PredictedScale)
@vector_value.register(GaussianScale)
def _vector_value(family: GaussianScale, u: np.ndarray, y: float) -> float:
    z = (y - u[0]) * math.exp(-u[1])
    return -u[1] - 0.5 * z * z


@vector_gradient.register(PredictedScale)
@vector_gradient.register(GaussianScale)
def _vector_gradient(family: GaussianScale, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    inverse = math.exp(-u[1])
    z = (y - u[0]) * inverse
    gradient[0] = z * inverse
    gradient[1] = z * z - 1.0
    return -u[1] - 0.5 * z * z


@vector_hessian.register(PredictedScale)
@vector_hessian.register(GaussianScale)
def _vector_hessian(family: GaussianScale, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    inverse = math.exp(-u[1])
    z = (y - u[0]) * inverse
    gradient[0] = z * inverse
    gradient[1] = z * z - 1.0
    hessian[0, 0] = -inverse * inverse
    hessian[0, 1] = -2.0 * z * inverse
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = -2.0 * z * z
    return -u[1] - 0.5 * z * z


@vector_residual.register(PredictedScale)
@vector_residual.register(GaussianScale)
def _vector_residual(family: GaussianScale, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """With E0 = e^(-2b) - 1, E1 = E0 + 2b, E2 = E1 - 2b^2 and a = shift of eta / sigma: -E2 z^2/2 + E1 a z - E0 a^2/2."""
    inverse, b = math.exp(-base[1]), shift[1]
    z, a = (y - base[0]) * inverse, shift[0] * inverse
    e2 = exp_remainder(-2.0 * b)
    return -0.5 * e2 * z * z + (e2 + 2.0 * b * b) * a * z - 0.5 * math.expm1(-2.0 * b) * a * a


@third_bounds.register
def _third_bounds(member: PredictedScale, near: Neighbourhood) -> np.ndarray:
    t = near.other_speed
    sigma = np.exp(near.between(near.other, t)[0])
    low, high = near.between(near.y - near.eta, near.speed)
    z = np.maximum(np.abs(low), np.abs(high)) / sigma
    return cubic_form(near.speed / sigma, t, 0.0, 2.0, 4.0 * z, 4.0 * z * z)


Member = Gaussian | GaussianScale | PredictedScale


def _log_normaliser(member: Member, y: np.ndarray) -> np.ndarray:
    precision = member.precision if isinstance(member, Gaussian) else 1.0
    return np.full(np.shape(y), 0.5 * math.log(precision / (2.0 * math.pi)))


def _simulate(rng: np.random.Generator, member: Member, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    if isinstance(member, PredictedScale):
        return eta[..., 0] + np.exp(eta[..., 1]) * rng.standard_normal(eta.shape[:2])
    sigma = member.precision**-0.5 if isinstance(member, Gaussian) else np.exp(nuisances[:, 0])
    return eta + sigma * rng.standard_normal(eta.shape)


def _variance(member: Any, mean: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    known = isinstance(member, Gaussian)
    return np.broadcast_to(1.0 / member.precision if known else np.exp(2.0 * nuisances[:, 0]), mean.shape)


def _member(sigma: float | list[str] | None) -> Member:
    if isinstance(sigma, list):
        return PredictedScale(len(sigma))
    return GaussianScale() if sigma is None else Gaussian(1.0 / sigma**2)


FAMILY = Family(
    name="gaussian",
    variance=_variance,
    latent_variance=lambda member, nuisances: _variance(member, nuisances[None, :, 0], nuisances)[0],
    fourth_ratio=lambda member: 0.0,
    support="a number",
    remedy="",
    admits=lambda y: np.isfinite(y),
    mean=lambda eta: eta,
    self_concordant=False,
    log_concave=True,
    examples=(Gaussian(1.0), Gaussian(4.0), GaussianScale(), PredictedScale(2)),
    responses=(-1.0, 0.0, 2.5),
    response_scale=True,
    link=float,
    start=lambda model: start_scales(model) if model.second else None,
    member_of=_member,
    predictors=lambda member: 2 if isinstance(member, PredictedScale) else 1,
    second=lambda member: member.second if isinstance(member, PredictedScale) else 0,
    second_name="sigma",
    log_normaliser=_log_normaliser,
    simulate=_simulate,
    unit_scale_member=lambda member: Gaussian(1.0) if isinstance(member, GaussianScale) else None,
)


def gaussian(data: Dataset, prior: PriorLike = None, sigma: float | str | list[str] | None = None) -> Model:
    """Gaussian regression. With `sigma=None` log sigma is the last coordinate of theta, with a flat prior.

    `sigma="~ x"` makes log sigma a linear predictor, of rows that were read with it: `tallbayes.fit(..., sigma="~ x")` does both. Names of
    the last columns do so for rows from arrays.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0])
    >>> tb.models.gaussian(data).names
    ('x0', 'log_sigma')
    >>> tb.find_mode(tb.models.gaussian(data, tb.priors.flat(), sigma=1.0)).reference
    array([2.5])
    """
    if isinstance(sigma, str | list | tuple):
        names = second_columns(data, "sigma", sigma)
        return Model(data, FAMILY, PredictedScale(len(names)), prior, options={"sigma": names})
    if sigma is None:
        return Model(data, FAMILY, GaussianScale(), prior, nuisances=("log_sigma",), options={"sigma": None})
    sigma = positive_number("sigma", sigma, ", or None to learn it")
    return Model(data, FAMILY, Gaussian(1.0 / sigma**2), prior, options={"sigma": sigma})

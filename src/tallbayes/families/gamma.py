"""Gamma regression with log link and known shape kappa, y > 0 with mean e^eta: f(eta) = -kappa (y e^-eta + eta).

f'' = -kappa y e^-eta and f''' = -f'': no global bound of the third derivative, but self-concordant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.errors import OptionError
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


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


def _log_normaliser(member: Gamma, y: np.ndarray) -> np.ndarray:
    shape = member.shape
    return shape * math.log(shape) - gammaln(shape) + (shape - 1.0) * np.log(y)


def _simulate(rng: np.random.Generator, member: Gamma, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return np.exp(eta) * rng.standard_gamma(member.shape, eta.shape) / member.shape


FAMILY = Family(
    name="gamma",
    variance=lambda member, mean, nuisances: mean**2 / member.shape,
    ratio="mean_ratio",
    support="a number > 0",
    remedy="Drop rows with a response of zero or less, or model them apart.",
    admits=lambda y: y > 0,
    mean=np.exp,
    self_concordant=True,
    log_concave=True,
    examples=(Gamma(1.0), Gamma(2.5)),
    responses=(0.1, 1.0, 7.5),
    response="positive",
    link=lambda mean: float(np.log(mean)),
    link_name="log",
    member_of=lambda shape: Gamma(float(shape)),
    log_normaliser=_log_normaliser,
    simulate=_simulate,
    published_bound="exponential",
)


def gamma(data: Dataset, prior: PriorLike = None, *, shape: float) -> Model:
    """Gamma regression with log link and known shape.

    Responses of mean mu have variance mu^2 / shape. The shape is not estimated, and decides how wide the posterior is.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [1.0, 2.0, 3.0, 2.0])
    >>> bool(np.isclose(tb.find_mode(tb.models.gamma(data, tb.priors.flat(), shape=2.0)).reference[0], np.log(2.0)))
    True
    """
    if not (np.isfinite(shape) and shape > 0):
        raise OptionError(f"shape must be a positive number; got {shape}.")
    return Model(data, FAMILY, Gamma(float(shape)), prior, options={"shape": float(shape)})

"""Negative binomial regression with log link and known size k: f(eta) = y eta - (y + k) log(k + e^eta).

With p = sigma(eta - log k) it is y + k times a logistic likelihood: |f'''| <= (y + k) / (6 sqrt 3) for each row, and
self-concordant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, log1p_unit
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
from tallbayes.families.logistic import bernoulli_residual
from tallbayes.families.poisson import poisson_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike

_PEAK = math.log(2.0 + math.sqrt(3.0))
_SUPREMUM = 1.0 / (6.0 * math.sqrt(3.0))


class NegativeBinomial(NamedTuple):
    """Counts with mean e^eta and variance e^eta + e^(2 eta) / size."""

    size: float
    log_size: float


@value.register(NegativeBinomial)
def _value(family: NegativeBinomial, eta: float, y: float) -> float:
    t = eta - family.log_size
    return y * t - (y + family.size) * (max(t, 0.0) + log1p_unit(exp(-abs(t))))


@jet1.register(NegativeBinomial)
def _jet1(family: NegativeBinomial, eta: float, y: float) -> tuple[float, float]:
    t = eta - family.log_size
    z = exp(-abs(t))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if t >= 0.0 else smaller
    total = y + family.size
    return y * t - total * (max(t, 0.0) + log1p_unit(z)), y - total * p


@jet2.register(NegativeBinomial)
def _jet2(family: NegativeBinomial, eta: float, y: float) -> tuple[float, float, float]:
    t = eta - family.log_size
    z = exp(-abs(t))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if t >= 0.0 else smaller
    total = y + family.size
    return y * t - total * (max(t, 0.0) + log1p_unit(z)), y - total * p, -total * smaller * larger


@third.register(NegativeBinomial)
def _third(family: NegativeBinomial, eta: float, y: float) -> float:
    t = eta - family.log_size
    z = exp(-abs(t))
    larger = 1.0 / (1.0 + z)
    skew = (1.0 - z) * larger
    return (y + family.size) * z * larger * larger * (skew if t >= 0.0 else -skew)


@slope_supremum.register(NegativeBinomial)
def _slope_supremum(family: NegativeBinomial, y: float) -> float:
    """y - (y + k) p lies between -k and y."""
    return max(y, family.size)


@curvature_supremum.register(NegativeBinomial)
def _curvature_supremum(family: NegativeBinomial, y: float) -> float:
    return 0.25 * (y + family.size)


@third_supremum.register(NegativeBinomial)
def _third_supremum(family: NegativeBinomial, y: float) -> float:
    return (y + family.size) * _SUPREMUM


@third_supremum_on.register(NegativeBinomial)
def _third_supremum_on(family: NegativeBinomial, y: float, low: float, high: float) -> float:
    first, last = low - family.log_size, high - family.log_size
    if first <= _PEAK <= last or first <= -_PEAK <= last:
        return (y + family.size) * _SUPREMUM
    return max(abs(third(family, low, y)), abs(third(family, high, y)))


@residual.register(NegativeBinomial)
def _residual(family: NegativeBinomial, eta: float, y: float, shift: float) -> float:
    return (y + family.size) * bernoulli_residual(eta - family.log_size, shift)


def _log_normaliser(member: NegativeBinomial, y: np.ndarray) -> np.ndarray:
    return gammaln(y + member.size) - gammaln(member.size) - gammaln(y + 1.0)


def _simulate(rng: np.random.Generator, member: NegativeBinomial, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return poisson_counts(rng, np.exp(eta) * rng.standard_gamma(member.size, eta.shape) / member.size)


FAMILY = Family(
    name="negbin",
    aliases=("negative_binomial", "negativebinomial", "nbinom"),
    variance=lambda member, mean, nuisances: mean + mean**2 / member.size,
    fourth_ratio=lambda member: 0.75 * math.sqrt(3.0),  # those of logistic regression, times y + size
    ratio="rate_ratio",
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    self_concordant=True,
    log_concave=True,
    examples=(NegativeBinomial(1.0, 0.0), NegativeBinomial(3.0, math.log(3.0))),
    responses=(0.0, 1.0, 9.0),
    response="count",
    link=lambda mean: float(np.log(mean + 1e-6)),
    link_name="log",
    member_of=lambda size: NegativeBinomial(float(size), math.log(size)),
    log_normaliser=_log_normaliser,
    simulate=_simulate,
)


def negbin(data: Dataset, prior: PriorLike = None, *, size: float) -> Model:
    """Negative binomial regression with log link and known size; a large size is nearly Poisson.

    Counts of mean mu have variance mu + mu^2 / size. The size is not estimated, and decides how wide the posterior is.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [0, 2, 5, 1])
    >>> bool(np.isclose(tb.find_mode(tb.models.negbin(data, tb.priors.flat(), size=2.0)).reference[0], np.log(2.0)))
    True
    """
    if not (np.isfinite(size) and size > 0):
        raise OptionError(f"size must be a positive number; got {size}.")
    return Model(data, FAMILY, NegativeBinomial(float(size), math.log(size)), prior, options={"size": float(size)})

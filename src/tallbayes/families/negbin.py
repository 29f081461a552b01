"""Negative binomial regression with log link: f(eta) = y eta - (y + k) log(k + e^eta), size k known, or kappa = log k in theta.

With p = sigma(eta - log k) it is y + k times a logistic likelihood: |f'''| <= (y + k) / (6 sqrt 3) for each row, and
self-concordant.

With k unknown, u = eta - kappa and S = softplus, f = sum_{j < y} log(k + j) + y u - (y + k) S(u). In p = S'(u) the third derivatives are

    eta eta eta      -(y + k) p (1 - p) (1 - 2p),
    eta eta kappa    y p (1 - p) (1 - 2p) - 2 k p^2 (1 - p),
    eta kappa kappa  -y p (1 - p) (1 - 2p) + k p^2 (1 - 2p),
    kappa ^3         y p (1 - p) (1 - 2p) + k (p + 2 p^3 + log(1 - p)) + sum_{1 <= j < y} S'''(kappa - log j),

and each factor in p has its turning points in closed form: a certificate for bound T10.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder, log1p_unit
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
from tallbayes.engine.gamma_functions import rising
from tallbayes.engine.neighbourhood import Neighbourhood, cubic_form, largest_on, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value
from tallbayes.families.logistic import bernoulli_residual
from tallbayes.families.poisson import poisson_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import inverse_gamma
from tallbayes.validation import positive_number

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


class NegativeBinomialSize(NamedTuple):
    """Counts with mean e^eta and unknown size e^kappa."""


@vector_value.register(NegativeBinomialSize)
def _vector_value(family: NegativeBinomialSize, u: np.ndarray, y: float) -> float:
    t, k = u[0] - u[1], math.exp(u[1])
    return rising(k, y)[0] + y * t - (y + k) * (max(t, 0.0) + log1p_unit(exp(-abs(t))))


@vector_gradient.register(NegativeBinomialSize)
def _vector_gradient(family: NegativeBinomialSize, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    t, k = u[0] - u[1], math.exp(u[1])
    z = exp(-abs(t))
    p = (1.0 if t >= 0.0 else z) / (1.0 + z)
    soft = max(t, 0.0) + log1p_unit(z)
    level, slope, _ = rising(k, y)
    gradient[0] = y - (y + k) * p
    gradient[1] = slope - gradient[0] - k * soft
    return level + y * t - (y + k) * soft


@vector_hessian.register(NegativeBinomialSize)
def _vector_hessian(family: NegativeBinomialSize, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    t, k = u[0] - u[1], math.exp(u[1])
    z = exp(-abs(t))
    p = (1.0 if t >= 0.0 else z) / (1.0 + z)
    soft, v = max(t, 0.0) + log1p_unit(z), z / ((1.0 + z) * (1.0 + z))
    level, slope, curvature = rising(k, y)
    gradient[0] = y - (y + k) * p
    gradient[1] = slope - gradient[0] - k * soft
    hessian[0, 0] = -(y + k) * v
    hessian[0, 1] = (y + k) * v - k * p
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = curvature - (y + k) * v + 2.0 * k * p - k * soft
    return level + y * t - (y + k) * soft


@vector_residual.register(NegativeBinomialSize)
def _vector_residual(family: NegativeBinomialSize, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """With b the shift of kappa, t that of u, rho the residual of -S and E_m = e^b less its first m terms:

    (y + k e^b) rho - k [E_3 S + E_2 S' t + E_1 S'' t^2 / 2], less the residuals of S(kappa - log j) for 1 <= j < y turned around.
    """
    at, k, b, t = base[0] - base[1], math.exp(base[1]), shift[1], shift[0] - shift[1]
    z = exp(-abs(at))
    p = (1.0 if at >= 0.0 else z) / (1.0 + z)
    soft, v = max(at, 0.0) + log1p_unit(z), z / ((1.0 + z) * (1.0 + z))
    third_order = exp_remainder(b)
    second_order = third_order + 0.5 * b * b
    total = (y + k * (1.0 + second_order + b)) * bernoulli_residual(at, t)
    total -= k * (third_order * soft + second_order * p * t + 0.5 * (second_order + b) * v * t * t)
    for j in range(1, int(y)):
        total -= bernoulli_residual(base[1] - math.log(j), b)
    return total


def _logistic_third(p: np.ndarray) -> np.ndarray:
    return p * (1.0 - p) * (1.0 - 2.0 * p)


_ENDS = (
    0.5 * (1.0 - 1.0 / math.sqrt(3.0)),
    0.5 * (1.0 + 1.0 / math.sqrt(3.0)),
)  # where it turns, and the cubic part of kappa too


@third_bounds.register
def _third_bounds(member: NegativeBinomialSize, near: Neighbourhood) -> np.ndarray:
    kappa, t = near.nuisance(0), near.nuisance_speed(0)
    low, high = near.between(near.eta - kappa, near.difference_speed(np.zeros(near.y.size, int)))
    small, large = (np.clip(1.0 / (1.0 + np.exp(-at)), 0.0, 1.0 - 1e-16) for at in (low, high))
    first, last = near.between(kappa, t)
    k, y = math.exp(last), near.y
    skew = largest_on(_logistic_third, small, large, _ENDS)
    mixed = largest_on(lambda p: 2.0 * p * p * (1.0 - p), small, large, (2.0 / 3.0,))
    other = largest_on(lambda p: p * p * (1.0 - 2.0 * p), small, large, (1.0 / 3.0,))
    cubic = largest_on(lambda p: p + 2.0 * p**3 + np.log1p(-p), small, large, _ENDS)
    cubic = np.maximum(cubic, np.where(high > 36.0, np.abs(high) + 4.0, 0.0))  # log(1 - p) where p rounds to 1
    sums = _rising_thirds(first, last, int(y.max(initial=0.0)))[y.astype(np.int64)]
    return cubic_form(near.speed, t, (y + k) * skew, y * skew + k * mixed, y * skew + k * other, y * skew + k * cubic + sums)


def _rising_thirds(low: float, high: float, largest: int) -> np.ndarray:
    """For y = 0 .. largest: a bound of |sum_{1 <= j < y} S'''(kappa - log j)| over kappa in [low, high]."""
    logs = np.log(np.arange(1.0, max(largest, 1) + 1.0))
    small, large = (1.0 / (1.0 + np.exp(-(at - logs))) for at in (low, high))
    each = largest_on(_logistic_third, small, large, _ENDS)
    return np.concatenate([[0.0, 0.0], np.cumsum(each)])[: max(largest, 1) + 1]


def _log_normaliser(member: NegativeBinomial | NegativeBinomialSize, y: np.ndarray) -> np.ndarray:
    if isinstance(member, NegativeBinomialSize):
        return -gammaln(y + 1.0)
    return gammaln(y + member.size) - gammaln(member.size) - gammaln(y + 1.0)


def _size(member: NegativeBinomial | NegativeBinomialSize, nuisances: np.ndarray) -> Any:
    return np.exp(nuisances[:, 0]) if isinstance(member, NegativeBinomialSize) else member.size


def _simulate(
    rng: np.random.Generator, member: NegativeBinomial | NegativeBinomialSize, eta: np.ndarray, nuisances: np.ndarray
) -> np.ndarray:
    size = _size(member, nuisances)
    return poisson_counts(rng, np.exp(eta) * rng.standard_gamma(size, eta.shape) / size)


def _start(model: Model) -> np.ndarray | None:
    """The size from the mean and the variance of the counts; nothing where it is known."""
    if not model.nuisances:
        return None
    theta, d, moments = np.zeros(model.dim), model.data.d, model.data.moments
    mean = max(float(moments.mean[d]), 1e-3)
    if model.data.intercept is not None:
        theta[model.data.intercept] = math.log(mean) - moments.mean[d + 1]
    theta[-1] = math.log(min(max(mean**2 / max(moments.sd[d] ** 2 - mean, 1e-3 * mean), 0.05), 100.0))
    return theta


FAMILY = Family(
    name="negbin",
    aliases=("negative_binomial", "negativebinomial", "nbinom"),
    variance=lambda member, mean, nuisances: mean + mean**2 / _size(member, nuisances),
    nuisance_priors={"size": inverse_gamma(0.4, 0.3)},
    start=_start,
    fourth_ratio=lambda member: 0.75 * math.sqrt(3.0),  # those of logistic regression, times y + size
    ratio="rate_ratio",
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    self_concordant=True,
    log_concave=True,
    examples=(NegativeBinomial(1.0, 0.0), NegativeBinomial(3.0, math.log(3.0)), NegativeBinomialSize()),
    responses=(0.0, 1.0, 9.0),
    response="count",
    link=lambda mean: float(np.log(mean + 1e-6)),
    link_name="log",
    member_of=lambda size=None: NegativeBinomialSize() if size is None else NegativeBinomial(float(size), math.log(size)),
    log_normaliser=_log_normaliser,
    simulate=_simulate,
)


def negbin(data: Dataset, prior: PriorLike = None, *, size: float | None = None) -> Model:
    """Negative binomial regression with log link. With `size=None` log size is the last coordinate of theta.

    Counts of mean mu have variance mu + mu^2 / size; a large size is nearly Poisson. An unknown size has an inverse gamma prior, because
    the likelihood does not fall off as it grows; `prior={"size": ...}` gives another.

    Counts of mean mu have variance mu + mu^2 / size. The size is not estimated, and decides how wide the posterior is.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [0, 2, 5, 1])
    >>> tb.models.negbin(data).names
    ('x0', 'log_size')
    >>> bool(np.isclose(tb.find_mode(tb.models.negbin(data, tb.priors.flat(), size=2.0)).reference[0], np.log(2.0)))
    True
    """
    if size is None:
        return Model(data, FAMILY, NegativeBinomialSize(), prior, nuisances=("log_size",), options={"size": None})
    size = positive_number("size", size, ", or None to learn it")
    return Model(data, FAMILY, NegativeBinomial(size, math.log(size)), prior, options={"size": size})

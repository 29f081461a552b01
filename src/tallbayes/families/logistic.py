"""Logistic regression, y in {0, 1}: f(eta) = y eta - log(1 + e^eta).

sup |f'''| = 1/(6 sqrt 3), reached at |eta| = log(2 + sqrt 3); |f'''| <= |f''| everywhere, so the family is self-concordant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, inlinable
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
from tallbayes.engine.lower_gaps import lower_gap, lower_jet, lower_slope
from tallbayes.model import Family, Model, Tangent, no_terms
from tallbayes.named_priors import PriorLike

_PEAK = math.log(2.0 + math.sqrt(3.0))
_SUPREMUM = 1.0 / (6.0 * math.sqrt(3.0))
_SERIES = 0.25  # series and difference are both right here to 2e-12 of the bound by self-concordance


class Logistic(NamedTuple):
    """The Bernoulli family with logit link."""


@value.register(Logistic)
def _value(family: Logistic, eta: float, y: float) -> float:
    return y * eta - max(eta, 0.0) - log1p_unit(exp(-abs(eta)))


@jet1.register(Logistic)
def _jet1(family: Logistic, eta: float, y: float) -> tuple[float, float]:
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if eta >= 0.0 else smaller
    return y * eta - max(eta, 0.0) - log1p_unit(z), y - p


@jet2.register(Logistic)
def _jet2(family: Logistic, eta: float, y: float) -> tuple[float, float, float]:
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if eta >= 0.0 else smaller
    return y * eta - max(eta, 0.0) - log1p_unit(z), y - p, -smaller * larger


@third.register(Logistic)
def _third(family: Logistic, eta: float, y: float) -> float:
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    skew = (1.0 - z) * larger
    return z * larger * larger * (skew if eta >= 0.0 else -skew)


@slope_supremum.register(Logistic)
def _slope_supremum(family: Logistic, y: float) -> float:
    return 1.0


@curvature_supremum.register(Logistic)
def _curvature_supremum(family: Logistic, y: float) -> float:
    return 0.25


@third_supremum.register(Logistic)
def _third_supremum(family: Logistic, y: float) -> float:
    return _SUPREMUM


@third_supremum_on.register(Logistic)
def _third_supremum_on(family: Logistic, y: float, low: float, high: float) -> float:
    if low <= _PEAK <= high or low <= -_PEAK <= high:
        return _SUPREMUM
    return max(abs(third(family, low, y)), abs(third(family, high, y)))


@residual.register(Logistic)
def _residual(family: Logistic, eta: float, y: float, shift: float) -> float:
    return bernoulli_residual(eta, shift)


@inlinable(options=SCALAR)
def bernoulli_residual(eta: float, shift: float) -> float:
    """Minus the cumulant generating function of y less its first two terms; y drops out.

    Near 0 its series, where the difference would cancel. (eta, shift) and (-eta, -shift) have the same residual: eta <= 0
    is taken, where every term is as small as the mean and keeps its relative accuracy.
    """
    distance = abs(eta)
    z = exp(-distance)
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    v = smaller * larger
    opposite = -shift
    s = opposite if eta > 0.0 else shift
    end = s - distance
    growth = log1p_unit(exp(-abs(end))) - log1p_unit(z) + max(end, 0.0)
    difference = s * (smaller + 0.5 * v * s) - growth
    near = min(max(s, -_SERIES), _SERIES)
    series = -v * near * near * near * _cumulants(v, (1.0 - z) * larger, near)
    return series if abs(s) < _SERIES else difference


@inlinable(options=SCALAR)
def _cumulants(v: float, skew: float, s: float) -> float:
    """(k3/3! + k4 s/4! + ... + k12 s^9/12!) / v, cumulants of a Bernoulli law of variance v and 1 - 2 mean = skew.

    k_{n+1} is the derivative of k_n in eta; v' = v skew, skew' = -2v and skew^2 = 1 - 4v.
    """
    r = s * (1 / 479001600 - v * (31 / 7257600 - v * (1 / 2835 - v * (19 / 2880 - v * (1 / 24 - v * (1 / 12))))))
    r = s * (r + skew * (1 / 39916800 - v * (17 / 665280 - v * (7 / 5280 - v * (1 / 66 - v * (1 / 22))))))
    r = s * (r + (1 / 3628800 - v * (17 / 120960 - v * (7 / 1440 - v * (1 / 24 - v * (1 / 10))))))
    r = s * (r + skew * (1 / 362880 - v * (1 / 1440 - v * (1 / 72 - v * (1 / 18)))))
    r = s * (r + (1 / 40320 - v * (1 / 320 - v * (1 / 24 - v * (1 / 8)))))
    r = s * (r + skew * (1 / 5040 - v * (1 / 84 - v * (1 / 14))))
    r = s * (r + (1 / 720 - v * (1 / 24 - v * (1 / 6))))
    r = s * (r + skew * (1 / 120 - v * (1 / 10)))
    r = s * (r + (1 / 24 - v * (1 / 4)))
    return r + skew * (1 / 6)


class JaakkolaJordan(NamedTuple):
    """Quadratic bound of a row, tangent at |eta| = xi; a negative xi is |eta| at the reference.

    log B = y eta - eta/2 - log 2cosh(xi/2) - lambda(xi) (eta^2 - xi^2), lambda(xi) = tanh(xi/2) / (4 xi): f less its odd part is
    convex in eta^2.
    """

    xi: float


@inlinable(options=SCALAR)
def _lambda(xi: float) -> float:
    """tanh(xi/2) / (4 xi), by its series near 0."""
    z = exp(-xi)
    q = 0.25 * xi * xi
    near = 0.125 * (1.0 - q * (1 / 3 - q * (2 / 15 - q * (17 / 315 - q * (62 / 2835)))))
    far = 0.25 * (1.0 - z) / ((1.0 + z) * max(xi, 0.1))
    return near if xi < 0.2 else far


@inlinable(options=SCALAR)
def _excess(xi: float) -> float:
    """lambda(xi) less half the curvature of the likelihood there, by its series near 0."""
    z = exp(-xi)
    larger = 1.0 / (1.0 + z)
    q = 0.25 * xi * xi
    near = 0.125 * q * (2 / 3 - q * (8 / 15 - q * (34 / 105 - q * (496 / 2835 - q * (2764 / 31185)))))
    far = 0.25 * (1.0 - z) * larger / max(xi, 0.1) - 0.5 * z * larger * larger
    return near if xi < 0.2 else far


@lower_gap.register(JaakkolaJordan)
def _lower_gap(kind: JaakkolaJordan, family: Logistic, base: float, shift: float, y: float) -> float:
    """Both sides are even in eta: what is left beyond the tangent at xi >= 0, along |eta| - xi."""
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    step = abs(base + shift) - xi
    return bernoulli_residual(xi, step) + _excess(xi) * step * step


@lower_slope.register(JaakkolaJordan)
def _lower_slope(kind: JaakkolaJordan, family: Logistic, base: float, shift: float, y: float) -> float:
    eta = base + shift
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    return 2.0 * _lambda(xi) * eta - 0.5 * math.tanh(0.5 * eta)


@lower_jet.register(JaakkolaJordan)
def _lower_jet(kind: JaakkolaJordan, family: Logistic, base: float, y: float) -> tuple[float, float, float]:
    f, slope = jet1(family, base, y)
    tuned = abs(base)
    xi = tuned if kind.xi < 0.0 else kind.xi
    return f - lower_gap(kind, family, base, 0.0, y), slope - lower_slope(kind, family, base, 0.0, y), -2.0 * _lambda(xi)


def _mean(eta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-eta))


def _simulate(rng: np.random.Generator, member: Logistic, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return (rng.random(eta.shape) < _mean(eta)).astype(float)


FAMILY = Family(
    name="logistic",
    aliases=("bernoulli", "logit"),
    latent_variance=lambda member, nuisances: math.pi**2 / 3.0,
    support="0 or 1",
    remedy="Recode the response as 0 and 1.",
    admits=lambda y: (y == 0) | (y == 1),
    mean=_mean,
    self_concordant=True,
    log_concave=True,
    examples=(Logistic(),),
    responses=(0.0, 1.0),
    response="binary",
    link=lambda mean: float(np.log((mean + 1e-6) / (1.0 - mean + 1e-6))),
    link_name="logit",
    member_of=Logistic,
    log_normaliser=no_terms,
    simulate=_simulate,
    published_bound="T1",
    fourth_supremum=0.125,  # at eta = 0
    fourth_ratio=lambda member: 0.125 / _SUPREMUM,
    ratio="odds_ratio",
    tangent=Tangent("Jaakkola-Jordan", lambda xi: JaakkolaJordan(-1.0 if xi is None else xi), xi=1.5),
)


def logistic(data: Dataset, prior: PriorLike = None) -> Model:
    """Logistic regression of a response in {0, 1}.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(4), [-1.0, 0.0, 1.0, 2.0]])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, [0, 1, 0, 1]), prior=tb.priors.normal(scale=10.0))
    >>> model.names
    ('x0', 'x1')
    >>> round(model.log_posterior(np.zeros(2)), 4)
    -2.7726
    """
    return Model(data, FAMILY, Logistic(), prior)

"""Logistic regression, y in {0, 1}: f(eta) = y eta - log(1 + e^eta).

sup |f'''| = 1/(6 sqrt 3), reached at |eta| = log(2 + sqrt 3); |f'''| <= |f''| everywhere, so the family is self-concordant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.family import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.models.base import Family, Model
from tallbayes.models.priors import Prior

_PEAK = math.log(2.0 + math.sqrt(3.0))
_SUPREMUM = 1.0 / (6.0 * math.sqrt(3.0))
_SERIES = 0.05  # below it the truncated series, above it the difference itself, is right to 5e-13


class Logistic(NamedTuple):
    """The Bernoulli family with logit link."""


@value.register(Logistic)
def _value(family, eta, y):
    return y * eta - max(eta, 0.0) - log1p_unit(exp(-abs(eta)))


@jet1.register(Logistic)
def _jet1(family, eta, y):
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if eta >= 0.0 else smaller
    return y * eta - max(eta, 0.0) - log1p_unit(z), y - p


@jet2.register(Logistic)
def _jet2(family, eta, y):
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    p = larger if eta >= 0.0 else smaller
    return y * eta - max(eta, 0.0) - log1p_unit(z), y - p, -smaller * larger


@third.register(Logistic)
def _third(family, eta, y):
    z = exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    skew = (1.0 - z) * larger
    return z * larger * larger * (skew if eta >= 0.0 else -skew)


@third_supremum.register(Logistic)
def _third_supremum(family, y):
    return _SUPREMUM


@third_supremum_on.register(Logistic)
def _third_supremum_on(family, y, low, high):
    if low <= _PEAK <= high or low <= -_PEAK <= high:
        return _SUPREMUM
    return max(abs(third(family, low, y)), abs(third(family, high, y)))


@residual.register(Logistic)
def _residual(family, eta, y, shift):
    """Minus the cumulant generating function of y less its first two terms: no cancellation, and y drops out."""
    z = math.exp(-abs(eta))
    larger = 1.0 / (1.0 + z)
    smaller = z * larger
    v = smaller * larger
    skew = (larger - smaller) if eta < 0.0 else (smaller - larger)  # 1 - 2 sigma(eta)
    if abs(shift) < _SERIES:
        k3, k4, k5 = v * skew, v * (1.0 - 6.0 * v), v * skew * (1.0 - 12.0 * v)
        k6, k7 = v * (1.0 - v * (30.0 - 120.0 * v)), v * skew * (1.0 - v * (60.0 - 360.0 * v))
        k8 = v * (1.0 - v * (126.0 - v * (1680.0 - 5040.0 * v)))
        tail = k6 / 720.0 + shift * (k7 / 5040.0 + shift * (k8 / 40320.0))
        return -(shift**3) * (k3 / 6.0 + shift * (k4 / 24.0 + shift * (k5 / 120.0 + shift * tail)))
    quadratic = 0.5 * v * shift * shift
    folded = -shift if eta > 0.0 else shift  # (eta, shift) and (-eta, -shift) have the same residual: take eta <= 0
    if abs(shift) > 50.0:
        end = folded - abs(eta)
        return math.log1p(z) - max(end, 0.0) - math.log1p(math.exp(-abs(end))) + smaller * folded + quadratic
    return -(math.log1p(smaller * math.expm1(folded)) - smaller * folded - quadratic)


FAMILY = Family(
    name="logistic",
    support="0 or 1",
    remedy="Recode the response as 0 and 1.",
    admits=lambda y: (y == 0) | (y == 1),
    mean=lambda eta: 1.0 / (1.0 + np.exp(-eta)),
    self_concordant=True,
    log_concave=True,
    examples=(Logistic(),),
    responses=(0.0, 1.0),
)


def logistic(data: Dataset, prior: Prior | None = None) -> Model:
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

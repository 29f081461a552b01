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
from tallbayes.model import Family, Model
from tallbayes.priors import Prior

_PEAK = math.log(2.0 + math.sqrt(3.0))
_SUPREMUM = 1.0 / (6.0 * math.sqrt(3.0))
_SERIES = 0.25  # series and difference are both right here to 2e-12 of the bound by self-concordance


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


@slope_supremum.register(Logistic)
def _slope_supremum(family, y):
    return 1.0


@curvature_supremum.register(Logistic)
def _curvature_supremum(family, y):
    return 0.25


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
    return bernoulli_residual(eta, shift)


@inlinable(options=SCALAR)
def bernoulli_residual(eta, shift):
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
def _cumulants(v, skew, s):
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
    link=lambda mean: float(np.log((mean + 1e-6) / (1.0 - mean + 1e-6))),
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

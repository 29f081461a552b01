"""Probit regression, y in {0, 1}, t = 2y - 1, z = t eta: f(eta) = log Phi(z).

With m = phi(z)/Phi(z) and c = z + m: f' = t m, f'' = -m c, f''' = t m (c^2 + m c - 1), which has one peak in z.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
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
from tallbayes.model import Family, Model, no_terms
from tallbayes.named_priors import PriorLike

_PEAK = 1.0023693422683706  # of |f'''| in z
_SUPREMUM = 0.29571881919312316  # |f'''| there, rounded up
_TAIL = -2.5  # below it Phi is taken from the continued fraction of its tail
_LOG_ROOT = 0.9189385332046727  # log sqrt(2 pi)
_SERIES = 1.0  # the nearest zero of Phi is more than 2.7 away, so terms fall at least like 0.37^n
_TERMS = 34


class Probit(NamedTuple):
    """The Bernoulli family with probit link."""


@inlinable(options=SCALAR)
def mills(z: float) -> tuple[Any, float, float]:
    """log Phi(z), m = phi/Phi and c = z + m, each without cancellation."""
    if z < _TAIL:
        c = 0.0
        for k in range(120, 0, -1):
            c = k / (-z + c)
        m = c - z
        return -0.5 * z * z - _LOG_ROOT - math.log(m), m, c
    upper = 0.5 * math.erfc(-z * math.sqrt(0.5))
    log_phi = math.log1p(-0.5 * math.erfc(z * math.sqrt(0.5))) if z > 0.0 else math.log(upper)
    m = math.exp(-0.5 * z * z - _LOG_ROOT) / upper
    return log_phi, m, z + m


@value.register(Probit)
def _value(family: Probit, eta: float, y: float) -> float:
    return mills((2.0 * y - 1.0) * eta)[0]


@jet1.register(Probit)
def _jet1(family: Probit, eta: float, y: float) -> tuple[float, float]:
    t = 2.0 * y - 1.0
    f, m, _ = mills(t * eta)
    return f, t * m


@jet2.register(Probit)
def _jet2(family: Probit, eta: float, y: float) -> tuple[float, float, float]:
    t = 2.0 * y - 1.0
    f, m, c = mills(t * eta)
    return f, t * m, -m * c


@third.register(Probit)
def _third(family: Probit, eta: float, y: float) -> float:
    t = 2.0 * y - 1.0
    _, m, c = mills(t * eta)
    return t * m * (c * c + m * c - 1.0)


@curvature_supremum.register(Probit)
def _curvature_supremum(family: Probit, y: float) -> float:
    return 1.0


@third_supremum.register(Probit)
def _third_supremum(family: Probit, y: float) -> float:
    return _SUPREMUM


@third_supremum_on.register(Probit)
def _third_supremum_on(family: Probit, y: float, low: float, high: float) -> float:
    peak = (2.0 * y - 1.0) * _PEAK
    if low <= peak <= high:
        return _SUPREMUM
    return max(abs(third(family, low, y)), abs(third(family, high, y)))


@residual.register(Probit)
def _residual(family: Probit, eta: float, y: float, shift: float) -> float:
    """Near 0 the power series of log Phi, from m' = -m c and c' = 1 + m'; the difference elsewhere."""
    t = 2.0 * y - 1.0
    z, s = t * eta, t * shift
    f, m, c = mills(z)
    if abs(s) >= _SERIES:
        return mills(z + s)[0] - f - s * (m - 0.5 * m * c * s)
    a, b = np.empty(_TERMS), np.empty(_TERMS)
    a[0], b[0] = m, c
    for n in range(_TERMS - 1):
        total = 0.0
        for k in range(n + 1):
            total += a[k] * b[n - k]
        a[n + 1] = -total / (n + 1)
        b[n + 1] = a[n + 1] + (1.0 if n == 0 else 0.0)
    out = 0.0
    for n in range(_TERMS - 1, 1, -1):
        out = a[n] / (n + 1) + s * out
    return out * s**3


def _simulate(rng: np.random.Generator, member: Probit, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return (rng.random(eta.shape) < ndtr(eta)).astype(float)


FAMILY = Family(
    name="probit",
    latent_variance=lambda member, nuisances: 1.0,
    fourth_ratio=lambda member: 0.188958 / 0.295718,  # rounded up; the fourth derivative has 0.188957 at z = 0.0836
    support="0 or 1",
    remedy="Recode the response as 0 and 1.",
    admits=lambda y: (y == 0) | (y == 1),
    mean=ndtr,
    self_concordant=False,
    log_concave=True,
    examples=(Probit(),),
    responses=(0.0, 1.0),
    response="binary",
    link=lambda mean: float(ndtri(min(max(mean, 1e-6), 1.0 - 1e-6))),
    link_name="probit",
    member_of=Probit,
    log_normaliser=no_terms,
    simulate=_simulate,
)


def probit(data: Dataset, prior: PriorLike = None) -> Model:
    """Probit regression of a response in {0, 1}.

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.probit(tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 1]), tb.priors.flat())
    >>> tb.find_mode(model).reference.round(4)  # the 75 % quantile of a standard normal
    array([0.6745])
    """
    return Model(data, FAMILY, Probit(), prior)

"""Beta regression with logit link: 0 < y < 1 with mean m = 1 / (1 + e^-eta) and precision p, log p in theta; variance m (1 - m) / (1 + p).

f = log Gamma(p) - log Gamma(m p) - log Gamma((1 - m) p) + m p log y + (1 - m) p log(1 - y). Third derivatives have no certificate: the
model is supported by full-data samplers and HMC-ECS.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.engine.gamma_functions import digamma, trigamma
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


class Beta(NamedTuple):
    """Responses between 0 and 1 with unknown precision."""


@inlinable(options=SCALAR)
def _parts(u: np.ndarray, y: float) -> tuple[float, float, float, float]:
    """p, m, 1 - m and f."""
    p = math.exp(u[1])
    z = math.exp(-abs(u[0]))
    larger, smaller = 1.0 / (1.0 + z), z / (1.0 + z)
    m, rest = (larger, smaller) if u[0] >= 0.0 else (smaller, larger)
    logs = p * (m * math.log(y) + rest * math.log1p(-y))
    return p, m, rest, math.lgamma(p) - math.lgamma(m * p) - math.lgamma(rest * p) + logs


@vector_value.register(Beta)
def _value(family: Beta, u: np.ndarray, y: float) -> float:
    return _parts(u, y)[3]


@vector_gradient.register(Beta)
def _gradient(family: Beta, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    p, m, rest, f = _parts(u, y)
    first, second = math.log(y) - digamma(m * p), math.log1p(-y) - digamma(rest * p)
    gradient[0] = p * m * rest * (first - second)
    gradient[1] = p * (digamma(p) + m * first + rest * second)
    return f


@vector_hessian.register(Beta)
def _hessian(family: Beta, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    p, m, rest, f = _parts(u, y)
    first, second = math.log(y) - digamma(m * p), math.log1p(-y) - digamma(rest * p)
    curved, other, slope = trigamma(m * p), trigamma(rest * p), m * rest
    gradient[0] = p * m * rest * (first - second)
    gradient[1] = p * (digamma(p) + m * first + rest * second)
    hessian[0, 0] = p * slope * ((rest - m) * (first - second) - p * slope * (curved + other))
    hessian[0, 1] = gradient[0] - p * p * slope * (m * curved - rest * other)
    hessian[1, 0] = hessian[0, 1]
    hessian[1, 1] = gradient[1] + p * p * (trigamma(p) - m * m * curved - rest * rest * other)
    return f


def _mean(eta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-eta))


def _simulate(rng: np.random.Generator, member: Beta, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    p = np.exp(nuisances[:, 0])
    a, b = rng.standard_gamma(_mean(eta) * p), rng.standard_gamma(_mean(-eta) * p)
    return np.clip(a / np.maximum(a + b, 1e-300), 1e-300, 1.0 - 1e-16)


def _start(model: Model) -> np.ndarray:
    theta, d, moments = np.zeros(model.dim), model.data.d, model.data.moments
    mean = float(moments.mean[d])
    if model.data.intercept is not None:
        theta[model.data.intercept] = math.log(mean / (1.0 - mean)) - moments.mean[d + 1]
    theta[-1] = math.log(max(mean * (1.0 - mean) / max(moments.sd[d] ** 2, 1e-9) - 1.0, 0.1))
    return theta


FAMILY = Family(
    name="beta",
    variance=lambda member, mean, nuisances: mean * (1.0 - mean) / (1.0 + np.exp(nuisances[:, 0])),
    support="a number between 0 and 1, both left out",
    remedy="Proportions of counts are binomial; shares of exactly 0 or 1 need another family.",
    admits=lambda y: (y > 0) & (y < 1),
    mean=_mean,
    self_concordant=False,
    log_concave=False,
    examples=(Beta(),),
    responses=(0.1, 0.5, 0.97),
    response="proportion",
    link_name="logit",
    start=_start,
    member_of=Beta,
    log_normaliser=lambda member, y: -np.log(y) - np.log1p(-y),
    simulate=_simulate,
)


def beta(data: Dataset, prior: PriorLike = None) -> Model:
    """Beta regression with logit link; log precision is the last coordinate of theta, with a flat prior.

    There is no certificate, so exact minibatch does not support it; 'nuts' and 'hmc-ecs' do.

    >>> import numpy as np, tallbayes as tb
    >>> tb.models.beta(tb.Dataset.from_arrays(np.ones((4, 1)), [0.2, 0.5, 0.4, 0.7])).names
    ('x0', 'log_precision')
    """
    return Model(data, FAMILY, Beta(), prior, nuisances=("log_precision",))

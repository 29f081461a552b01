"""Log-normal regression of times to an event, right-censored or not: h_1 = -z^2/2, h_0 = log Phi(-z) with z = (log t - eta) / sigma.

For events G_0 = 0, G_1 = -2, G_2 = -4 z. For censored rows the suprema of probit regression: a certificate for bound T10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from tallbayes.data.dataset import Dataset
from tallbayes.engine.failure_times import (
    failure_normaliser,
    register_law,
    standard_jet,
    standard_suprema,
)
from tallbayes.families.probit import mills
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.time_families import time_family, time_model


class LogNormal(NamedTuple):
    """log t = eta + sigma times a standard normal variable."""


@standard_jet.register(LogNormal)
def _standard_jet(law: LogNormal, z: float, event: bool) -> tuple[float, float, float]:
    if event:
        return -0.5 * z * z, -z, -1.0
    f, m, c = mills(-z)
    return f, -m, -m * c


def _hazard(z: np.ndarray) -> np.ndarray:
    """phi(z) / Phi(-z)."""
    return np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-z))


@standard_suprema.register
def _standard_suprema(law: LogNormal, low: np.ndarray, high: np.ndarray, event: np.ndarray) -> tuple:
    """Of log Phi(-z): |h'| <= the hazard, which grows, |h''| <= 1 and |h'''| <= 0.29572 everywhere."""
    far, skew = np.maximum(np.abs(low), np.abs(high)), 0.29572
    first = np.where(event, 0.0, skew)
    second = np.where(event, 2.0, 2.0 + far * skew)
    third = np.where(event, 4.0 * far, _hazard(high) * (1.0 + 1e-9) + 3.0 * far + far**2 * skew)
    return first, second, third


def _log_normaliser(member: LogNormal, y: np.ndarray) -> np.ndarray:
    return failure_normaliser(member, y) - np.where(y > 0.0, 0.5 * math.log(2.0 * math.pi), 0.0)


register_law(LogNormal)


FAMILY = time_family(
    LogNormal, "lognormal", lambda rng, shape: rng.standard_normal(shape), lambda sigma: np.exp(0.5 * sigma**2), _log_normaliser
)


def lognormal(data: Dataset, prior: PriorLike = None) -> Model:
    """Log-normal regression of times to an event, with right censoring: log t = eta + sigma times a standard normal variable.

    The response is t for an event at t and -t for a row that is censored at t: `tallbayes.data.censored(time, event)`. e^coefficient is
    the ratio of times. log sigma is the last coordinate of theta, with a flat prior.

    >>> import numpy as np, tallbayes as tb
    >>> y = tb.data.censored([1.0, 2.0, 0.5, 3.0], event=[True, True, True, False])
    >>> tb.models.lognormal(tb.Dataset.from_arrays(np.ones((4, 1)), y)).names
    ('x0', 'log_sigma')
    """
    return time_model(data, prior, FAMILY)

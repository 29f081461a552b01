"""Log-logistic regression of times to an event, right-censored or not: h_1 = z - 2 S(z), h_0 = -S(z) with z = (log t - eta) / sigma.

S is the softplus function, whose derivatives have closed suprema on intervals: a certificate for bound T10 by the triangle inequality.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.failure_times import (
    register_law,
    standard_jet,
    standard_suprema,
)
from tallbayes.engine.neighbourhood import largest_on
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.time_families import time_family, time_model


class LogLogistic(NamedTuple):
    """log t = eta + sigma times a logistic variable."""


@standard_jet.register(LogLogistic)
def _standard_jet(law: LogLogistic, z: float, event: bool) -> tuple[float, float, float]:
    tail = exp(-abs(z))
    larger = 1.0 / (1.0 + tail)
    p = larger if z >= 0.0 else tail * larger
    soft, v = max(z, 0.0) + log1p_unit(tail), tail * larger * larger
    if event:
        return z - 2.0 * soft, 1.0 - 2.0 * p, -2.0 * v
    return -soft, -p, -v


_TURNS = tuple(0.5 * (1.0 + sign / math.sqrt(3.0)) for sign in (-1.0, 1.0))


@standard_suprema.register
def _standard_suprema(law: LogLogistic, low: np.ndarray, high: np.ndarray, event: np.ndarray) -> tuple:
    ends = 1.0 / (1.0 + np.exp(-low)), 1.0 / (1.0 + np.exp(-high))
    count, far = np.where(event, 2.0, 1.0), np.maximum(np.abs(low), np.abs(high))
    skew = count * largest_on(lambda p: p * (1.0 - p) * (1.0 - 2.0 * p), ends[0], ends[1], _TURNS)
    spread = count * largest_on(lambda p: p * (1.0 - p), ends[0], ends[1], (0.5,))
    slope = np.where(event, np.maximum(np.abs(1.0 - 2.0 * ends[0]), np.abs(1.0 - 2.0 * ends[1])), ends[1])
    return skew, 2.0 * spread + far * skew, slope + 3.0 * far * spread + far**2 * skew


register_law(LogLogistic)


def _mean(sigma: np.ndarray) -> np.ndarray:
    """pi sigma / sin(pi sigma), infinite for sigma >= 1."""
    return np.where(sigma < 1.0, np.pi * sigma / np.sin(np.pi * np.minimum(sigma, 0.999999)), np.inf)


FAMILY = time_family(LogLogistic, "loglogistic", lambda rng, shape: rng.logistic(size=shape), _mean)


def loglogistic(data: Dataset, prior: PriorLike = None) -> Model:
    """Log-logistic regression of times to an event, with right censoring: log t = eta + sigma times a logistic variable.

    The response is t for an event at t and -t for a row that is censored at t: `tallbayes.data.censored(time, event)`. e^coefficient is
    the ratio of times. log sigma is the last coordinate of theta, with a flat prior.

    >>> import numpy as np, tallbayes as tb
    >>> y = tb.data.censored([1.0, 2.0, 0.5, 3.0], event=[True, True, True, False])
    >>> tb.models.loglogistic(tb.Dataset.from_arrays(np.ones((4, 1)), y)).names
    ('x0', 'log_sigma')
    """
    return time_model(data, prior, FAMILY)

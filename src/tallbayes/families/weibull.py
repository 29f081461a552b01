"""Weibull regression of times to an event, right-censored or not: h_1 = z - e^z, h_0 = -e^z with z = (log t - eta) / sigma.

G_0 = -e^z, G_1 = -e^z (2 + z) turns at z = -3, G_2 = (0 or 1) - e^z (1 + 3 z + z^2) at -4 and -1: a certificate for bound T10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gamma as gamma_function

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp
from tallbayes.engine.failure_times import (
    register_law,
    standard_jet,
    standard_suprema,
)
from tallbayes.engine.neighbourhood import largest_on
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.time_families import time_family, time_model


class Weibull(NamedTuple):
    """log t = eta + sigma times a smallest extreme value."""


@standard_jet.register(Weibull)
def _standard_jet(law: Weibull, z: float, event: bool) -> tuple[float, float, float]:
    hazard = exp(z)
    if event:
        return z - hazard, 1.0 - hazard, -hazard
    return -hazard, -hazard, -hazard


@standard_suprema.register
def _standard_suprema(law: Weibull, low: np.ndarray, high: np.ndarray, event: np.ndarray) -> tuple:
    first = np.exp(high)
    second = largest_on(lambda z: np.exp(z) * (2.0 + z), low, high, (-3.0,))
    third = [
        largest_on(lambda z, level=level: level - np.exp(z) * (1.0 + z * (3.0 + z)), low, high, (-4.0, -1.0))
        for level in (0.0, 1.0)
    ]
    return first, second, np.where(event, third[1], third[0])


register_law(Weibull)


FAMILY = time_family(
    Weibull, "weibull", lambda rng, shape: np.log(rng.standard_exponential(shape)), lambda sigma: gamma_function(1.0 + sigma)
)


def weibull(data: Dataset, prior: PriorLike = None) -> Model:
    """Weibull regression of times to an event, with right censoring: log t = eta + sigma log(an exponential variable), shape 1 / sigma.

    The response is t for an event at t and -t for a row that is censored at t: `tallbayes.data.censored(time, event)`. e^coefficient is
    the ratio of times. log sigma is the last coordinate of theta, with a flat prior.

    >>> import numpy as np, tallbayes as tb
    >>> y = tb.data.censored([1.0, 2.0, 0.5, 3.0], event=[True, True, True, False])
    >>> tb.models.weibull(tb.Dataset.from_arrays(np.ones((4, 1)), y)).names
    ('x0', 'log_sigma')
    """
    return time_model(data, prior, FAMILY)

"""Poisson regression with log link, y = 0, 1, 2, ...: f(eta) = y eta - e^eta (log y! left out).

f'' = f''' = -e^eta: no global bound of the third derivative, but self-concordant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.engine.arithmetic import exp, exp_remainder
from tallbayes.engine.family_functions import jet1, jet2, residual, third, third_supremum, third_supremum_on, value
from tallbayes.errors import ModelError
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


class Poisson(NamedTuple):
    """Counts with mean e^eta."""


@value.register(Poisson)
def _value(family: Poisson, eta: float, y: float) -> float:
    return y * eta - exp(eta)


@jet1.register(Poisson)
def _jet1(family: Poisson, eta: float, y: float) -> tuple[float, float]:
    rate = exp(eta)
    return y * eta - rate, y - rate


@jet2.register(Poisson)
def _jet2(family: Poisson, eta: float, y: float) -> tuple[float, float, float]:
    rate = exp(eta)
    return y * eta - rate, y - rate, -rate


@third.register(Poisson)
def _third(family: Poisson, eta: float, y: float) -> float:
    return -exp(eta)


@third_supremum.register(Poisson)
def _third_supremum(family: Poisson, y: float) -> float:
    return np.inf


@third_supremum_on.register(Poisson)
def _third_supremum_on(family: Poisson, y: float, low: float, high: float) -> float:
    return exp(high)


@residual.register(Poisson)
def _residual(family: Poisson, eta: float, y: float, shift: float) -> float:
    """-e^eta (e^s - 1 - s - s^2/2)."""
    return -exp(eta) * exp_remainder(shift)


def _simulate(rng: np.random.Generator, member: Poisson, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return poisson_counts(rng, np.exp(eta))


def poisson_counts(rng: np.random.Generator, rate: np.ndarray) -> np.ndarray:
    """Poisson counts; rates beyond whole numbers are refused."""
    if not (rate < 1e18).all():
        raise ModelError("a predicted count exceeds 1e18: a new row is far outside the rows of the fit; check its units.")
    return rng.poisson(rate).astype(float)


FAMILY = Family(
    name="poisson",
    variance=lambda member, mean, nuisances: mean,
    ratio="rate_ratio",
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    self_concordant=True,
    log_concave=True,
    examples=(Poisson(),),
    responses=(0.0, 1.0, 7.0),
    response="count",
    link=lambda mean: float(np.log(mean + 1e-6)),
    link_name="log",
    member_of=Poisson,
    log_normaliser=lambda member, y: -gammaln(y + 1.0),
    simulate=_simulate,
)


def poisson(data: Dataset, prior: PriorLike = None) -> Model:
    """Poisson regression of counts with log link; exposure enters as the offset log(exposure).

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((3, 1)), [0, 2, 1], offset=np.log([1.0, 2.0, 1.0]))
    >>> tb.find_mode(tb.models.poisson(data, prior=tb.priors.flat())).reference.round(4)
    array([-0.2877])
    """
    return Model(data, FAMILY, Poisson(), prior)

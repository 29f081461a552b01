"""Hurdle Poisson regression: zero with probability 1 / (1 + e^-a), else a Poisson count of rate e^eta that is not zero. Two predictors.

The likelihood is a product of a logistic one and of one of truncated counts, y eta - log(e^lambda - 1) with lambda = e^eta, whose third
derivative is less the third cumulant of a truncated count: it grows with lambda, so its supremum is at the end of an interval. Log-concave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.neighbourhood import Neighbourhood
from tallbayes.engine.zero_counts import count_jet, count_suprema, register_hurdle, start_zero_counts, truncated_third, zero_jet
from tallbayes.families.poisson import poisson_counts
from tallbayes.families.zero_inflated_poisson import poisson_jet, poisson_suprema, poisson_zero_jet, share_of_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike


class HurdlePoisson(NamedTuple):
    """Poisson counts that are not zero, and zeros; the last `second` columns predict the logit of the zeros."""

    second: int


zero_jet.register(HurdlePoisson)(poisson_zero_jet)
count_jet.register(HurdlePoisson)(poisson_jet)
count_suprema.register(HurdlePoisson)(poisson_suprema)
register_hurdle(HurdlePoisson)


def third_cumulant(rate: np.ndarray) -> np.ndarray:
    """Of a Poisson count that is not zero: rate (1 + b' + rate b''), b = rate / (e^rate - 1).

    >>> third_cumulant(np.array([1e-3, 50.0])).round(6)
    array([5.e-04, 5.e+01])
    """
    rate = np.asarray(rate, float)
    small = np.minimum(rate, 0.1)
    square = small * small
    first = -0.5 + small * (1 / 6 - square * (1 / 180 - square * (1 / 5040 - square / 151200)))
    second = 1 / 6 - square * (1 / 60 - square * (1 / 1008 - square / 21600))
    large = np.maximum(rate, 0.1)
    z = np.exp(-large)
    e = z / -np.expm1(-large)
    more = e * (1.0 + e)
    slope, curvature = e - large * more, (large * (1.0 + 2.0 * e) - 2.0) * more
    near = rate < 0.1
    return rate * (1.0 + np.where(near, first, slope) + rate * np.where(near, second, curvature))


@truncated_third.register
def _truncated_third(member: HurdlePoisson, near: Neighbourhood) -> np.ndarray:
    return third_cumulant(np.exp(near.between(near.eta, near.speed)[1])) * (1.0 + 1e-9) * near.speed**3


def _simulate(rng: np.random.Generator, member: HurdlePoisson, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    """The first event of a Poisson process, given that there is one, and the number of those that follow."""
    counted = rng.random(eta.shape[:2]) < share_of_counts(eta)
    rate = np.exp(eta[..., 0])
    first = -np.log1p(rng.random(rate.shape) * np.expm1(-rate))
    return np.where(counted, 1.0 + poisson_counts(rng, np.maximum(rate - first, 0.0)), 0.0)


def _mean(member: HurdlePoisson, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    rate = np.maximum(np.exp(eta[..., 0]), 1e-300)
    return share_of_counts(eta) * rate / -np.expm1(-rate)


FAMILY = Family(
    name="hurdle_poisson",
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    full_mean=_mean,
    self_concordant=False,
    log_concave=True,
    examples=(HurdlePoisson(1),),
    responses=(0.0, 1.0, 6.0),
    response="count",
    link_name="log, logit",
    start=lambda model: start_zero_counts(model, hurdle=True),
    member_of=lambda zi: HurdlePoisson(len(zi)),
    predictors=lambda member: 2,
    second=lambda member: member.second,
    second_name="zi",
    second_needed=True,
    log_normaliser=lambda member, y: -gammaln(y + 1.0),
    simulate=_simulate,
)


def hurdle_poisson(data: Dataset, prior: PriorLike = None, *, zi: str | list[str] | None = None) -> Model:
    """Hurdle Poisson regression: zero with a probability of its own, otherwise a Poisson count that is not zero.

    The second predictor, `zi`, is that of the logit of a zero: see `tallbayes.models.zero_inflated_poisson`, whose zeros may be counts too.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 2)), [0, 2, 0, 5, 1], columns=["Intercept", "zi_Intercept"])
    >>> mode = tb.find_mode(tb.models.hurdle_poisson(data, tb.priors.flat()))
    >>> bool(abs(mode.reference[1] - np.log(2 / 3)) < 1e-3)
    True
    """
    names = second_columns(data, "zi", zi)
    return Model(data, FAMILY, HurdlePoisson(len(names)), prior, options={"zi": names})

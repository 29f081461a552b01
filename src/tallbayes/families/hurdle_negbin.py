"""Hurdle negative binomial regression: zero with probability 1 / (1 + e^-a), else a count of size k = e^kappa that is not zero.

The likelihood is a product of a logistic one and of one of truncated counts; the certificate of the latter is by the triangle inequality
(`engine.zero_counts`), and wide where most counts of the untruncated law would be zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.zero_counts import count_jet, count_suprema, register_hurdle, start_zero_counts, zero_jet
from tallbayes.families.zero_inflated_negbin import negbin_jet, negbin_suprema, negbin_zero_jet
from tallbayes.families.zero_inflated_poisson import share_of_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.scale_priors import inverse_gamma


class HurdleNegbin(NamedTuple):
    """Negative binomial counts that are not zero, and zeros; the last `second` columns predict the logit of the zeros."""

    second: int


zero_jet.register(HurdleNegbin)(negbin_zero_jet)
count_jet.register(HurdleNegbin)(negbin_jet)
count_suprema.register(HurdleNegbin)(negbin_suprema)
register_hurdle(HurdleNegbin)


def _positive(eta: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Probability that a count of the untruncated law is not zero."""
    return np.maximum(-np.expm1(-size * np.logaddexp(0.0, eta[..., 0] - np.log(size))), 1e-300)


def _simulate(rng: np.random.Generator, member: HurdleNegbin, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    """By inversion of the survival function, below that of zero."""
    from scipy.stats import nbinom  # takes half a second to import

    counted, size = rng.random(eta.shape[:2]) < share_of_counts(eta), np.exp(nuisances[:, 0])
    chance = 1.0 / (1.0 + np.exp(eta[..., 0]) / size)
    counts = nbinom.isf(rng.random(eta.shape[:2]) * _positive(eta, size), np.broadcast_to(size, chance.shape), chance)
    return np.where(counted, np.maximum(counts, 1.0), 0.0)


def _mean(member: HurdleNegbin, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    return share_of_counts(eta) * np.exp(eta[..., 0]) / _positive(eta, np.exp(nuisances[:, 0]))


FAMILY = Family(
    name="hurdle_negbin",
    aliases=("hurdle_negative_binomial",),
    nuisance_priors={"size": inverse_gamma(0.4, 0.3)},
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    full_mean=_mean,
    self_concordant=False,
    log_concave=False,
    examples=(HurdleNegbin(1),),
    responses=(0.0, 1.0, 6.0),
    response="count",
    link_name="log, logit",
    start=lambda model: start_zero_counts(model, hurdle=True),
    member_of=lambda zi: HurdleNegbin(len(zi)),
    predictors=lambda member: 2,
    second=lambda member: member.second,
    second_name="zi",
    second_needed=True,
    log_normaliser=lambda member, y: -gammaln(y + 1.0),
    simulate=_simulate,
)


def hurdle_negbin(data: Dataset, prior: PriorLike = None, *, zi: str | list[str] | None = None) -> Model:
    """Hurdle negative binomial regression: zero with a probability of its own, otherwise a count that is not zero, of unknown size.

    The second predictor, `zi`, is that of the logit of a zero: see `tallbayes.models.zero_inflated_poisson`.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 2)), [0, 2, 0, 5, 1], columns=["Intercept", "zi_Intercept"])
    >>> tb.models.hurdle_negbin(data).names
    ('Intercept', 'zi_Intercept', 'log_size')
    """
    names = second_columns(data, "zi", zi)
    return Model(data, FAMILY, HurdleNegbin(len(names)), prior, nuisances=("log_size",), options={"zi": names})

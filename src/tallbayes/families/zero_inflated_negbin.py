"""Zero-inflated negative binomial regression: a zero with probability 1 / (1 + e^-a), else a count of mean e^eta and size k = e^kappa.

-log P(0) = k S(eta - kappa), S the softplus function: along a line with speeds p of eta - kappa and t of kappa its derivatives are
k (S' p + S t), k (S'' p^2 + 2 S' p t + S t^2) and k (S''' p^3 + 3 S'' p^2 t + 3 S' p t^2 + S t^3). `engine.zero_counts` has the rest and
the certificate, `negbin` that of counts. Not log-concave.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.gamma_functions import rising
from tallbayes.engine.neighbourhood import Neighbourhood, largest_on, third_bounds
from tallbayes.engine.zero_counts import (
    CountSuprema,
    count_jet,
    count_suprema,
    largest_skew,
    register_inflated,
    spread,
    start_zero_counts,
    zero_jet,
)
from tallbayes.families.negbin import NegativeBinomialSize
from tallbayes.families.poisson import poisson_counts
from tallbayes.families.zero_inflated_poisson import require_proper_zeros, share_of_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.scale_priors import inverse_gamma


class ZeroInflatedNegbin(NamedTuple):
    """Negative binomial counts and more zeros than they have; the last `second` columns predict the logit of those."""

    second: int


def negbin_zero_jet(law: Any, eta: float, kappa: float) -> tuple[float, float, float, float, float, float]:
    """-log P(0) of a negative binomial law and its derivatives."""
    t, k = eta - kappa, exp(kappa)
    z = exp(-abs(t))
    p = (1.0 if t >= 0.0 else z) / (1.0 + z)
    soft, v = max(t, 0.0) + log1p_unit(z), z / ((1.0 + z) * (1.0 + z))
    return k * soft, k * p, k * (soft - p), k * v, k * (p - v), k * (soft - 2.0 * p + v)


def negbin_jet(law: Any, eta: float, kappa: float, y: float) -> tuple[float, float, float, float, float, float]:
    """Log probability of a negative binomial count and its derivatives."""
    t, k = eta - kappa, exp(kappa)
    z = exp(-abs(t))
    p = (1.0 if t >= 0.0 else z) / (1.0 + z)
    soft, v = max(t, 0.0) + log1p_unit(z), z / ((1.0 + z) * (1.0 + z))
    level, slope, curvature = rising(k, y)
    total = y + k
    first, mixed = y - total * p, total * v - k * p
    last = curvature - total * v + 2.0 * k * p - k * soft
    return level + y * t - total * soft, first, slope - first - k * soft, -total * v, mixed, last


def negbin_suprema(law: Any, near: Neighbourhood) -> CountSuprema:
    """Bounds from the largest size and the range of eta - kappa; those of counts are of `negbin`."""
    kappa, t = near.nuisance(0), near.nuisance_speed(0)
    smallest, largest = (math.exp(end) for end in near.between(kappa, t))
    p = near.difference_speed(np.zeros(near.y.size, int))
    low, high = near.between(near.eta - kappa, p)
    soft = [np.maximum(end, 0.0) + np.log1p(np.exp(-np.abs(end))) for end in (low, high)]
    z = np.exp(-np.abs(high))
    steep = np.where(high >= 0.0, 1.0, z) / (1.0 + z)
    curved = largest_on(spread, low, high, (0.0,))
    slope = steep * p + soft[1] * t
    curvature = curved * p**2 + 2.0 * steep * p * t + soft[1] * t**2
    third = largest_skew(low, high) * p**3 + 3.0 * curved * p**2 * t + 3.0 * steep * p * t**2 + soft[1] * t**3
    count = third_bounds(NegativeBinomialSize(), near)
    return CountSuprema(smallest * soft[0], largest * soft[1], largest * slope, largest * curvature, largest * third, count)


zero_jet.register(ZeroInflatedNegbin)(negbin_zero_jet)
count_jet.register(ZeroInflatedNegbin)(negbin_jet)
count_suprema.register(ZeroInflatedNegbin)(negbin_suprema)
register_inflated(ZeroInflatedNegbin)


def _simulate(rng: np.random.Generator, member: ZeroInflatedNegbin, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    counted, size = rng.random(eta.shape[:2]) < share_of_counts(eta), np.exp(nuisances[:, 0])
    counts = poisson_counts(rng, np.exp(eta[..., 0]) * rng.standard_gamma(size, eta.shape[:2]) / size)
    return np.where(counted, counts, 0.0)


FAMILY = Family(
    name="zero_inflated_negbin",
    aliases=("zinb", "zero_inflated_negative_binomial", "zi_negbin"),
    nuisance_priors={"size": inverse_gamma(0.4, 0.3)},
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    full_mean=lambda member, eta, nuisances: share_of_counts(eta) * np.exp(eta[..., 0]),
    self_concordant=False,
    log_concave=False,
    examples=(ZeroInflatedNegbin(1),),
    responses=(0.0, 1.0, 6.0),
    response="count",
    link_name="log, logit",
    start=lambda model: start_zero_counts(model, hurdle=False),
    member_of=lambda zi: ZeroInflatedNegbin(len(zi)),
    predictors=lambda member: 2,
    second=lambda member: member.second,
    second_name="zi",
    second_needed=True,
    log_normaliser=lambda member, y: -gammaln(y + 1.0),
    simulate=_simulate,
)


def zero_inflated_negbin(data: Dataset, prior: PriorLike = None, *, zi: str | list[str] | None = None) -> Model:
    """Zero-inflated negative binomial regression with unknown size; log size is the last coordinate of theta.

    The second predictor, `zi`, is that of the logit of a zero that is no count: see `tallbayes.models.zero_inflated_poisson`.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((5, 2)), [0, 2, 0, 5, 1], columns=["Intercept", "zi_Intercept"])
    >>> tb.models.zero_inflated_negbin(data).names
    ('Intercept', 'zi_Intercept', 'log_size')
    """
    names = second_columns(data, "zi", zi)
    model = Model(data, FAMILY, ZeroInflatedNegbin(len(names)), prior, nuisances=("log_size",), options={"zi": names})
    return require_proper_zeros(model)

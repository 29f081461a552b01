"""Zero-inflated Poisson regression: a zero with probability 1 / (1 + e^-a), else a Poisson count of mean e^eta. Two predictors.

-log P(0) = e^eta, all of whose derivatives are itself; `engine.zero_counts` has the rest and the certificate. Not log-concave.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import Dataset
from tallbayes.data.second_predictor import second_columns
from tallbayes.engine.arithmetic import exp
from tallbayes.engine.neighbourhood import Neighbourhood
from tallbayes.engine.zero_counts import CountSuprema, count_jet, count_suprema, register_inflated, start_zero_counts, zero_jet
from tallbayes.errors import ModelError
from tallbayes.families.poisson import poisson_counts
from tallbayes.model import Family, Model
from tallbayes.named_priors import PriorLike
from tallbayes.prior_terms import FLAT


class ZeroInflatedPoisson(NamedTuple):
    """Poisson counts and more zeros than they have; the last `second` columns predict the logit of those."""

    second: int


def poisson_zero_jet(law: Any, eta: float, kappa: float) -> tuple[float, float, float, float, float, float]:
    """-log P(0) of a Poisson law and its derivatives."""
    rate = exp(eta)
    return rate, rate, 0.0, rate, 0.0, 0.0


def poisson_jet(law: Any, eta: float, kappa: float, y: float) -> tuple[float, float, float, float, float, float]:
    """Log probability of a Poisson count and its derivatives."""
    rate = exp(eta)
    return y * eta - rate, y - rate, 0.0, -rate, 0.0, 0.0


def poisson_suprema(law: Any, near: Neighbourhood) -> CountSuprema:
    """Everything is at most the largest rate."""
    low, high = (np.exp(end) for end in near.between(near.eta, near.speed))
    third = high * near.speed**3
    return CountSuprema(low, high, high * near.speed, high * near.speed**2, third, third)


zero_jet.register(ZeroInflatedPoisson)(poisson_zero_jet)
count_jet.register(ZeroInflatedPoisson)(poisson_jet)
count_suprema.register(ZeroInflatedPoisson)(poisson_suprema)
register_inflated(ZeroInflatedPoisson)


def require_proper_zeros(model: Model) -> Model:
    """Refuse a flat prior of the second predictor: the likelihood tends to that of counts alone, not to 0, as its logit falls."""
    first = model.data.d - model.second
    flat = np.flatnonzero(model.prior_terms.kind[first : model.data.d] == FLAT)
    if flat.size and not model.prior_terms.dense.size:
        raise ModelError(
            f"{model.names[first + int(flat[0])]!r} has a flat prior, under which the posterior is improper: counts may be zero without "
            "the second predictor. Give its coefficients a proper one, such as tallbayes.priors.normal(10.0)."
        )
    return model


def share_of_counts(eta: np.ndarray) -> np.ndarray:
    """The probability of the part that counts, from both predictors."""
    return 1.0 / (1.0 + np.exp(eta[..., 1]))


def _simulate(rng: np.random.Generator, member: ZeroInflatedPoisson, eta: np.ndarray, nuisances: np.ndarray) -> np.ndarray:
    counted = rng.random(eta.shape[:2]) < share_of_counts(eta)
    return np.where(counted, poisson_counts(rng, np.exp(eta[..., 0])), 0.0)


FAMILY = Family(
    name="zero_inflated_poisson",
    aliases=("zip", "zi_poisson"),
    support="a whole number >= 0",
    remedy="Counts only; a rate is a count with offset='log(exposure)'.",
    admits=lambda y: (y >= 0) & (y == np.floor(y)),
    mean=np.exp,
    full_mean=lambda member, eta, nuisances: share_of_counts(eta) * np.exp(eta[..., 0]),
    self_concordant=False,
    log_concave=False,
    examples=(ZeroInflatedPoisson(1),),
    responses=(0.0, 1.0, 6.0),
    response="count",
    link_name="log, logit",
    start=lambda model: start_zero_counts(model, hurdle=False),
    member_of=lambda zi: ZeroInflatedPoisson(len(zi)),
    predictors=lambda member: 2,
    second=lambda member: member.second,
    second_name="zi",
    second_needed=True,
    log_normaliser=lambda member, y: -gammaln(y + 1.0),
    simulate=_simulate,
)


def zero_inflated_poisson(data: Dataset, prior: PriorLike = None, *, zi: str | list[str] | None = None) -> Model:
    """Zero-inflated Poisson regression, with a second predictor of the logit of a zero that is no count.

    `tallbayes.fit(..., zi="~ z")` and `tallbayes.read(..., zi="~ z")` make its columns, `zi_Intercept` and `zi_z`. Here `zi` is the formula
    that the rows were read with, or names of the last columns; by default those whose names begin with `zi_`. Their coefficients need a
    proper prior.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.column_stack([np.ones(6), np.ones(6), [0.1, 0.5, -1.0, 0.3, 0.2, 0.0]])
    >>> data = tb.Dataset.from_arrays(X, [0, 2, 0, 5, 1, 0], columns=["Intercept", "zi_Intercept", "zi_z"])
    >>> model = tb.models.zero_inflated_poisson(data)
    >>> model.names, model.second
    (('Intercept', 'zi_Intercept', 'zi_z'), 2)
    """
    names = second_columns(data, "zi", zi)
    return require_proper_zeros(Model(data, FAMILY, ZeroInflatedPoisson(len(names)), prior, options={"zi": names}))

"""Binomial regression with logit link: y = successes / trials with weight trials, f(eta) = y eta - log(1 + e^eta) times the weight.

The functions and certificates are those of logistic regression, whose third derivatives do not depend on y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.errors import DataError
from tallbayes.families.logistic import FAMILY as LOGISTIC
from tallbayes.families.logistic import Logistic
from tallbayes.model import Family, Model, no_terms
from tallbayes.named_priors import PriorLike


@dataclass(eq=False, repr=False)
class BinomialModel(Model):
    """Proportions of successes, the numbers of trials as weights."""

    def _check_response(self) -> None:
        """Proportions from 0 to 1 of whole numbers."""
        super()._check_response()
        for start in range(0, self.data.y.size, CHUNK):
            part = slice(start, start + CHUNK)
            y, trials = np.asarray(self.data.y[part], float), self.data.trials(part)
            successes = y * trials
            whole = (trials >= 1) & (np.abs(trials - np.round(trials)) < 1e-6)
            good = whole & (np.abs(successes - np.round(successes)) < 1e-6 * np.maximum(trials, 1.0))
            if not good.all():
                row = int(np.argmin(good))
                raise DataError(
                    f"row {start + row}: a proportion of {y[row]:g} in {trials[row]:g} trials is not a whole number of successes. "
                    f"{FAMILY.remedy}"
                )

    def log_normaliser(self, index: np.ndarray) -> np.ndarray:
        """Log of the binomial coefficients, divided by the weights that multiply them elsewhere."""
        y, trials = np.asarray(self.data.records[index, self.data.d], float), self.data.trials(index)
        successes = y * trials
        return (gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(trials - successes + 1.0)) / trials


FAMILY = Family(
    name="binomial",
    trials=True,
    support="a proportion from 0 to 1, with the number of trials as weight",
    remedy="Make response and weights with tallbayes.data.proportion(successes, trials).",
    admits=lambda y: (y >= 0) & (y <= 1),
    mean=LOGISTIC.mean,
    self_concordant=True,
    log_concave=True,
    examples=(Logistic(),),
    responses=(0.0, 1.0, 0.25),
    response="successes",
    link=LOGISTIC.link,
    link_name="logit",
    member_of=Logistic,
    log_normaliser=no_terms,
    fourth_supremum=LOGISTIC.fourth_supremum,
    fourth_ratio=LOGISTIC.fourth_ratio,
    ratio="odds_ratio",
)


def binomial(data: Dataset, prior: PriorLike = None) -> Model:
    """Binomial regression with logit link: the response is a proportion, the weights are numbers of trials.

    Predictions are of the probability, and with kind="response" of the number of successes among the trials of the new rows. A formula
    takes the two columns as `p(successes, trials) ~ x`; `weights=` are then powers of the likelihood, apart from the trials.

    >>> import numpy as np, tallbayes as tb
    >>> y, trials = tb.data.proportion(successes=[1, 3, 0, 9], trials=[5, 5, 2, 10])
    >>> tb.models.binomial(tb.Dataset.from_arrays(np.ones((4, 1)), y, weights=trials))
    Model(binomial, 4 rows, 1 parameters, prior weakly_informative)
    """
    return BinomialModel(data, FAMILY, Logistic(), prior)

"""Normal(mu, sigma) of a plain sample, flat in (mu, log sigma): the running example of Bardenet, Doucet and Holmes (2017).

The Gaussian family with an intercept alone and unknown sigma.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.errors import DataError, OptionError
from tallbayes.families.gaussian import FAMILY as GAUSSIAN
from tallbayes.families.gaussian import GaussianScale
from tallbayes.model import Model
from tallbayes.named_priors import PriorLike
from tallbayes.priors import flat

FAMILY = replace(
    GAUSSIAN,
    name="normal",
    examples=(GaussianScale(),),
    member_of=lambda **options: GaussianScale(),
    regression=False,
    plain_sample=True,
)


def normal(y: Any, prior: PriorLike = None, weights: Any = None) -> Model:
    """A normal sample with unknown mean and standard deviation; `y` is an array, or a Dataset with an intercept alone.

    Weights are powers of the likelihood: of an array they are given here, of a Dataset they are its own.

    >>> import tallbayes as tb
    >>> model = tb.models.normal([1.0, 2.0, 3.0, 4.0])
    >>> model.names
    ('mu', 'log_sigma')
    >>> tb.find_mode(model).reference[0]
    np.float64(2.5)
    """
    if isinstance(y, Dataset):
        data = y
        if weights is not None:
            raise OptionError(
                "a Dataset has its own weights: give weights= to tallbayes.Dataset.from_arrays or tallbayes.read, not to normal."
            )
        if data.intercept is None or data.d != 1:
            raise DataError(
                f"normal has a mean and no regressors, and the data have the columns {', '.join(map(repr, data.columns))}; use "
                "tallbayes.models.gaussian, or read the response with formula 'y ~ 1'."
            )
    else:
        values = np.asarray(y, float).reshape(-1)
        data = Dataset.from_arrays(np.ones((values.size, 1)), values, weights=weights, columns=["mu"])
    return Model(data, FAMILY, GaussianScale(), flat() if prior is None else prior, nuisances=("log_sigma",))

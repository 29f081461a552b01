"""Combinations of sub-posterior draws, one file each; they need arrays only.

>>> import numpy as np
>>> sub = SubPosteriors(np.random.default_rng(0).standard_normal((4, 500, 2)), Convention.AVERAGE)
>>> resolve("consensus")(sub)
Traceback (most recent call last):
...
tallbayes.errors.OptionError: consensus combines sub-posteriors prior^(1/B) x likelihood, but these are prior x likelihood^B: ...
"""

from __future__ import annotations

from collections.abc import Callable

from tallbayes.errors import OptionError, shown, unknown
from tallbayes.shards.combine.consensus import Consensus
from tallbayes.shards.combine.entropic import Entropic
from tallbayes.shards.combine.gaussian_product import GaussianProduct, Importance
from tallbayes.shards.combine.median import Median
from tallbayes.shards.combine.moment_sharing import MomentSharing, Natural
from tallbayes.shards.combine.nonparametric import Nonparametric
from tallbayes.shards.combine.semiparametric import Semiparametric
from tallbayes.shards.combine.subposteriors import Combination, Combiner, Convention, SubPosteriors
from tallbayes.shards.combine.wasserstein import Wasserstein
from tallbayes.shards.combine.weierstrass import Weierstrass, refine

COMBINERS: dict[str, Callable[[], Combiner]] = {
    "consensus": Consensus,
    "gaussian": GaussianProduct,
    "importance": Importance,
    "nonparametric": Nonparametric,
    "semiparametric": Semiparametric,
    "weierstrass": Weierstrass,
    "median": Median,
    "wasserstein": Wasserstein,
    "entropic": Entropic,
    "moment-sharing": MomentSharing,
}


def resolve(combine: str | Combiner) -> Combiner:
    """A combination by name, or the object itself.

    >>> resolve("median").convention.value
    'prior x likelihood^B'
    """
    if isinstance(combine, Combiner):
        return combine
    if isinstance(combine, str):
        if combine not in COMBINERS:
            raise unknown("combination", combine, COMBINERS)
        return COMBINERS[combine]()
    raise OptionError(f"combine must be a name or an object of tallbayes.shards, such as Consensus(); got {shown(combine)}.")


__all__ = [
    "COMBINERS",
    "Combination",
    "Combiner",
    "Consensus",
    "Convention",
    "Entropic",
    "GaussianProduct",
    "Importance",
    "Median",
    "MomentSharing",
    "Natural",
    "Nonparametric",
    "Semiparametric",
    "SubPosteriors",
    "Wasserstein",
    "Weierstrass",
    "refine",
    "resolve",
]

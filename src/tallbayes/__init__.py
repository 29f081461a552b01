"""Bayesian posteriors over tall data, reading only the rows each iteration needs.

>>> import tallbayes as tb
>>> list(tb.samplers.SAMPLERS)[:2]
['delayed-acceptance', 'exact-minibatch']
"""

from tallbayes import auto, models, moves, priors, results, samplers, shards, store
from tallbayes.api import fit, resume, sample
from tallbayes.compare import compare
from tallbayes.data import Dataset, Query, read
from tallbayes.errors import (
    CertificateError,
    DataError,
    ModelError,
    OptionError,
    StoreError,
    TallbayesError,
    TallbayesWarning,
)
from tallbayes.growth import update
from tallbayes.mode.search import find_mode
from tallbayes.partial import partial_posteriors
from tallbayes.results import Fit, compare_models, load, prior_predictive
from tallbayes.shards import sample_shards
from tallbayes.version import __version__

__all__ = [
    "CertificateError",
    "DataError",
    "Dataset",
    "Fit",
    "ModelError",
    "OptionError",
    "Query",
    "StoreError",
    "TallbayesError",
    "TallbayesWarning",
    "__version__",
    "auto",
    "compare",
    "compare_models",
    "find_mode",
    "fit",
    "load",
    "models",
    "moves",
    "partial_posteriors",
    "prior_predictive",
    "priors",
    "read",
    "results",
    "resume",
    "sample",
    "sample_shards",
    "samplers",
    "shards",
    "store",
    "update",
]

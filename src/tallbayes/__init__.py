"""Bayesian posteriors over tall data, reading only the rows each iteration needs.

>>> import tallbayes as tb
>>> list(tb.samplers.SAMPLERS)[:2]
['delayed-acceptance', 'exact-minibatch']
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tallbayes.errors import (
    CertificateError,
    DataError,
    ModelError,
    OptionError,
    StoppedError,
    StoreError,
    TallbayesError,
    TallbayesWarning,
)
from tallbayes.version import __version__

if TYPE_CHECKING:
    from tallbayes import auto, models, moves, priors, results, samplers, shards, store
    from tallbayes.api import fit, resume, sample
    from tallbayes.coupled_chains import unbiased
    from tallbayes.data import Dataset, Query, read
    from tallbayes.growth import update
    from tallbayes.mode.search import find_mode
    from tallbayes.partial import partial_posteriors
    from tallbayes.results import Fit, compare_models, load, prior_predictive
    from tallbayes.sampler_comparison import compare
    from tallbayes.shards import sample_shards

__all__ = [
    "CertificateError",
    "DataError",
    "Dataset",
    "Fit",
    "ModelError",
    "OptionError",
    "Query",
    "StoppedError",
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
    "unbiased",
    "update",
]

_HOMES = {
    "Dataset": "data",
    "Fit": "results",
    "Query": "data",
    "compare": "sampler_comparison",
    "compare_models": "results",
    "find_mode": "mode.search",
    "fit": "api",
    "load": "results",
    "partial_posteriors": "partial",
    "prior_predictive": "results",
    "read": "data",
    "resume": "api",
    "sample": "api",
    "sample_shards": "shards",
    "unbiased": "coupled_chains",
    "update": "growth",
}
"""Where the names of the package are defined; modules are imported when they are first used, so that `import tallbayes` is quick."""


if not TYPE_CHECKING:  # type checkers know the names from the imports above

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is not None:
            value = getattr(import_module(f"tallbayes.{home}"), name)
        elif not name.startswith("_") and find_spec(f"tallbayes.{name}") is not None:
            value = import_module(f"tallbayes.{name}")
        else:
            raise AttributeError(f"module 'tallbayes' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

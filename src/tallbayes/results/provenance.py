"""Where draws come from: facts of the rows, the prior and the software that a fit keeps in its `meta`."""

from __future__ import annotations

import json
import platform
from typing import Any

import numpy as np

from tallbayes import samplers
from tallbayes.compile import source_stamp
from tallbayes.contract import Sampler
from tallbayes.errors import OptionError, StoreError
from tallbayes.model import Model
from tallbayes.version import __version__


def origin(model: Model) -> dict[str, Any]:
    """Rows, columns and prior of a model, and versions, in JSON types."""
    assert model.prior is not None
    return {
        "rows": model.data.n,
        "dropped": model.data.dropped,
        "fingerprint": model.data.fingerprint,
        "response": model.data.response,
        "columns": list(model.data.columns),
        "intercept": model.data.intercept,
        "has_offset": model.data.has_offset,
        "plan": model.data.recipe.get("plan"),
        "source": model.data.recipe.get("source") or None,
        "dtype": model.data.recipe.get("dtype"),
        "partitions": None if model.partitions is None else len(model.partitions.files),
        "store": None if model.data.store is None else str(model.data.store.resolve()),
        "prior": model.prior.describe(),
        "default_prior": model.default_prior,
        "assumed_family": model.assumed,
        "nuisances": list(model.nuisances),
        "versions": {
            "tallbayes": __version__,
            "sources": source_stamp(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }


def written_by_user(sampler: Sampler) -> bool:
    """Whether a sampler is of a class that is not part of the package.

    >>> written_by_user(samplers.resolve("nuts"))
    False
    """
    return samplers.CLASSES.get(type(sampler).__name__) is not type(sampler)


def recorded_options(sampler: Sampler) -> dict[str, Any]:
    """Class and options of a sampler as they come back from a file.

    >>> recorded_options(samplers.resolve("firefly"))["class"]
    'Firefly'
    """
    try:
        return json.loads(json.dumps(sampler.as_dict()))
    except TypeError as error:
        raise OptionError(
            f"the options of {type(sampler).__name__} cannot be stored ({error}); give the class an as_dict of JSON types."
        ) from error


def recorded_sampler(options: dict[str, Any], by_user: bool, sampler: Any, run: str) -> Sampler:
    """The sampler of a run: the one given, if its class and options are those of the run, or else one built from them.

    A class of the package is found by its name; an object of another class has to be given.
    """
    kind = options["class"]
    if sampler is None:
        if by_user or kind not in samplers.CLASSES:
            raise OptionError(f"{run} used {kind}, a sampler that is not part of tallbayes; give the object as sampler=.")
        return samplers.from_dict(options)
    given = samplers.resolve(sampler)
    old, new = json.loads(json.dumps(options)), recorded_options(given)
    if new["class"] != kind or written_by_user(given) != by_user:
        raise StoreError(f"{run} used the sampler {kind}, not {new['class']}; give sampler= the object that it used.")
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            raise StoreError(
                f"the sampler differs from that of {run}: {name} was {old.get(name)!r}, and is {new.get(name)!r}. Give sampler= with "
                "the same options."
            )
    return given

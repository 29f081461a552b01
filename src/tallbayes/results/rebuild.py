"""The Dataset and the model of a fit, found again: in memory, in their store, or in the file they were read from."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.data.packed_store import open_store
from tallbayes.data.read import from_recipe
from tallbayes.engine.scale_sweeps import Blocks
from tallbayes.errors import DataError, ModelError, StoreError, TallbayesError
from tallbayes.model import Model
from tallbayes.models.unknown_scales import UnknownScaleModel
from tallbayes.prior_terms import PriorTerms
from tallbayes.validation import require_instance

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit


_updaters: list[Callable[..., Fit]] = []


def set_updater(function: Callable[..., Fit]) -> None:
    """Say what `Fit.update` does: sampling is above results, and `tallbayes.growth` needs both."""
    _updaters[:] = [function]


def updater() -> Callable[..., Fit]:
    """What `set_updater` was given; the module that calls it is loaded when it is first needed."""
    if not _updaters:
        import_module("tallbayes.growth")
    return _updaters[0]


def dataset_of(fit: Fit, data: Any = None) -> Dataset:
    """The rows of a fit; `data` is the Dataset or the model, if they are neither in memory nor on disk."""
    given = data.data if isinstance(data, Model) else data
    if given is not None and not isinstance(given, Dataset):
        raise DataError(f"give the Dataset or the model of the fit, not a {type(given).__name__}.")
    rows = given if given is not None else fit.data if fit.data is not None else _stored(fit)
    if rows.fingerprint != fit.meta["fingerprint"]:
        raise StoreError("these are not the rows of the fit; give the Dataset or the model it was made from.")
    return rows


def _stored(fit: Fit) -> Dataset:
    store, source = fit.meta.get("store"), fit.meta.get("source")
    if fit.meta.get("partitions"):
        raise DataError(
            "the rows of the fit stayed in their partitions, and this reads single rows; read them on one machine with "
            "tallbayes.read(..., memory='disk') and sample again for it."
        )
    try:
        if store and Path(store).exists():
            return open_store(store)
        if source and "path" in source:
            recipe = {"source": source, "plan": fit.meta["plan"], "dtype": fit.meta["dtype"]}
            return from_recipe(recipe, None, progress=False)
    except (TallbayesError, OSError) as error:
        raise StoreError(f"the rows of the fit cannot be read again ({error}); give its Dataset or model.") from error
    raise DataError("the rows of the fit were only in memory; give its Dataset or model.")


def model_of(fit: Fit, model: Model | None = None) -> Model:
    """The model of a fit."""
    from tallbayes import models

    if model is not None:
        require_instance("model", model, Model, "the model of the fit, or None to build it again")
    if model is None:
        described = fit.meta["model"]
        if described["family"] not in models.FAMILIES:
            raise ModelError(f"a model written in {described['family']} cannot be built again from a fit; give the model.")
        prior = models.recorded_prior(described, bool(fit.meta.get("default_prior")))
        model = models.build(described["family"], dataset_of(fit), prior, **described["options"])
        model.assumed = fit.meta.get("assumed_family", "")  # type: ignore[misc]
        if fit.meta.get("prior_terms"):  # scales of the first rows of an updated fit
            model.prior_terms = PriorTerms(*map(_like, fit.meta["prior_terms"], model.prior_terms))
        if fit.meta.get("prior_blocks"):
            assert isinstance(model, UnknownScaleModel)
            model.blocks = Blocks(*map(_like, fit.meta["prior_blocks"], model.blocks))
    if model.data.fingerprint != fit.meta["fingerprint"] or model.describe() != fit.meta["model"]:
        raise StoreError("this is not the model of the fit, or not its rows; give the model it was made from.")
    return model


def _like(value: Any, example: Any) -> Any:
    """A list or number as an array or number of the type and shape of another."""
    return np.asarray(value, example.dtype).reshape(example.shape) if isinstance(example, np.ndarray) else type(example)(value)

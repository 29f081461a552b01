"""Where draws come from: facts of the rows, the prior and the software that a fit keeps in its `meta`."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from tallbayes.compile import source_stamp
from tallbayes.model import Model
from tallbayes.version import __version__


def origin(model: Model) -> dict[str, Any]:
    """Rows, columns and prior of a model, and versions, in JSON types."""
    assert model.prior is not None
    return {
        "rows": model.data.n,
        "fingerprint": model.data.fingerprint,
        "response": model.data.response,
        "columns": list(model.data.columns),
        "intercept": model.data.intercept,
        "has_offset": model.data.has_offset,
        "plan": model.data.recipe.get("plan"),
        "source": model.data.recipe.get("source") or None,
        "dtype": model.data.recipe.get("dtype"),
        "store": None if model.data.store is None else str(model.data.store.resolve()),
        "prior": model.prior.describe(),
        "default_prior": model.default_prior,
        "versions": {
            "tallbayes": __version__,
            "sources": source_stamp(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }

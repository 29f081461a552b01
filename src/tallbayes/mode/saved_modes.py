"""Modes in checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.mode.centring import Frame, centring_of
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model


def mode_as_dict(mode: Mode) -> dict[str, Any]:
    """A mode in JSON types, for a checkpoint."""
    names = ("reference", "gradient", "hessian", "precision")
    return {
        **{k: getattr(mode, k).tolist() for k in names},
        **{k: getattr(mode, k) for k in ("log_posterior", "passes", "evaluations", "searches")},
        "warnings": list(mode.warnings),
        "frame": None if mode.frame is None else [part.tolist() for part in mode.frame[1:]],
    }


def mode_from_dict(model: Model, values: dict[str, Any]) -> Mode:
    """The inverse of `mode_as_dict`."""
    if model.grouped or model.unknown_scales:  # not all of it is kept: the search finds the same again
        return find_mode(model, progress=False)
    arrays = {k: np.asarray(values[k], float) for k in ("reference", "gradient", "hessian", "precision")}
    numbers = {k: values[k] for k in ("log_posterior", "passes", "evaluations", "searches")}
    frame, centring = values["frame"], centring_of(model)
    if frame is not None and centring is not None:
        frame = Frame(centring, *(np.asarray(part, float) for part in frame))
    return Mode(model=model, **{**arrays, **numbers}, frame=frame, warnings=tuple(values["warnings"]))

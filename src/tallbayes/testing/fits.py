"""Fits whose draws are known, to test what is answered from draws without a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.errors import OptionError
from tallbayes.model import Model
from tallbayes.results import Fit
from tallbayes.results.levels import level_draws, read_keep
from tallbayes.results.provenance import origin


def fit_from_draws(
    model: Model,
    theta: np.ndarray,
    *,
    levels: np.ndarray | None = None,
    stats: dict[str, np.ndarray] | None = None,
    keep_rows: bool = True,
) -> Fit:
    """A fit of a model with draws (chains, draws, dim) that are given: everything else is as after sampling, at no cost.

    `levels` are draws of the effects of all levels of a hierarchical model, (chains, draws, levels), term by term.
    `keep_rows=False` leaves a fit that does not hold its rows, as one that was loaded from a file.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import fit_from_draws
    >>> model = tb.models.poisson(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9)))
    >>> fit = fit_from_draws(model, np.full((2, 5, 1), np.log(4.0)))
    >>> bool(np.isclose(fit.predictions()["mean"][0], 4.0))
    True
    """
    theta = np.asarray(theta, float)
    if theta.ndim != 3 or theta.shape[2] != model.dim:
        raise OptionError(f"theta must be an array (chains, draws, {model.dim}); its shape is {theta.shape}.")
    chains, draws = theta.shape[:2]
    values = np.empty((chains, draws, 0)) if levels is None else np.asarray(levels, float)
    if model.grouped and levels is None:
        raise OptionError("the model has group effects; give their draws as levels=, an array (chains, draws, levels).")
    meta: dict[str, Any] = {"model": model.describe(), "sampler_name": "none", "warnings": [], **origin(model)}
    return Fit(
        theta=theta,
        stats={"evals": np.zeros((chains, draws))} | (stats or {}),
        names=model.names,
        guarantee=Guarantee("EXACT", "the draws were given"),
        why="",
        status="complete",
        setup={"evals": 0, "seconds": 0.0, "passes": 0},
        warmup={"evals": 0, "seconds": 0.0, "iterations": 0},
        seconds={"draws": 0.0, "total": 0.0},
        laplace_mean=np.zeros(model.dim),
        laplace_factor=np.eye(model.dim),
        meta=meta,
        data=model.data if keep_rows else None,
        levels=level_draws(model, read_keep(model, "all" if model.grouped else None, draws, chains), values, []),
    )

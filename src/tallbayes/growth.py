"""Rows that arrive later: `update` extends a model or a fit by new rows at the cost of a pass over these alone.

The gradient and Hessian at a reference, the totals of certified bounds and the Taylor sums are sums over rows, so new rows are added
at the old reference: the surrogate keeps its linear term, the whitening and the prior's scales stay, and every transition is exact as
before. When the mode has moved by more than a posterior standard deviation, or the rows have grown by a quarter since, the reference
is searched for again; these searches become rarer as the rows grow, so that their share of the cost of a row stays the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tallbayes import samplers, streams
from tallbayes.api import REFERENCE_TOLERANCE, sample
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.joined_tables import join_bounds
from tallbayes.contract import Sampler
from tallbayes.data.append import append
from tallbayes.data.dataset import Dataset
from tallbayes.data.read import _read_to_memory
from tallbayes.data.sources import open_source
from tallbayes.engine import ledger, passes
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.mode.kinks import kinks_of
from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import converge, find_mode, mode_at
from tallbayes.model import Model
from tallbayes.progress import Progress
from tallbayes.results.fit import Fit
from tallbayes.results.rebuild import model_of, set_updater
from tallbayes.run.options import check_options
from tallbayes.samplers import ExactMinibatch
from tallbayes.validation import require_instance, require_switch

MOVED = 1.0  # posterior standard deviations between reference and mode beyond which it is searched for again
GROWN = 0.25  # rows added since the reference, as a share of those it was found with


def update(model: Model, rows: Any, *, progress: bool = True) -> Model:
    """The model over its rows and new ones, which are read by the same formula; a packed store grows in its place.

    Levels, knots and the scales of a default prior stay those of the first rows. `rows` is whatever `tallbayes.read` reads, or a
    Dataset with the same columns.

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(np.ones((6, 1)), [0, 1, 1, 0, 1, 1]))
    >>> tb.update(model, tb.Dataset.from_arrays(np.ones((2, 1)), [0, 1]), progress=False)
    Model(logistic, 8 rows, 1 parameters, prior weakly_informative)
    """
    require_instance("model", model, Model, "a model such as tallbayes.models.logistic(data)")
    require_switch("progress", progress)
    return _extended(model, *_read_new(model, rows, progress))[0]


def update_fit(
    fit: Fit, rows: Any, model: Model | None = None, sampler: str | Sampler | None = None, progress: bool = True, **options: Any
) -> Fit:
    """`Fit.update`."""
    if model is None and fit.reference is not None:
        model = fit.reference.model  # without a look at the old rows
    model = model_of(fit, model)
    part, identity = _read_new(model, rows, progress)
    chosen = samplers.from_dict(fit.meta["sampler"]) if sampler is None else samplers.resolve(sampler)
    seed = streams.entropy(options.pop("seed", None))
    with ledger.counting() as account:
        grown, part_model = _extended(model, part, identity)
        if isinstance(chosen, ExactMinibatch) and model.unit_scale_member is None:
            old = _known_reference(fit, model, chosen, seed)
            mode, facts = _extended_mode(old, grown, part_model, chosen, seed, progress)
        else:
            mode = _found_again(grown, fit.laplace_mean, progress)
            facts = {"recentred": True, "moved": None}
    defaults = {"draws": fit.theta.shape[1], "chains": fit.theta.shape[0], "warmup": fit.meta["warmup"], "thin": fit.thin}
    mode.evaluations = account.rows
    result = sample(grown, chosen, seed=seed, mode=mode, progress=progress, **{**defaults, **options})
    result.reference = mode if isinstance(chosen, ExactMinibatch) else None
    begun = {"rows": model.data.n, "source": fit.meta.get("source")}
    entry = {"rows": part.n, "source": identity or None, **facts, "evals": account.rows}
    result.meta["history"] = [*fit.meta.get("history", [begun]), entry]
    result.meta["prior_terms"] = _in_json(model.prior_terms)
    if model.unknown_scales:
        result.meta["prior_blocks"] = _in_json(model.blocks)  # type: ignore[attr-defined]
    return result


def _in_json(numbers: Iterable[Any]) -> list[Any]:
    """Arrays as lists, for a saved fit."""
    return [v.tolist() if isinstance(v, np.ndarray) else v for v in numbers]


def _read_new(model: Model, rows: Any, progress: bool) -> tuple[Dataset, dict[str, Any]]:
    """The new rows by the plan of the old ones, and where they come from."""
    if model.grouped or not model.exchangeable or not model.linear or model.partitions is not None:
        raise ModelError(
            "rows can be added to models with linear predictors, without group effects, whose rows are on this machine; fit all rows anew."
        )
    if isinstance(rows, Dataset):
        return rows, {}
    plan = model.data.recipe.get("plan")
    if not plan:
        raise DataError("the rows of this model were given as arrays; give new ones as tallbayes.Dataset.from_arrays(X, y).")
    source = open_source(rows)
    return _read_to_memory(source, plan, model.data.records.dtype, {"plan": plan}, progress), source.identity


def _extended(model: Model, part: Dataset, identity: dict[str, Any]) -> tuple[Model, Model]:
    """The model over all rows, and over the new ones."""
    new = _with_rows(model, part)
    new._check_rows()
    return _with_rows(model, append(model.data, part, identity)), new


def _with_rows(model: Model, data: Dataset) -> Model:
    """The same model, prior and scales over other rows, which were checked already."""
    new = copy.copy(model)
    new.__dict__.pop("rows", None)
    new.data = data
    new.__dict__["prior_terms"] = model.prior_terms
    if model.unknown_scales:
        new.__dict__["blocks"] = model.blocks  # type: ignore[attr-defined]
    return new


def _known_reference(fit: Fit, model: Model, sampler: ExactMinibatch, seed: int) -> Mode:
    """The reference of the fit with its tables: kept by an earlier update, or made again by two passes over the old rows."""
    mode = fit.reference
    if mode is None or mode.model.data.fingerprint != model.data.fingerprint:
        mode = mode_at(model, np.array(fit.laplace_mean))
        mode.__dict__["factor"] = np.array(fit.laplace_factor)
    if sampler.bound not in mode.tables:
        mode.tables[sampler.bound] = certify(mode, sampler.bound, seed=seed)
    return mode


def _extended_mode(
    old: Mode, grown: Model, part: Model, sampler: ExactMinibatch, seed: int, progress: bool
) -> tuple[Mode, dict[str, Any]]:
    """The old reference over all rows, by a pass over the new ones; or a new one where the mode has moved too far."""
    value, gradient, hessian = passes.total_hessian(part.rows, old.reference)
    mode = Mode(
        grown,
        old.reference,
        old.log_posterior + value,
        old.gradient + gradient,
        old.hessian + hessian,
        old.precision - hessian,
        passes=0,
        evaluations=0,
        found_with=old.found_with or old.model.data.n,
    )
    mode.__dict__["factor"] = old.factor
    step = cho_solve(cho_factor(mode.precision), mode.gradient)
    moved = float(np.sqrt(max(0.0, step @ mode.gradient)))
    bound = None
    if moved <= MOVED and grown.data.n <= (1.0 + GROWN) * mode.found_with and not kinks_of(grown.prior_terms).where.size:
        here = copy.copy(old)
        here.model, here.tables = part, {}
        here.__dict__.pop("_norms", None)
        name = old.tables[sampler.bound][1]
        folder = None if grown.data.store is None else grown.data.store.parent
        bound = join_bounds(old.tables[sampler.bound][0], certify(here, name, seed=seed)[0], folder)
        mode.tables[sampler.bound] = bound, name
    if bound is None:
        with Progress("finding the mode", None, progress) as bar:
            mode = _search(grown, old.reference + step, bar)
        mode.tables[sampler.bound] = certify(mode, sampler.bound, seed=seed)
    return mode, {"recentred": bound is None, "moved": round(moved, 3)}


def _found_again(model: Model, theta: np.ndarray, progress: bool) -> Mode:
    """The reference over all rows, from that of the old ones where there is a mode to converge to."""
    if model.unknown_scales:
        return find_mode(model, progress=progress)
    with Progress("finding the mode", None, progress) as bar:
        return _search(model, theta, bar)


def _search(model: Model, theta: np.ndarray, bar: Progress) -> Mode:
    mode = converge(model, lambda at: passes.total_hessian(model.rows, at), np.array(theta), REFERENCE_TOLERANCE, bar)
    mode.found_with = model.data.n
    return mode


def _update(fit: Fit, rows: Any, options: dict[str, Any]) -> Fit:
    if foreign := [name for name in options if name not in _TAKEN]:
        raise OptionError(f"update takes {', '.join(_TAKEN[:-1])} and {_TAKEN[-1]}; got {foreign[0]}=.")
    checked = {name: value for name, value in options.items() if name != "model" and (name != "sampler" or value is not None)}
    check_options(**{"sampler": "auto", "progress": True, **checked})
    return update_fit(fit, rows, **options)


_TAKEN = (
    "draws",
    "warmup",
    "chains",
    "thin",
    "seed",
    "cores",
    "max_seconds",
    "until_ess",
    "keep",
    "sampler",
    "model",
    "progress",
)
set_updater(_update)

"""Design rows of new data for a fit: from an array, a Dataset, a table of columns or a file, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.calendar_columns import with_calendar
from tallbayes.data.dataset import Dataset
from tallbayes.data.design import DesignMatrices, design
from tallbayes.data.group_rows import with_group_columns
from tallbayes.data.groups import CONSTANT
from tallbayes.data.packed_store import open_store
from tallbayes.data.second_predictor import second_matrix
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError, unknown
from tallbayes.results.group_predictions import NewGroups, effect_columns
from tallbayes.results.new_trials import NewTrials

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

BLOCK = 4096  # rows predicted at a time: blocks do not depend on the batches of a file, so neither do simulated responses

Rows = tuple[np.ndarray, np.ndarray | None]  # design rows, and their offsets if the model has any


def design_blocks(
    fit: Fit,
    new: Any,
    offset: Any = None,
    groups: NewGroups | None = None,
    given: Any = None,
    trials: NewTrials | None = None,
) -> Iterator[Rows]:
    """Blocks of `BLOCK` design rows in order, checked; the last one is shorter.

    With `groups` the columns of `NewGroups` follow those of the design; `given` are the levels of an array. With `trials` the numbers
    of trials are the last column.
    """
    names = (*fit.meta["columns"], *(() if groups is None else groups.names), *(() if trials is None else (trials.name,)))
    return _blocks(_checked(_rows(fit, new, offset, groups, given, trials), names))


def from_batch(plan: dict[str, Any], batch: Any, first: int, matrix: Callable[[Any, int], np.ndarray]) -> Rows:
    """Design rows, by `matrix`, and offsets of a batch of columns."""
    x = matrix(batch, first)
    if plan["offset"] is None:
        return x, None
    offset = arrow.numbers(batch, plan["offset"], first)
    if plan["log_offset"]:
        if not (offset > 0).all():
            row = int(np.argmin(offset > 0))
            raise DataError(f"row {first + row}: log({plan['offset']}) of {offset[row]:g}; an exposure must be positive.")
        offset = np.log(offset)
    return x, offset


def columns_of(plan: dict[str, Any]) -> list[str]:
    """Columns that `from_batch` reads; the response and the weights are not among them."""
    further = plan.get("second", {}).get("columns", ())
    return list(dict.fromkeys([*plan["columns"], *further, *([plan["offset"]] if plan["offset"] else [])]))


def plan_of(fit: Fit, available: tuple[str, ...]) -> dict[str, Any]:
    """The plan by which the rows of the fit were read; rows from arrays have their columns read by name."""
    if fit.meta.get("plan"):
        return fit.meta["plan"]
    if fit.meta.get("has_offset"):
        raise DataError(
            "the model was fitted to arrays with an offset, whose column has no name; give new as an array or a Dataset with "
            "its offset."
        )
    columns, ones = list(fit.meta["columns"]), fit.meta.get("intercept")
    intercept = ones == 0 and columns[0] not in available
    return {"columns": columns[1:] if intercept else columns, "intercept": intercept, "offset": None, "log_offset": False}


def _rows(fit: Fit, new: Any, offset: Any, groups: NewGroups | None, given: Any, trials: NewTrials | None) -> Iterable[Rows]:
    if isinstance(new, str | Path) and (Path(new) / "store.json").exists():
        new = open_store(new)
    if isinstance(new, Dataset):
        _no_offset(offset, "a Dataset has its own")
        _no_levels(given, "a Dataset has its own")
        return _from_dataset(fit, new, groups, trials)
    if isinstance(new, str | Path | dict) or hasattr(new, "__arrow_c_stream__"):
        source = open_source(_table(new) if isinstance(new, dict) else new)
    else:
        return _from_array(fit, new, offset, groups, given, trials)
    _no_offset(offset, "the plan of the fit names the column")
    _no_levels(given, "columns by name hold them")
    return _from_source(fit, source, groups, trials)


def _no_offset(offset: Any, why: str) -> None:
    if offset is not None:
        raise DataError(f"offset= belongs to an array of design rows; {why}.")


def _no_levels(given: Any, why: str) -> None:
    if isinstance(given, Mapping):
        raise DataError(f"a dictionary of groups= belongs to an array of design rows; {why}.")


def _table(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.table({str(k): np.atleast_1d(np.asarray(v)) for k, v in columns.items()})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise DataError(
            f"the columns of new do not make a table ({error}); give one number for each row in every column."
        ) from None


def _from_source(fit: Fit, source: arrow.Source, groups: NewGroups | None, trials: NewTrials | None) -> Iterator[Rows]:
    plan = plan_of(fit, source.names)
    source = with_group_columns(with_calendar(source, plan.get("calendar")), plan)
    wanted, more = columns_of(plan), () if groups is None else _group_columns(fit, groups, source.names)
    counts = None if trials is None else trials.column(source.names)
    wanted = list(dict.fromkeys([*wanted, *more, *([] if counts is None else [counts])]))
    for name in wanted:
        if name not in source.names:
            raise DataError(f"new has no column {name!r}, which the model needs: {unknown('column', name, source.names)}")
    arrow.refuse_ambiguous(source.names, wanted)
    first = 0
    if not wanted:  # an intercept alone: any column tells how many rows there are
        wanted = list(source.names[:1])
    own = {k: v for k, v in plan.items() if k != "second"}
    matrix, second = DesignMatrices(plan).matrix if "design" in plan else partial(design, own), second_matrix(plan)
    for batch in source.batches(wanted):
        x, offset = from_batch(plan, batch, first, matrix)
        x = x if second is None else np.column_stack([x, second(batch, first)])
        if groups is not None:
            levels = {name: groups.codes(name, batch.column(name).to_pandas().to_numpy(), first) for name in groups.factors}
            x = groups.joined({name: (codes, _terms(fit, groups, name, x, batch, first)) for name, codes in levels.items()}, x)
        if trials is not None and counts is not None:
            x = trials.behind(x, arrow.numbers(batch, counts, first), first)
        yield x, offset
        first += batch.num_rows


def _group_columns(fit: Fit, groups: NewGroups, available: tuple[str, ...]) -> list[str]:
    """Columns of levels, and of terms that are not columns of the design."""
    for name in groups.factors:
        if name not in available:
            raise DataError(
                f"new has no column {name!r} with the levels of that factor. Add it, or predict with groups=False: "
                f"{unknown('column', name, available)}"
            )
    terms = {term for own in groups.factors.values() for term in own if term != CONSTANT}
    return [*groups.factors, *sorted(terms - set(fit.meta["columns"]))]


def _terms(fit: Fit, groups: NewGroups, name: str, x: np.ndarray, batch: Any, first: int) -> np.ndarray:
    columns, parts = list(fit.meta["columns"]), []
    for term in groups.factors[name]:
        if term == CONSTANT:
            parts.append(np.ones(x.shape[0]))
        else:
            parts.append(x[:, columns.index(term)] if term in columns else arrow.numbers(batch, term, first))
    return np.column_stack(parts)


def _from_dataset(fit: Fit, data: Dataset, groups: NewGroups | None, trials: NewTrials | None) -> Iterator[Rows]:
    columns = tuple(fit.meta["columns"])
    if data.columns != columns:
        missing = [c for c in columns if c not in data.columns]
        what = f"has no column {missing[0]!r}" if missing else "has other columns, or in another order"
        raise DataError(f"the Dataset {what}; the model needs {', '.join(columns)}. Read it with the formula of the fit.")
    if fit.meta.get("has_offset") and not data.has_offset:
        raise DataError("the model has an offset, but the Dataset does not; read it with offset=.")
    tables = {} if groups is None else groups.translated(data)
    own = {factor.name: factor for factor in data.groups}
    place = None if data.order is None else np.argsort(data.order)  # records in the order of the user's rows
    for start in range(0, data.n, BLOCK):
        part = slice(start, start + BLOCK) if place is None else place[start : start + BLOCK]
        block = data.records[part].astype(float)
        x = block[:, : data.d]
        if groups is not None:
            given = {}
            for name in groups.factors:
                given[name] = (tables[name][own[name].codes[part]], effect_columns(data, name, block))
            x = groups.joined(given, x)
        if trials is not None:
            x = trials.behind(x, trials.of(data, part), start)
        yield x, block[:, data.d + 1] if data.has_offset else None


def _from_array(
    fit: Fit, new: Any, offset: Any, groups: NewGroups | None, given: Any, trials: NewTrials | None
) -> Iterator[Rows]:
    d = len(fit.meta["columns"])
    x = np.asarray(new)
    if x.dtype.kind not in "fiub":
        raise DataError(f"cannot predict for a {type(new).__name__}; give design rows, columns by name, a Dataset or a path.")
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.shape[1] != d:
        names = ", ".join(fit.meta["columns"])
        hint = (
            " Include the column of ones."
            if x.ndim == 2 and x.shape[1] == d - 1 and fit.meta.get("intercept") is not None
            else ""
        )
        raise DataError(f"new must have {d} columns ({names}); its shape is {np.asarray(new).shape}.{hint}")
    if offset is None and fit.meta.get("has_offset"):
        raise DataError("the model has an offset: give offset=, one number for each row of new (zeros for none).")
    if offset is not None:
        offset = np.asarray(offset, float)
        if offset.shape != (x.shape[0],):
            raise DataError(f"offset must have one number for each of the {x.shape[0]} rows; its shape is {offset.shape}.")
    x = x if groups is None else groups.from_mapping(given, np.asarray(x, float))
    x = x if trials is None else trials.behind(np.asarray(x, float), trials.of_array(x.shape[0]))
    for start in range(0, x.shape[0], BLOCK):
        part = slice(start, start + BLOCK)
        yield np.asarray(x[part], float), None if offset is None else offset[part]


def _checked(rows: Iterable[Rows], columns: tuple[str, ...]) -> Iterator[Rows]:
    first = 0
    for x, offset in rows:
        whole = x if offset is None else np.column_stack([x, offset])
        good = np.isfinite(whole)
        if not good.all():
            row, column = np.argwhere(~good)[0]
            name = (*columns, "offset")[column]
            raise DataError(
                f"row {first + row}, column {name!r} is {whole[row, column]}; drop or impute such rows before predicting."
            )
        first += x.shape[0]
        if x.shape[0]:
            yield x, offset
    if first == 0:
        raise DataError("new has no rows.")


def _blocks(rows: Iterable[Rows]) -> Iterator[Rows]:
    waiting: list[Rows] = []
    count = 0
    for x, offset in rows:
        waiting.append((x, offset))
        count += x.shape[0]
        if count < BLOCK:
            continue
        x, offset = _joined(waiting)
        whole = count - count % BLOCK
        for start in range(0, whole, BLOCK):
            part = slice(start, start + BLOCK)
            yield x[part], None if offset is None else offset[part]
        count -= whole
        waiting = [(x[whole:], None if offset is None else offset[whole:])] if count else []
    if count:
        yield _joined(waiting)


def _joined(parts: list[Rows]) -> Rows:
    x = np.concatenate([p[0] for p in parts])
    return x, None if parts[0][1] is None else np.concatenate([p[1] for p in parts if p[1] is not None])

"""`read`: from a file or a stream of batches to a Dataset, one chunk in memory at a time."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data import records as packed
from tallbayes.data.calendar_columns import cut_calendar, with_calendar
from tallbayes.data.dataset import Dataset, _float_type
from tallbayes.data.design import DesignMatrices
from tallbayes.data.design_survey import DesignSurvey
from tallbayes.data.formula import Formula
from tallbayes.data.group_rows import GroupLearner, GroupRows, counted_batches, group_columns, learn_levels
from tallbayes.data.level_index import LevelIndex
from tallbayes.data.merge import merge_rows
from tallbayes.data.missing import complete_rows, require_action
from tallbayes.data.packed_store import StoreWriter, default_folder, open_store
from tallbayes.data.packing import packed_chunks, packer_of
from tallbayes.data.plan import (
    check_store,
    extra_columns,
    make_plan,
    plan_names,
    refuse_double,
    row_flags,
    source_columns,
    trials_place,
)
from tallbayes.data.read_grouped import read_grouped_to_memory, read_grouped_to_store
from tallbayes.data.response_functions import current_plan, response_function
from tallbayes.data.second_predictor import learn_second, plan_second, require_one
from tallbayes.data.sources import open_source
from tallbayes.data.sources.ipc import ipc
from tallbayes.errors import DataError, OptionError, StoreError, unknown
from tallbayes.machine import available_memory
from tallbayes.option_types import checked
from tallbayes.progress import Progress

_IN_MEMORY_SHARE = 0.25  # of the memory now available: leaves room for the user's own objects and for proxies


@checked
def read(
    source: Any,
    formula: str | None = None,
    *,
    response: str | None = None,
    columns: Sequence[str] | None = None,
    offset: str | None = None,
    weights: str | None = None,
    store: str | Path | None = None,
    memory: str = "auto",
    dtype: str = "float64",
    na: str = "error",
    merge: bool = False,
    zi: str | None = None,
    sigma: str | None = None,
    progress: bool = True,
) -> Dataset:
    """Read rows from files, databases, packed stores and Arrow objects; never the whole source at once.

    `source` is a .parquet, .csv or .arrow file, a folder or pattern of such files, `"sqlite:path.db::table"` or
    `"sqlite:path.db::SELECT ..."`, a packed store, or any object with `__arrow_c_stream__`. Say what to read with a formula
    (`"y ~ x1 + C(group)"`, `"y ~ ."`, `"y ~ x1 + (1 | shop)"`) or with `response=` and optionally `columns=`; either way an intercept
    is added unless the formula says `+ 0`. `offset=` and `weights=` name columns; `offset="log(Exposure)"` takes a logarithm; weights
    are powers of the likelihood. A response of two columns is `"censored(time, event) ~ x1"` or `"p(successes, trials) ~ x1"`.
    `memory="auto"` keeps packed rows in memory when they fit easily and memory-maps them from a store on disk otherwise;
    `"ram"` and `"disk"` insist. A store is reused as long as its source is unchanged. `na="drop"` leaves out rows with a missing value in
    a column that is read and counts them in `data.dropped`; otherwise they are an error. `merge=True` merges identical rows into one with
    their weights added, which leaves the posterior as it is. `zi="~ z"` adds the columns of a second predictor, of the zeros of
    zero-inflated counts and hurdles; `sigma="~ x"` those of the logarithm of a standard deviation.

    >>> import pyarrow as pa, tallbayes as tb
    >>> table = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0], "t": [1.0, 1.0, 2.0]})
    >>> data = tb.read(table, "y ~ x", offset="log(t)")
    >>> data.columns, data.has_offset
    (('Intercept', 'x'), True)
    """
    if merge:
        what: dict[str, Any] = {"response": response, "columns": columns, "offset": offset, "weights": weights, "na": na}
        what |= {"zi": zi, "sigma": sigma}
        return merge_rows(read(source, formula, **what, store=store, memory=memory, dtype=dtype, progress=progress))
    second = require_one({"zi": zi, "sigma": sigma})
    special = response_function(formula)
    if special is not None and second is not None:
        raise OptionError(f"{second[0]}= cannot be given together with {special.name}(...) in the formula.")
    if memory not in ("auto", "ram", "disk"):
        raise unknown("memory", memory, ("auto", "ram", "disk"))
    require_action(na)
    if is_store(source):
        data = open_store(source)
        check_store(data, formula, response, columns, offset, weights, second)
        return data
    rows = open_source(source)
    formula, calendar = (formula, {}) if not isinstance(formula, str) else cut_calendar(formula, rows)
    if second is not None:
        text, more = cut_calendar(second[1], rows)
        calendar = {**calendar, **more}
    rows = with_calendar(rows, calendar)
    plan, general = make_plan(rows, formula, response, columns, offset, weights, na, calendar)
    other = None
    if second is not None:
        if "groups" in plan:
            raise OptionError(f"{second[0]}= is not available together with group effects; use C(...) for few levels.")
        plan["second"], other = plan_second(rows, plan, second[0], text)
        plan["second"]["formula"] = second[1]
    kind = _float_type(dtype)
    if rows.n == 0:
        raise DataError("the source has no rows.")
    request = {"source": rows.identity, "plan": plan, "dtype": kind.str}
    recipe = dict(request)
    folder = Path(store) if store is not None else default_folder()
    path = _store_path(folder, request)
    on_disk = memory == "disk" or (store is not None and memory != "ram")
    if on_disk and (existing := _existing(path, request)) is not None:
        return existing
    with ExitStack() as stack:
        rows = complete_rows(rows, source_columns(plan), na, recipe if na == "drop" else None)
        indexes: list[LevelIndex] = []
        if not rows.repeatable and not (general is None and other is None):
            rows = _spool(rows, plan, folder, stack)
        if other is not None:
            plan = learn_second(rows, plan, other, progress)
        if general is not None:
            plan, rows, indexes = learn(rows, plan, general, progress)
        if memory == "auto" and not on_disk and not _fits(rows.n, len(plan_names(plan)) + extra_columns(plan), kind):
            on_disk = True
            if (existing := _existing(path, request)) is not None:
                return existing
        if second is not None:
            refuse_double(plan_names(plan))
        recipe["plan"] = plan
        if indexes:
            grouped = GroupRows(plan, indexes)
            if on_disk:
                return read_grouped_to_store(rows, grouped, kind, recipe, path, progress)
            return read_grouped_to_memory(rows, grouped, kind, recipe, progress)
        if on_disk:
            return _read_to_store(rows, plan, kind, recipe, path, progress)
        return _read_to_memory(rows, plan, kind, recipe, progress, path if memory == "auto" else None)


def from_recipe(recipe: dict[str, Any], store: str | None, progress: bool = True) -> Dataset:
    """Read again what a recipe describes, for resuming a run. The formula in it passes the whitelist first."""
    if store is not None:
        return open_store(store)
    try:
        path, plan, kind = str(recipe["source"]["path"]), current_plan(recipe["plan"]), _float_type(recipe["dtype"])
        if plan is None:
            raise KeyError("plan")
        recipe = {**recipe, "plan": plan}
        plan_names(plan)
        if "design" in plan:
            DesignMatrices(plan)
    except (KeyError, TypeError, DataError) as error:
        raise StoreError(f"the description of the rows is damaged ({error!r}); give the model to resume.") from error
    rows = with_calendar(open_source(path), plan.get("calendar"))
    rows = complete_rows(rows, source_columns(plan), plan.get("na", "error"))
    if "groups" in plan:
        indexes, rows = learn_levels(rows, plan, progress)
        return read_grouped_to_memory(rows, GroupRows(plan, indexes), kind, recipe, progress)
    data = _read_to_memory(rows, plan, kind, recipe, progress)
    return merge_rows(data) if "merged_from" in plan else data


def only_one(source: Any, data: Any) -> Any:
    """The rows that a user gave under one of two names."""
    if (source is None) == (data is None):
        raise OptionError("give the rows once, as the second argument or as data=: a file, a table or a store.")
    return data if source is None else source


def is_store(source: Any) -> bool:
    """Whether a source is the path of a packed store."""
    if not isinstance(source, str | Path) or "\0" in str(source):
        return False
    return Path(source).is_dir() and (Path(source) / "store.json").exists()


def _existing(path: Path, request: dict[str, Any]) -> Dataset | None:
    """The store at a path, if it holds what is asked for."""
    if not request["source"] or not path.exists():
        return None
    existing = open_store(path)
    if existing.recipe.get("appended"):
        raise StoreError(
            f"the store {path} was made from this source and has grown by further rows since. Open it with tallbayes.read({str(path)!r}), "
            "or choose another folder with store=."
        )
    return existing if _request_of(existing.recipe) == request else None


def _request_of(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without what the first pass learned."""
    recipe = {k: v for k, v in recipe.items() if k != "dropped"}
    plan = dict(recipe.get("plan", {}))
    if "design" in plan:
        plan["design"] = {"formula": plan["design"]["formula"]}
    if "groups" in plan:
        plan["groups"] = [{k: v for k, v in term.items() if k != "design"} for term in plan["groups"]]
    if "design" in plan.get("second", {}):
        plan["second"] = {**plan["second"], "design": {"formula": plan["second"]["design"]["formula"]}}
    return {**recipe, "plan": plan} if plan else recipe


def _spool(rows: arrow.Source, plan: dict[str, Any], folder: Path, stack: ExitStack) -> arrow.Source:
    """A stream that can be read only once, kept in a file for the two passes."""
    import pyarrow as pa

    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream.part-", dir=folder))) / "rows.arrow"
        columns = source_columns(plan)
        schema = pa.schema([(c, rows.types[rows.names.index(c)]) for c in columns])
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for batch in rows.batches(columns):
                writer.write_batch(batch)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"keeping the stream in {folder} failed: {error}. Free space there or choose another with store=."
        ) from error
    return replace(ipc(path), identity={}, names=tuple(columns), ordered=rows.ordered)


def learn(
    rows: arrow.Source, plan: dict[str, Any], formula: Formula, progress: bool
) -> tuple[dict[str, Any], arrow.Source, list[LevelIndex]]:
    """Pass one: columns of general formulas, and levels of grouping factors."""
    design = None if formula.plain else DesignSurvey(formula, rows.ordered)
    learner, n = GroupLearner(plan, formula, rows.ordered), 0
    columns = list(dict.fromkeys([*([] if design is None else formula.columns), *group_columns(plan)]))
    with counted_batches(rows, columns or [formula.response], "levels and ranges", progress) as batches:
        for batch in batches:
            if design is not None:
                design.add(batch)
            learner.add(batch)
            n += batch.num_rows
    if n == 0:
        raise DataError("the source has no rows.")
    plan = dict(plan)
    if design is not None:
        plan["design"] = design.described()
    if "groups" in plan:
        plan["groups"] = learner.terms()
    refuse_double(plan_names(plan))
    return plan, replace(rows, n=n), learner.indexes()


def _read_to_memory(
    rows: arrow.Source,
    plan: dict[str, Any],
    kind: np.dtype,
    recipe: dict[str, Any],
    progress: bool,
    overflow: Path | None = None,
) -> Dataset:
    """Pack rows into memory; if they are of unknown number and outgrow its share, go on in a store at `overflow`."""
    packer, names, parts = packer_of(plan), plan_names(plan), []
    known = rows.n is not None
    columns = len(names) + extra_columns(plan)
    out = packed.empty(rows.n or 0, columns, kind)
    room = _IN_MEMORY_SHARE * available_memory() if overflow is not None and not known else np.inf
    held, writer = 0, None
    try:
        with Progress("reading", rows.n, progress) as bar:
            for chunk, _ in packed_chunks(rows, plan, kind, packer):
                bar.advance(chunk.shape[0])
                if known:
                    out[packer.moments.n - chunk.shape[0] : packer.moments.n] = chunk
                    continue
                if writer is not None:
                    writer.write(chunk)
                    continue
                parts.append(chunk)
                held += chunk.nbytes
                if held > room:
                    assert overflow is not None
                    writer = StoreWriter(overflow, names, plan["response"], kind, extra_columns(plan), trials_place(plan))
                    while parts:
                        writer.write(parts.pop(0))
        if packer.moments.n == 0:
            raise DataError("the source has no rows.")
        if writer is not None:
            return writer.finish(packer.moments, *row_flags(plan), recipe)
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    if not known:
        out = packed.empty(packer.moments.n, columns, kind)
        at = 0
        while parts:
            part = parts.pop(0)
            out[at : at + part.shape[0]] = part
            at += part.shape[0]
    described = (out, names, plan["response"], packer.moments, *row_flags(plan), None, recipe)
    return Dataset(*described, trials_place=trials_place(plan))


def _read_to_store(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, recipe: dict[str, Any], path: Path, progress: bool
) -> Dataset:
    packer = packer_of(plan)
    writer = StoreWriter(path, plan_names(plan), plan["response"], kind, extra_columns(plan), trials_place(plan))
    try:
        with Progress("packing", rows.n, progress) as bar:
            for chunk, _ in packed_chunks(rows, plan, kind, packer):
                writer.write(chunk)
                bar.advance(chunk.shape[0])
        if packer.moments.n == 0:
            raise DataError("the source has no rows.")
        return writer.finish(packer.moments, *row_flags(plan), recipe)
    except BaseException:
        writer.abort()
        raise


def _store_path(folder: Path, recipe: dict[str, Any]) -> Path:
    key = hashlib.blake2b(json.dumps(recipe, sort_keys=True).encode(), digest_size=8).hexdigest()
    stem = re.sub(r"[^\w.=-]+", "-", Path(recipe["source"].get("path", "stream").partition("::")[0]).stem)[:60] or "rows"
    return folder / f"{stem}-{key}"


def _fits(n: int | None, columns: int, kind: np.dtype) -> bool:
    if n is None:
        return True
    return n * packed.width_of(columns, kind) * kind.itemsize <= _IN_MEMORY_SHARE * available_memory()

"""`read`: from a file or a stream of batches to a Dataset, one chunk in memory at a time."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset, Packer, _float_type
from tallbayes.data.design import DesignMatrices, plain_matrix, survey
from tallbayes.data.formula import Formula
from tallbayes.data.merge import merge_rows
from tallbayes.data.packed_store import StoreWriter, default_folder, open_store
from tallbayes.data.plan import check_store, make_plan, plan_names, refuse_double, source_columns
from tallbayes.data.precision import require_kept
from tallbayes.data.response_functions import apply_response_function, response_function
from tallbayes.data.sources import open_source
from tallbayes.data.sources.ipc import ipc
from tallbayes.errors import DataError, OptionError, StoreError, unknown
from tallbayes.machine import available_memory
from tallbayes.progress import Progress

_IN_MEMORY_SHARE = 0.25  # of the memory now available: leaves room for the user's own objects and for proxies


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
    merge: bool = False,
    progress: bool = True,
) -> Dataset:
    """Read rows from files, databases, packed stores and Arrow objects; never the whole source at once.

    `source` is a .parquet, .csv or .arrow file, a folder or pattern of such files, `"sqlite:path.db::table"` or
    `"sqlite:path.db::SELECT ..."`, a packed store, or any object with `__arrow_c_stream__`. Say what to read with a formula
    (`"y ~ x1 + C(group)"`, `"y ~ ."`) or with `response=` and optionally `columns=`; either way an intercept is added unless
    the formula says `+ 0`. `offset=` and `weights=` name columns; `offset="log(Exposure)"` takes a logarithm. A response of two columns is
    `"censored(time, event) ~ x1"` or `"p(successes, trials) ~ x1"`.
    `memory="auto"` keeps packed rows in memory when they fit easily and memory-maps them from a store on disk otherwise;
    `"ram"` and `"disk"` insist. A store is reused as long as its source is unchanged. `merge=True` merges identical rows into one with
    their weights added, which leaves the posterior as it is.

    >>> import pyarrow as pa, tallbayes as tb
    >>> table = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0], "t": [1.0, 1.0, 2.0]})
    >>> data = tb.read(table, "y ~ x", offset="log(t)")
    >>> data.columns, data.has_offset
    (('Intercept', 'x'), True)
    """
    if merge:
        what = {"response": response, "columns": columns, "offset": offset, "weights": weights}
        return merge_rows(read(source, formula, **what, store=store, memory=memory, dtype=dtype, progress=progress))  # type: ignore[arg-type]
    special = response_function(formula)
    if special is not None:
        if weights is not None:
            raise OptionError(f"weights= cannot be given together with {special.name}(...) in the formula.")
        made = read(
            source, special.formula, offset=offset, weights=special.second, memory="ram", dtype=dtype, progress=progress
        )
        return apply_response_function(made, special.name)
    if memory not in ("auto", "ram", "disk"):
        raise unknown("memory", memory, ("auto", "ram", "disk"))
    if isinstance(source, str | Path) and _is_store(source):
        data = open_store(source)
        check_store(data, formula, response, columns, offset, weights)
        return data
    rows = open_source(source)
    plan, general = make_plan(rows, formula, response, columns, offset, weights)
    kind = _float_type(dtype)
    if rows.n == 0:
        raise DataError("the source has no rows.")
    request = {"source": rows.identity, "plan": plan, "dtype": kind.str}
    folder = Path(store) if store is not None else default_folder()
    path = _store_path(folder, request)
    on_disk = memory == "disk" or (store is not None and memory != "ram")
    if on_disk and (existing := _existing(path, request)) is not None:
        return existing
    with ExitStack() as stack:
        if general is not None:
            if not rows.repeatable:
                rows = _spool(rows, plan, folder, stack)
            plan, rows = learn_design(rows, plan, general, progress)
        if memory == "auto" and not on_disk and not _fits(rows.n, len(plan_names(plan)), kind):
            on_disk = True
            if (existing := _existing(path, request)) is not None:
                return existing
        recipe = {**request, "plan": plan}
        if on_disk:
            return _read_to_store(rows, plan, kind, recipe, path, progress)
        return _read_to_memory(rows, plan, kind, recipe, progress, path if memory == "auto" else None)


def from_recipe(recipe: dict[str, Any], store: str | None, progress: bool = True) -> Dataset:
    """Read again what a recipe describes, for resuming a run. The formula in it passes the whitelist first."""
    if store is not None:
        return open_store(store)
    try:
        path, plan, kind = str(recipe["source"]["path"]), recipe["plan"], _float_type(recipe["dtype"])
        plan_names(plan)
        if "design" in plan:
            DesignMatrices(plan)
    except (KeyError, TypeError, DataError) as error:
        raise StoreError(f"the description of the rows is damaged ({error!r}); give the model to resume.") from error
    data = _read_to_memory(open_source(path), plan, kind, recipe, progress)
    if "response_function" in plan:
        data = apply_response_function(data, plan["response_function"])
    return merge_rows(data) if "merged_from" in plan else data


def _is_store(source: str | Path) -> bool:
    return "\0" not in str(source) and Path(source).is_dir() and (Path(source) / "store.json").exists()


def _existing(path: Path, request: dict[str, Any]) -> Dataset | None:
    """The store at a path, if it holds what is asked for."""
    if not request["source"] or not path.exists():
        return None
    existing = open_store(path)
    return existing if _request_of(existing.recipe) == request else None


def _request_of(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without what the first pass learned."""
    plan = recipe.get("plan", {})
    if "design" not in plan:
        return recipe
    return {**recipe, "plan": {**plan, "design": {"formula": plan["design"]["formula"]}}}


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
    return replace(ipc(path), identity={}, names=tuple(columns))


def learn_design(
    rows: arrow.Source, plan: dict[str, Any], general: Formula, progress: bool
) -> tuple[dict[str, Any], arrow.Source]:
    """Pass one of a general formula."""
    with Progress("levels and ranges", rows.n, progress) as bar:

        def count_batches() -> Iterator[Any]:
            for batch in rows.batches(list(general.columns) or [general.response]):
                bar.advance(batch.num_rows)
                yield batch

        described, n = survey(general, count_batches())
    refuse_double(tuple(described["names"]))
    return {**plan, "design": described}, replace(rows, n=n)


def _chunks(rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, packer: Packer) -> Iterator[np.ndarray]:
    """Packed chunks, checked and count_batches."""
    names, matrices = plan_names(plan), DesignMatrices(plan) if "design" in plan else None
    missing = [c for c in source_columns(plan) if c not in rows.names]
    if missing:
        raise DataError(f"the source has no column {missing[0]!r} any more; its columns are {', '.join(rows.names)}.")
    step = arrow.BATCH if matrices is None else matrices.rows_at_a_time
    for whole in rows.batches(source_columns(plan)):
        for start in range(0, whole.num_rows, step):
            batch = whole.slice(start, step)
            m, first = batch.num_rows, packer.moments.n
            if rows.n is not None and first + m > rows.n:
                raise DataError(f"the source had {rows.n:,} rows and now has more; it changed while it was read.")
            value = {
                c: arrow.numbers(batch, c, first) for c in (plan["response"], plan["offset"], plan["weights"]) if c is not None
            }
            x = plain_matrix(plan, batch, first) if matrices is None else matrices.matrix(batch, first)
            offset = value[plan["offset"]] if plan["offset"] else None
            if offset is not None and plan["log_offset"]:
                if (offset <= 0).any():
                    row = int(np.argmax(offset <= 0))
                    raise DataError(
                        f"row {first + row}: log({plan['offset']}) of {offset[row]:g}; an exposure must be positive."
                    )
                offset = np.log(offset)
            chunk = np.empty((m, packed.width_of(len(names), kind)), kind)
            packer.pack(chunk, x, value[plan["response"]], offset, value[plan["weights"]] if plan["weights"] else None)
            yield chunk
    require_kept(packer.moments, kind)
    if rows.n is not None and packer.moments.n not in (0, rows.n):
        raise DataError(f"the source had {rows.n:,} rows and now has {packer.moments.n:,}; it changed while it was read.")


def _packer(plan: dict[str, Any]) -> Packer:
    return Packer(plan_names(plan), plan["response"], plan["offset"] or "offset", plan["weights"] or "weights")


def _read_to_memory(
    rows: arrow.Source,
    plan: dict[str, Any],
    kind: np.dtype,
    recipe: dict[str, Any],
    progress: bool,
    overflow: Path | None = None,
) -> Dataset:
    """Pack rows into memory; if they are of unknown number and outgrow its share, go on in a store at `overflow`."""
    packer, names, parts = _packer(plan), plan_names(plan), []
    known = rows.n is not None
    out = packed.empty(rows.n or 0, len(names), kind)
    room = _IN_MEMORY_SHARE * available_memory() if overflow is not None and not known else np.inf
    held, writer = 0, None
    flags = (plan["offset"] is not None, plan["weights"] is not None)
    try:
        with Progress("reading", rows.n, progress) as bar:
            for chunk in _chunks(rows, plan, kind, packer):
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
                    writer = StoreWriter(overflow, names, plan["response"], kind)
                    while parts:
                        writer.write(parts.pop(0))
        if packer.moments.n == 0:
            raise DataError("the source has no rows.")
        if writer is not None:
            return writer.finish(packer.moments, *flags, recipe)
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    if not known:
        out = packed.empty(packer.moments.n, len(names), kind)
        at = 0
        while parts:
            part = parts.pop(0)
            out[at : at + part.shape[0]] = part
            at += part.shape[0]
    return Dataset(out, names, plan["response"], packer.moments, *flags, None, recipe)


def _read_to_store(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, recipe: dict[str, Any], path: Path, progress: bool
) -> Dataset:
    packer, writer = _packer(plan), StoreWriter(path, plan_names(plan), plan["response"], kind)
    try:
        with Progress("packing", rows.n, progress) as bar:
            for chunk in _chunks(rows, plan, kind, packer):
                writer.write(chunk)
                bar.advance(chunk.shape[0])
        if packer.moments.n == 0:
            raise DataError("the source has no rows.")
        return writer.finish(packer.moments, plan["offset"] is not None, plan["weights"] is not None, recipe)
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

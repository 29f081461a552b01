"""`read`: from a file or a stream of batches to a Dataset, one chunk in memory at a time."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data import formula as formulas
from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset, Packer, _float_type
from tallbayes.data.store import Writer, default_folder, open_store
from tallbayes.errors import DataError, OptionError, unknown
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
    progress: bool = True,
) -> Dataset:
    """Read rows from a Parquet file, a packed store, or any object with `__arrow_c_stream__`; never the whole file at once.

    Say what to read with a formula (`"y ~ x1 + x2"`, `"y ~ ."`) or with `response=` and optionally `columns=`; either way
    an intercept is added unless the formula says `+ 0`. `offset=` and `weights=` name columns; `offset="log(Exposure)"`
    takes a logarithm. `memory="auto"` keeps packed rows in memory when they fit easily and memory-maps them from a store
    on disk otherwise; `"ram"` and `"disk"` insist. A store is reused as long as its source is unchanged.

    >>> import pyarrow as pa, tallbayes as tb
    >>> table = pa.table({"y": [0, 1, 1], "x": [1.0, 2.0, 3.0], "t": [1.0, 1.0, 2.0]})
    >>> data = tb.read(table, "y ~ x", offset="log(t)")
    >>> data.columns, data.has_offset
    (('Intercept', 'x'), True)
    """
    if memory not in ("auto", "ram", "disk"):
        raise unknown("memory", memory, ("auto", "ram", "disk"))
    if isinstance(source, str | Path):
        if Path(source).is_dir() and (Path(source) / "store.json").exists():
            data = open_store(source)
            _check_store(data, formula, response, columns, offset, weights)
            return data
        if Path(source).suffix not in (".parquet", ".pq", ".parq"):
            raise DataError(f"{source}: cannot tell the format; give a .parquet file, a packed store or an Arrow object.")
        rows = arrow.parquet(source)
    elif hasattr(source, "__arrow_c_stream__"):
        rows = arrow.stream(source)
    else:
        raise DataError(
            f"cannot read a {type(source).__name__}; give a path, an object with __arrow_c_stream__ (polars, pandas, pyarrow, "
            "duckdb), or use Dataset.from_arrays."
        )
    plan = _plan(rows, formula, response, columns, offset, weights)
    kind = _float_type(dtype)
    recipe = {"source": rows.identity, "plan": plan, "dtype": kind.str}
    if rows.n == 0:
        raise DataError("the source has no rows.")
    on_disk = memory == "disk" or (memory == "auto" and not _fits(rows.n, len(_names(plan)), kind))
    if store is not None and memory != "ram":
        on_disk = True
    if not on_disk:
        return _read_to_memory(rows, plan, kind, recipe, progress)
    path = _store_path(Path(store) if store is not None else default_folder(), recipe)
    if rows.identity and path.exists():
        existing = open_store(path)
        if existing.recipe == recipe:
            return existing
    return _read_to_store(rows, plan, kind, recipe, path, progress)


def from_recipe(recipe: dict[str, Any], store: str | None, progress: bool = True) -> Dataset:
    """Read again what a recipe describes, for resuming a run."""
    if store is not None:
        return open_store(store)
    identity, plan = recipe["source"], recipe["plan"]
    rows = arrow.parquet(identity["path"])
    return _read_to_memory(rows, plan, np.dtype(recipe["dtype"]), recipe, progress)


def _plan(
    rows: arrow.Source,
    formula: str | None,
    response: str | None,
    columns: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
) -> dict[str, Any]:
    log_offset = False
    if offset is not None:
        match = re.fullmatch(r"\s*log\((.+)\)\s*", offset)
        if match and offset not in rows.names:
            offset, log_offset = match[1].strip().strip("`"), True
    for what, name in (("offset column", offset), ("weights column", weights), ("response column", response)):
        if name is not None and name not in rows.names:
            raise DataError(str(unknown(what, name, rows.names)))
    reserved = tuple(c for c in (offset, weights) if c is not None)
    if formula is not None:
        if response is not None or columns is not None:
            raise OptionError("give either a formula or response= and columns=, not both.")
        terms = formulas.parse(formula, rows.names, reserved)
    elif response is None:
        raise OptionError("say what to model: a formula such as 'y ~ .', or response='y'.")
    else:
        chosen = [c for c in rows.names if c != response and c not in reserved] if columns is None else list(columns)
        for name in chosen:
            if name not in rows.names:
                raise DataError(str(unknown("column", name, rows.names)))
        if response in chosen:
            raise DataError(f"the response {response!r} is also among columns=.")
        terms = formulas.Terms(response, tuple(chosen), True)
    plan = {
        "response": terms.response,
        "columns": list(terms.columns),
        "intercept": terms.intercept,
        "offset": offset,
        "log_offset": log_offset,
        "weights": weights,
    }
    arrow.refuse_ambiguous(rows.names, (*terms.columns, terms.response, *reserved))
    names = _names(plan)
    for name in names:
        if names.count(name) > 1:
            hint = "; 'Intercept' is the name of the column of ones, which a formula leaves out with + 0" * (
                name == "Intercept"
            )
            raise DataError(f"two predictors are called {name!r}{hint}.")
    return plan


def _check_store(
    data: Dataset,
    formula: str | None,
    response: str | None,
    columns: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
) -> None:
    """A packed store holds one design: refuse to read another one from it."""
    plain = tuple(c for c in data.columns if c != "Intercept")
    plan = data.recipe.get("plan", {})
    asked: dict[str, Any] = {}
    if formula is not None:
        terms = formulas.parse(formula, (*plain, data.response))
        asked |= {"response": terms.response, "columns": set(terms.columns), "intercept": terms.intercept}
    if response is not None:
        asked["response"] = response
    if columns is not None:
        asked["columns"] = set(columns)
    held = {"response": data.response, "columns": set(plain), "intercept": "Intercept" in data.columns}
    for name, value in (("offset", offset), ("weights", weights)):
        if value is not None:
            asked[name] = value
            log = name == "offset" and plan.get("log_offset")
            held[name] = f"log({plan[name]})" if log else plan.get(name)
    for name, value in asked.items():
        if value != held[name]:
            raise DataError(
                f"the store {data.store} was packed with {name} {_listed(held[name])}, not {_listed(value)}. Read the original "
                "file again to change what is packed."
            )


def _listed(value: Any) -> str:
    return ", ".join(sorted(value)) if isinstance(value, set) else repr(value)


def _names(plan: dict[str, Any]) -> tuple[str, ...]:
    return (("Intercept",) if plan["intercept"] else ()) + tuple(plan["columns"])


def _chunks(rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, packer: Packer) -> Iterator[np.ndarray]:
    """Packed chunks, checked and counted."""
    names = _names(plan)
    wanted = dict.fromkeys(c for c in (*plan["columns"], plan["response"], plan["offset"], plan["weights"]) if c is not None)
    for batch in rows.batches(list(wanted)):
        m, first = batch.num_rows, packer.moments.n
        if m == 0:
            continue
        value = {c: arrow.numbers(batch, c, first) for c in wanted}
        x = np.empty((m, len(names)))
        if plan["intercept"]:
            x[:, 0] = 1.0
        for j, c in enumerate(plan["columns"]):
            x[:, j + plan["intercept"]] = value[c]
        offset = value[plan["offset"]] if plan["offset"] else None
        if offset is not None and plan["log_offset"]:
            if (offset <= 0).any():
                row = int(np.argmax(offset <= 0))
                raise DataError(f"row {first + row}: log({plan['offset']}) of {offset[row]:g}; an exposure must be positive.")
            offset = np.log(offset)
        chunk = np.empty((m, packed.width_of(len(names), kind)), kind)
        packer.pack(chunk, x, value[plan["response"]], offset, value[plan["weights"]] if plan["weights"] else None)
        yield chunk


def _packer(plan: dict[str, Any]) -> Packer:
    return Packer(_names(plan), plan["response"], plan["offset"] or "offset", plan["weights"] or "weights")


def _read_to_memory(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, recipe: dict[str, Any], progress: bool
) -> Dataset:
    packer, names, parts = _packer(plan), _names(plan), []
    known = rows.n is not None
    out = packed.empty(rows.n or 0, len(names), kind)
    with Progress("reading", rows.n, progress) as bar:
        for chunk in _chunks(rows, plan, kind, packer):
            if known:
                out[packer.moments.n - chunk.shape[0] : packer.moments.n] = chunk
            else:
                parts.append(chunk)
            bar.advance(chunk.shape[0])
    if packer.moments.n == 0:
        raise DataError("the source has no rows.")
    if not known:
        out = packed.empty(packer.moments.n, len(names), kind)
        at = 0
        while parts:
            part = parts.pop(0)
            out[at : at + part.shape[0]] = part
            at += part.shape[0]
    return Dataset(
        out, names, plan["response"], packer.moments, plan["offset"] is not None, plan["weights"] is not None, None, recipe
    )


def _read_to_store(
    rows: arrow.Source, plan: dict[str, Any], kind: np.dtype, recipe: dict[str, Any], path: Path, progress: bool
) -> Dataset:
    packer, writer = _packer(plan), Writer(path, _names(plan), plan["response"], kind)
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
    stem = Path(recipe["source"].get("path", "stream")).stem
    return folder / f"{stem}-{key}"


def _fits(n: int | None, columns: int, kind: np.dtype) -> bool:
    if n is None:
        return True
    return n * packed.width_of(columns, kind) * kind.itemsize <= _IN_MEMORY_SHARE * available_memory()


def available_memory() -> int:
    """Bytes this process may still use without swapping."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # not Linux: the free pages are a lower bound
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    raise DataError("cannot tell how much memory is available; say memory='ram' or memory='disk'.")

"""What partitions may be: files, or objects that a task makes (Dask dataframes, bags and delayed values) or that are here already.

A handle is a list of paths, read where a pass runs, or an object. A Dask future is resolved by the cluster before a task sees it; a
delayed value is computed by the process that needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tallbayes.data.arrow import Source
from tallbayes.data.dataset import Dataset
from tallbayes.data.file_partitions import files_of, join_files, packed_again, packed_source, plan_of, plan_of_source
from tallbayes.data.moments import Moments
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError, OptionError, shown


def is_files(handle: Any) -> bool:
    """Whether a handle is a list of paths."""
    return isinstance(handle, list) and bool(handle) and all(isinstance(p, str) for p in handle)


def rows_of(handle: Any) -> Any:
    """The object of a handle, as something that can be read."""
    if type(handle).__module__.startswith("distributed") and hasattr(handle, "result"):
        handle = handle.result()
    if hasattr(handle, "dask") and hasattr(handle, "compute"):
        handle = handle.compute(scheduler="synchronous")
    if isinstance(handle, list | tuple):  # a partition of a bag: records by name
        import pyarrow as pa

        if not all(isinstance(row, dict) for row in handle):
            raise DataError(f"a partition is a table, or a list of records by name; got {shown(handle)}.")
        return pa.Table.from_pylist(list(handle))
    return handle


def is_empty(handle: Any) -> bool:
    """Whether a partition is known to have no rows before it is read."""
    return (join_files(handle) if is_files(handle) else open_source(rows_of(handle))).n == 0


def read_partition(handle: Any, plan: dict[str, Any], dtype: str, moments: Moments | None = None) -> Dataset:
    """The rows of a partition, packed in memory by a plan that all partitions share; not checked where their moments are known."""
    rows = join_files(handle) if is_files(handle) else open_source(rows_of(handle))
    return packed_source(rows, plan, dtype) if moments is None else packed_again(rows, plan, dtype, moments)


def name_of(handle: Any) -> str:
    """How messages call a partition."""
    return ", ".join(handle) if is_files(handle) else "a partition in memory"


def handles_of(paths: Any, count: int | None, client: Any) -> list[Any]:
    """The partitions that a folder, a pattern, files, a Dask collection or a list of delayed values stands for."""
    if hasattr(paths, "to_delayed"):
        paths = list(np.ravel(np.asarray(paths.to_delayed(), dtype=object)))
    if isinstance(paths, list | tuple) and paths and not any(isinstance(p, str | os.PathLike) for p in paths):
        if count is not None:
            raise OptionError("partitions= groups files; these partitions are objects. Leave it out.")
        if client is not None and all(hasattr(p, "dask") for p in paths):
            return list(client.compute(list(paths)))
        return list(paths)
    files = files_of(paths)
    if count is None or count == len(files):
        return [[f] for f in files]
    if not isinstance(count, int | np.integer) or not 1 <= count <= len(files):
        raise OptionError(
            f"{len(files)} files cannot make {count} partitions: a file is the smallest. Give at most {len(files)}, or write more files "
            "with tallbayes.shards.repartition."
        )
    return [[str(p) for p in part] for part in np.array_split(np.asarray(files, dtype=object), count)]


def plan_of_partitions(
    handles: list[Any],
    formula: str | None,
    response: str | None = None,
    columns: Sequence[str] | None = None,
    offset: str | None = None,
    weights: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan by which every partition is read, and what identifies them; levels and knots come from one pass over all."""
    if all(is_files(h) for h in handles):
        return plan_of([f for h in handles for f in h], formula, response, columns, offset, weights)
    plan, _ = plan_of_source(_joined(handles), formula, response, columns, offset, weights)
    return plan, {}


def _joined(handles: list[Any]) -> Source:
    """Partitions that are objects as one source, one at a time in memory."""
    head = open_source(rows_of(handles[0]))

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        for number, handle in enumerate(handles):
            part = open_source(rows_of(handle))
            if missing := sorted(set(columns) - set(part.names)):
                raise DataError(f"partition {number} has no column {missing[0]!r}, which the first one has.")
            yield from part.batches(columns)

    return Source(head.names, None, {}, batches, head.types)

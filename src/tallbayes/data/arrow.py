"""Streams of Arrow record batches: Parquet files, and any object with `__arrow_c_stream__`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError

BATCH = 1 << 16


@dataclass(frozen=True)
class Source:
    """Something that yields record batches: its column names, its number of rows if known, and what identifies it."""

    names: tuple[str, ...]
    n: int | None
    identity: dict[str, Any]
    batches: Any  # (columns) -> iterator of RecordBatch


def _column_names(schema: Any) -> tuple[str, ...]:
    """Names of the columns; an index that pandas stored beside them is none."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return tuple(c for c in schema.names if c not in index)


def refuse_ambiguous(names: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse to choose between columns of the same name."""
    for name in wanted:
        if list(names).count(name) > 1:
            raise DataError(f"there are {list(names).count(name)} columns called {name!r}; rename all but one.")


def parquet(path: str | Path) -> Source:
    """A Parquet file, read a batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}).") from error
    schema, n = file.schema_arrow, file.metadata.num_rows
    file.close()

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        with pq.ParquetFile(path, pre_buffer=False) as opened:
            try:
                yield from opened.iter_batches(batch_size=BATCH, columns=list(columns))
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(f"{path} is damaged: {error}") from error

    stat = path.stat()
    identity = {"path": str(path.resolve()), "size": stat.st_size, "modified": stat.st_mtime_ns}
    return Source(_column_names(schema), n, identity, batches)


def stream(source: Any) -> Source:
    """Any object with `__arrow_c_stream__`: polars, pandas, pyarrow, duckdb."""
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_stream(source)
    n = getattr(source, "num_rows", None)
    if n is None and hasattr(source, "shape"):
        n = source.shape[0]

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        for batch in reader:
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH).select(list(columns))

    return Source(_column_names(reader.schema), int(n) if n is not None else None, {}, batches)


def numbers(batch: Any, name: str, first_row: int) -> np.ndarray:
    """A column of a batch as float64; refuses text and missing values, naming row and column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind) or not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)
    ):
        raise DataError(
            f"column {name!r} has type {kind}, not a number. Leave it out with columns= or a formula, or encode it as numbers."
        )
    if column.null_count:
        row = first_row + int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])
        raise DataError(f"row {row}, column {name!r} is missing. Drop or impute such rows before fitting.")
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def dense_columns(source: Any, y: Any, columns: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """All numeric columns of a small Arrow object as one matrix, with the response apart if y names a column."""
    import pyarrow as pa

    table = pa.table(source).combine_chunks()
    every = _column_names(table.schema)
    names = [c for c in every if not (isinstance(y, str) and c == y)]
    refuse_ambiguous(every, columns if columns is not None else every)
    if isinstance(y, str):
        if y not in every:
            raise DataError(f"there is no column {y!r}; the columns are {', '.join(every)}.")
        y = numbers(table, y, 0)
    chosen = list(columns) if columns is not None else names
    missing = [c for c in chosen if c not in names]
    if missing:
        raise DataError(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}.")
    if not chosen:
        raise DataError("there is no column left for the predictors.")
    return np.column_stack([numbers(table, c, 0) for c in chosen]), y, tuple(chosen)

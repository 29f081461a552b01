"""Streams of Arrow record batches, and their columns as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    batches: Any  # (columns) -> iterator of RecordBatch, of at most BATCH rows each
    types: tuple[Any, ...]  # Arrow types of the columns
    repeatable: bool = True  # whether batches() may be called again
    doubtful: Mapping[str, str] = field(default_factory=dict)  # columns that look like numbers but are text, and why
    ordered: frozenset[str] = frozenset()  # categorical columns whose categories are in an order that is meant


def column_names(schema: Any) -> tuple[str, ...]:
    """Names of the columns; an index that pandas stored beside them is none."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return tuple(c for c in schema.names if c not in index)


def refuse_ambiguous(names: Sequence[str], used: Iterable[str]) -> None:
    """Refuse to choose between columns of the same name."""
    for name in used:
        if list(names).count(name) > 1:
            raise DataError(f"there are {list(names).count(name)} columns called {name!r}; rename all but one.")


def missing_row(column: Any) -> int:
    """First row of a column of a batch that is missing."""
    import pyarrow.compute as pc

    return int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])


def require_decodable(column: Any, name: str, first_row: int) -> None:
    """Refuse text whose bytes are not UTF-8, which files of other programs may hold, naming row and column."""
    import pyarrow as pa

    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_decode()
        try:
            chunk.validate(full=True)
        except pa.ArrowInvalid as error:
            for row in range(len(chunk)):
                try:
                    chunk[row].as_py()
                except UnicodeDecodeError as own:
                    raise DataError(
                        f"row {first_row + row}, column {name!r}: the text {own.object[:40]!r} is not UTF-8. Write the column again as "
                        "UTF-8 text, or leave it out."
                    ) from None
            raise DataError(f"column {name!r} is damaged: {error}. Write the file again, or leave the column out.") from error
        first_row += len(chunk)


def kind_of(type_: Any) -> str:
    """What a formula can do with a column of an Arrow type: "number", "level" (text), or "other".

    >>> import pyarrow as pa
    >>> kind_of(pa.int8()), kind_of(pa.string()), kind_of(pa.timestamp("s"))
    ('number', 'level', 'other')
    """
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return "level" if kind_of(type_.value_type) != "other" else "other"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "level"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return "number"
    return "other"


def numbers(batch: Any, name: str, first_row: int) -> np.ndarray:
    """A column of a batch as float64; refuses text and missing values, naming row and column."""
    return _numbers(batch, name, first_row).astype(np.float64, copy=False)


def native_numbers(batch: Any, name: str, first_row: int) -> np.ndarray:
    """The same as float32 where that is the type of the column."""
    values = _numbers(batch, name, first_row)
    return values if values.dtype == np.float32 else values.astype(np.float64, copy=False)


def _numbers(batch: Any, name: str, first_row: int) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(name)
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        raise DataError(
            f"column {name!r} has type {kind}, not a number. Leave it out, or write days_since({name}), month({name}) or the like in a "
            "formula."
        )
    if kind_of(kind) != "number":
        raise DataError(
            f"column {name!r} has type {kind}, not a number. Leave it out with columns= or a formula, or encode it as numbers: "
            "a response of two classes as 0 and 1, of more classes as 0, 1, 2, ... for family='softmax' or 'ordinal'."
        )
    if column.null_count:
        row = first_row + missing_row(column)
        raise DataError(f"row {row}, column {name!r} is missing. Drop or impute such rows before fitting.")
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    return column.to_numpy(zero_copy_only=False)


def dense_columns(source: Any, y: Any, columns: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """All numeric columns of a small Arrow object as one matrix, with the response apart if y names a column."""
    import pyarrow as pa

    table = pa.table(source).combine_chunks()
    every = column_names(table.schema)
    names = [c for c in every if not (isinstance(y, str) and c == y)]
    refuse_ambiguous(every, columns if columns is not None else every)
    if isinstance(y, str):
        if y not in every:
            raise DataError(f"there is no column {y!r}; the columns are {', '.join(every)}.")
        y = numbers(table, y, 0)
    predictors = list(columns) if columns is not None else names
    missing = [c for c in predictors if c not in names]
    if missing:
        raise DataError(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}.")
    if not predictors:
        raise DataError("there is no column left for the predictors.")
    return np.column_stack([numbers(table, c, 0) for c in predictors]), y, tuple(predictors)

"""Rows with missing values: refused with the counts of all columns at once, or dropped and counted.

A value is missing if it is null, or NaN in a column of floating-point numbers. Only the columns that are read count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from tallbayes.data.arrow import Source
from tallbayes.errors import DataError, unknown

ACTIONS = ("error", "drop")


def require_action(na: Any) -> None:
    """Refuse what is neither "error" nor "drop"."""
    if not isinstance(na, str) or na not in ACTIONS:
        raise unknown("na", na, ACTIONS)


def complete_rows(rows: Source, columns: Sequence[str], na: str, tally: dict[str, Any] | None = None) -> Source:
    """The source without rows that have a missing value in any of the columns, or with an error that says how many there are.

    The number of rows that were dropped is in `tally["dropped"]` after each pass.

    >>> import pyarrow as pa
    >>> from tallbayes.data.sources import open_source
    >>> tally, source = {}, open_source(pa.table({"y": [0.0, 1.0, None], "x": [1.0, None, 2.0]}))
    >>> [batch.num_rows for batch in complete_rows(source, ["y", "x"], "drop", tally).batches(["y"])], tally
    ([1], {'dropped': 2})
    """

    def batches(wanted: Sequence[str]) -> Iterator[Any]:
        every = list(dict.fromkeys((*wanted, *columns))) if na == "drop" else list(wanted)
        source, first, dropped = iter(rows.batches(every)), 0, 0
        for batch in source:
            missing = missing_rows(batch)
            if missing is not None:
                if na == "error":
                    _refuse(rows, columns, batch, source, first)
                import pyarrow as pa

                dropped += int(missing.sum())
                batch = batch.filter(pa.array(~missing))
            first += batch.num_rows
            if batch.num_rows:
                yield batch.select(list(wanted))
        if tally is not None:
            tally["dropped"] = dropped

    return replace(rows, batches=batches, n=rows.n if na == "error" else None)


def _missing(column: Any) -> np.ndarray | None:
    """Which values of a column are missing; None if none is."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return None  # no type at all: refused where it is used
    out = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        if np.isnan(values).any():
            out = np.isnan(values) if out is None else out | np.isnan(values)
    return out


def missing_rows(batch: Any) -> np.ndarray | None:
    """Which rows of a batch have a missing value; None if none has."""
    found = [m for m in (_missing(column) for column in batch.columns) if m is not None]
    return None if not found else np.logical_or.reduce(found)


def _refuse(rows: Source, columns: Sequence[str], batch: Any, rest: Iterable[Any], first: int) -> NoReturn:
    """Count what is missing in all columns, from the beginning if the source can be read again, and refuse."""
    row, name, word = _first_missing(batch, first)
    every: Iterable[Any] = rows.batches(list(columns)) if rows.repeatable else [batch, *rest]
    counts: dict[str, int] = {}
    n, some = 0 if rows.repeatable else first, 0
    for part in every:
        n += part.num_rows
        for column, values in zip(part.schema.names, part.columns, strict=True):
            missing = _missing(values)
            if missing is not None:
                counts[column] = counts.get(column, 0) + int(missing.sum())
        whole = missing_rows(part)
        some += 0 if whole is None else int(whole.sum())
    listed = ", ".join(f"{column!r} {count:,}" for column, count in sorted(counts.items(), key=lambda item: -item[1]))
    raise DataError(
        f"row {row}, column {name!r} is {word}. Drop or impute such rows before fitting, or read with na='drop'. Missing values by "
        f"column: {listed}; {some:,} of {n:,} rows have some."
    )


def _first_missing(batch: Any, first: int) -> tuple[int, str, str]:
    found = [(int(np.argmax(m)), k) for k, m in enumerate(map(_missing, batch.columns)) if m is not None]
    row, k = min(found)
    value = batch.column(k)[row].as_py()
    return first + row, batch.schema.names[k], "missing" if value is None else "nan"

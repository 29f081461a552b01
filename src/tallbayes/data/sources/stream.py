"""Any object with `__arrow_c_stream__`: polars, pandas, pyarrow, duckdb."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tallbayes.data.arrow import BATCH, Source, column_names
from tallbayes.data.categories import ordered_columns
from tallbayes.errors import DataError


def stream(source: Any) -> Source:
    """Rows of another library, without a copy of the whole.

    >>> import pyarrow as pa
    >>> stream(pa.table({"y": [0, 1], "x": [0.5, 1.5]})).n
    2
    """

    n = getattr(source, "num_rows", None)
    if n is None and hasattr(source, "shape"):
        n = source.shape[0]  # before the stream is opened: duckdb answers no second question while a result is open
    reader = _opened(source)
    schema = reader.schema
    repeatable = n is not None  # a table can be exported again, a reader is used up
    unused = [reader]

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        if not unused and not repeatable:
            raise DataError("a stream can be read only once; read it from a file or a table.")
        for batch in unused.pop() if unused else _opened(source):
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH).select(list(columns))

    names = column_names(schema)
    types = tuple(schema.types[schema.names.index(c)] for c in names)
    return Source(names, int(n) if n is not None else None, {}, batches, types, repeatable, ordered=ordered_columns(schema))


def _opened(source: Any) -> Any:
    """The stream of an object; a column of a data frame that Arrow has no type for is named."""
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(source)
    except DataError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        for name in getattr(source, "columns", ()):
            try:
                pa.array(source[name])
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as own:
                raise DataError(
                    f"column {str(name)!r} cannot be read: {own}. Leave it out of the frame, or convert it to numbers or to text."
                ) from error
        raise DataError(f"the rows cannot be read: {error}.") from error

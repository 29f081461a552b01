"""CSV files with a header line, parsed in blocks.

The types of columns are those of the first block: numbers, booleans or text. Whole numbers are read as float64, so that a
fraction further down is no surprise. Empty cells and the usual marks (NA, NaN, null) are missing values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tallbayes.data.arrow import BATCH, Source
from tallbayes.data.sources.file_identity import identify, require_file
from tallbayes.errors import DataError

SUFFIXES = (".csv", ".csv.gz")
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def csv(path: str | Path) -> Source:
    """A CSV file.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/rows.csv"
    >>> with open(path, "w") as file:
    ...     _ = file.write("y,x,group\\n0,1.5,a\\n1,2.5,b\\n")
    >>> source = csv(path)
    >>> source.names, [str(t) for t in source.types]
    (('y', 'x', 'group'), ['double', 'double', 'string'])
    """
    import pyarrow as pa

    path = require_file(path)
    try:
        reader = _open(path, None)
        names, inferred = tuple(reader.schema.names), reader.schema.types
        doubtful = _doubtful(path, next(iter(reader), None))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise DataError(
            f"{path} is not a readable CSV file ({_short(error)}). It needs a header line and UTF-8 text."
        ) from error
    types = tuple(pa.float64() if pa.types.is_integer(t) or pa.types.is_null(t) else t for t in inferred)

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        column_types = {c: types[names.index(c)] for c in columns}
        first = 0
        try:
            for batch in _open(path, column_types) if column_types else _open(path, None):
                part = batch.select(list(columns))
                for start in range(0, batch.num_rows, BATCH):
                    yield part.slice(start, BATCH)
                first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(
                _locate_error(path, column_types, first) or f"{path}, after row {first}: {_short(error)}"
            ) from error

    return Source(names, None, identify(path), batches, types, doubtful=doubtful)


def _doubtful(path: Path, batch: Any) -> dict[str, str]:
    """Text columns of the first block most of whose cells are numbers: the first cell that is not, in a sentence."""
    import pyarrow as pa
    import pyarrow.compute as pc

    out = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True) if batch is not None else ():
        if pa.types.is_string(column.type) and column.null_count < len(column):
            numeric = pc.match_substring_regex(column, _NUMBER).to_numpy(zero_copy_only=False) == True  # noqa: E712
            text = ~numeric & column.is_valid().to_numpy(zero_copy_only=False)
            if text.any() and numeric.sum() > text.sum():
                row = int(text.argmax())
                out[name] = (
                    f"{path}: row {row}, column {name!r} is {column[row].as_py()[:40]!r}, but {int(numeric.sum()):,} of the first "
                    f"{int(numeric.sum() + text.sum()):,} cells are numbers. Correct the cell, leave it empty if it is missing, or write "
                    f"C({name}) to use the column as levels."
                )
    return out


def _open(path: Path, column_types: dict[str, Any] | None) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pc

    columns = {} if column_types is None else {"column_types": column_types, "include_columns": list(column_types)}
    return pc.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pc.ReadOptions(block_size=1 << 22, use_threads=False),
        parse_options=pc.ParseOptions(newlines_in_values=True),
        convert_options=pc.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False, **columns),
    )


def _locate_error(path: Path, column_types: dict[str, Any], first: int) -> str | None:
    """Row, column and text of the first cell, in the block after a row, that is not of the type of its column."""
    import pyarrow as pa

    row = 0
    try:
        for batch in _open(path, {c: pa.binary() for c in column_types}):
            bad = [(_first_bad(batch.column(c), t), c) for c, t in column_types.items()] if row + batch.num_rows > first else []
            number, name = min(bad, default=(batch.num_rows, ""))
            if number < batch.num_rows:
                text = (batch.column(name)[number].as_py() or b"")[:40].decode("utf-8", "replace")
                return (
                    f"{path}: row {row + number}, column {name!r} is {text!r}, but the column begins with values of type "
                    f"{column_types[name]}. Correct the cell, or leave the column out."
                )
            row += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeError):
        return None
    return None


def _first_bad(cells: Any, kind: Any) -> int:
    """Position of the first cell that cannot be converted, by bisection; the length if all can."""
    low, high = 0, len(cells)
    if _converts(cells, kind):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if _converts(cells.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _converts(cells: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        cells.cast(pa.string()).cast(kind)
    except (pa.ArrowException, UnicodeError):
        return False
    return True


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

"""Dates and times in formulas: `month(date)`, `weekday(date)`, `days_since(date, "2020-01-01")` as columns of numbers.

Each call becomes a column of its own name that is computed batch by batch, so it can be used wherever a column can: as a number, as levels
in `C(month(date))`, as a grouping factor in `(1 | weekday(date))`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tallbayes.data.arrow import Source
from tallbayes.errors import DataError, unknown

Calls = Mapping[str, Sequence[str]]  # of each column: function, column of dates, and day from which days are counted, or ""

_PARTS = ("year", "month", "day", "day_of_year", "weekday", "hour")
FUNCTIONS = (*_PARTS, "days_since")
_DAY = 86_400_000_000  # microseconds
_CALL = re.compile(
    r"`[^`]*`|\b(?P<function>" + "|".join(FUNCTIONS) + r")\s*\(\s*(?P<column>`[^`]+`|[^\W\d][\w.]*)\s*"
    r"(?:,\s*(?P<text>\"[^\"]*\"|'[^']*')\s*)?\)"
)


def cut_calendar(formula: str, rows: Source) -> tuple[str, dict[str, list[str]]]:
    """The formula with the calls as names of columns, and the calls by these names.

    >>> import pyarrow as pa
    >>> from tallbayes.data.sources import open_source
    >>> source = open_source(pa.table({"y": [1.0], "when": pa.array([0], pa.date32())}))
    >>> cut_calendar("y ~ C(month(when)) + days_since(when)", source)
    ('y ~ C(`month(when)`) + `days_since(when)`', {'month(when)': ['month', 'when', ''], 'days_since(when)': ['days_since', 'when', '']})
    """
    calls: dict[str, list[str]] = {}

    def name(match: re.Match) -> str:
        function, column = match["function"], (match["column"] or "").strip("`")
        if function is None:
            return match[0]
        if column not in rows.names:
            raise DataError(str(unknown("column", column, rows.names)))
        origin = (match["text"] or "").strip("\"'")
        _check(function, column, origin, match["text"] is not None, rows.types[rows.names.index(column)])
        own = _own_name(match)
        calls[own] = [function, column, origin]
        return f"`{own}`"

    return _CALL.sub(name, formula), calls


def _own_name(match: re.Match) -> str:
    origin, column = (match["text"] or "").strip("\"'"), match["column"].strip("`")
    return f"{match['function']}({column}, {origin})" if origin else f"{match['function']}({column})"


def name_calls(formula: str, calls: Calls) -> str:
    """The formula with these calls as names of columns; others are left as they are.

    >>> name_calls("y ~ month(when) + year(when)", {"month(when)": ["month", "when", ""]})
    'y ~ `month(when)` + year(when)'
    """
    known = lambda match: match["function"] is not None and _own_name(match) in calls  # noqa: E731
    return _CALL.sub(lambda match: f"`{_own_name(match)}`" if known(match) else match[0], formula)


def _check(function: str, column: str, origin: str, given: bool, kind: Any) -> None:
    import pyarrow as pa

    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise DataError(
            f"{function}({column}) needs dates, but column {column!r} has type {kind}; convert it first, such as with pandas.to_datetime."
        )
    if given and function != "days_since":
        raise DataError(f"{function}({column}) takes a column and nothing else.")
    if function == "hour" and pa.types.is_date(kind):
        raise DataError(f"hour({column}) needs times, but column {column!r} has dates without times.")
    if given:
        _origin(origin)


def _origin(text: str) -> int:
    """Microseconds from 1970 to a day."""
    import datetime

    try:
        return (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days * _DAY
    except ValueError:
        raise DataError(f"days_since counts from a day such as '2020-01-31', not {text!r}.") from None


def with_calendar(rows: Source, calls: Calls | None) -> Source:
    """The source with the columns of the calls among its own."""
    import pyarrow as pa

    own = {name: call for name, call in (calls or {}).items() if name not in rows.names and call[1] in rows.names}
    if not own:
        return rows

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        needed = list(dict.fromkeys(own[c][1] if c in own else c for c in columns))
        for batch in rows.batches(needed):
            yield calendar_batch(batch, own).select(list(columns))

    types = tuple(pa.float64() if call[0] == "days_since" else pa.int64() for call in own.values())
    return replace(rows, names=(*rows.names, *own), types=(*rows.types, *types), batches=batches)


def calendar_batch(batch: Any, calls: Calls | None) -> Any:
    """A batch or table with the columns of the calls appended."""
    for name, (function, column, origin) in (calls or {}).items():
        if name not in batch.schema.names and column in batch.schema.names:
            batch = batch.append_column(name, _values(function, batch.column(column), origin))
    return batch


def _values(function: str, column: Any, origin: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if function == "days_since":
        stamps = pc.cast(column, pa.timestamp("us"), safe=False) if not _zoned(column.type) else _local(column)
        micro = pc.cast(pc.cast(stamps, pa.int64()), pa.float64())
        return pc.divide(pc.subtract(micro, float(_origin(origin) if origin else 0)), float(_DAY))
    functions: dict[str, Callable] = {
        "year": pc.year,
        "month": pc.month,
        "day": pc.day,
        "day_of_year": pc.day_of_year,
        "weekday": pc.day_of_week,
        "hour": pc.hour,
    }
    return pc.cast(functions[function](column), pa.int64())


def _zoned(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _local(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(pc.local_timestamp(column), pa.timestamp("us"), safe=False)

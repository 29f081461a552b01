"""SQLite tables and queries: `sqlite:path.db::table` or `sqlite:path.db::SELECT ...`.

The database is opened read-only, and an authorizer lets a query do nothing but read. Types are those of the first rows;
whole numbers are read as float64.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from tallbayes.data.arrow import BATCH, Source
from tallbayes.data.sources.file_identity import identify, require_file
from tallbayes.errors import DataError, unknown

PREFIX = "sqlite:"
_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def sqlite(text: str) -> Source:
    """A table or a query of a SQLite database.

    >>> import sqlite3, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.db"
    >>> with sqlite3.connect(path) as connection:
    ...     _ = connection.execute("create table visits (y integer, x real)")
    ...     _ = connection.execute("insert into visits values (0, 1.5), (1, 2.5)")
    >>> connection.close()
    >>> sqlite(f"sqlite:{path}::visits").n
    2
    >>> sqlite(f"sqlite:{path}::select y, 2 * x as double from visits where x > 2").names
    ('y', 'double')
    """
    file, separator, what = text.removeprefix(PREFIX).partition("::")
    if not separator or not what.strip():
        raise DataError(f"{text!r}: write sqlite:path.db::table or sqlite:path.db::SELECT ...")
    path = require_file(file)
    what, n = what.strip().rstrip(";"), None
    query = what
    with _ReadOnlyConnection(path, text) as connection:
        if not re.match(r"(select|with)\b", what, re.IGNORECASE):
            tables = [row[0] for row in connection.execute("select name from sqlite_master where type in ('table', 'view')")]
            if what not in tables:
                raise DataError(f"{path}: {unknown('table', what, tables or ['none'])}")
            query = f"select * from {_quote_name(what)}"
            n = connection.execute(f"select count(*) from {_quote_name(what)}").fetchone()[0]
        cursor = connection.execute(query)
        names = tuple(column[0] for column in cursor.description or ())
        begin = cursor.fetchmany(BATCH)
    types = tuple(_type([row[j] for row in begin]) for j in range(len(names)))

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        positions = [names.index(c) for c in columns]
        schema = pa.schema([(names[j], types[j]) for j in positions])
        first = 0
        with _ReadOnlyConnection(path, text) as connection:
            cursor = connection.execute(query)
            while rows := cursor.fetchmany(BATCH):
                arrays = [_array(rows, j, types[j], names[j], first) for j in positions]
                if arrays:
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                else:
                    yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
                first += len(rows)

    identity = identify(path)
    return Source(names, n, {**identity, "path": f"{PREFIX}{identity['path']}::{what}"}, batches, types)


class _ReadOnlyConnection:
    """A read-only connection whose errors say which database and query they come from."""

    def __init__(self, path: Any, text: str) -> None:
        self.path, self.text = path, text

    def __enter__(self) -> sqlite3.Connection:
        try:
            self.connection = sqlite3.connect(f"file:{quote(str(self.path.resolve()))}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise DataError(f"{self.path} cannot be opened: {error}.") from error
        self.connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
        return self.connection

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.connection.close()
        if isinstance(error, sqlite3.Error | sqlite3.Warning | OverflowError | ValueError) and not isinstance(error, DataError):
            raise DataError(f"{self.text!r} cannot be read: {error}. Only SELECT statements are allowed.") from error


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(values: list[Any]) -> Any:
    import pyarrow as pa

    kinds = {type(v) for v in values} - {type(None)}
    if kinds <= {int, float}:
        return pa.float64()
    return pa.string() if kinds == {str} else pa.binary()


def _array(rows: list[Any], j: int, kind: Any, name: str, first: int) -> Any:
    import pyarrow as pa

    valid: tuple[type, ...] = (str,) if pa.types.is_string(kind) else (int, float)
    values = [row[j] for row in rows]
    if pa.types.is_binary(kind):  # blobs or mixed: refused where a number or a level is needed
        return pa.array([str(v).encode() for v in values], kind)
    for number, value in enumerate(values):
        if value is not None and not isinstance(value, valid):
            raise DataError(
                f"row {first + number}, column {name!r} is {value!r:.40}, but the column begins with values of type {kind}. "
                f"Use CAST({name} AS ...) in a SELECT, or leave the column out."
            )
    return pa.array(values, kind)

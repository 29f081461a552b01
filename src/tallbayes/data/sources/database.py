"""Queries of any database: through ADBC or duckdb as Arrow batches, through the DB-API (PEP 249) as rows that become batches.

A `Query` opens its own connection for every pass, so it can be read again and travels to workers; `parts` cuts it into ranges of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tallbayes.data.arrow import BATCH
from tallbayes.data.sources.sqlite import _array, _type
from tallbayes.errors import DataError, OptionError


@dataclass(frozen=True)
class Query:
    """The rows of a SELECT statement. `connect` makes a connection; for use on workers it must be a function they can import.

    >>> import functools, sqlite3, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.db"
    >>> with sqlite3.connect(path) as connection:
    ...     _ = connection.execute("create table visits (number integer, y integer, x real)")
    ...     _ = connection.execute("insert into visits values (1, 0, 1.5), (2, 1, 2.5), (3, 1, 0.5)")
    >>> connection.close()
    >>> rows = Query(functools.partial(sqlite3.connect, path), "select * from visits")
    >>> rows.num_rows, [part.num_rows for part in rows.parts("number", 2)]
    (3, [1, 2])
    """

    connect: Callable[[], Any]
    text: str
    inside: str = ""  # condition that selects a part

    def _statement(self) -> str:
        text = self.text.strip().rstrip(";")
        return f"select * from ({text}) as part where {self.inside}" if self.inside else text

    def _asked(self, question: str) -> tuple[Any, ...]:
        """The first row of a query about the rows."""
        statement = f"select {question} from ({self._statement()}) as counted"
        with self._connection() as connection, _execute(connection, statement) as cursor:
            return tuple(cursor.fetchone())

    def _connection(self) -> Any:
        try:
            return closing(self.connect())
        except Exception as error:  # every driver has its own
            raise DataError(f"the database cannot be opened: {error}.") from error

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._asked("count(*)")[0])

    def parts(self, key: str, count: int) -> list[Query]:
        """Parts of the rows by equal ranges of a numeric column without missing values, for `tallbayes.shards.Partitions.open`."""
        if not key.isidentifier():
            raise OptionError(f"key must be the name of a column; got {key!r}.")
        if not isinstance(count, int) or count < 1:
            raise OptionError(f"count must be a whole number of at least 1; got {count!r}.")
        low, high, missing = self._asked(f"min({key}), max({key}), count(*) - count({key})")
        if low is None or missing:
            raise DataError(f"column {key!r} has {missing} missing values, or no rows: a row without a key is in no part.")
        edges = [low + (high - low) * k / count for k in range(1, count)]
        conditions = [
            " and ".join(
                [*([f"{key} >= {edges[k - 1]!r}"] if k else []), *([f"{key} < {edges[k]!r}"] if k < count - 1 else [])]
            )
            for k in range(count)
        ]
        return [replace(self, inside=condition) for condition in conditions] if count > 1 else [self]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows as an Arrow stream, read while it is used."""
        import pyarrow as pa

        batches = self._batches()
        first = next(batches)  # an empty one, for the schema

        def rest() -> Iterator[Any]:
            yield from batches

        return pa.RecordBatchReader.from_batches(first.schema, rest()).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[Any]:
        """An empty batch with the schema, then the rows."""
        import pyarrow as pa

        with self._connection() as connection, _execute(connection, self._statement()) as cursor:
            if hasattr(cursor, "fetch_record_batch"):
                reader = cursor.fetch_record_batch()
                yield pa.RecordBatch.from_pylist([], schema=reader.schema)
                yield from reader
                return
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(BATCH)
            schema = pa.schema([(name, _type([row[j] for row in rows])) for j, name in enumerate(names)])
            yield pa.RecordBatch.from_pylist([], schema=schema)
            number = 0
            while rows:
                arrays = [_array(rows, j, schema.types[j], names[j], number) for j in range(len(names))]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                number += len(rows)
                rows = cursor.fetchmany(BATCH)


@contextmanager
def _execute(connection: Any, statement: str) -> Iterator[Any]:
    """The cursor of a statement, closed at the end; errors of any driver say what was asked."""
    try:
        driver = type(connection).__module__.partition(".")[0]
        on_server = driver in ("psycopg", "psycopg2")  # whose other cursors fetch all rows at once
        cursor = connection.cursor("tallbayes") if on_server else connection.cursor()
        result = cursor.execute(statement)
    except Exception as error:
        raise DataError(f"the query {statement!r} failed: {error}.") from error
    with closing(cursor):
        yield cursor if result is None or not hasattr(result, "fetchone") else result

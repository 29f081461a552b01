"""Parquet files, read a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tallbayes.data.arrow import BATCH, Source, column_names
from tallbayes.data.categories import ordered_columns
from tallbayes.data.sources.file_identity import identify, require_file
from tallbayes.errors import DataError

SUFFIXES = (".parquet", ".pq", ".parq")


def parquet(path: str | Path) -> Source:
    """A Parquet file.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.parquet"
    >>> pq.write_table(pa.table({"y": [0, 1], "x": [0.5, 1.5]}), path)
    >>> source = parquet(path)
    >>> source.names, source.n
    (('y', 'x'), 2)
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = require_file(path)
    try:
        file = pq.ParquetFile(path)
        schema, n = file.schema_arrow, file.metadata.num_rows
        file.close()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}).") from error

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        try:
            with pq.ParquetFile(path, pre_buffer=False) as reader:
                yield from reader.iter_batches(batch_size=BATCH, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is damaged: {error}") from error

    names = column_names(schema)
    types = tuple(schema.types[schema.names.index(c)] for c in names)
    return Source(names, n, identify(path), batches, types, ordered=ordered_columns(schema))

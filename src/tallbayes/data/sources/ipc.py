"""Arrow IPC files and streams (.arrow, .feather, .ipc)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tallbayes.data.arrow import BATCH, Source, column_names
from tallbayes.data.categories import ordered_columns
from tallbayes.data.sources.file_identity import identify, require_file
from tallbayes.errors import DataError

SUFFIXES = (".arrow", ".feather", ".ipc", ".arrows")


def ipc(path: str | Path) -> Source:
    """An Arrow IPC file (also called Feather 2) or an IPC stream in a file.

    >>> import pyarrow as pa, pyarrow.feather as feather, tempfile
    >>> path = tempfile.mkdtemp() + "/rows.arrow"
    >>> feather.write_feather(pa.table({"y": [0, 1], "x": [0.5, 1.5]}), path)
    >>> source = ipc(path)
    >>> source.names, source.n
    (('y', 'x'), 2)
    """
    import pyarrow as pa

    path = require_file(path)
    with open(path, "rb") as file:
        start = file.read(6)
    if start[:4] == b"FEA1":
        raise DataError(f"{path} is a Feather 1 file; write it again as Feather 2 or Parquet.")
    whole = start == b"ARROW1"

    def open_reader(columns: Sequence[str] | None) -> tuple[Any, Any]:
        options = pa.ipc.IpcReadOptions()
        if columns is not None:
            options.included_fields = sorted(schema.names.index(c) for c in columns)
        handle = pa.OSFile(str(path), "rb")
        return handle, (pa.ipc.open_file if whole else pa.ipc.open_stream)(handle, options=options)

    try:
        handle, reader = open_reader(None)
        with handle:
            schema, n = reader.schema, reader.count_rows() if whole and hasattr(reader, "count_rows") else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable Arrow file ({error}).") from error

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        try:
            handle, reader = open_reader(columns)
            with handle:
                for batch in (reader.get_batch(k) for k in range(reader.num_record_batches)) if whole else reader:
                    for start in range(0, batch.num_rows, BATCH):
                        yield batch.slice(start, BATCH).select(list(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} is damaged: {error}") from error

    names = column_names(schema)
    types = tuple(schema.types[schema.names.index(c)] for c in names)
    return Source(names, n, identify(path), batches, types, ordered=ordered_columns(schema))

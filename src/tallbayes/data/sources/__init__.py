"""Where rows come from, one file a source; all become a `Source` of record batches."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from tallbayes.data.arrow import Source
from tallbayes.data.sources import csv as _csv
from tallbayes.data.sources import ipc as _ipc
from tallbayes.data.sources import parquet as _parquet
from tallbayes.data.sources.file_identity import require_file
from tallbayes.data.sources.folder import folder, join_sources
from tallbayes.data.sources.remote_files import addresses_of, is_address, remote_parquet
from tallbayes.data.sources.sqlite import PREFIX, sqlite
from tallbayes.data.sources.stream import stream
from tallbayes.errors import DataError

FILES = {
    **dict.fromkeys(_parquet.SUFFIXES, _parquet.parquet),
    **dict.fromkeys(_csv.SUFFIXES, _csv.csv),
    **dict.fromkeys(_ipc.SUFFIXES, _ipc.ipc),
}


def open_source(source: Any) -> Source:
    """The source that a path, a pattern, a `sqlite:` address or an Arrow object stands for.

    >>> open_source("rows.xlsx")
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: rows.xlsx: cannot tell the format. Understood are .parquet, .pq, .parq, .csv, .csv.gz, .arrow,
    .feather, .ipc, .arrows, folders and patterns of such files, sqlite:path.db::table, packed stores, and objects with
    __arrow_c_stream__ (polars, pandas, pyarrow, duckdb).
    """
    if isinstance(source, str | Path):
        text = str(source)
        if text.startswith(PREFIX):
            return sqlite(text)
        if is_address(text):
            return _remote(text)
        if "\0" in text:
            raise DataError(f"{text!r} is not a usable path.")
        if Path(text).is_dir() or (glob.has_magic(text) and not Path(text).exists()):
            return folder(text, _file)
        return _file(Path(text))
    if hasattr(source, "__arrow_c_stream__"):
        return stream(source)
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path, an object with __arrow_c_stream__ (polars, pandas, pyarrow, "
        "duckdb), or use Dataset.from_arrays."
    )


def _remote(address: str) -> Source:
    files = addresses_of(address)
    if files == [address]:
        return remote_parquet(address)
    parts = [remote_parquet(name) for name in files]
    return join_sources(files, parts, {"path": address, "files": [part.identity for part in parts]})


def _file(path: Path) -> Source:
    for suffix, reader in FILES.items():
        if path.name.lower().endswith(suffix):
            return reader(path)
    if not path.suffix:
        require_file(path)
    raise DataError(
        f"{path}: cannot tell the format. Understood are {', '.join(FILES)}, folders and patterns of such files, "
        "sqlite:path.db::table, packed stores, and objects with __arrow_c_stream__ (polars, pandas, pyarrow, duckdb)."
    )

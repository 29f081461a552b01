"""Files behind an address such as s3://, gs:// or https://: Parquet, read a row group at a time, tried again when a connection fails.

Addresses of pyarrow.fs (s3, gs, gcs, hdfs, abfs) need nothing else; any other protocol is looked up in fsspec, if it is installed.
Credentials, regions and endpoints come from the environment or from the address, as those libraries document.
"""

from __future__ import annotations

import fnmatch
import glob
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tallbayes.data.arrow import BATCH, Source, column_names
from tallbayes.errors import DataError

NATIVE = ("s3", "gs", "gcs", "hdfs", "abfs", "abfss", "viewfs")  # protocols of pyarrow.fs
SUFFIXES = (".parquet", ".pq", ".parq")
TRIES = 4
PAUSE = 0.5  # seconds before the second try; each further one waits twice as long

Result = TypeVar("Result")


def is_address(text: str) -> bool:
    """Whether a text is the address of something remote.

    >>> is_address("s3://bucket/rows.parquet"), is_address("rows.parquet"), is_address("sqlite:rows.db::t")
    (True, False, False)
    """
    protocol, separator, _ = text.partition("://")
    return bool(separator) and protocol.isidentifier() and protocol != "file"


def open_filesystem(address: str) -> tuple[Any, str]:
    """The filesystem of pyarrow behind an address, and the path in it."""
    import pyarrow as pa
    from pyarrow import fs

    protocol = address.partition("://")[0]
    try:
        if protocol in NATIVE:
            return fs.FileSystem.from_uri(address)
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path
    except ImportError as error:
        raise DataError(
            f"{address}: reading {protocol}:// needs fsspec and its part for it ({error}); pip install 'tallbayes[remote]'."
        ) from None
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(f"{address}: no filesystem for this address ({error}).") from error


def _split(address: str) -> tuple[str, str]:
    """An address without its query, and the query, such as ?region=eu-west-1; other question marks belong to a pattern."""
    query = re.search(r"\?\w+=", address)
    return (address, "") if query is None else (address[: query.start()], address[query.start() :])


def addresses_of(address: str) -> list[str]:
    """The files that an address stands for: itself, those of a folder, or those that match a pattern with * or ?."""
    from pyarrow import fs

    base, query = _split(address)
    protocol, pattern = base.partition("://")[0], glob.has_magic(base)
    if not pattern and base.endswith(SUFFIXES):
        return [address]
    root = base[: min(base.index(mark) for mark in "*?[" if mark in base)].rpartition("/")[0] if pattern else base.rstrip("/")
    system, folder = open_filesystem(root + query)

    def listed() -> list[str]:
        entries = system.get_file_info(fs.FileSelector(folder, recursive="**" in base, allow_not_found=True))
        names = sorted(e.path for e in entries if e.type == fs.FileType.File and not e.base_name.startswith((".", "_")))
        return [name if is_address(name) else f"{protocol}://{name.lstrip('/')}" for name in names]

    names = [name for name in try_again(listed, address) if not pattern or fnmatch.fnmatchcase(name, base)]
    if not names:
        raise DataError(f"there is no file at {address}; give a folder, a file, or a pattern such as {root}/*.parquet.")
    return [name + query for name in names]


def remote_parquet(address: str) -> Source:
    """A Parquet file behind an address.

    >>> remote_parquet("s3://bucket/rows.csv")
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: s3://bucket/rows.csv: only Parquet files (.parquet, .pq, .parq) can be read from an address; copy others.
    """
    import pyarrow.parquet as pq

    if not _split(address)[0].endswith(SUFFIXES):
        raise DataError(f"{address}: only Parquet files ({', '.join(SUFFIXES)}) can be read from an address; copy others.")

    def described() -> tuple[Any, int, int, dict[str, Any]]:
        system, path = open_filesystem(address)
        entry = system.get_file_info(path)
        with system.open_input_file(path) as file, pq.ParquetFile(file) as reader:
            identity = {"path": address, "size": entry.size, "modified": entry.mtime_ns}
            return reader.schema_arrow, reader.metadata.num_rows, reader.metadata.num_row_groups, identity

    schema, n, groups, identity = try_again(described, address)

    def group_batches(group: int, columns: list[str]) -> list[Any]:
        system, path = open_filesystem(address)
        with system.open_input_file(path) as file, pq.ParquetFile(file) as reader:
            return list(reader.iter_batches(batch_size=BATCH, row_groups=[group], columns=columns))

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        for group in range(groups):  # a row group is in memory before any of it is used, so that none is used twice
            yield from try_again(lambda group=group: group_batches(group, list(columns)), address)  # type: ignore[misc]

    names = column_names(schema)
    return Source(names, n, identity, batches, tuple(schema.types[schema.names.index(c)] for c in names))


def try_again(work: Callable[[], Result], address: str) -> Result:
    """The result of `work`, tried several times with growing pauses; what does not exist is not looked for again."""
    import pyarrow as pa

    for number in range(TRIES):
        try:
            return work()
        except FileNotFoundError:
            raise DataError(f"{address} does not exist.") from None
        except Exception as error:
            web = type(error).__module__.partition(".")[0] == "aiohttp"  # of fsspec's https://
            invalid = isinstance(error, pa.ArrowInvalid)  # such as a file of 0 bytes after headers that were cut off
            if isinstance(error, DataError) or not (web or invalid or isinstance(error, OSError)):
                raise
            if number == TRIES - 1:
                if invalid:
                    raise DataError(f"{address} is not a readable Parquet file ({error}).") from error
                raise DataError(f"{address} could not be read in {TRIES} tries: {error}.") from error
            time.sleep(PAUSE * 2**number)
    raise AssertionError

"""Partitions in a worker process: one at a time in memory, kept until another is asked for or the run is over.

Passes go over the same partitions again and again. A process keeps the last one it packed and drops it before it reads the
next, under a lock, so that it never holds two; `most_held` counts what was alive at once, for tests. `release` ends it, here and on
the workers of a cluster: `sample_shards` calls it when it is done, and so does `Partitions.close`. Partitions that are objects in
memory already are packed anew for every pass.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tallbayes.data.dataset import Dataset
from tallbayes.data.moments import Moments
from tallbayes.errors import DataError
from tallbayes.remote.partition_sources import is_files, name_of, read_partition

_lock = threading.RLock()
_kept: tuple[tuple[tuple[str, ...], str, str], Dataset] | None = None
_alive: weakref.WeakSet[Dataset] = weakref.WeakSet()
_most = 0


@contextmanager
def partition(
    handle: Any, plan: dict[str, Any], dtype: str, fingerprint: str | None = None, moments: Moments | None = None
) -> Iterator[Dataset]:
    """The rows of a partition, while the process works on no other; refused if they are not those of the fingerprint.

    Without a fingerprint they are read anew: the time of a file behind an address is not known, so it may have changed unseen. With it
    and their moments they are not checked a second time: they have the same bits, or are refused.
    """
    global _kept, _most
    key = (tuple(map(_stamp, handle)) if is_files(handle) else (), repr(plan), dtype)
    with _lock:
        if _kept is None or not key[0] or _kept[0] != key or _kept[1].fingerprint != fingerprint:
            _kept = None
            data = read_partition(handle, plan, dtype, None if fingerprint is None else moments)
            if fingerprint is not None and data.fingerprint != fingerprint:
                raise DataError(
                    f"{name_of(handle)} has changed since it was opened, so sums and rows of one run would come from different data. Open "
                    "the partitions again and start a new run."
                )
            _alive.add(data)
            _most = max(_most, len(_alive))
            _kept = (key, data) if key[0] else None
        else:
            data = _kept[1]
        yield data


def _stamp(path: str) -> str:
    """Path, size and time of a file: one that has changed is read again."""
    try:
        status = os.stat(path)
    except OSError:
        return path  # reading it says what is wrong
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def most_held() -> int:
    """The largest number of partitions this process has held at once."""
    return _most


def forget(plan: str | None = None) -> None:
    """Drop the partition that is kept, if no pass is using it and, where the text of a plan is given, if it was read by that plan."""
    global _kept
    if not _lock.acquire(blocking=False):
        return
    try:
        if _kept is not None and plan in (None, _kept[0][1]):
            _kept = None
    finally:
        _lock.release()


def release(client: Any = None) -> None:
    """Drop what this process keeps, and what the workers of a Dask client keep; a worker that is gone has nothing to drop."""
    forget()
    if client is not None:
        client.run(forget, on_error="ignore")

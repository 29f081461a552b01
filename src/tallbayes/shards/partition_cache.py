"""Partitions in a worker process: one at a time in memory, kept until another is asked for or the run is over.

Passes go over the same partitions again and again. A process keeps the last one it packed and drops it before it reads the
next, under a lock, so that it never holds two; `most_held` counts what was alive at once, for tests. `release` ends it, here and on
the workers of a cluster: `sample_shards` calls it when it is done, and so does `Partitions.close`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tallbayes.data.dataset import Dataset
from tallbayes.data.file_partitions import read_partition_files

_lock = threading.RLock()
_kept: tuple[tuple[tuple[str, ...], str, str], Dataset] | None = None
_alive: weakref.WeakSet[Dataset] = weakref.WeakSet()
_most = 0


@contextmanager
def partition(files: Sequence[str], plan: dict[str, Any], dtype: str) -> Iterator[Dataset]:
    """The rows of a partition, while the process works on no other."""
    global _kept, _most
    key = (tuple(files), repr(plan), dtype)
    with _lock:
        if _kept is None or _kept[0] != key:
            _kept = None
            data = read_partition_files(files, plan, dtype)
            _alive.add(data)
            _most = max(_most, len(_alive))
            _kept = (key, data)
        else:
            data = _kept[1]
        yield data


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

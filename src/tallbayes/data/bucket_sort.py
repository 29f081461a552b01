"""Rows sorted by a code in little memory: a streaming bucket sort.

How many rows every level has is known, so levels are divided into ranges of about `BUCKET` bytes each. Chunks are appended to the files of
their ranges; then one range after the other is sorted and given out. Rows of one level keep their order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data.records import CHUNK

BUCKET = 1 << 28  # bytes
MOST_BUCKETS = 200  # files open at a time


class BucketSort:
    """Takes chunks of (records, codes of all factors) in any order of codes, gives chunks in the order of one of them."""

    def __init__(self, folder: Path, width: int, dtype: np.dtype, counts: np.ndarray, factors: int, by: int) -> None:
        self.by, self.rows = by, 0
        self.type = np.dtype([("record", dtype, (width,)), ("row", np.int64), ("codes", np.int32, (factors,))])
        self.bucket_of = buckets(counts, self.type.itemsize)
        number = int(self.bucket_of[-1]) + 1
        self.paths = [folder / f"bucket-{k}.part" for k in range(number)]
        self.files: list[Any] = []
        for path in self.paths:
            self.files.append(open(path, "wb", buffering=1 << 18))  # noqa: SIM115

    def add(self, chunk: np.ndarray, codes: np.ndarray) -> None:
        """Append a chunk."""
        part = np.empty(chunk.shape[0], self.type)
        part["record"], part["codes"] = chunk, codes
        part["row"] = np.arange(self.rows, self.rows + chunk.shape[0])
        self.rows += chunk.shape[0]
        own = self.bucket_of[codes[:, self.by]]
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], np.arange(len(self.files) + 1))
        for k, file in enumerate(self.files):
            if ends[k + 1] > ends[k]:
                file.write(part[order[ends[k] : ends[k + 1]]].data)

    def chunks(self) -> Iterator[np.ndarray]:
        """All rows in order, as arrays of (record, row, codes); a bucket is deleted when it is done."""
        self.close()
        for path in self.paths:
            if os.path.getsize(path) > 0:
                rows = np.memmap(path, self.type, "r")
                order = np.argsort(np.asarray(rows["codes"][:, self.by]), kind="stable")
                for start in range(0, order.size, CHUNK):
                    yield rows[order[start : start + CHUNK]]
                del rows
            path.unlink()

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()


def buckets(counts: np.ndarray, itemsize: int) -> np.ndarray:
    """The bucket of every level: about `BUCKET` bytes each, and at most `MOST_BUCKETS` of them.

    >>> buckets(np.array([3, 1, 2, 4]), BUCKET // 4).tolist()
    [0, 0, 1, 1]
    """
    total = int(counts.sum()) * itemsize
    size = max(BUCKET, -(-total // MOST_BUCKETS))
    before = (np.cumsum(counts) - counts) * itemsize
    _, out = np.unique(before // size, return_inverse=True)
    return out.astype(np.int64)

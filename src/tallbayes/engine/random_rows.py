"""Weighted random rows in constant time: alias tables (Walker 1977; Vose 1991) in chunks of 65,536 rows.

Each chunk has its own table, built on its own thread; a chunk is chosen by bisection of the cumulative chunk totals. Tables
take 18 bytes a row, in memory or in a file when the rows are memory-mapped. Rows of zero weight are never drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable, jit
from tallbayes.engine.passes import over_ranges

CHUNK = 1 << 16


class AliasTable(NamedTuple):
    """Weights of items, and what is needed to draw one in proportion to its weight."""

    weight: np.ndarray
    threshold: np.ndarray
    alias: np.ndarray  # uint16: position within the chunk
    start: np.ndarray  # first item of each chunk, and the number of items
    cumulative: np.ndarray  # sums of weights before each chunk, and the total


@inlinable
def draw_item(rng: np.random.Generator, table: AliasTable, first_chunk: int, last_chunk: int) -> int:
    """An item of chunks first_chunk <= k < last_chunk, in proportion to its weight."""
    low, high = first_chunk, last_chunk
    base = table.cumulative[first_chunk]
    goal = base + rng.random() * (table.cumulative[last_chunk] - base)
    while high - low > 1:
        middle = (low + high) // 2
        if table.cumulative[middle] <= goal:
            low = middle
        else:
            high = middle
    while low > first_chunk and table.cumulative[low + 1] <= table.cumulative[low]:  # the goal may round up to an empty end
        low -= 1
    begin = table.start[low]
    size = table.start[low + 1] - begin
    cell = begin + min(int(rng.random() * size), size - 1)
    if rng.random() < table.threshold[cell]:
        return cell
    return begin + np.int64(table.alias[cell])


@jit
def _build_chunk(weight: np.ndarray, threshold: np.ndarray, alias: np.ndarray) -> float:
    """Vose's algorithm on one chunk; returns the total weight."""
    size = weight.size
    total = 0.0
    for i in range(size):
        total += weight[i]
    if total <= 0.0:
        for i in range(size):
            threshold[i], alias[i] = 1.0, i
        return 0.0
    small, large = np.empty(size, np.int32), np.empty(size, np.int32)
    smalls, larges = 0, 0
    for i in range(size):
        threshold[i] = weight[i] * size / total
        if threshold[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    heaviest = 0
    for i in range(size):
        if weight[i] > weight[heaviest]:
            heaviest = i
    while smalls > 0 and larges > 0:
        smalls -= 1
        less = small[smalls]
        more = large[larges - 1]
        alias[less] = more
        threshold[more] -= 1.0 - threshold[less]
        if threshold[more] < 1.0:
            larges -= 1
            small[smalls] = more
            smalls += 1
    for k in range(larges):
        threshold[large[k]], alias[large[k]] = 1.0, large[k]
    for k in range(smalls):  # left by rounding: whole cells, except that a row of zero weight must never be drawn
        i = small[k]
        threshold[i] = 1.0 if weight[i] > 0.0 else 0.0
        alias[i] = i if weight[i] > 0.0 else heaviest
    return total


def build(
    weight: np.ndarray, start: np.ndarray | None = None, folder: Path | None = None, cores: int | None = None
) -> AliasTable:
    """Tables of all chunks, on all cores. `start` gives chunk boundaries (at most 65,536 items each).

    >>> table = build(np.array([1.0, 0.0, 3.0]))
    >>> rng = np.random.default_rng(0)
    >>> counts = np.bincount([draw_item(rng, table, 0, 1) for _ in range(4000)], minlength=3)
    >>> counts[1], bool(abs(counts[2] - 3000) < 150)
    (np.int64(0), True)
    """
    n = weight.size
    if start is None:
        start = np.append(np.arange(0, n, CHUNK), n)
    threshold, alias = allocate((n,), np.float64, folder), allocate((n,), np.uint16, folder)

    def work(first: int, last: int) -> list[float]:
        bounds = [(start[k], start[k + 1]) for k in range(first, last)]
        return [_build_chunk(weight[a:b], threshold[a:b], alias[a:b]) for a, b in bounds]

    chunks = start.size - 1
    totals = [t for part in over_ranges(chunks, 1 + chunks // 64, work, cores) for t in part]
    cumulative = np.concatenate([[0.0], np.cumsum(totals)])
    return AliasTable(weight, threshold, alias, start.astype(np.int64), cumulative)


def allocate(shape: tuple[int, ...], dtype: type, folder: Path | None) -> np.ndarray:
    """An array in memory, or in an unnamed file in `folder` that disappears with the process."""
    if folder is None:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.asarray(np.memmap(file, dtype=dtype, mode="w+", shape=shape))

"""Rows whose likelihood is a function of a few indices, as verbs see them: what is read of a tile, and what is added for it.

A tile is a few rows; index k of row j of a tile of `size` rows is u[k size + j].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, SUMS, inlinable
from tallbayes.engine.arithmetic import elements_per_line, prefetch
from tallbayes.engine.further import COUNT, FIELDS, Further, call_gradients, call_indices
from tallbayes.engine.tiles import Tiles

TILE = 256  # rows per tile: the buffers of a tile stay in the first-level cache
STRIDE = TILE + 8  # columns of a transposed tile a power of two apart would fall into the same few sets of the cache
MULTIPLE = 8  # rows: tiles of several indices are whole numbers of vector registers
AHEAD = 16  # rows between a prefetch and its use: at about 6 ns per row this hides a memory latency of 100 ns


class Indexed(NamedTuple):
    """Rows of K indices as verbs see them."""

    records: np.ndarray
    columns: int
    first: int
    indices: int
    blocks: np.ndarray
    p: np.ndarray
    tiles: Tiles
    further: Further


class Ask(NamedTuple):
    """What a verb is asked: see `outside`."""

    numbers: np.ndarray  # of rows
    start: int
    stop: int
    theta: np.ndarray
    other: np.ndarray
    reference: np.ndarray
    order: int
    factors: np.ndarray
    total: np.ndarray
    out: np.ndarray
    table: np.ndarray


HEAD = 10  # whole numbers of a layout before its blocks: columns, those of the first index, indices, and addresses
JET = 3


def layout_of(columns: int, blocks: np.ndarray, tiles: Tiles, further: Further) -> np.ndarray:
    """What is known of rows in whole numbers: how their indices follow from theta, and the functions of their family."""
    first = int(blocks[COUNT]) if blocks.size else 0
    return np.array([columns, first, blocks.size // FIELDS, *tiles, *further, *blocks], np.int64)


@inlinable
def tiles_at(layout: np.ndarray) -> Tiles:
    """The functions of the family of a layout."""
    return Tiles(layout[JET], layout[JET + 1], layout[JET + 2], layout[JET + 3], layout[JET + 4])


@inlinable
def indexed(records: np.ndarray, layout: np.ndarray, p: np.ndarray) -> Indexed:
    """The rows of a layout."""
    further = Further(layout[JET + 5], layout[JET + 6])
    return Indexed(records, layout[0], layout[1], layout[2], layout[HEAD:], p, tiles_at(layout), further)


@inlinable
def tile_rows(indices: int, each: int) -> int:
    """Rows of a tile with so many indices and so many numbers for each row: its buffers stay in the first-level cache."""
    return TILE if indices == 1 else max(MULTIPLE, TILE // each // MULTIPLE * MULTIPLE)


@inlinable(options=SUMS)
def dot(x: np.ndarray, theta: np.ndarray, d: int) -> float:
    """Dot product of the first d elements."""
    total = 0.0
    for c in range(d):
        total += x[c] * theta[c]
    return total


@inlinable(options=SUMS)
def two_dots(x: np.ndarray, first: np.ndarray, second: np.ndarray, d: int) -> tuple[float, float]:
    """Dot products of one row with two vectors, reading the row once."""
    a, b = 0.0, 0.0
    for k in range(d):
        a += x[k] * first[k]
        b += x[k] * second[k]
    return a, b


@inlinable(options=SUMS)
def three_dots(x: np.ndarray, first: np.ndarray, second: np.ndarray, third: np.ndarray, d: int) -> tuple[float, float, float]:
    """Dot products of one row with three vectors, reading the row once."""
    a, b, c = 0.0, 0.0, 0.0
    for k in range(d):
        a += x[k] * first[k]
        b += x[k] * second[k]
        c += x[k] * third[k]
    return a, b, c


@inlinable
def prefetch_row(records: np.ndarray, row: int) -> None:
    """Ask for all cache lines of a record."""
    start = row * records.shape[1]
    stop = start + records.shape[1]
    while start < stop:
        prefetch(records, start)
        start += elements_per_line(records)


@inlinable(options=SUMS)
def gather_indices(
    rows: Any, index: np.ndarray, start: int, size: int, theta: np.ndarray, u: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> None:
    """Indices, responses and weights of `size` indexed rows, prefetching those that follow; index k of row j is u[k size + j]."""
    records, d, first = rows.records, rows.columns, rows.first
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(records, index[start + j + AHEAD])
        x = records[index[start + j]]
        u[j] = dot(x, theta, first) + x[d + 1]
        y[j] = x[d]
        weight[j] = x[d + 2]
    if rows.further.indices != 0:
        at = index[start : start + size]
        call_indices(rows.further.indices, records, rows.blocks, d, at, size, theta, True, u)


@inlinable(options=SUMS)
def scan_indices(rows: Any, start: int, size: int, theta: np.ndarray, u: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    """Indices, responses and weights of `size` consecutive rows."""
    records, d, first = rows.records, rows.columns, rows.first
    for j in range(size):
        x = records[start + j]
        u[j] = dot(x, theta, first) + x[d + 1]
        y[j] = x[d]
        weight[j] = x[d + 2]
    if rows.further.indices != 0:
        at = np.arange(start, start + size)
        call_indices(rows.further.indices, records, rows.blocks, d, at, size, theta, True, u)


@inlinable(options={**SUMS, **INLINED})
def shift_indices(
    rows: Any,
    index: np.ndarray,
    start: int,
    size: int,
    reference: np.ndarray,
    change: np.ndarray,
    base: np.ndarray,
    shift: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Indices at a reference, their change, responses and weights of `size` indexed rows, each row read once."""
    records, d, first = rows.records, rows.columns, rows.first
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(records, index[start + j + AHEAD])
        x = records[index[start + j]]
        a, b = 0.0, 0.0
        for c in range(first):
            a += x[c] * reference[c]
            b += x[c] * change[c]
        base[j] = a + x[d + 1]
        shift[j] = b
        y[j] = x[d]
        weight[j] = x[d + 2]
    if rows.further.indices != 0:
        at = index[start : start + size]
        call_indices(rows.further.indices, records, rows.blocks, d, at, size, reference, True, base)
        call_indices(rows.further.indices, records, rows.blocks, d, at, size, change, False, shift)


@inlinable(options=SUMS)
def add_gradients(rows: Any, at: np.ndarray, size: int, g: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient in theta of the rows `at`, from those in their indices."""
    records, first = rows.records, rows.first
    fours = size // 4 * 4
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = records[at[j]], records[at[j + 1]], records[at[j + 2]], records[at[j + 3]]
        s0, s1, s2, s3 = g[j], g[j + 1], g[j + 2], g[j + 3]
        for c in range(first):
            gradient[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
    for j in range(fours, size):
        x, slope = records[at[j]], g[j]
        for c in range(first):
            gradient[c] += slope * x[c]
    if rows.further.gradients != 0:
        call_gradients(rows.further.gradients, records, rows.blocks, at, size, g, gradient)


@inlinable(options=SUMS)
def weigh(values: np.ndarray, weight: np.ndarray, count: int, size: int) -> None:
    """Multiply `count` numbers of each row of a tile by its weight."""
    for k in range(count):
        part = values[k * size : k * size + size]
        for j in range(size):
            part[j] *= weight[j]


@inlinable(options=SUMS)
def expand(
    g: np.ndarray, h: np.ndarray, shift: np.ndarray, k: int, size: int, order: int, lowest: int, out: np.ndarray
) -> None:
    """Add to `out` the terms from order `lowest` to `order` of a Taylor expansion of the rows of a tile."""
    for a in range(k):
        step = shift[a * size : a * size + size]
        if lowest <= 1 and order >= 1:
            slope = g[a * size : a * size + size]
            for j in range(size):
                out[j] += slope[j] * step[j]
        if order >= 2:
            for b in range(k):
                other, bend = shift[b * size : b * size + size], h[(a * k + b) * size : (a * k + b + 1) * size]
                for j in range(size):
                    out[j] += 0.5 * bend[j] * step[j] * other[j]


@inlinable(options=SUMS)
def expand_slopes(g: np.ndarray, h: np.ndarray, shift: np.ndarray, k: int, size: int, order: int) -> None:
    """Turn derivatives in the indices into the slopes of the Taylor expansion at the shift, in place of `g`."""
    for a in range(k):
        slope = g[a * size : a * size + size]
        if order < 1:
            for j in range(size):
                slope[j] = 0.0
        if order >= 2:
            for b in range(k):
                other, bend = shift[b * size : b * size + size], h[(a * k + b) * size : (a * k + b + 1) * size]
                for j in range(size):
                    slope[j] += bend[j] * other[j]


@inlinable(options=SUMS)
def further_shifts(rows: Any, at: np.ndarray, size: int, here: np.ndarray, there: np.ndarray, shift: np.ndarray) -> None:
    """Shifts of both ends of a tile in the indices after the first, and in the first if it is a coordinate."""
    k = rows.indices
    part = np.empty(size * k)
    for end, change in enumerate((here, there)):
        call_indices(rows.further.indices, rows.records, rows.blocks, rows.columns, at, size, change, False, part)
        for a in range(1 if rows.first > 0 else 0, k):
            for j in range(size):
                shift[(2 * a + end) * size + j] = part[a * size + j]

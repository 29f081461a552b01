"""Verbs of rows whose likelihood is a function of a few indices: each a function of one signature, behind an address.

Samplers are compiled without them: a verb is compiled once for each type of records, when it is first called, and cached. So it serves
every family and every sampler. Gradients and Hessians are added to the array given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, SUMS, inlinable
from tallbayes.engine.arithmetic import elements_per_line, prefetch
from tallbayes.engine.bursts import BURST, burst_rows, request_rows
from tallbayes.engine.further import COLUMN, COUNT, FIELDS, START, Further, call_gradients, call_indices
from tallbayes.engine.several_functions import CURVATURE, CURVATURE_ALONE, SLOPE, SLOPE_ALONE, VALUE
from tallbayes.engine.tiles import Tiles, call_jet, call_residual, call_slope

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


@inlinable
def transpose_tile(records: np.ndarray, d: int, start: int, size: int, out: np.ndarray) -> None:
    """Columns of `size` consecutive rows, each contiguous: sums over rows then vectorise whatever d is."""
    for j in range(size):
        x = records[start + j]
        for c in range(d):
            out[c, j] = x[c]


@inlinable(options=SUMS)
def add_gram(columns: np.ndarray, weight: np.ndarray, scaled: np.ndarray, gram: np.ndarray) -> None:
    """Add X' diag(weight) X of one whole tile to `gram`, by blocks of 2 x 4 entries that stay in registers.

    The number of columns is a multiple of 4. Blocks above the diagonal are skipped.
    """
    for a in range(0, columns.shape[0], 2):
        for k in range(2):
            for j in range(TILE):
                scaled[k, j] = weight[j] * columns[a + k, j]
        for b in range(0, a + 2, 4):
            s00, s01, s02, s03 = 0.0, 0.0, 0.0, 0.0
            s10, s11, s12, s13 = 0.0, 0.0, 0.0, 0.0
            for j in range(TILE):
                x0, x1, x2, x3 = columns[b, j], columns[b + 1, j], columns[b + 2, j], columns[b + 3, j]
                v = scaled[0, j]
                s00 += v * x0
                s01 += v * x1
                s02 += v * x2
                s03 += v * x3
                v = scaled[1, j]
                s10 += v * x0
                s11 += v * x1
                s12 += v * x2
                s13 += v * x3
            gram[a, b] += s00
            gram[a, b + 1] += s01
            gram[a, b + 2] += s02
            gram[a, b + 3] += s03
            gram[a + 1, b] += s10
            gram[a + 1, b + 1] += s11
            gram[a + 1, b + 2] += s12
            gram[a + 1, b + 3] += s13


@inlinable(options=SUMS)
def add_columns(columns: np.ndarray, first: int, count: int, weight: np.ndarray, out: np.ndarray) -> None:
    """Add X' weight of one whole tile to `out`, X the columns from `first` on; without columns, the sum of weights."""
    for a in range(count):
        total = 0.0
        for j in range(TILE):
            total += weight[j] * columns[first + a, j]
        out[a] += total
    if count == 0:
        total = 0.0
        for j in range(TILE):
            total += weight[j]
        out[0] += total


@inlinable(options=SUMS)
def spread(values: np.ndarray, weight: np.ndarray, at: int, size: int, out: np.ndarray) -> None:
    """One number of each row of a tile, weighted, and zeros after the last row."""
    for j in range(size):
        out[j] = weight[j] * values[at * size + j]
    for j in range(size, TILE):
        out[j] = 0.0


@inlinable
def add_pairs(rows: Any, a: int, grams: np.ndarray, edges: np.ndarray, hessian: np.ndarray) -> None:
    """Put the sums of index a with itself and those before it into the lower triangle."""
    blocks = rows.blocks
    column, count, begin = blocks[FIELDS * a + COLUMN], blocks[FIELDS * a + COUNT], blocks[FIELDS * a + START]
    for b in range(a + 1):
        left, width, corner = blocks[FIELDS * b + COLUMN], blocks[FIELDS * b + COUNT], blocks[FIELDS * b + START]
        pair = a * (a + 1) // 2 + b
        for i in range(max(count, 1)):
            for c in range(i + 1 if a == b else max(width, 1)):
                if count > 0 and width > 0:
                    low, high = min(column + i, left + c), max(column + i, left + c)
                    hessian[begin + i, corner + c] += grams[pair, high, low]
                else:
                    hessian[begin + i, corner + c] += edges[pair, max(i, c)]


@inlinable(options=SUMS)
def add_curvature(rows: Any, x: np.ndarray, factor: float, h: np.ndarray, j: int, size: int, hessian: np.ndarray) -> None:
    """Add the lower triangle of the Hessian in theta of row j of a tile, from the one in its indices."""
    q = rows.indices
    for k in range(q):
        column, count, start = rows.blocks[FIELDS * k], rows.blocks[FIELDS * k + COUNT], rows.blocks[FIELDS * k + START]
        for l in range(k + 1):
            left, width, first = rows.blocks[FIELDS * l], rows.blocks[FIELDS * l + COUNT], rows.blocks[FIELDS * l + START]
            s = factor * h[(k * q + l) * size + j]
            for a in range(max(count, 1)):
                t = s * x[column + a] if count > 0 else s
                for b in range(a + 1 if k == l else max(width, 1)):
                    hessian[start + a, first + b] += t * x[left + b] if width > 0 else t


@inlinable(options=SUMS)
def one_control_gradient(
    rows: Any,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    """Vectors are as wide as a record, with zeros after its columns: no rest of a few columns is left over by vector registers."""
    records, d = rows.records, rows.columns
    width = records.shape[1] // 8 * 8  # records are whole cache lines: this only tells the compiler so
    base, shift, y, weight, there = np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(BURST)
    known, change, total = np.zeros(width), np.zeros(width), np.zeros(width)
    for c in range(d):
        known[c], change[c] = reference[c], theta[c] - reference[c]
    burst = burst_rows(records)
    request_rows(records, index, 0, burst)
    for start in range(0, index.size, burst):
        size = min(burst, index.size - start)
        request_rows(records, index, start + burst, start + 2 * burst)
        for j in range(size):
            x = records[index[start + j]]
            a, b = 0.0, 0.0
            for c in range(width):
                a += x[c] * known[c]
                b += x[c] * change[c]
            base[j] = a + x[d + 1]
            shift[j] = b
            y[j] = x[d]
            weight[j] = factors[start + j] * x[d + 2]
        call_slope(rows.tiles.slope, base, shift, y, rows.p, 1, size, order, there)
        for j in range(size):
            there[j] *= weight[j]
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1 = records[index[start + j]], records[index[start + j + 1]]
            x2, x3 = records[index[start + j + 2]], records[index[start + j + 3]]
            s0, s1, s2, s3 = there[j], there[j + 1], there[j + 2], there[j + 3]
            for c in range(width):
                total[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[index[start + j]], there[j]
            for c in range(width):
                total[c] += slope * x[c]
    for c in range(d):
        gradient[c] += total[c]


@inlinable(options=SUMS)
def several_control_gradient(
    rows: Any,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    """Rows of several indices, a tile after the other."""
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    f, g, there, none = np.empty(most), np.empty(most * k), np.empty(most * k), np.empty(0)
    h, change = np.empty(most * k * k if order >= 2 else 0), theta - reference
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        shift_indices(rows, index, start, size, reference, change, base, shift, y, weight)
        if order >= 2:
            call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE_ALONE, f, g, h)
        elif order == 1:
            call_jet(rows.tiles.jet, base, y, rows.p, k, size, SLOPE_ALONE, f, g, none)
        expand_slopes(g, h, shift, k, size, order)
        for j in range(k * size):
            shift[j] += base[j]
        call_jet(rows.tiles.jet, shift, y, rows.p, k, size, SLOPE_ALONE, f, there, none)
        for j in range(size):
            weight[j] *= factors[start + j]
        for j in range(k * size):
            there[j] -= g[j]
        weigh(there, weight, k, size)
        add_gradients(rows, index[start : start + size], size, there, gradient)


def row_values(rows: Indexed, ask: Ask) -> None:
    """Weighted log-likelihoods."""
    index, theta, out = ask.numbers, ask.theta, ask.out
    k = rows.indices
    most = min(tile_rows(k, k), index.size)
    u, y, weight, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(0)
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        gather_indices(rows, index, at, size, theta, u, y, weight)
        part = out[at : at + size]
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, part, none, none)
        weigh(part, weight, 1, size)


def weighted_gradient(rows: Indexed, ask: Ask) -> None:
    """A weighted sum and its gradient."""
    index, theta, factors, total, out = ask.numbers, ask.theta, ask.factors, ask.total, ask.out
    k = rows.indices
    most = min(tile_rows(k, k), index.size)
    u, y, weight, f, g, none = (
        np.empty(most * k),
        np.empty(most),
        np.empty(most),
        np.empty(most),
        np.empty(most * k),
        np.empty(0),
    )
    whole = 0.0
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        gather_indices(rows, index, at, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            weight[j] *= factors[at + j]
            part += weight[j] * f[j]
        whole += part
        weigh(g, weight, k, size)
        add_gradients(rows, index[at : at + size], size, g, out)
    total[0] = whole


def residual_differences(rows: Indexed, ask: Ask) -> None:
    """Both ends of a tile are given to the family at once: base and response twice, one shift after the other."""
    index, theta, other, reference, out = ask.numbers, ask.theta, ask.other, ask.reference, ask.out
    k, records, d, first = rows.indices, rows.records, rows.columns, rows.first
    most = min(tile_rows(k, 2 * k), index.size)
    base, shift, y, weight = np.empty(2 * most * k), np.empty(2 * most * k), np.empty(2 * most), np.empty(most)
    rest, here, there = np.empty(2 * most), theta - reference, other - reference
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        for j in range(size):
            if at + j + AHEAD < index.size:
                prefetch_row(records, index[at + j + AHEAD])
            x = records[index[at + j]]
            known, shift[j], shift[size + j] = three_dots(x, reference, here, there, first)
            base[j] = known + x[d + 1]
            base[size + j] = base[j]
            y[j] = x[d]
            y[size + j] = x[d]
            weight[j] = x[d + 2]
        if rows.further.indices != 0:
            both = np.concatenate((index[at : at + size], index[at : at + size]))
            call_indices(rows.further.indices, records, rows.blocks, d, both, 2 * size, reference, True, base)
            further_shifts(rows, both[:size], size, here, there, shift)
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, 2 * size, rest)
        for j in range(size):
            out[at + j] = weight[j] * (rest[size + j] - rest[j])


def proxy_values(rows: Indexed, ask: Ask) -> None:
    """Taylor expansions."""
    index, theta, reference, order, out = ask.numbers, ask.theta, ask.reference, ask.order, ask.out
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    g, h, change = np.empty(most * k), np.empty(most * k * k), theta - reference
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        shift_indices(rows, index, at, size, reference, change, base, shift, y, weight)
        part = out[at : at + size]
        call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE, part, g, h)
        expand(g, h, shift, k, size, order, 1, part)
        weigh(part, weight, 1, size)


def range_value(rows: Indexed, ask: Ask) -> None:
    """The sum over a range."""
    start, stop, theta, total = ask.start, ask.stop, ask.theta, ask.total
    k = rows.indices
    most = min(tile_rows(k, k), stop - start)
    u, y, weight, f, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(0)
    whole = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, f, none, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        whole += part
    total[0] = whole


def range_gradient(rows: Indexed, ask: Ask) -> None:
    """The same, with the gradient."""
    start, stop, theta, total, out = ask.start, ask.stop, ask.theta, ask.total, ask.out
    k, records, d = rows.indices, rows.records, rows.first
    most = min(tile_rows(k, k), stop - start)
    u, y, weight, f, g, none = (
        np.empty(most * k),
        np.empty(most),
        np.empty(most),
        np.empty(most),
        np.empty(most * k),
        np.empty(0),
    )
    whole = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        whole += part
        weigh(g, weight, k, size)
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1, x2, x3 = records[first + j], records[first + j + 1], records[first + j + 2], records[first + j + 3]
            s0, s1, s2, s3 = g[j], g[j + 1], g[j + 2], g[j + 3]
            for c in range(d):
                out[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[first + j], g[j]
            for c in range(d):
                out[c] += slope * x[c]
        if rows.further.gradients != 0:
            at = np.arange(first, first + size)
            call_gradients(rows.further.gradients, records, rows.blocks, at, size, g, out)
    total[0] = whole


def range_hessian(rows: Indexed, ask: Ask) -> None:
    """Sums over tiles of columns: for each pair of indices the Gram matrix of the columns, weighted by a second derivative."""
    start, stop, theta, total, out, table = ask.start, ask.stop, ask.theta, ask.total, ask.out, ask.table
    k, d, blocks = rows.indices, rows.columns, rows.blocks
    u, y, weight, f = np.zeros(TILE * k), np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    g, h, part = np.zeros(TILE * k), np.zeros(TILE * k * k), np.zeros(TILE)
    padded = -(-d // 4) * 4
    columns, scaled, grams = np.zeros((padded, STRIDE)), np.zeros((2, STRIDE)), np.zeros((k * (k + 1) // 2, padded, padded))
    edges = np.zeros((k * (k + 1) // 2, max(d, 1)))
    whole = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        transpose_tile(rows.records, d, first, size, columns)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        value = 0.0
        for j in range(size):
            value += weight[j] * f[j]
        whole += value
        for a in range(k):
            column, count = blocks[FIELDS * a + COLUMN], blocks[FIELDS * a + COUNT]
            spread(g, weight, a, size, part)
            add_columns(columns, column, count, part, out[blocks[FIELDS * a + START] :])
            for b in range(a + 1):
                left, width = blocks[FIELDS * b + COLUMN], blocks[FIELDS * b + COUNT]
                pair = a * (a + 1) // 2 + b
                spread(h, weight, a * k + b, size, part)
                if count > 0 and width > 0:
                    add_gram(columns, part, scaled, grams[pair])
                else:
                    add_columns(columns, max(column, left), max(count, width), part, edges[pair])
    for a in range(k):
        add_pairs(rows, a, grams, edges, table)
    total[0] = whole


def residual_values(rows: Indexed, ask: Ask) -> None:
    """Residuals of a Taylor expansion."""
    index, theta, reference, order, out = ask.numbers, ask.theta, ask.reference, ask.order, ask.out
    k = rows.indices
    each = 2 * k if order == 2 else k * k
    most = min(tile_rows(k, each), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    f, change = np.empty(most), theta - reference
    g, h = np.empty(most * k if order < 2 else 0), np.empty(most * k * k if order < 2 else 0)
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        shift_indices(rows, index, at, size, reference, change, base, shift, y, weight)
        part = out[at : at + size]
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, size, part)
        if order < 2:
            call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE_ALONE, f, g, h)
            expand(g, h, shift, k, size, 2, order + 1, part)
        weigh(part, weight, 1, size)


def residual_slopes(rows: Indexed, ask: Ask) -> None:
    """The same, with their derivatives in the indices."""
    index, theta, reference, order, out, table = ask.numbers, ask.theta, ask.reference, ask.order, ask.out, ask.table
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    alone = order == 2 and rows.tiles.slope != 0  # a function for the difference: nothing else is needed
    wide = 0 if alone else most * k
    f, g, h, there, change = np.empty(most), np.empty(wide), np.empty(wide * k), np.empty(most * k), theta - reference
    none = np.empty(0)
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        shift_indices(rows, index, at, size, reference, change, base, shift, y, weight)
        part = out[at : at + size]
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, size, part)
        if alone:
            call_slope(rows.tiles.slope, base, shift, y, rows.p, k, size, order, there)
        else:
            call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE_ALONE, f, g, h)
            if order < 2:
                expand(g, h, shift, k, size, 2, order + 1, part)
            expand_slopes(g, h, shift, k, size, order)
            for j in range(k * size):
                shift[j] += base[j]
            call_jet(rows.tiles.jet, shift, y, rows.p, k, size, SLOPE_ALONE, f, there, none)
            for j in range(k * size):
                there[j] -= g[j]
        weigh(part, weight, 1, size)
        for a in range(k):
            for j in range(size):
                table[at + j, a] = weight[j] * there[a * size + j]


def add_slopes(rows: Indexed, ask: Ask) -> None:
    """The gradient of a sum of these, from the derivatives."""
    index, factors, out, table = ask.numbers, ask.factors, ask.out, ask.table
    k = rows.indices
    most = min(tile_rows(k, k), index.size)
    g = np.empty(most * k)
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        for a in range(k):
            for j in range(size):
                g[a * size + j] = factors[at + j] * table[at + j, a]
        add_gradients(rows, index[at : at + size], size, g, out)


def add_curvatures(rows: Indexed, ask: Ask) -> None:
    """The lower triangle of a weighted sum of Hessians."""
    index, theta, factors, table = ask.numbers, ask.theta, ask.factors, ask.table
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    u, y, weight = np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h = np.empty(most), np.empty(most * k), np.empty(most * k * k)
    for at in range(0, index.size, max(most, 1)):
        size = min(most, index.size - at)
        gather_indices(rows, index, at, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        for j in range(size):
            add_curvature(rows, rows.records[index[at + j]], factors[at + j] * weight[j], h, j, size, table)


def control_gradient(rows: Indexed, ask: Ask) -> None:
    """The gradient of a weighted sum of residuals."""
    index, theta, reference, order, factors, out = ask.numbers, ask.theta, ask.reference, ask.order, ask.factors, ask.out
    if rows.indices == 1 and rows.first > 0:
        one_control_gradient(rows, index, factors, theta, reference, order, out)
    else:
        several_control_gradient(rows, index, factors, theta, reference, order, out)


def range_scores(rows: Indexed, ask: Ask) -> None:
    """The gradient of every row of a range."""
    start, stop, theta, table = ask.start, ask.stop, ask.theta, ask.table
    k = rows.indices
    u, y, weight, f, g, none = np.empty(k), np.empty(1), np.empty(1), np.empty(1), np.empty(k), np.empty(0)
    at = np.empty(1, np.int64)
    for i in range(start, stop):
        at[0] = i
        scan_indices(rows, i, 1, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, 1, SLOPE, f, g, none)
        weigh(g, weight, k, 1)
        table[i - start] = 0.0
        add_gradients(rows, at, 1, g, table[i - start])


_VERBS: tuple[Callable[[Indexed, Ask], None], ...] = (
    row_values,
    weighted_gradient,
    residual_differences,
    proxy_values,
    range_value,
    range_gradient,
    range_hessian,
    residual_values,
    residual_slopes,
    add_slopes,
    add_curvatures,
    control_gradient,
    range_scores,
)
"""In the order of their numbers in `outside`."""


def _behind_address(function: Callable[[Indexed, Ask], None]) -> Callable[..., int]:
    """A verb with the signature that all of them have behind addresses."""
    work = inlinable(function, options={**SUMS, **INLINED})

    def verb(
        records: np.ndarray,
        layout: np.ndarray,
        p: np.ndarray,
        verb: int,
        index: np.ndarray,
        start: int,
        stop: int,
        theta: np.ndarray,
        other: np.ndarray,
        reference: np.ndarray,
        order: int,
        factors: np.ndarray,
        total: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> int:
        work(indexed(records, layout, p), Ask(index, start, stop, theta, other, reference, order, factors, total, out, table))
        return 0

    verb.__name__ = function.__name__
    return verb


VERBS = tuple(_behind_address(function) for function in _VERBS)

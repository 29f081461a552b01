"""The one type of rows that compiled code knows, and the verbs through which everything else sees them.

A row depends on theta through a short vector of indices u. Index k is x . theta_k plus the offset for a block of columns and of
coordinates, or a coordinate of theta itself. The family is a table of addresses (`tiles`), so the verbs are compiled once for all families.

Verbs on an index array serve subsampling; verbs on a range `[start, stop)` serve full passes. Gradients and Hessians are added to the
array given, so that a caller can accumulate. Rows of one index have loops of their own, which vectorise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, SUMS, declared, generic, inlinable
from tallbayes.engine.arithmetic import elements_per_line, prefetch
from tallbayes.engine.further import (
    COLUMN,
    COUNT,
    FIELDS,
    START,
    Further,
    call_gradients,
    call_indices,
    further_of,
)
from tallbayes.engine.outside import (
    PROXY_VALUES,
    RANGE_GRADIENT,
    RANGE_HESSIAN,
    RANGE_VALUE,
    RESIDUAL_DIFFERENCES,
    ROW_VALUES,
    WEIGHTED_GRADIENT,
    call_outside,
    row_numbers,
)
from tallbayes.engine.several_functions import CURVATURE, SLOPE, VALUE
from tallbayes.engine.tiles import Tiles, call_jet, call_residual, tiles_of
from tallbayes.pointers import held_by, kind_of, numbers_of

TILE = 256  # rows per tile: the buffers of a tile stay in the first-level cache
STRIDE = TILE + 8  # columns of a transposed tile a power of two apart would fall into the same few sets of the cache
MULTIPLE = 8  # rows: tiles of several indices are whole numbers of vector registers
AHEAD = 16  # rows between a prefetch and its use: at about 6 ns per row this hides a memory latency of 100 ns
HERE, ELSEWHERE, NUMBERED = 0, 1, 2
FAILED, OPEN = 0, 1  # in `Rows.answers`: whether a verb outside has failed, and the number of sums that are asked for
ALLOWANCE = 32 * 2.220446049250313e-16  # rounding of a residual difference of order one


class Rows(NamedTuple):
    """Records of rows, how their indices follow from theta, and the family of their likelihood."""

    records: np.ndarray  # (n, width): x, y, offset, weight, padding
    columns: int
    first: int  # columns of the first index, which begins with the first column and coordinate
    indices: int  # K
    blocks: (
        np.ndarray
    )  # of each index: first column, columns, first coordinate, whether the offset is added; no columns: the coordinate
    p: np.ndarray  # numbers of the family
    tiles: Tiles
    further: Further
    outside: int  # address of the function of all verbs (`outside`), for likelihoods that have no tiles; 0 where there are
    n: int  # rows, here or elsewhere
    most: int  # expected candidate rows of a decision at which all rows are read instead
    place: int  # HERE; ELSEWHERE, a few records of n rows; NUMBERED, the same, and rows are known by their numbers in a stream
    numbers: np.ndarray  # of each record in its stream, ascending
    answers: np.ndarray  # FAILED, OPEN, and for rows elsewhere the thetas that are asked for and the sums that are known
    slopes: int  # numbers that describe the gradient of one row
    rounding: float  # how far rounding may take a residual difference beyond its bound
    lead: int = -1  # rows that start the recursion of a window (`windows`); -1 where rows are independent given theta
    conditioned: int = 0  # rows at the beginning without a likelihood: the others are conditioned on them

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        if self.outside:
            raise TypeError("rows of a likelihood outside cannot be pickled: send the model, and make its rows there.")
        return _rows_again, (held_by(self.p), *self)


def _rows_again(member: Any, *parts: Any) -> Rows:
    rows = Rows(*parts)
    return rows if member is None else rows._replace(p=numbers_of(member))


def rows_of(member: Any, records: np.ndarray, columns: int, blocks: list[tuple[int, int, int, bool]]) -> Rows:
    """Rows of a member of a family; `blocks` has the first column, the columns, the first coordinate and the use of the offset of each index."""
    places = np.array([[int(v) for v in block] for block in blocks], np.int64).reshape(-1)
    tiles = tiles_of(kind_of(member), len(blocks) > 1)
    first = blocks[0][1]
    further = Further(0, 0) if len(blocks) == 1 and first > 0 else further_of(records.dtype.name)
    return _here(records, columns, first, len(blocks), places, numbers_of(member), tiles, further, 0, len(blocks), ALLOWANCE)


@inlinable
def with_records(rows: Rows, records: np.ndarray) -> Rows:
    """Rows of the same kind over other records, all of which are here."""
    return Rows(
        records,
        rows.columns,
        rows.indices,
        rows.blocks,
        rows.p,
        rows.tiles,
        rows.outside,
        records.shape[0],
        rows.most,
        rows.place,
        rows.numbers,
        rows.answers,
        rows.slopes,
        rows.rounding,
    )


def outside_rows(
    records: np.ndarray, columns: int, p: np.ndarray, address: int, slopes: int, rounding: float = ALLOWANCE
) -> Rows:
    """Rows of a likelihood outside; `slopes` numbers describe the gradient of one row."""
    nothing = np.zeros(0, np.int64)
    return _here(records, columns, 0, 0, nothing, p, Tiles(0, 0, 0, 0), Further(0, 0), address, slopes, rounding)


def _here(
    records: np.ndarray,
    columns: int,
    first: int,
    indices: int,
    blocks: np.ndarray,
    p: np.ndarray,
    tiles: Tiles,
    further: Further,
    outside: int,
    slopes: int,
    rounding: float,
) -> Rows:
    n, nothing = records.shape[0], np.zeros(0, np.int64)
    return Rows(
        records, columns, first, indices, blocks, p, tiles, further, outside, n, n, HERE, nothing, np.zeros(2), slopes, rounding
    )


@inlinable
def run_outside(
    rows: Any,
    verb: int,
    index: np.ndarray,
    start: int,
    stop: int,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    order: int,
    factors: np.ndarray,
    out: np.ndarray,
    table: np.ndarray,
) -> float:
    """A verb of a likelihood outside, at up to three points (theta, another, the reference); returns the total, if it has one."""
    total = np.zeros(1)
    status = call_outside(
        rows.outside,
        rows.records,
        rows.p,
        verb,
        row_numbers(index),
        start,
        stop,
        points[0],
        points[1],
        points[2],
        order,
        factors,
        total,
        out,
        table,
    )
    if status != 0:
        rows.answers[FAILED] = status
        return np.nan
    return total[0]


@inlinable
def on_index(rows: Any, verb: int, index: np.ndarray, theta: np.ndarray, factors: np.ndarray, out: np.ndarray) -> float:
    """A verb outside on indexed rows at one point."""
    return run_outside(rows, verb, index, 0, 0, (theta, theta, theta), 0, factors, out, np.empty((0, 0)))


@inlinable
def on_range(rows: Any, verb: int, start: int, stop: int, theta: np.ndarray, out: np.ndarray, table: np.ndarray) -> float:
    """A verb outside on a range of rows."""
    return run_outside(rows, verb, np.empty(0, np.int64), start, stop, (theta, theta, theta), 0, np.empty(0), out, table)


def one_index(member: Any, records: np.ndarray, columns: int) -> Rows:
    """Rows of a family of one index, of all columns."""
    return rows_of(member, records, columns, [(0, columns, 0, True)])


@generic(options=SUMS)
@declared
def row_values(rows: Any, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """out[j] = weighted log-likelihood of row index[j]."""


@generic(options=SUMS)
@declared
def weighted_gradient(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Sum of factors[j] l_{index[j]}(theta), its gradient added to `gradient`."""
    raise TypeError


@generic(options=SUMS)
@declared
def residual_differences(
    rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    """out[j] = rho(other) - rho(theta) of row index[j], rho the second-order Taylor residual at `reference`."""


@generic(options=SUMS)
@declared
def proxy_values(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    """out[j] = Taylor expansion at `reference` to `order` 0, 1 or 2 of the weighted log-likelihood of row index[j]."""


@generic(options=SUMS)
@declared
def range_value(rows: Any, start: int, stop: int, theta: np.ndarray) -> float:
    """Sum of l_i(theta) over a range of rows."""
    raise TypeError


@generic(options=SUMS)
@declared
def range_gradient(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same, with the gradient."""
    raise TypeError


@generic(options=SUMS)
@declared
def range_hessian(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """The same, with gradient and the lower triangle of the Hessian."""
    raise TypeError


@generic
def rows_at_once(rows: Any) -> int:
    """Rows of a full pass between two looks at whether it is to be given up: some hundredths of a second."""
    return max(1, (1 << 24) // (rows.records.shape[1] * TILE)) * TILE


@rows_at_once.register(Rows)
def _rows_at_once(rows: Rows) -> int:
    if rows.place != HERE or rows.lead >= 0:
        return rows.n
    return max(1, (1 << 24) // (rows.records.shape[1] * TILE)) * TILE


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
    """Add to `out` the terms of a Taylor expansion from order `lowest` to `order` of the rows of a tile, from derivatives in their indices."""
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


@row_values.register(Rows)
def _row_values(rows: Rows, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    if rows.outside != 0:
        on_index(rows, ROW_VALUES, index, theta, np.empty(0), out)
        return
    k = rows.indices
    most = min(tile_rows(k, k), index.size)
    u, y, weight, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(0)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        gather_indices(rows, index, start, size, theta, u, y, weight)
        part = out[start : start + size]
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, part, none, none)
        weigh(part, weight, 1, size)


@weighted_gradient.register(Rows)
def _weighted_gradient(rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    if rows.outside != 0:
        return on_index(rows, WEIGHTED_GRADIENT, index, theta, factors, gradient)
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
    total = 0.0
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        gather_indices(rows, index, start, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            weight[j] *= factors[start + j]
            part += weight[j] * f[j]
        total += part
        weigh(g, weight, k, size)
        add_gradients(rows, index[start : start + size], size, g, gradient)
    return total


@residual_differences.register(Rows)
def _residual_differences(
    rows: Rows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    """Both ends of a tile are given to the family at once: base and response twice, one shift after the other."""
    if rows.outside != 0:
        none = np.empty(0)
        run_outside(rows, RESIDUAL_DIFFERENCES, index, 0, 0, (theta, other, reference), 2, none, out, np.empty((0, 0)))
        return
    k, records, d, first = rows.indices, rows.records, rows.columns, rows.first
    most = min(tile_rows(k, 2 * k), index.size)
    base, shift, y, weight = np.empty(2 * most * k), np.empty(2 * most * k), np.empty(2 * most), np.empty(most)
    rest, here, there = np.empty(2 * most), theta - reference, other - reference
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        for j in range(size):
            if start + j + AHEAD < index.size:
                prefetch_row(records, index[start + j + AHEAD])
            x = records[index[start + j]]
            known, shift[j], shift[size + j] = three_dots(x, reference, here, there, first)
            base[j] = known + x[d + 1]
            base[size + j] = base[j]
            y[j] = x[d]
            y[size + j] = x[d]
            weight[j] = x[d + 2]
        if rows.further.indices != 0:
            at = np.concatenate((index[start : start + size], index[start : start + size]))
            call_indices(rows.further.indices, records, rows.blocks, d, at, 2 * size, reference, True, base)
            further_shifts(rows, at[:size], size, here, there, shift)
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, 2 * size, rest)
        for j in range(size):
            out[start + j] = weight[j] * (rest[size + j] - rest[j])


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


@proxy_values.register(Rows)
def _proxy_values(rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    if rows.outside != 0:
        run_outside(rows, PROXY_VALUES, index, 0, 0, (theta, theta, reference), order, np.empty(0), out, np.empty((0, 0)))
        return
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    g, h, change = np.empty(most * k), np.empty(most * k * k), theta - reference
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        shift_indices(rows, index, start, size, reference, change, base, shift, y, weight)
        part = out[start : start + size]
        call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE, part, g, h)
        expand(g, h, shift, k, size, order, 1, part)
        weigh(part, weight, 1, size)


QUESTIONS = 2  # sums that an iteration may ask for: it compares two positions


def answers_of(dim: int, known: np.ndarray | None = None) -> np.ndarray:
    """The board of rows elsewhere: nothing failed, nothing asked, and rows of `known`: theta and the log-likelihood of all rows there."""
    first = 2 + QUESTIONS * dim
    return np.concatenate([np.zeros(first), np.zeros(0) if known is None else known.reshape(-1)])


@inlinable
def known_sum(rows: Any, theta: np.ndarray) -> float:
    """Log-likelihood of all n rows at theta where it is known; else it is asked for, and NaN."""
    d = theta.size
    at = 2 + QUESTIONS * d
    while at + d < rows.answers.size:
        same = True
        for j in range(d):
            same &= rows.answers[at + j] == theta[j]
        if same:
            return rows.answers[at + d]
        at += d + 1
    asked = int(rows.answers[OPEN])
    if asked < QUESTIONS:
        for j in range(d):
            rows.answers[2 + asked * d + j] = theta[j]
        rows.answers[OPEN] += 1.0
    return np.nan


@inlinable
def record_numbers(rows: Any, index: np.ndarray) -> np.ndarray:
    """Records of rows known by their numbers; one that is not here yet has any: what comes of it is void."""
    if rows.place != NUMBERED:
        return index
    out, last = np.empty(index.size, np.int64), rows.numbers.size - 1
    for j in range(index.size):
        out[j] = min(np.searchsorted(rows.numbers, index[j]), last)
    return out


@range_value.register(Rows)
def _range_value(rows: Rows, start: int, stop: int, theta: np.ndarray) -> float:
    if rows.place != HERE:
        return known_sum(rows, theta)
    if rows.outside != 0:
        return on_range(rows, RANGE_VALUE, start, stop, theta, np.empty(0), np.empty((0, 0)))
    k = rows.indices
    most = min(tile_rows(k, k), stop - start)
    u, y, weight, f, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(0)
    total = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, f, none, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        total += part
    return total


@range_gradient.register(Rows)
def _range_gradient(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    if rows.outside != 0:
        return on_range(rows, RANGE_GRADIENT, start, stop, theta, gradient, np.empty((0, 0)))
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
    total = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        total += part
        weigh(g, weight, k, size)
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1, x2, x3 = records[first + j], records[first + j + 1], records[first + j + 2], records[first + j + 3]
            s0, s1, s2, s3 = g[j], g[j + 1], g[j + 2], g[j + 3]
            for c in range(d):
                gradient[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[first + j], g[j]
            for c in range(d):
                gradient[c] += slope * x[c]
        if rows.further.gradients != 0:
            at = np.arange(first, first + size)
            call_gradients(rows.further.gradients, records, rows.blocks, at, size, g, gradient)
    return total


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


@range_hessian.register(Rows)
def _range_hessian(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Sums over tiles of columns: for each pair of indices the Gram matrix of the columns, weighted by a second derivative."""
    if rows.outside != 0:
        return on_range(rows, RANGE_HESSIAN, start, stop, theta, gradient, hessian)
    k, d, blocks = rows.indices, rows.columns, rows.blocks
    u, y, weight, f = np.zeros(TILE * k), np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    g, h, part = np.zeros(TILE * k), np.zeros(TILE * k * k), np.zeros(TILE)
    padded = -(-d // 4) * 4
    columns, scaled, grams = np.zeros((padded, STRIDE)), np.zeros((2, STRIDE)), np.zeros((k * (k + 1) // 2, padded, padded))
    edges = np.zeros((k * (k + 1) // 2, max(d, 1)))
    total = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        transpose_tile(rows.records, d, first, size, columns)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        value = 0.0
        for j in range(size):
            value += weight[j] * f[j]
        total += value
        for a in range(k):
            column, count = blocks[FIELDS * a + COLUMN], blocks[FIELDS * a + COUNT]
            spread(g, weight, a, size, part)
            add_columns(columns, column, count, part, gradient[blocks[FIELDS * a + START] :])
            for b in range(a + 1):
                left, width = blocks[FIELDS * b + COLUMN], blocks[FIELDS * b + COUNT]
                pair = a * (a + 1) // 2 + b
                spread(h, weight, a * k + b, size, part)
                if count > 0 and width > 0:
                    add_gram(columns, part, scaled, grams[pair])
                else:
                    add_columns(columns, max(column, left), max(count, width), part, edges[pair])
    for a in range(k):
        add_pairs(rows, a, grams, edges, hessian)
    return total


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

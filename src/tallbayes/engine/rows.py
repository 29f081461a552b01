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
from tallbayes.engine.outside import (
    PROXY_VALUES,
    RANGE_GRADIENT,
    RANGE_HESSIAN,
    RANGE_VALUE,
    RESIDUAL_DIFFERENCES,
    ROW_VALUES,
    WEIGHTED_GRADIENT,
    call_outside,
)
from tallbayes.engine.tiles import (
    CURVATURE,
    SLOPE,
    VALUE,
    Tiles,
    call_jet,
    call_residual,
    tiles_of,
)
from tallbayes.pointers import kind_of, numbers_of

TILE = 256  # rows per tile: the buffers of a tile stay in the first-level cache
STRIDE = TILE + 8  # columns of a transposed tile a power of two apart would fall into the same few sets of the cache
AHEAD = 16  # rows between a prefetch and its use: at about 6 ns per row this hides a memory latency of 100 ns
COLUMN, COUNT, START, OFFSET, FIELDS = 0, 1, 2, 3, 4  # of an index in `Rows.blocks`
HERE, ELSEWHERE, NUMBERED = 0, 1, 2
FAILED, OPEN = 0, 1  # in `Rows.answers`: whether a verb outside has failed, and the number of sums that are asked for
ALLOWANCE = 32 * 2.220446049250313e-16  # rounding of a residual difference of order one


class Rows(NamedTuple):
    """Records of rows, how their indices follow from theta, and the family of their likelihood."""

    records: np.ndarray  # (n, width): x, y, offset, weight, padding
    columns: int
    indices: int  # K
    blocks: np.ndarray  # of each index: first column, columns, first coordinate, whether the offset is added; no columns: the coordinate
    p: np.ndarray  # numbers of the family
    tiles: Tiles
    outside: int  # address of the function of all verbs (`outside`), for likelihoods that have no tiles; 0 where there are
    n: int  # rows, here or elsewhere
    most: int  # expected candidate rows of a decision at which all rows are read instead
    place: int  # HERE; ELSEWHERE, a few records of n rows; NUMBERED, the same, and rows are known by their numbers in a stream
    numbers: np.ndarray  # of each record in its stream, ascending
    answers: np.ndarray  # FAILED, OPEN, and for rows elsewhere the thetas that are asked for and the sums that are known
    slopes: int  # numbers that describe the gradient of one row
    rounding: float  # how far rounding may take a residual difference beyond its bound

    def __reduce__(self) -> Any:
        """The address of an outside function is that of a process."""
        if self.outside:
            raise TypeError("rows of a likelihood outside cannot be pickled: send the model, and make its rows there.")
        return _rows_again, tuple(self)


def _rows_again(*parts: Any) -> Rows:
    return Rows(*parts)


def rows_of(member: Any, records: np.ndarray, columns: int, blocks: list[tuple[int, int, int, bool]]) -> Rows:
    """Rows of a member of a family; `blocks` has the first column, the columns, the first coordinate and the use of the offset of each index."""
    places = np.array([[int(v) for v in block] for block in blocks], np.int64).reshape(-1)
    tiles = tiles_of(kind_of(member), len(blocks) > 1)
    return _here(records, columns, len(blocks), places, numbers_of(member), tiles, 0, len(blocks), ALLOWANCE)


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


def outside_rows(records: np.ndarray, columns: int, p: np.ndarray, address: int, slopes: int, rounding: float = ALLOWANCE) -> Rows:
    """Rows of a likelihood outside; `slopes` numbers describe the gradient of one row."""
    return _here(records, columns, 0, np.zeros(0, np.int64), p, Tiles(0, 0, 0, 0), address, slopes, rounding)


def _here(
    records: np.ndarray,
    columns: int,
    indices: int,
    blocks: np.ndarray,
    p: np.ndarray,
    tiles: Tiles,
    outside: int,
    slopes: int,
    rounding: float,
) -> Rows:
    n, nothing = records.shape[0], np.zeros(0, np.int64)
    return Rows(records, columns, indices, blocks, p, tiles, outside, n, n, HERE, nothing, np.zeros(2), slopes, rounding)


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
        index,
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
    if rows.place != HERE:
        return rows.n
    return max(1, (1 << 24) // (rows.records.shape[1] * TILE)) * TILE


@inlinable
def tile_rows(indices: int) -> int:
    """Rows of a tile: the Hessians in its indices stay in the first-level cache."""
    return TILE if indices == 1 else max(8, TILE // (indices * indices))


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
def gather_tile(
    records: np.ndarray,
    d: int,
    index: np.ndarray,
    start: int,
    size: int,
    theta: np.ndarray,
    eta: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Linear predictors, responses and weights of `size` indexed rows, prefetching those that follow."""
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(records, index[start + j + AHEAD])
        x = records[index[start + j]]
        eta[j] = dot(x, theta, d) + x[d + 1]
        y[j] = x[d]
        weight[j] = x[d + 2]


@inlinable(options=SUMS)
def scan_tile(
    records: np.ndarray, d: int, start: int, size: int, theta: np.ndarray, eta: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> None:
    """Linear predictors, responses and weights of `size` consecutive rows."""
    for j in range(size):
        x = records[start + j]
        eta[j] = dot(x, theta, d) + x[d + 1]
        y[j] = x[d]
        weight[j] = x[d + 2]


@inlinable(options={**SUMS, **INLINED})
def shift_tile(
    records: np.ndarray,
    d: int,
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
    """Linear predictors at a reference, their change, responses and weights of `size` indexed rows, each row read once."""
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(records, index[start + j + AHEAD])
        x = records[index[start + j]]
        a, b = 0.0, 0.0
        for c in range(d):
            a += x[c] * reference[c]
            b += x[c] * change[c]
        base[j] = a + x[d + 1]
        shift[j] = b
        y[j] = x[d]
        weight[j] = x[d + 2]


@inlinable(options=SUMS)
def add_indices(rows: Any, x: np.ndarray, theta: np.ndarray, u: np.ndarray, at: int) -> None:
    """The indices of a row at theta, written to u from `at` on."""
    offset = x[rows.columns + 1]
    for k in range(rows.indices):
        column, count, start = rows.blocks[FIELDS * k], rows.blocks[FIELDS * k + COUNT], rows.blocks[FIELDS * k + START]
        if count == 0:
            u[at + k] = theta[start]
        else:
            total = 0.0
            for c in range(count):
                total += x[column + c] * theta[start + c]
            u[at + k] = total + offset if rows.blocks[FIELDS * k + OFFSET] != 0 else total


@inlinable(options=SUMS)
def add_shifts(rows: Any, x: np.ndarray, change: np.ndarray, u: np.ndarray, at: int) -> None:
    """The change of the indices of a row with a change of theta, written to u from `at` on."""
    for k in range(rows.indices):
        column, count, start = rows.blocks[FIELDS * k], rows.blocks[FIELDS * k + COUNT], rows.blocks[FIELDS * k + START]
        if count == 0:
            u[at + k] = change[start]
        else:
            total = 0.0
            for c in range(count):
                total += x[column + c] * change[start + c]
            u[at + k] = total


@inlinable(options=SUMS)
def add_gradient(rows: Any, x: np.ndarray, factor: float, g: np.ndarray, at: int, gradient: np.ndarray) -> None:
    """Add the gradient in theta of a row, from the one in its indices."""
    for k in range(rows.indices):
        column, count, start = rows.blocks[FIELDS * k], rows.blocks[FIELDS * k + COUNT], rows.blocks[FIELDS * k + START]
        slope = factor * g[at + k]
        if count == 0:
            gradient[start] += slope
        for c in range(count):
            gradient[start + c] += slope * x[column + c]


@inlinable(options=SUMS)
def add_hessian(rows: Any, x: np.ndarray, factor: float, h: np.ndarray, at: int, hessian: np.ndarray) -> None:
    """Add the lower triangle of the Hessian in theta of a row, from the one in its indices: coordinates are in their order."""
    q = rows.indices
    for k in range(q):
        column, count, start = rows.blocks[FIELDS * k], rows.blocks[FIELDS * k + COUNT], rows.blocks[FIELDS * k + START]
        for l in range(k + 1):
            left, width, first = rows.blocks[FIELDS * l], rows.blocks[FIELDS * l + COUNT], rows.blocks[FIELDS * l + START]
            s = factor * h[at + k * q + l]
            if count == 0:
                if width == 0:
                    hessian[start, first] += s
                for b in range(width):
                    hessian[start, first + b] += s * x[left + b]
            for a in range(count):
                t = s * x[column + a]
                if width == 0:
                    hessian[start + a, first] += t
                for b in range(width if l < k else a + 1):
                    hessian[start + a, first + b] += t * x[left + b]


@inlinable(options=SUMS)
def gather_indices(
    rows: Any, index: np.ndarray, start: int, size: int, theta: np.ndarray, u: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> None:
    """Indices, responses and weights of `size` indexed rows, prefetching those that follow."""
    d = rows.columns
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(rows.records, index[start + j + AHEAD])
        x = rows.records[index[start + j]]
        add_indices(rows, x, theta, u, j * rows.indices)
        y[j] = x[d]
        weight[j] = x[d + 2]


@inlinable(options=SUMS)
def scan_indices(
    rows: Any, start: int, size: int, theta: np.ndarray, u: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> None:
    """Indices, responses and weights of `size` consecutive rows."""
    d = rows.columns
    for j in range(size):
        x = rows.records[start + j]
        add_indices(rows, x, theta, u, j * rows.indices)
        y[j] = x[d]
        weight[j] = x[d + 2]


@row_values.register(Rows)
def _row_values(rows: Rows, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    if rows.outside != 0:
        on_index(rows, ROW_VALUES, index, theta, np.empty(0), out)
        return
    k = rows.indices
    most = min(tile_rows(k), index.size)
    u, y, weight, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(0)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        if k == 1:
            gather_tile(rows.records, rows.columns, index, start, size, theta, u, y, weight)
        else:
            gather_indices(rows, index, start, size, theta, u, y, weight)
        part = out[start : start + size]
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, part, none, none)
        for j in range(size):
            part[j] *= weight[j]


@weighted_gradient.register(Rows)
def _weighted_gradient(
    rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> float:
    if rows.outside != 0:
        return on_index(rows, WEIGHTED_GRADIENT, index, theta, factors, gradient)
    k, records, d = rows.indices, rows.records, rows.columns
    most = min(tile_rows(k), index.size)
    u, y, weight, f, g, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(most * k), np.empty(0)
    total = 0.0
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        if k == 1:
            gather_tile(records, d, index, start, size, theta, u, y, weight)
        else:
            gather_indices(rows, index, start, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            weight[j] *= factors[start + j]
            part += weight[j] * f[j]
        total += part
        for j in range(size):
            x = records[index[start + j]]
            if k == 1:
                slope = weight[j] * g[j]
                for c in range(d):
                    gradient[c] += slope * x[c]
            else:
                add_gradient(rows, x, weight[j], g, j * k, gradient)
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
    k, records, d = rows.indices, rows.records, rows.columns
    most = min(tile_rows(k), index.size)
    base, shift, y, weight = np.empty(2 * most * k), np.empty(2 * most * k), np.empty(2 * most), np.empty(most)
    rest, here, there = np.empty(2 * most), theta - reference, other - reference
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        for j in range(size):
            if start + j + AHEAD < index.size:
                prefetch_row(records, index[start + j + AHEAD])
            x = records[index[start + j]]
            if k == 1:
                at, shift[j], shift[size + j] = three_dots(x, reference, here, there, d)
                base[j] = at + x[d + 1]
                base[size + j] = base[j]
            else:
                add_indices(rows, x, reference, base, j * k)
                add_shifts(rows, x, here, shift, j * k)
                add_shifts(rows, x, there, shift, (size + j) * k)
                for l in range(k):
                    base[(size + j) * k + l] = base[j * k + l]
            y[j] = x[d]
            y[size + j] = x[d]
            weight[j] = x[d + 2]
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, 2 * size, rest)
        for j in range(size):
            out[start + j] = weight[j] * (rest[size + j] - rest[j])


@proxy_values.register(Rows)
def _proxy_values(
    rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    if rows.outside != 0:
        run_outside(rows, PROXY_VALUES, index, 0, 0, (theta, theta, reference), order, np.empty(0), out, np.empty((0, 0)))
        return
    k = rows.indices
    most = min(tile_rows(k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h, change = np.empty(most), np.empty(most * k), np.empty(most * k * k), theta - reference
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        gather_indices(rows, index, start, size, reference, base, y, weight)
        for j in range(size):
            add_shifts(rows, rows.records[index[start + j]], change, shift, j * k)
        call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE, f, g, h)
        for j in range(size):
            out[start + j] = weight[j] * (f[j] + expansion(g, h, shift, j, k, min(order, 1), order))


@inlinable(options=SUMS)
def expansion(g: np.ndarray, h: np.ndarray, shift: np.ndarray, j: int, k: int, first: int, second: int) -> float:
    """Terms of first order (if `first` is at least 1) and of second order (if `second` is at least 2) of row j of a tile."""
    total = 0.0
    for a in range(k):
        if first >= 1:
            total += g[j * k + a] * shift[j * k + a]
        if second >= 2:
            for b in range(k):
                total += 0.5 * h[(j * k + a) * k + b] * shift[j * k + a] * shift[j * k + b]
    return total


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
    most = min(tile_rows(k), stop - start)
    u, y, weight, f, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(0)
    total = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        if k == 1:
            scan_tile(rows.records, rows.columns, first, size, theta, u, y, weight)
        else:
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
    k, records, d = rows.indices, rows.records, rows.columns
    most = min(tile_rows(k), stop - start)
    u, y, weight, f, g, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(most * k), np.empty(0)
    total = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        if k == 1:
            scan_tile(records, d, first, size, theta, u, y, weight)
        else:
            scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        total += part
        if k > 1:
            for j in range(size):
                add_gradient(rows, records[first + j], weight[j], g, j * k, gradient)
            continue
        for j in range(size):
            g[j] *= weight[j]
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
    return total


@inlinable(options=SUMS)
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
def add_columns(columns: np.ndarray, d: int, weight: np.ndarray, out: np.ndarray) -> None:
    """Add X' weight of one whole tile to `out`."""
    for a in range(d):
        total = 0.0
        for j in range(TILE):
            total += weight[j] * columns[a, j]
        out[a] += total


@range_hessian.register(Rows)
def _range_hessian(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    if rows.outside != 0:
        return on_range(rows, RANGE_HESSIAN, start, stop, theta, gradient, hessian)
    return one_hessian(rows, start, stop, theta, gradient, hessian) if rows.indices == 1 else several_hessian(
        rows, start, stop, theta, gradient, hessian
    )


@inlinable(options=SUMS)
def one_hessian(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Rows of one index: sums over whole tiles of columns."""
    records, d = rows.records, rows.columns
    u, y, weight = np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    f, g, h = np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    padded = -(-d // 4) * 4
    columns, gram = np.zeros((padded, STRIDE)), np.zeros((padded, padded))
    scaled = np.zeros((2, STRIDE))
    total = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_tile(records, d, first, size, theta, u, y, weight)
        transpose_tile(records, d, first, size, columns)
        call_jet(rows.tiles.jet, u, y, rows.p, 1, size, CURVATURE, f, g, h)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
            g[j] *= weight[j]
            h[j] *= weight[j]
        total += part
        for j in range(size, TILE):
            g[j] = 0.0
            h[j] = 0.0
        add_columns(columns, d, g, gradient)
        add_gram(columns, h, scaled, gram)
    for a in range(d):
        for b in range(a + 1):
            hessian[a, b] += gram[a, b]
    return total


@inlinable(options=SUMS)
def several_hessian(
    rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    """Rows of several indices: one row after the other."""
    k = rows.indices
    most = min(tile_rows(k), stop - start)
    u, y, weight = np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h = np.empty(most), np.empty(most * k), np.empty(most * k * k)
    total = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        for j in range(size):
            total += weight[j] * f[j]
            add_gradient(rows, rows.records[first + j], weight[j], g, j * k, gradient)
            add_hessian(rows, rows.records[first + j], weight[j], h, j * k * k, hessian)
    return total

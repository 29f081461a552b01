"""Row verbs: the functions through which everything else sees rows.

Verbs on an index array serve subsampling; verbs on a range `[start, stop)` serve full passes. All are generic over the
kind of rows: `SingleIndex` here (one linear predictor), `MultiIndex` in `multi.py` (several, or a nuisance parameter).
Gradients and Hessians are added to the array given, so that a caller can accumulate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, SUMS, declared, generic, inlinable
from tallbayes.engine.arithmetic import elements_per_line, prefetch
from tallbayes.engine.family_functions import jet1, jet2, residual, value

TILE = 256  # rows per tile: the buffers of a tile stay in the first-level cache
STRIDE = TILE + 8  # columns of a transposed tile a power of two apart would fall into the same few sets of the cache
AHEAD = 16  # rows between a prefetch and its use: at about 6 ns per row this hides a memory latency of 100 ns


class SingleIndex(NamedTuple):
    """Rows of a model with one linear predictor: eta_i = x_i . theta + offset_i."""

    family: Any
    records: np.ndarray  # (n, width): x, y, offset, weight, padding
    columns: int


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


@row_values.register(SingleIndex)
def _row_values(rows: SingleIndex, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        gather_tile(rows.records, rows.columns, index, start, size, theta, eta, y, weight)
        for j in range(size):
            out[start + j] = weight[j] * value(rows.family, eta[j], y[j])


@weighted_gradient.register(SingleIndex)
def _weighted_gradient(
    rows: SingleIndex, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> float:
    records, d = rows.records, rows.columns
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    total = 0.0
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        gather_tile(records, d, index, start, size, theta, eta, y, weight)
        part = 0.0
        for j in range(size):
            f, slope = jet1(rows.family, eta[j], y[j])
            factor = weight[j] * factors[start + j]
            part += factor * f
            eta[j] = factor * slope
        total += part
        for j in range(size):
            x, slope = records[index[start + j]], eta[j]
            for c in range(d):
                gradient[c] += slope * x[c]
    return total


@residual_differences.register(SingleIndex)
def _residual_differences(
    rows: SingleIndex, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    records, d = rows.records, rows.columns
    first, second, base = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    y, weight = np.empty(TILE), np.empty(TILE)
    here, there = theta[:d] - reference[:d], other[:d] - reference[:d]
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        for j in range(size):
            if start + j + AHEAD < index.size:
                prefetch_row(records, index[start + j + AHEAD])
            x = records[index[start + j]]
            base[j], first[j], second[j] = three_dots(x, reference, here, there, d)
            base[j] += x[d + 1]
            y[j] = x[d]
            weight[j] = x[d + 2]
        for j in range(size):
            gap = residual(rows.family, base[j], y[j], second[j]) - residual(rows.family, base[j], y[j], first[j])
            out[start + j] = weight[j] * gap


@proxy_values.register(SingleIndex)
def _proxy_values(
    rows: SingleIndex, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    records, d = rows.records, rows.columns
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(records, index[j + AHEAD])
        x = records[index[j]]
        base = dot(x, reference, d)
        shift = dot(x, theta, d) - base
        f, slope, curvature = jet2(rows.family, base + x[d + 1], x[d])
        total = f
        if order >= 1:
            total += slope * shift
        if order >= 2:
            total += 0.5 * curvature * shift * shift
        out[j] = x[d + 2] * total


@range_value.register(SingleIndex)
def _range_value(rows: SingleIndex, start: int, stop: int, theta: np.ndarray) -> float:
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    total = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_tile(rows.records, rows.columns, first, size, theta, eta, y, weight)
        part = 0.0
        for j in range(size):
            part += weight[j] * value(rows.family, eta[j], y[j])
        total += part
    return total


@range_gradient.register(SingleIndex)
def _range_gradient(rows: SingleIndex, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    records, d = rows.records, rows.columns
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    total = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_tile(records, d, first, size, theta, eta, y, weight)
        part = 0.0
        for j in range(size):
            f, slope = jet1(rows.family, eta[j], y[j])
            part += weight[j] * f
            eta[j] = weight[j] * slope
        total += part
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1, x2, x3 = records[first + j], records[first + j + 1], records[first + j + 2], records[first + j + 3]
            s0, s1, s2, s3 = eta[j], eta[j + 1], eta[j + 2], eta[j + 3]
            for c in range(d):
                gradient[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[first + j], eta[j]
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


@range_hessian.register(SingleIndex)
def _range_hessian(
    rows: SingleIndex, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    records, d = rows.records, rows.columns
    eta, y, weight = np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    padded = -(-d // 4) * 4
    columns, gram = np.zeros((padded, STRIDE)), np.zeros((padded, padded))
    curvature, scaled = np.zeros(TILE), np.zeros((2, STRIDE))
    total = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_tile(records, d, first, size, theta, eta, y, weight)
        transpose_tile(records, d, first, size, columns)
        part = 0.0
        for j in range(size):
            f, slope, second = jet2(rows.family, eta[j], y[j])
            part += weight[j] * f
            eta[j] = weight[j] * slope
            curvature[j] = weight[j] * second
        total += part
        for j in range(size, TILE):
            eta[j] = 0.0
            curvature[j] = 0.0
        add_columns(columns, d, eta, gradient)
        add_gram(columns, curvature, scaled, gram)
    for a in range(d):
        for b in range(a + 1):
            hessian[a, b] += gram[a, b]
    return total

"""Row verbs of control variates: residuals l_i - q_i of a Taylor proxy of order 0, 1 or 2, and their gradients.

A gradient is kept as the derivative of the residual in the linear predictors (and nuisances) of its row, a few numbers, so
that rows can be summed with factors that are known only after all residuals are. Everything includes the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable, jit
from tallbayes.engine.failures import raise_failure, with_own_answers
from tallbayes.engine.ledger import record
from tallbayes.engine.outside import ADD_CURVATURES, ADD_SLOPES, RESIDUAL_SLOPES, RESIDUAL_VALUES
from tallbayes.engine.rows import (
    NUMBERED,
    Rows,
    add_gradients,
    columns_of,
    expand,
    expand_slopes,
    gather_indices,
    record_numbers,
    run_outside,
    shift_indices,
    tile_rows,
    weigh,
)
from tallbayes.engine.tiles import CURVATURE, CURVATURE_ALONE, SLOPE_ALONE, call_jet, call_residual


@generic
@declared
def slope_count(rows: Any) -> int:
    """Numbers that describe the gradient of one row."""
    raise TypeError


@generic(options=SUMS)
@declared
def residual_values(
    rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    """out[j] = l_i(theta) less its Taylor expansion at `reference` to `order`, i = index[j]."""


@generic(options=SUMS)
@declared
def residual_slopes(
    rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray, slopes: np.ndarray
) -> None:
    """The same, with derivatives in the linear predictors in the rows of `slopes`."""


@generic(options=SUMS)
@declared
def add_slopes(rows: Any, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    """Add sum_j factors[j] times the gradient in theta that slopes[j] describes."""


@generic(options=SUMS)
@declared
def add_curvatures(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    """Add the lower triangle of sum_j factors[j] times the Hessian of l_i at theta."""


@slope_count.register(Rows)
def _slope_count(rows: Rows) -> int:
    return rows.slopes


@residual_values.register(Rows)
def _residual_values(
    rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, RESIDUAL_VALUES, index, 0, 0, (theta, theta, reference), order, np.empty(0), out, np.empty((0, 0)))
        return
    k = rows.indices
    each = 2 * k if order == 2 else k * k
    most = min(tile_rows(k, each), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    f, change = np.empty(most), theta - reference
    g, h = np.empty(most * k if order < 2 else 0), np.empty(most * k * k if order < 2 else 0)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        shift_indices(rows, index, start, size, reference, change, base, shift, y, weight)
        part = out[start : start + size]
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, size, part)
        if order < 2:
            call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE_ALONE, f, g, h)
            expand(g, h, shift, k, size, 2, order + 1, part)
        weigh(part, weight, 1, size)


@residual_slopes.register(Rows)
def _residual_slopes(
    rows: Rows,
    index: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    out: np.ndarray,
    slopes: np.ndarray,
) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, RESIDUAL_SLOPES, index, 0, 0, (theta, theta, reference), order, np.empty(0), out, slopes)
        return
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    base, shift, y, weight = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h, there, change = np.empty(most), np.empty(most * k), np.empty(most * k * k), np.empty(most * k), theta - reference
    none = np.empty(0)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        shift_indices(rows, index, start, size, reference, change, base, shift, y, weight)
        part = out[start : start + size]
        call_residual(rows.tiles.residual, base, shift, y, rows.p, k, size, part)
        call_jet(rows.tiles.jet, base, y, rows.p, k, size, CURVATURE_ALONE, f, g, h)
        if order < 2:
            expand(g, h, shift, k, size, 2, order + 1, part)
        expand_slopes(g, h, shift, k, size, order)
        for j in range(k * size):
            shift[j] += base[j]
        call_jet(rows.tiles.jet, shift, y, rows.p, k, size, SLOPE_ALONE, f, there, none)
        weigh(part, weight, 1, size)
        for a in range(k):
            for j in range(size):
                slopes[start + j, a] = weight[j] * (there[a * size + j] - g[a * size + j])


@inlinable(options=SUMS)
def one_slopes(
    records: np.ndarray, d: int, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray
) -> None:
    """Rows of one index, four at a time."""
    fours = index.size // 4 * 4
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = records[index[j]], records[index[j + 1]], records[index[j + 2]], records[index[j + 3]]
        s0, s1 = factors[j] * slopes[j, 0], factors[j + 1] * slopes[j + 1, 0]
        s2, s3 = factors[j + 2] * slopes[j + 2, 0], factors[j + 3] * slopes[j + 3, 0]
        for c in range(d):
            gradient[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
    for j in range(fours, index.size):
        x, slope = records[index[j]], factors[j] * slopes[j, 0]
        for c in range(d):
            gradient[c] += slope * x[c]


@add_slopes.register(Rows)
def _add_slopes(rows: Rows, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    if rows.indices == 1 and rows.place != NUMBERED:
        one_slopes(rows.records, rows.columns, index, slopes, factors, gradient)
        return
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, ADD_SLOPES, index, 0, 0, (factors, factors, factors), 0, factors, gradient, slopes)
        return
    k = rows.indices
    most = min(tile_rows(k, k), index.size)
    g = np.empty(most * k)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        for a in range(k):
            for j in range(size):
                g[a * size + j] = factors[start + j] * slopes[start + j, a]
        add_gradients(rows, index[start : start + size], size, g, 0, gradient)


@add_curvatures.register(Rows)
def _add_curvatures(rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, ADD_CURVATURES, index, 0, 0, (theta, theta, theta), 0, factors, np.empty(0), hessian)
        return
    k = rows.indices
    most = min(tile_rows(k, k * k), index.size)
    u, y, weight = np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h = np.empty(most), np.empty(most * k), np.empty(most * k * k)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        gather_indices(rows, index, start, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        for j in range(size):
            add_curvature(rows, rows.records[index[start + j]], factors[start + j] * weight[j], h, j, size, hessian)


@inlinable(options=SUMS)
def add_curvature(rows: Any, x: np.ndarray, factor: float, h: np.ndarray, j: int, size: int, hessian: np.ndarray) -> None:
    """Add the lower triangle of the Hessian in theta of row j of a tile, from the one in its indices."""
    q = rows.indices
    for k in range(q):
        column, count, start, _ = columns_of(rows, k)
        for l in range(k + 1):
            left, width, first, _ = columns_of(rows, l)
            s = factor * h[(k * q + l) * size + j]
            for a in range(max(count, 1)):
                t = s * x[column + a] if count > 0 else s
                for b in range(a + 1 if k == l else max(width, 1)):
                    hessian[start + a, first + b] += t * x[left + b] if width > 0 else t


@jit(options=SUMS)
def _values_at(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    residual_values(rows, index, theta, reference, order, out)


def control_residuals(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int) -> np.ndarray:
    """l_i - q_i of the indexed rows, for set-up computations: one evaluation per row."""
    record(index.size)
    rows, out = with_own_answers(rows), np.empty(index.size)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, reference)]
    _values_at(rows, np.ascontiguousarray(index, np.int64), *points, order, out)
    raise_failure(rows)
    return out

"""Row verbs of control variates: residuals l_i - q_i of a Taylor proxy of order 0, 1 or 2, and their gradients.

A gradient is kept as the derivative of the residual in the linear predictors (and nuisances) of its row, a few numbers, so
that rows can be summed with factors that are known only after all residuals are. Everything includes the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable, jit
from tallbayes.engine.ledger import record
from tallbayes.engine.outside import ADD_CURVATURES, ADD_SLOPES, RESIDUAL_SLOPES, RESIDUAL_VALUES
from tallbayes.engine.rows import (
    AHEAD,
    Rows,
    add_gradient,
    add_hessian,
    add_indices,
    add_shifts,
    expansion,
    gather_indices,
    prefetch_row,
    record_numbers,
    run_outside,
    shift_tile,
    tile_rows,
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


@inlinable(options=SUMS)
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
    """Indices at a reference, their change, responses and weights of `size` indexed rows."""
    d, k = rows.columns, rows.indices
    if k == 1:
        shift_tile(rows.records, d, index, start, size, reference, change, base, shift, y, weight)
        return
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(rows.records, index[start + j + AHEAD])
        x = rows.records[index[start + j]]
        add_indices(rows, x, reference, base, j * k)
        add_shifts(rows, x, change, shift, j * k)
        y[j] = x[d]
        weight[j] = x[d + 2]


@residual_values.register(Rows)
def _residual_values(
    rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, RESIDUAL_VALUES, index, 0, 0, (theta, theta, reference), order, np.empty(0), out, np.empty((0, 0)))
        return
    k = rows.indices
    most = min(tile_rows(k), index.size)
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
            for j in range(size):
                part[j] += expansion(g, h, shift, j, k, 1 - order, 2)
        for j in range(size):
            part[j] *= weight[j]


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
    most = min(tile_rows(k), index.size)
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
            for j in range(size):
                part[j] += expansion(g, h, shift, j, k, 1 - order, 2)
        if k == 1:
            for j in range(size):
                g[j] = g[j] + h[j] * shift[j] if order == 2 else (g[j] if order == 1 else 0.0)
                shift[j] += base[j]
        else:
            for j in range(size):
                for a in range(k):
                    known = g[j * k + a] if order >= 1 else 0.0
                    if order >= 2:
                        for b in range(k):
                            known += h[(j * k + a) * k + b] * shift[j * k + b]
                    g[j * k + a] = known
                for a in range(k):
                    shift[j * k + a] += base[j * k + a]
        call_jet(rows.tiles.jet, shift, y, rows.p, k, size, SLOPE_ALONE, f, there, none)
        for j in range(size):
            part[j] *= weight[j]
            for a in range(k):
                slopes[start + j, a] = weight[j] * (there[j * k + a] - g[j * k + a])


@add_slopes.register(Rows)
def _add_slopes(rows: Rows, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, ADD_SLOPES, index, 0, 0, (factors, factors, factors), 0, factors, gradient, slopes)
        return
    if rows.indices > 1:
        for j in range(index.size):
            add_gradient(rows, rows.records[index[j]], factors[j], slopes[j], 0, gradient)
        return
    d = rows.columns
    fours = index.size // 4 * 4
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = (
            rows.records[index[j]],
            rows.records[index[j + 1]],
            rows.records[index[j + 2]],
            rows.records[index[j + 3]],
        )
        s0, s1 = factors[j] * slopes[j, 0], factors[j + 1] * slopes[j + 1, 0]
        s2, s3 = factors[j + 2] * slopes[j + 2, 0], factors[j + 3] * slopes[j + 3, 0]
        for c in range(d):
            gradient[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
    for j in range(fours, index.size):
        x, slope = rows.records[index[j]], factors[j] * slopes[j, 0]
        for c in range(d):
            gradient[c] += slope * x[c]


@add_curvatures.register(Rows)
def _add_curvatures(rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    index = record_numbers(rows, index)
    if rows.outside != 0:
        run_outside(rows, ADD_CURVATURES, index, 0, 0, (theta, theta, theta), 0, factors, np.empty(0), hessian)
        return
    k = rows.indices
    most = min(tile_rows(k), index.size)
    u, y, weight = np.empty(most * k), np.empty(most), np.empty(most)
    f, g, h = np.empty(most), np.empty(most * k), np.empty(most * k * k)
    for start in range(0, index.size, max(most, 1)):
        size = min(most, index.size - start)
        gather_indices(rows, index, start, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        for j in range(size):
            add_hessian(rows, rows.records[index[start + j]], factors[start + j] * weight[j], h, j * k * k, hessian)


@jit(options=SUMS)
def _values_at(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    residual_values(rows, index, theta, reference, order, out)


def control_residuals(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int) -> np.ndarray:
    """l_i - q_i of the indexed rows, for set-up computations: one evaluation per row."""
    record(index.size)
    out = np.empty(index.size)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, reference)]
    _values_at(rows, np.ascontiguousarray(index, np.int64), *points, order, out)
    return out

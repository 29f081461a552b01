"""Row verbs of control variates: residuals l_i - q_i of a Taylor proxy of order 0, 1 or 2, and their gradients.

A gradient is kept as the derivative of the residual in the linear predictors (and nuisances) of its row, a few numbers, so
that rows can be summed with factors that are known only after all residuals are. Everything includes the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, jit
from tallbayes.engine.family_functions import jet1, jet2, residual
from tallbayes.engine.ledger import record
from tallbayes.engine.multi_index import (
    BlockIndex,
    MultiIndex,
    _add_gradient,
    _add_hessian,
    _indices,
    _shifts,
    vector_gradient,
    vector_hessian,
    vector_residual,
)
from tallbayes.engine.rows import AHEAD, TILE, SingleIndex, dot, prefetch_row, shift_tile


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


@slope_count.register(SingleIndex)
def _one_slope(rows: SingleIndex) -> int:
    return 1


@residual_values.register(SingleIndex)
def _single_values(
    rows: SingleIndex, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    d = rows.columns
    base, shift, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    change = theta - reference
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        shift_tile(rows.records, d, index, start, size, reference, change, base, shift, y, weight)
        for j in range(size):
            out[start + j] = weight[j] * residual(rows.family, base[j], y[j], shift[j])
        if order < 2:
            for j in range(size):
                _, slope, curvature = jet2(rows.family, base[j], y[j])
                first = slope if order < 1 else 0.0
                out[start + j] += weight[j] * shift[j] * (first + 0.5 * curvature * shift[j])


@residual_slopes.register(SingleIndex)
def _single_slopes(
    rows: SingleIndex,
    index: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    out: np.ndarray,
    slopes: np.ndarray,
) -> None:
    d = rows.columns
    base, shift, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    change = theta - reference
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        shift_tile(rows.records, d, index, start, size, reference, change, base, shift, y, weight)
        for j in range(size):
            out[start + j] = weight[j] * residual(rows.family, base[j], y[j], shift[j])
        for j in range(size):
            _, slope, curvature = jet2(rows.family, base[j], y[j])
            _, there = jet1(rows.family, base[j] + shift[j], y[j])
            if order < 2:
                first = slope if order < 1 else 0.0
                out[start + j] += weight[j] * shift[j] * (first + 0.5 * curvature * shift[j])
            known = slope + curvature * shift[j] if order == 2 else (slope if order == 1 else 0.0)
            slopes[start + j, 0] = weight[j] * (there - known)


@add_slopes.register(SingleIndex)
def _single_add(rows: SingleIndex, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
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


@add_curvatures.register(SingleIndex)
def _single_curvatures(
    rows: SingleIndex, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray
) -> None:
    d = rows.columns
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        second = jet2(rows.family, dot(x, theta, d) + x[d + 1], x[d])[2]
        s = factors[j] * x[d + 2] * second
        for a in range(d):
            t = s * x[a]
            for b in range(a + 1):
                hessian[a, b] += t * x[b]


@slope_count.register(BlockIndex)
@slope_count.register(MultiIndex)
def _several_slopes(rows: MultiIndex) -> int:
    return rows.predictors + rows.nuisances


@residual_values.register(BlockIndex)
@residual_values.register(MultiIndex)
def _multi_values(
    rows: MultiIndex, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    q = rows.predictors + rows.nuisances
    base, shift, g, h = np.empty(q), np.empty(q), np.empty(q), np.empty((q, q))
    change = theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        _indices(rows, x, reference, base)
        _shifts(rows, x, change, shift)
        total = vector_residual(rows.family, base, shift, x[rows.columns])
        if order < 2:
            vector_hessian(rows.family, base, x[rows.columns], g, h)
            for k in range(q):
                if order < 1:
                    total += g[k] * shift[k]
                for l in range(q):
                    total += 0.5 * h[k, l] * shift[k] * shift[l]
        out[j] = x[rows.columns + 2] * total


@residual_slopes.register(BlockIndex)
@residual_slopes.register(MultiIndex)
def _multi_slopes(
    rows: MultiIndex,
    index: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    out: np.ndarray,
    slopes: np.ndarray,
) -> None:
    q = rows.predictors + rows.nuisances
    base, shift = np.empty(q), np.empty(q)
    g, h, there = np.empty(q), np.empty((q, q)), np.empty(q)
    change = theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        y, weight = x[rows.columns], x[rows.columns + 2]
        _indices(rows, x, reference, base)
        _shifts(rows, x, change, shift)
        total = vector_residual(rows.family, base, shift, y)
        vector_hessian(rows.family, base, y, g, h)
        vector_gradient(rows.family, base + shift, y, there)
        for k in range(q):
            known = g[k] if order >= 1 else 0.0
            if order < 1:
                total += g[k] * shift[k]
            for l in range(q):
                if order < 2:
                    total += 0.5 * h[k, l] * shift[k] * shift[l]
                else:
                    known += h[k, l] * shift[l]
            slopes[j, k] = weight * (there[k] - known)
        out[j] = weight * total


@add_slopes.register(BlockIndex)
@add_slopes.register(MultiIndex)
def _multi_add(rows: MultiIndex, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    for j in range(index.size):
        _add_gradient(rows, rows.records[index[j]], factors[j], slopes[j], gradient)


@add_curvatures.register(BlockIndex)
@add_curvatures.register(MultiIndex)
def _multi_curvatures(rows: MultiIndex, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    q = rows.predictors + rows.nuisances
    u, g, h = np.empty(q), np.empty(q), np.empty((q, q))
    for j in range(index.size):
        x = rows.records[index[j]]
        _indices(rows, x, theta, u)
        vector_hessian(rows.family, u, x[rows.columns], g, h)
        _add_hessian(rows, x, factors[j] * x[rows.columns + 2], h, hessian)


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

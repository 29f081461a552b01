"""Row verbs of models with several linear predictors, or with one and nuisance parameters.

A row depends on a short vector u = (eta_1 .. eta_K, nuisance): u_k = x . theta_k + offset for K blocks of theta, followed
by the last elements of theta as they are. The family gives value, gradient and Hessian in u; the chain rule is here.

Predictors of a `MultiIndex` share the columns of a row. The two of a `BlockIndex` have columns of their own, one block after the other,
and the offset belongs to the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable
from tallbayes.engine.rows import (
    AHEAD,
    dot,
    prefetch_row,
    proxy_values,
    range_gradient,
    range_hessian,
    range_value,
    residual_differences,
    row_values,
    weighted_gradient,
)
from tallbayes.engine.survey import range_norms


class MultiIndex(NamedTuple):
    """Rows whose likelihood depends on `predictors` linear predictors and `nuisances` further parameters."""

    family: Any
    records: np.ndarray
    columns: int
    predictors: int
    nuisances: int


class BlockIndex(NamedTuple):
    """Rows with two linear predictors: of the first columns and offset, and of the other columns; then `nuisances` parameters."""

    family: Any
    records: np.ndarray
    columns: int
    first: int  # columns of the first predictor
    predictors: int  # two
    nuisances: int


@generic
@declared
def vector_value(family: Any, u: np.ndarray, y: float) -> float:
    """Log-likelihood of a row in u."""
    raise TypeError


@generic
@declared
def vector_gradient(family: Any, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    """Value; the gradient in u is written to `gradient`."""
    raise TypeError


@generic
@declared
def vector_hessian(family: Any, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Value; gradient and whole Hessian in u are written."""
    raise TypeError


@inlinable(options=SUMS)
def _taylor(value: float, g: np.ndarray, h: np.ndarray, shift: np.ndarray) -> float:
    total = value
    for k in range(shift.size):
        total += g[k] * shift[k]
        for l in range(shift.size):
            total += 0.5 * h[k, l] * shift[k] * shift[l]
    return total


@generic
def vector_residual(family: Any, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """Value at base + shift less its second-order Taylor expansion at `base`; families override it to avoid cancellation."""
    g, h = np.empty(base.size), np.empty((base.size, base.size))
    f = vector_hessian(family, base, y, g, h)
    return vector_value(family, base + shift, y) - _taylor(f, g, h, shift)


@generic(options=SUMS)
@declared
def _indices(rows: Any, x: np.ndarray, theta: np.ndarray, u: np.ndarray) -> None:
    """u of a row at theta."""


@generic(options=SUMS)
@declared
def _shifts(rows: Any, x: np.ndarray, change: np.ndarray, u: np.ndarray) -> None:
    """The change of u with a change of theta."""


@generic(options=SUMS)
@declared
def _add_gradient(rows: Any, x: np.ndarray, factor: float, g: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient in theta of a row, from the one in u."""


@generic(options=SUMS)
@declared
def _add_hessian(rows: Any, x: np.ndarray, factor: float, h: np.ndarray, hessian: np.ndarray) -> None:
    """Add the lower triangle of the Hessian in theta of a row, from the one in u."""


@_indices.register(MultiIndex)
def _multi_indices(rows: MultiIndex, x: np.ndarray, theta: np.ndarray, u: np.ndarray) -> None:
    d = rows.columns
    for k in range(rows.predictors):
        u[k] = dot(x, theta[k * d : k * d + d], d) + x[d + 1]
    for k in range(rows.nuisances):
        u[rows.predictors + k] = theta[rows.predictors * d + k]


@_shifts.register(MultiIndex)
def _multi_shifts(rows: MultiIndex, x: np.ndarray, change: np.ndarray, u: np.ndarray) -> None:
    d = rows.columns
    for k in range(rows.predictors):
        u[k] = dot(x, change[k * d : k * d + d], d)
    for k in range(rows.nuisances):
        u[rows.predictors + k] = change[rows.predictors * d + k]


@_add_gradient.register(MultiIndex)
def _multi_add_gradient(rows: MultiIndex, x: np.ndarray, factor: float, g: np.ndarray, gradient: np.ndarray) -> None:
    d = rows.columns
    for k in range(rows.predictors):
        slope, base = factor * g[k], k * d
        for c in range(d):
            gradient[base + c] += slope * x[c]
    for k in range(rows.nuisances):
        gradient[rows.predictors * d + k] += factor * g[rows.predictors + k]


@_add_hessian.register(MultiIndex)
def _multi_add_hessian(rows: MultiIndex, x: np.ndarray, factor: float, h: np.ndarray, hessian: np.ndarray) -> None:
    d, p = rows.columns, rows.predictors
    for k in range(p):
        for l in range(k + 1):
            for a in range(d):
                s = factor * h[k, l] * x[a]
                for b in range(d if l < k else a + 1):
                    hessian[k * d + a, l * d + b] += s * x[b]
    for k in range(rows.nuisances):
        for l in range(p):
            s = factor * h[p + k, l]
            for b in range(d):
                hessian[p * d + k, l * d + b] += s * x[b]
        for l in range(k + 1):
            hessian[p * d + k, p * d + l] += factor * h[p + k, p + l]


@_indices.register(BlockIndex)
def _block_indices(rows: BlockIndex, x: np.ndarray, theta: np.ndarray, u: np.ndarray) -> None:
    _block_shifts(rows, x, theta, u)
    u[0] += x[rows.columns + 1]


@_shifts.register(BlockIndex)
@inlinable(options=SUMS)
def _block_shifts(rows: BlockIndex, x: np.ndarray, change: np.ndarray, u: np.ndarray) -> None:
    d, first = rows.columns, rows.first
    u[0] = dot(x, change[:first], first)
    u[1] = dot(x[first:d], change[first:d], d - first)
    for k in range(rows.nuisances):
        u[2 + k] = change[d + k]


@_add_gradient.register(BlockIndex)
def _block_add_gradient(rows: BlockIndex, x: np.ndarray, factor: float, g: np.ndarray, gradient: np.ndarray) -> None:
    d, first = rows.columns, rows.first
    for c in range(first):
        gradient[c] += factor * g[0] * x[c]
    for c in range(first, d):
        gradient[c] += factor * g[1] * x[c]
    for k in range(rows.nuisances):
        gradient[d + k] += factor * g[2 + k]


@_add_hessian.register(BlockIndex)
def _block_add_hessian(rows: BlockIndex, x: np.ndarray, factor: float, h: np.ndarray, hessian: np.ndarray) -> None:
    d, first = rows.columns, rows.first
    for a in range(d):
        own = 0 if a < first else 1
        left, right = factor * h[own, 0] * x[a], factor * h[own, 1] * x[a]
        for b in range(min(a + 1, first)):
            hessian[a, b] += left * x[b]
        for b in range(first, a + 1):
            hessian[a, b] += right * x[b]
    for k in range(rows.nuisances):
        for b in range(d):
            hessian[d + k, b] += factor * h[2 + k, 0 if b < first else 1] * x[b]
        for l in range(k + 1):
            hessian[d + k, d + l] += factor * h[2 + k, 2 + l]


@row_values.register(BlockIndex)
@row_values.register(MultiIndex)
def _row_values(rows: MultiIndex, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    u = np.empty(rows.predictors + rows.nuisances)
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        _indices(rows, x, theta, u)
        out[j] = x[rows.columns + 2] * vector_value(rows.family, u, x[rows.columns])


@weighted_gradient.register(BlockIndex)
@weighted_gradient.register(MultiIndex)
def _weighted_gradient(
    rows: MultiIndex, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> float:
    q = rows.predictors + rows.nuisances
    u, g = np.empty(q), np.empty(q)
    total = 0.0
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        _indices(rows, x, theta, u)
        factor = factors[j] * x[rows.columns + 2]
        total += factor * vector_gradient(rows.family, u, x[rows.columns], g)
        _add_gradient(rows, x, factor, g, gradient)
    return total


@residual_differences.register(BlockIndex)
@residual_differences.register(MultiIndex)
def _residual_differences(
    rows: MultiIndex, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    q = rows.predictors + rows.nuisances
    base, first, second = np.empty(q), np.empty(q), np.empty(q)
    here, there = theta - reference, other - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        y = x[rows.columns]
        _indices(rows, x, reference, base)
        _shifts(rows, x, here, first)
        _shifts(rows, x, there, second)
        gap = vector_residual(rows.family, base, second, y) - vector_residual(rows.family, base, first, y)
        out[j] = x[rows.columns + 2] * gap


@proxy_values.register(BlockIndex)
@proxy_values.register(MultiIndex)
def _proxy_values(
    rows: MultiIndex, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    q = rows.predictors + rows.nuisances
    base, shift, g, h = np.empty(q), np.empty(q), np.empty(q), np.empty((q, q))
    for j in range(index.size):
        x = rows.records[index[j]]
        _indices(rows, x, reference, base)
        _indices(rows, x, theta, shift)
        f = vector_hessian(rows.family, base, x[rows.columns], g, h)
        for k in range(q):
            shift[k] -= base[k]
        if order < 2:
            h[:] = 0.0
        if order < 1:
            g[:] = 0.0
        out[j] = x[rows.columns + 2] * _taylor(f, g, h, shift)


@range_value.register(BlockIndex)
@range_value.register(MultiIndex)
def _range_value(rows: MultiIndex, start: int, stop: int, theta: np.ndarray) -> float:
    u = np.empty(rows.predictors + rows.nuisances)
    total = 0.0
    for i in range(start, stop):
        x = rows.records[i]
        _indices(rows, x, theta, u)
        total += x[rows.columns + 2] * vector_value(rows.family, u, x[rows.columns])
    return total


@range_gradient.register(BlockIndex)
@range_gradient.register(MultiIndex)
def _range_gradient(rows: MultiIndex, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    q = rows.predictors + rows.nuisances
    u, g = np.empty(q), np.empty(q)
    total = 0.0
    for i in range(start, stop):
        x = rows.records[i]
        _indices(rows, x, theta, u)
        weight = x[rows.columns + 2]
        total += weight * vector_gradient(rows.family, u, x[rows.columns], g)
        _add_gradient(rows, x, weight, g, gradient)
    return total


@range_hessian.register(BlockIndex)
@range_hessian.register(MultiIndex)
def _range_hessian(
    rows: MultiIndex, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    q = rows.predictors + rows.nuisances
    u, g, h = np.empty(q), np.empty(q), np.empty((q, q))
    total = 0.0
    for i in range(start, stop):
        x = rows.records[i]
        _indices(rows, x, theta, u)
        weight = x[rows.columns + 2]
        total += weight * vector_hessian(rows.family, u, x[rows.columns], g, h)
        _add_gradient(rows, x, weight, g, gradient)
        _add_hessian(rows, x, weight, h, hessian)
    return total


@range_norms.register(MultiIndex)
def _range_norms(rows: MultiIndex, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """Largest singular value's upper bound: the Frobenius norm of the Jacobian of u times the factor."""
    d = rows.columns
    for i in range(start, stop):
        x = rows.records[i]
        total = 0.0
        for k in range(factor.shape[1]):
            for block in range(rows.predictors):
                projection = 0.0
                for c in range(d):
                    projection += factor[block * d + c, k] * x[c]
                total += projection * projection
            for m in range(rows.nuisances):
                total += factor[rows.predictors * d + m, k] ** 2
        out[i - start] = np.sqrt(total)


@range_norms.register(BlockIndex)
def _block_norms(rows: BlockIndex, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """The same of two predictors with columns of their own."""
    d, first = rows.columns, rows.first
    for i in range(start, stop):
        x = rows.records[i]
        total = 0.0
        for k in range(factor.shape[1]):
            left, right = 0.0, 0.0
            for c in range(first):
                left += factor[c, k] * x[c]
            for c in range(first, d):
                right += factor[c, k] * x[c]
            total += left * left + right * right
            for m in range(rows.nuisances):
                total += factor[d + m, k] ** 2
        out[i - start] = np.sqrt(total)

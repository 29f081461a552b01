"""Row verb of stochastic gradients: gradients of l_i - q_i, q_i the Taylor proxy of order 0, 1 or 2 of a row at a reference.

Order 0 leaves the gradient of the row itself (the constant proxy has none), order 1 takes its gradient at the reference
off, order 2 also the change that the Hessian there predicts. Rows are summed with factors, weights included, and added to
the array given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic
from tallbayes.engine.bursts import BURST, burst_rows, request_rows
from tallbayes.engine.family_functions import jet1, slope_residual
from tallbayes.engine.multi_index import (
    BlockIndex,
    MultiIndex,
    _add_gradient,
    _indices,
    _shifts,
    vector_gradient,
    vector_hessian,
)
from tallbayes.engine.rows import AHEAD, SingleIndex, prefetch_row


@generic(options=SUMS)
@declared
def control_gradient(
    rows: Any,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    """Add the sum of factors[j] grad (l_i - q_i)(theta), i = index[j], to `gradient`."""


@generic
def expect_rows(rows: Any, index: np.ndarray) -> None:
    """Ask for the first rows of an index that is read soon; nothing where records are not read one by one."""
    return


@expect_rows.register(SingleIndex)
def _expect_records(rows: SingleIndex, index: np.ndarray) -> None:
    request_rows(rows.records, index, 0, burst_rows(rows.records))


@control_gradient.register(SingleIndex)
def _single(
    rows: SingleIndex,
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
    base, shift, y, weight = np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(BURST)
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
            weight[j] = x[d + 2]
        if order == 2:
            for j in range(size):
                shift[j] = factors[start + j] * weight[j] * slope_residual(rows.family, base[j], y[j], shift[j])
        elif order == 1:
            for j in range(size):
                there = jet1(rows.family, base[j] + shift[j], y[j])[1]
                shift[j] = factors[start + j] * weight[j] * (there - jet1(rows.family, base[j], y[j])[1])
        else:
            for j in range(size):
                shift[j] = factors[start + j] * weight[j] * jet1(rows.family, base[j] + shift[j], y[j])[1]
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1 = records[index[start + j]], records[index[start + j + 1]]
            x2, x3 = records[index[start + j + 2]], records[index[start + j + 3]]
            s0, s1, s2, s3 = shift[j], shift[j + 1], shift[j + 2], shift[j + 3]
            for c in range(width):
                total[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[index[start + j]], shift[j]
            for c in range(width):
                total[c] += slope * x[c]
    for c in range(d):
        gradient[c] += total[c]


@control_gradient.register(BlockIndex)
@control_gradient.register(MultiIndex)
def _multi(
    rows: MultiIndex,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    q = rows.predictors + rows.nuisances
    base, shift, there = np.empty(q), np.empty(q), np.empty(q)
    known, hessian = np.empty(q), np.empty((q, q))
    change = theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        y = x[rows.columns]
        _indices(rows, x, reference, base)
        _shifts(rows, x, change, shift)
        vector_gradient(rows.family, base + shift, y, there)
        if order >= 1:
            vector_hessian(rows.family, base, y, known, hessian)
            for k in range(q):
                there[k] -= known[k]
                if order >= 2:
                    for l in range(q):
                        there[k] -= hessian[k, l] * shift[l]
        _add_gradient(rows, x, factors[j] * x[rows.columns + 2], there, gradient)

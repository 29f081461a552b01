"""Row verb of stochastic gradients: gradients of l_i - q_i, q_i the Taylor proxy of order 0, 1 or 2 of a row at a reference.

Order 0 leaves the gradient of the row itself (the constant proxy has none), order 1 takes its gradient at the reference
off, order 2 also the change that the Hessian there predicts. Rows are summed with factors, weights included, and added to
the array given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable
from tallbayes.engine.bursts import BURST, burst_rows, request_rows
from tallbayes.engine.outside import CONTROL_GRADIENT
from tallbayes.engine.rows import Rows, add_gradients, expand_slopes, run_outside, shift_indices, tile_rows, weigh
from tallbayes.engine.several_functions import CURVATURE_ALONE, SLOPE_ALONE
from tallbayes.engine.tiles import call_jet


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


@expect_rows.register(Rows)
def _expect_records(rows: Rows, index: np.ndarray) -> None:
    if rows.indices == 1:
        request_rows(rows.records, index, 0, burst_rows(rows.records))


@control_gradient.register(Rows)
def _control_gradient(
    rows: Rows,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    if rows.outside != 0:
        none = np.empty((0, 0))
        run_outside(rows, CONTROL_GRADIENT, index, 0, 0, (theta, theta, reference), order, factors, gradient, none)
        return
    if rows.indices == 1:
        one_control_gradient(rows, index, factors, theta, reference, order, gradient)
    else:
        several_control_gradient(rows, index, factors, theta, reference, order, gradient)


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
    base, shift, y, weight = np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(BURST)
    f, g, h, there, none = np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(BURST), np.empty(0)
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
        if order == 2:
            call_jet(rows.tiles.jet, base, y, rows.p, 1, size, CURVATURE_ALONE, f, g, h)
        elif order == 1:
            call_jet(rows.tiles.jet, base, y, rows.p, 1, size, SLOPE_ALONE, f, g, none)
        for j in range(size):
            base[j] += shift[j]
        call_jet(rows.tiles.jet, base, y, rows.p, 1, size, SLOPE_ALONE, f, there, none)
        if order == 2:
            for j in range(size):
                there[j] = weight[j] * (there[j] - g[j] - h[j] * shift[j])
        elif order == 1:
            for j in range(size):
                there[j] = weight[j] * (there[j] - g[j])
        else:
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

"""Verbs of rows of indices on an index array, for subsampling: values, residuals of Taylor expansions and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.engine.bursts import BURST, burst_rows, request_rows
from tallbayes.engine.further import COUNT, FIELDS, START, call_indices
from tallbayes.engine.indexed_rows import (
    AHEAD,
    Ask,
    Indexed,
    add_gradients,
    expand,
    expand_slopes,
    further_shifts,
    gather_indices,
    prefetch_row,
    shift_indices,
    three_dots,
    tile_rows,
    weigh,
)
from tallbayes.engine.several_functions import CURVATURE, CURVATURE_ALONE, SLOPE, SLOPE_ALONE, VALUE
from tallbayes.engine.tiles import call_jet, call_residual, call_slope


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
    for c in range(rows.first):
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
    for c in range(rows.first):
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

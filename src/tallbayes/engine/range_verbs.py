"""Verbs of rows of indices on a range, for full passes: sums, gradients, Hessians, and the gradient of every row."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.engine.further import COLUMN, COUNT, FIELDS, START, call_gradients
from tallbayes.engine.indexed_rows import (
    STRIDE,
    TILE,
    Ask,
    Indexed,
    add_gradients,
    scan_indices,
    tile_rows,
    weigh,
)
from tallbayes.engine.several_functions import CURVATURE, SLOPE, VALUE
from tallbayes.engine.tiles import call_jet


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


def range_value(rows: Indexed, ask: Ask) -> None:
    """The sum over a range."""
    start, stop, theta, total = ask.start, ask.stop, ask.theta, ask.total
    k = rows.indices
    most = min(tile_rows(k, k), stop - start)
    u, y, weight, f, none = np.empty(most * k), np.empty(most), np.empty(most), np.empty(most), np.empty(0)
    whole = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, VALUE, f, none, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        whole += part
    total[0] = whole


def range_gradient(rows: Indexed, ask: Ask) -> None:
    """The same, with the gradient."""
    start, stop, theta, total, out = ask.start, ask.stop, ask.theta, ask.total, ask.out
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
    whole = 0.0
    for first in range(start, stop, max(most, 1)):
        size = min(most, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, SLOPE, f, g, none)
        part = 0.0
        for j in range(size):
            part += weight[j] * f[j]
        whole += part
        weigh(g, weight, k, size)
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1, x2, x3 = records[first + j], records[first + j + 1], records[first + j + 2], records[first + j + 3]
            s0, s1, s2, s3 = g[j], g[j + 1], g[j + 2], g[j + 3]
            for c in range(d):
                out[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, slope = records[first + j], g[j]
            for c in range(d):
                out[c] += slope * x[c]
        if rows.further.gradients != 0:
            at = np.arange(first, first + size)
            call_gradients(rows.further.gradients, records, rows.blocks, at, size, g, out)
    total[0] = whole


def range_hessian(rows: Indexed, ask: Ask) -> None:
    """Sums over tiles of columns: for each pair of indices the Gram matrix of the columns, weighted by a second derivative."""
    start, stop, theta, total, out, table = ask.start, ask.stop, ask.theta, ask.total, ask.out, ask.table
    k, d, blocks = rows.indices, rows.columns, rows.blocks
    u, y, weight, f = np.zeros(TILE * k), np.zeros(TILE), np.zeros(TILE), np.zeros(TILE)
    g, h, part = np.zeros(TILE * k), np.zeros(TILE * k * k), np.zeros(TILE)
    padded = -(-d // 4) * 4
    columns, scaled, grams = np.zeros((padded, STRIDE)), np.zeros((2, STRIDE)), np.zeros((k * (k + 1) // 2, padded, padded))
    edges = np.zeros((k * (k + 1) // 2, max(d, 1)))
    whole = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_indices(rows, first, size, theta, u, y, weight)
        transpose_tile(rows.records, d, first, size, columns)
        call_jet(rows.tiles.jet, u, y, rows.p, k, size, CURVATURE, f, g, h)
        value = 0.0
        for j in range(size):
            value += weight[j] * f[j]
        whole += value
        for a in range(k):
            column, count = blocks[FIELDS * a + COLUMN], blocks[FIELDS * a + COUNT]
            spread(g, weight, a, size, part)
            add_columns(columns, column, count, part, out[blocks[FIELDS * a + START] :])
            for b in range(a + 1):
                left, width = blocks[FIELDS * b + COLUMN], blocks[FIELDS * b + COUNT]
                pair = a * (a + 1) // 2 + b
                spread(h, weight, a * k + b, size, part)
                if count > 0 and width > 0:
                    add_gram(columns, part, scaled, grams[pair])
                else:
                    add_columns(columns, max(column, left), max(count, width), part, edges[pair])
    for a in range(k):
        add_pairs(rows, a, grams, edges, table)
    total[0] = whole


def range_scores(rows: Indexed, ask: Ask) -> None:
    """The gradient of every row of a range."""
    start, stop, theta, table = ask.start, ask.stop, ask.theta, ask.table
    k = rows.indices
    u, y, weight, f, g, none = np.empty(k), np.empty(1), np.empty(1), np.empty(1), np.empty(k), np.empty(0)
    at = np.empty(1, np.int64)
    for i in range(start, stop):
        at[0] = i
        scan_indices(rows, i, 1, theta, u, y, weight)
        call_jet(rows.tiles.jet, u, y, rows.p, k, 1, SLOPE, f, g, none)
        weigh(g, weight, k, 1)
        table[i - start] = 0.0
        add_gradients(rows, at, 1, g, table[i - start])

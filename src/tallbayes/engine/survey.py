"""Row verbs of certificates: what a pass over rows learns of them before sampling. Norms, and suprema of derivatives.

All are on a range of rows and include the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable
from tallbayes.engine.further import COUNT, FIELDS, START
from tallbayes.engine.indexed_rows import STRIDE, TILE, dot, indexed, scan_indices
from tallbayes.engine.range_verbs import transpose_tile
from tallbayes.engine.rows import Rows
from tallbayes.engine.several_functions import CURVATURE
from tallbayes.engine.tiles import call_jet, call_reach


@generic(options=SUMS)
@declared
def range_norms(rows: Any, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """out[i - start] = |factor' x_i|: the whitened norm of a row when factor factor' is a covariance."""


@generic(options=SUMS)
@declared
def range_curvatures(
    rows: Any, start: int, stop: int, reference: np.ndarray, curvature: np.ndarray, supremum: np.ndarray
) -> None:
    """Weighted |f''| at the reference and weighted sup |f'''| of every row of a range."""


@generic(options=SUMS)
@declared
def range_suprema(rows: Any, start: int, stop: int, slope: np.ndarray, curvature: np.ndarray) -> None:
    """Weighted sup |f'| and weighted sup |f''| of every row of a range."""


@generic(options=SUMS)
@declared
def range_lowest(rows: Any, start: int, stop: int, theta: np.ndarray) -> float:
    """The lowest linear predictor of a range."""
    raise TypeError


@generic(options=SUMS)
@declared
def range_third_suprema(rows: Any, start: int, stop: int, reference: np.ndarray, reach: np.ndarray, out: np.ndarray) -> None:
    """Weighted sup |f'''| of every row of a range over etas within `reach` of the one at the reference."""


@range_norms.register(Rows)
def _range_norms(rows: Rows, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """Of several indices an upper bound of the largest singular value: the Frobenius norm of the Jacobian of u times the factor."""
    of = indexed(rows.records, rows.layout, rows.p)
    if of.indices > 1:
        several_norms(of, start, stop, factor, out)
    else:
        one_norms(of, start, stop, factor, out)


@inlinable(options=SUMS)
def one_norms(rows: Any, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """Norms of rows of one index."""
    records, d = rows.records, rows.columns
    columns, projection, square = np.zeros((d, STRIDE)), np.empty(TILE), np.empty(TILE)
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        transpose_tile(records, d, first, size, columns)
        square[:] = 0.0
        for k in range(factor.shape[1]):
            projection[:] = 0.0
            for c in range(d):
                f = factor[c, k]
                if f != 0.0:
                    for j in range(TILE):
                        projection[j] += f * columns[c, j]
            for j in range(TILE):
                square[j] += projection[j] * projection[j]
        for j in range(size):
            out[first - start + j] = np.sqrt(square[j])


@inlinable(options=SUMS)
def several_norms(rows: Any, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    """Norms of rows of several indices."""
    for i in range(start, stop):
        x = rows.records[i]
        total = 0.0
        for k in range(factor.shape[1]):
            for l in range(rows.indices):
                at = FIELDS * l
                column, count, first = rows.blocks[at], rows.blocks[at + COUNT], rows.blocks[at + START]
                projection = factor[first, k] if count == 0 else 0.0
                for c in range(count):
                    projection += factor[first + c, k] * x[column + c]
                total += projection * projection
        out[i - start] = np.sqrt(total)


@range_curvatures.register(Rows)
def _range_curvatures(
    rows: Rows, start: int, stop: int, reference: np.ndarray, curvature: np.ndarray, supremum: np.ndarray
) -> None:
    of = indexed(rows.records, rows.layout, rows.p)
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    f, g, h, everywhere = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.full(TILE, np.inf)
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_indices(of, first, size, reference, eta, y, weight)
        call_jet(of.tiles.jet, eta, y, of.p, 1, size, CURVATURE, f, g, h)
        call_reach(of.tiles.reach, eta, everywhere, y, of.p, 1, size, 3, f)
        for j in range(size):
            curvature[first - start + j] = weight[j] * abs(h[j])
            supremum[first - start + j] = weight[j] * f[j] if weight[j] > 0.0 else 0.0


@range_suprema.register(Rows)
def _range_suprema(rows: Rows, start: int, stop: int, slope: np.ndarray, curvature: np.ndarray) -> None:
    of = indexed(rows.records, rows.layout, rows.p)
    y, first, second, everywhere = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.full(TILE, np.inf)
    for begin in range(start, stop, TILE):
        size = min(TILE, stop - begin)
        for j in range(size):
            y[j] = of.records[begin + j, of.columns]
        call_reach(of.tiles.reach, everywhere, everywhere, y, of.p, 1, size, 1, first)
        call_reach(of.tiles.reach, everywhere, everywhere, y, of.p, 1, size, 2, second)
        for j in range(size):
            weight = of.records[begin + j, of.columns + 2]
            slope[begin - start + j] = weight * first[j] if weight > 0.0 else 0.0
            curvature[begin - start + j] = weight * second[j] if weight > 0.0 else 0.0


@range_lowest.register(Rows)
def _range_lowest(rows: Rows, start: int, stop: int, theta: np.ndarray) -> float:
    of = indexed(rows.records, rows.layout, rows.p)
    lowest = np.inf
    for i in range(start, stop):
        lowest = min(lowest, dot(of.records[i], theta, of.columns) + of.records[i, of.columns + 1])
    return lowest


@range_third_suprema.register(Rows)
def _range_third_suprema(rows: Rows, start: int, stop: int, reference: np.ndarray, reach: np.ndarray, out: np.ndarray) -> None:
    of = indexed(rows.records, rows.layout, rows.p)
    eta, y, weight, width, supremum = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_indices(of, first, size, reference, eta, y, weight)
        for j in range(size):  # roundings of eta and of shifts
            width[j] = reach[first - start + j] * (1.0 + 1e-9) + 1e-9 * (1.0 + abs(eta[j]))
        call_reach(of.tiles.reach, eta, width, y, of.p, 1, size, 3, supremum)
        for j in range(size):
            out[first - start + j] = weight[j] * supremum[j] if weight[j] > 0.0 else 0.0

"""Row verbs of certificates: what a pass over rows learns of them before sampling. Norms, and suprema of derivatives.

All are on a range of rows and include the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic
from tallbayes.engine.family_functions import (
    curvature_supremum,
    jet2,
    slope_supremum,
    third_supremum,
    third_supremum_on,
)
from tallbayes.engine.rows import STRIDE, TILE, SingleIndex, dot, scan_tile, transpose_tile


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


@range_norms.register(SingleIndex)
def _range_norms(rows: SingleIndex, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
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


@range_curvatures.register(SingleIndex)
def _range_curvatures(
    rows: SingleIndex, start: int, stop: int, reference: np.ndarray, curvature: np.ndarray, supremum: np.ndarray
) -> None:
    eta, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        scan_tile(rows.records, rows.columns, first, size, reference, eta, y, weight)
        for j in range(size):
            curvature[first - start + j] = weight[j] * abs(jet2(rows.family, eta[j], y[j])[2])
            supremum[first - start + j] = weight[j] * third_supremum(rows.family, y[j]) if weight[j] > 0.0 else 0.0


@range_suprema.register(SingleIndex)
def _range_suprema(rows: SingleIndex, start: int, stop: int, slope: np.ndarray, curvature: np.ndarray) -> None:
    for i in range(start, stop):
        y, weight = rows.records[i, rows.columns], rows.records[i, rows.columns + 2]
        slope[i - start] = weight * slope_supremum(rows.family, y) if weight > 0.0 else 0.0
        curvature[i - start] = weight * curvature_supremum(rows.family, y) if weight > 0.0 else 0.0


@range_lowest.register(SingleIndex)
def _range_lowest(rows: SingleIndex, start: int, stop: int, theta: np.ndarray) -> float:
    lowest = np.inf
    for i in range(start, stop):
        lowest = min(lowest, dot(rows.records[i], theta, rows.columns) + rows.records[i, rows.columns + 1])
    return lowest


@range_third_suprema.register(SingleIndex)
def _range_third_suprema(
    rows: SingleIndex, start: int, stop: int, reference: np.ndarray, reach: np.ndarray, out: np.ndarray
) -> None:
    for i in range(start, stop):
        x = rows.records[i]
        eta, y, weight = dot(x, reference, rows.columns) + x[rows.columns + 1], x[rows.columns], x[rows.columns + 2]
        width = reach[i - start] * (1.0 + 1e-9) + 1e-9 * (1.0 + abs(eta))  # roundings of eta and of shifts
        out[i - start] = weight * third_supremum_on(rows.family, y, eta - width, eta + width) if weight > 0.0 else 0.0

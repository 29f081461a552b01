"""Row verbs of labelled vectors: x | class k ~ N(Phi theta_k, sigma_k^2 diag(v)), the label in place of the response.

theta is theta_1 .. theta_K, followed by log sigma_1 .. log sigma_K unless sigma is known. With W_k the weight of class k, R_k
its sum of (x - Phi theta_k) / v and Q_k its sum of squares, the value is sum_k -D W_k tau_k - Q_k / (2 sigma_k^2) and the gradient
in theta_k is Phi' R_k / sigma_k^2: Phi is used once per call, not once per row. Compiled code reaches all of it by one address
(`outside`).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.engine import outside
from tallbayes.engine.indexed_rows import AHEAD, prefetch_row
from tallbayes.engine.rows import Rows, outside_rows
from tallbayes.pointers import Kind, kind_of, member_maker, member_pointer, numbers_of


class Classes(NamedTuple):
    """The law of labelled vectors of `columns` numbers."""

    mapping: np.ndarray  # Phi: (columns, coordinates of a class)
    variances: np.ndarray  # v
    classes: int
    sigma: float  # 0 if the last coordinates of theta are log sigmas
    columns: int


@inlinable(options=SUMS)
def _means(law: Classes, theta: np.ndarray) -> np.ndarray:
    d = law.mapping.shape[1]
    means = np.empty((law.classes, law.columns))
    for k in range(law.classes):
        for j in range(law.columns):
            total = 0.0
            for c in range(d):
                total += law.mapping[j, c] * theta[k * d + c]
            means[k, j] = total
    return means


@inlinable
def _scale(law: Classes, theta: np.ndarray, k: int) -> tuple[float, float]:
    """Log sigma of a class (zero if known) and 1 / sigma^2."""
    if law.sigma > 0.0:
        return 0.0, 1.0 / (law.sigma * law.sigma)
    tau = theta[law.classes * law.mapping.shape[1] + k]
    return tau, math.exp(-2.0 * tau)


@inlinable(options=SUMS)
def _squares(law: Classes, x: np.ndarray, mean: np.ndarray) -> float:
    total = 0.0
    for j in range(law.columns):
        total += (x[j] - mean[j]) * (x[j] - mean[j]) / law.variances[j]
    return total


@inlinable(options=SUMS)
def _collect(
    law: Classes, x: np.ndarray, factor: float, means: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray
) -> None:
    """Add one row to the sums of its class."""
    k = int(x[law.columns])
    factor *= x[law.columns + 2]
    weights[k] += factor
    squares[k] += factor * _squares(law, x, means[k])
    for j in range(law.columns):
        sums[k, j] += factor * (x[j] - means[k, j]) / law.variances[j]


@inlinable(options=SUMS)
def _slope(law: Classes, sums: np.ndarray, k: int, c: int) -> float:
    """Coordinate c of Phi' R_k."""
    total = 0.0
    for j in range(law.columns):
        total += law.mapping[j, c] * sums[k, j]
    return total


@inlinable
def _finish(
    law: Classes, theta: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray, gradient: np.ndarray
) -> float:
    """Value from the sums of the classes; the gradient is added."""
    d, total = law.mapping.shape[1], 0.0
    for k in range(law.classes):
        tau, precision = _scale(law, theta, k)
        total -= law.columns * weights[k] * tau + 0.5 * precision * squares[k]
        if weights[k] == 0.0:
            continue
        for c in range(d):
            gradient[k * d + c] += precision * _slope(law, sums, k, c)
        if law.sigma <= 0.0:
            gradient[law.classes * d + k] += precision * squares[k] - law.columns * weights[k]
    return total


@inlinable
def _row_value(law: Classes, x: np.ndarray, theta: np.ndarray, means: np.ndarray) -> float:
    k = int(x[law.columns])
    tau, precision = _scale(law, theta, k)
    return x[law.columns + 2] * (-law.columns * tau - 0.5 * precision * _squares(law, x, means[k]))


@inlinable
def _bend(
    law: Classes, theta: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray, hessian: np.ndarray
) -> None:
    """Add the lower triangle of the Hessian from the sums of the classes."""
    d = law.mapping.shape[1]
    for a in range(d):
        for b in range(a + 1):
            gram = 0.0
            for j in range(law.columns):
                gram += law.mapping[j, a] * law.mapping[j, b] / law.variances[j]
            for k in range(law.classes):
                hessian[k * d + a, k * d + b] -= _scale(law, theta, k)[1] * weights[k] * gram
    if law.sigma <= 0.0:
        for k in range(law.classes):
            precision, at = _scale(law, theta, k)[1], law.classes * d + k
            for c in range(d):
                hessian[at, k * d + c] -= 2.0 * precision * _slope(law, sums, k, c)
            hessian[at, at] -= 2.0 * precision * squares[k]


@functools.cache
def class_pointer(kind: Kind, single: bool) -> int:
    """The address of the verbs, for records of one precision or the other."""
    member = member_maker(kind)

    def verbs(
        records: np.ndarray,
        layout: np.ndarray,
        p: np.ndarray,
        verb: int,
        index: np.ndarray,
        start: int,
        stop: int,
        theta: np.ndarray,
        other: np.ndarray,
        reference: np.ndarray,
        order: int,
        factors: np.ndarray,
        total: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> int:
        law = member(p)
        means, indexed = _means(law, theta), start == stop
        size = index.size if indexed else stop - start
        if verb == outside.ROW_VALUES or verb == outside.RANGE_VALUE:
            for j in range(size):
                if indexed and j + AHEAD < size:
                    prefetch_row(records, index[j + AHEAD])
                value = _row_value(law, records[index[j] if indexed else start + j], theta, means)
                if indexed:
                    out[j] = value
                else:
                    total[0] += value
            return 0
        weights, sums, squares = np.zeros(law.classes), np.zeros((law.classes, law.columns)), np.zeros(law.classes)
        if verb == outside.RANGE_SCORES:
            table[:] = 0.0
            for i in range(start, stop):
                weights[:], sums[:], squares[:] = 0.0, 0.0, 0.0
                _collect(law, records[i], 1.0, means, weights, sums, squares)
                _finish(law, theta, weights, sums, squares, table[i - start])
            return 0
        if not (verb == outside.WEIGHTED_GRADIENT or verb == outside.RANGE_GRADIENT or verb == outside.RANGE_HESSIAN):
            return outside.UNKNOWN
        for j in range(size):
            if indexed and j + AHEAD < size:
                prefetch_row(records, index[j + AHEAD])
            factor = factors[j] if indexed else 1.0
            _collect(law, records[index[j] if indexed else start + j], factor, means, weights, sums, squares)
        if verb == outside.RANGE_HESSIAN:
            _bend(law, theta, weights, sums, squares, table)
        total[0] = _finish(law, theta, weights, sums, squares, out)
        return 0

    precision = "single" if single else "double"
    return member_pointer(verbs, f"classes {precision}", kind, outside.SINGLE if single else outside.DOUBLE, options=SUMS)


def class_rows(law: Classes, records: np.ndarray) -> Rows:
    """Labelled vectors as compiled code sees them."""
    address = class_pointer(kind_of(law), records.dtype == np.float32)
    return outside_rows(records, law.columns, numbers_of(law), address, 0)

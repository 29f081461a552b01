"""Row verbs of labelled vectors: x | class k ~ N(Phi theta_k, sigma_k^2 diag(v)), the label in place of the response.

theta is theta_1 .. theta_K, followed by log sigma_1 .. log sigma_K unless sigma is known. With W_k the weight of class k, R_k
its sum of (x - Phi theta_k) / v and Q_k its sum of squares, the value is sum_k -D W_k tau_k - Q_k / (2 sigma_k^2) and the gradient
in theta_k is Phi' R_k / sigma_k^2: Phi is used once per call, not once per row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.engine.rows import (
    AHEAD,
    prefetch_row,
    range_gradient,
    range_hessian,
    range_value,
    row_values,
    weighted_gradient,
)


class ClassRows(NamedTuple):
    """Labelled vectors of `columns` numbers."""

    records: np.ndarray
    columns: int
    mapping: np.ndarray  # Phi: (columns, coordinates of a class)
    variances: np.ndarray  # v
    classes: int
    sigma: float  # 0 if the last coordinates of theta are log sigmas


@inlinable(options=SUMS)
def _means(rows: ClassRows, theta: np.ndarray) -> np.ndarray:
    d = rows.mapping.shape[1]
    means = np.empty((rows.classes, rows.columns))
    for k in range(rows.classes):
        for j in range(rows.columns):
            total = 0.0
            for c in range(d):
                total += rows.mapping[j, c] * theta[k * d + c]
            means[k, j] = total
    return means


@inlinable
def _scale(rows: ClassRows, theta: np.ndarray, k: int) -> tuple[float, float]:
    """Log sigma of a class (zero if known) and 1 / sigma^2."""
    if rows.sigma > 0.0:
        return 0.0, 1.0 / (rows.sigma * rows.sigma)
    tau = theta[rows.classes * rows.mapping.shape[1] + k]
    return tau, math.exp(-2.0 * tau)


@inlinable(options=SUMS)
def _squares(rows: ClassRows, x: np.ndarray, mean: np.ndarray) -> float:
    total = 0.0
    for j in range(rows.columns):
        total += (x[j] - mean[j]) * (x[j] - mean[j]) / rows.variances[j]
    return total


@inlinable(options=SUMS)
def _collect(
    rows: ClassRows, row: int, factor: float, means: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray
) -> None:
    """Add one row to the sums of its class."""
    x = rows.records[row]
    k = int(x[rows.columns])
    factor *= x[rows.columns + 2]
    weights[k] += factor
    squares[k] += factor * _squares(rows, x, means[k])
    for j in range(rows.columns):
        sums[k, j] += factor * (x[j] - means[k, j]) / rows.variances[j]


@inlinable(options=SUMS)
def _slope(rows: ClassRows, sums: np.ndarray, k: int, c: int) -> float:
    """Coordinate c of Phi' R_k."""
    total = 0.0
    for j in range(rows.columns):
        total += rows.mapping[j, c] * sums[k, j]
    return total


@inlinable
def _finish(
    rows: ClassRows, theta: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray, gradient: np.ndarray
) -> float:
    """Value from the sums of the classes; the gradient is added."""
    d, total = rows.mapping.shape[1], 0.0
    for k in range(rows.classes):
        tau, precision = _scale(rows, theta, k)
        total -= rows.columns * weights[k] * tau + 0.5 * precision * squares[k]
        if weights[k] == 0.0:
            continue
        for c in range(d):
            gradient[k * d + c] += precision * _slope(rows, sums, k, c)
        if rows.sigma <= 0.0:
            gradient[rows.classes * d + k] += precision * squares[k] - rows.columns * weights[k]
    return total


@inlinable
def _row_value(rows: ClassRows, row: int, theta: np.ndarray, means: np.ndarray) -> float:
    x = rows.records[row]
    k = int(x[rows.columns])
    tau, precision = _scale(rows, theta, k)
    return x[rows.columns + 2] * (-rows.columns * tau - 0.5 * precision * _squares(rows, x, means[k]))


@row_values.register(ClassRows)
def _row_values(rows: ClassRows, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    means = _means(rows, theta)
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        out[j] = _row_value(rows, index[j], theta, means)


@weighted_gradient.register(ClassRows)
def _weighted_gradient(
    rows: ClassRows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> float:
    means = _means(rows, theta)
    weights, sums, squares = np.zeros(rows.classes), np.zeros((rows.classes, rows.columns)), np.zeros(rows.classes)
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        _collect(rows, index[j], factors[j], means, weights, sums, squares)
    return _finish(rows, theta, weights, sums, squares, gradient)


@range_value.register(ClassRows)
def _range_value(rows: ClassRows, start: int, stop: int, theta: np.ndarray) -> float:
    means, total = _means(rows, theta), 0.0
    for i in range(start, stop):
        total += _row_value(rows, i, theta, means)
    return total


@range_gradient.register(ClassRows)
def _range_gradient(rows: ClassRows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    means = _means(rows, theta)
    weights, sums, squares = np.zeros(rows.classes), np.zeros((rows.classes, rows.columns)), np.zeros(rows.classes)
    for i in range(start, stop):
        _collect(rows, i, 1.0, means, weights, sums, squares)
    return _finish(rows, theta, weights, sums, squares, gradient)


@range_hessian.register(ClassRows)
def _range_hessian(
    rows: ClassRows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    means, d = _means(rows, theta), rows.mapping.shape[1]
    weights, sums, squares = np.zeros(rows.classes), np.zeros((rows.classes, rows.columns)), np.zeros(rows.classes)
    for i in range(start, stop):
        _collect(rows, i, 1.0, means, weights, sums, squares)
    for a in range(d):
        for b in range(a + 1):
            gram = 0.0
            for j in range(rows.columns):
                gram += rows.mapping[j, a] * rows.mapping[j, b] / rows.variances[j]
            for k in range(rows.classes):
                hessian[k * d + a, k * d + b] -= _scale(rows, theta, k)[1] * weights[k] * gram
    if rows.sigma <= 0.0:
        for k in range(rows.classes):
            precision, at = _scale(rows, theta, k)[1], rows.classes * d + k
            for c in range(d):
                hessian[at, k * d + c] -= 2.0 * precision * _slope(rows, sums, k, c)
            hessian[at, at] -= 2.0 * precision * squares[k]
    return _finish(rows, theta, weights, sums, squares, gradient)

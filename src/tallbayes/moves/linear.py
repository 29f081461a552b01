"""Small dense linear algebra for kernels: plain loops, because a threaded BLAS inside chain threads is slower and may
change the order of sums."""

from __future__ import annotations

import numpy as np

from tallbayes.compile import SUMS, inlinable


@inlinable
def fill(out: np.ndarray, values: np.ndarray) -> None:
    """out[:] = values, as a loop: Numba compiles seconds of error messages into an assignment of arrays."""
    for j in range(out.size):
        out[j] = values[j]


@inlinable(options=SUMS)
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Sum of products."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@inlinable(options=SUMS)
def lower_times(factor: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = factor vector, for a lower triangular factor."""
    for j in range(out.size):
        total = 0.0
        for k in range(j + 1):
            total += factor[j, k] * vector[k]
        out[j] = total


@inlinable(options=SUMS)
def upper_times(factor: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = factor' vector, for a lower triangular factor."""
    out[:] = 0.0
    for j in range(out.size):
        v = vector[j]
        for k in range(j + 1):
            out[k] += factor[j, k] * v


@inlinable(options=SUMS)
def symmetric_times(matrix: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = matrix vector, for a whole symmetric matrix."""
    for j in range(out.size):
        total = 0.0
        for k in range(out.size):
            total += matrix[j, k] * vector[k]
        out[j] = total


@inlinable
def normal_vector(rng: np.random.Generator, size: int) -> np.ndarray:
    """Independent standard normals."""
    out = np.empty(size)
    for j in range(size):
        out[j] = rng.standard_normal()
    return out


@inlinable(options=SUMS)
def inverse_factor(precision: np.ndarray) -> np.ndarray:
    """Lower triangular L with L L' = inverse of a symmetric positive definite matrix given by its lower triangle.

    precision = U U' with U upper triangular, from the last column backwards; then L is the transpose of the inverse of U.
    """
    d = precision.shape[0]
    upper = np.zeros((d, d))
    for j in range(d - 1, -1, -1):
        square = precision[j, j]
        for k in range(j + 1, d):
            square -= upper[j, k] * upper[j, k]
        upper[j, j] = np.sqrt(square)
        for i in range(j - 1, -1, -1):
            total = precision[j, i]
            for k in range(j + 1, d):
                total -= upper[i, k] * upper[j, k]
            upper[i, j] = total / upper[j, j]
    factor = np.zeros((d, d))
    for j in range(d):  # column j of the inverse of U, above the diagonal, is row j of L
        factor[j, j] = 1.0 / upper[j, j]
        for i in range(j - 1, -1, -1):
            total = 0.0
            for k in range(i + 1, j + 1):
                total += upper[i, k] * factor[j, k]
            factor[j, i] = -total / upper[i, i]
    return factor

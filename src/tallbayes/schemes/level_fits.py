"""The Gaussian fit of a level with several effects: precision P = L L', mean, the density of t proposals, and the surrogate's value."""

from __future__ import annotations

import math

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.schemes.covariance_slice import whitener
from tallbayes.schemes.level_moves import DEGREES, SAFE, SPREAD


@inlinable
def level_precision(log_sd: np.ndarray, partial: np.ndarray, out: np.ndarray) -> float:
    """Fill `out` with Sigma^-1; returns log |Sigma| / 2."""
    q = log_sd.size
    root = np.empty((q, q))
    half = whitener(log_sd, partial, root)
    for a in range(q):
        for b in range(q):
            out[a, b] = 0.0
            for c in range(q):
                out[a, b] += root[c, a] * root[c, b]
    return half


@inlinable
def factorise(first: np.ndarray, second: np.ndarray, out: np.ndarray) -> bool:
    """Fill `out` with the lower factor of first + second; False if a pivot is not positive."""
    q = out.shape[0]
    for a in range(q):
        for b in range(a + 1):
            total = first[a, b] + second[a, b]
            for c in range(b):
                total -= out[a, c] * out[b, c]
            if a > b:
                out[a, b] = total / out[b, b]
            elif total > 0.0:
                out[a, a] = math.sqrt(total)
            else:
                return False
    return True


@inlinable
def fit_factor(
    curvature: np.ndarray,
    at_reference: np.ndarray,
    stretch: np.ndarray,
    precision: np.ndarray,
    out: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """Fill `out` with L of the fit's precision: with the curvature given the coefficients if that is safe, else with that at the reference.

    Where neither is positive definite, `stretch` stands in. Only what is held fixed during a move of levels decides.
    """
    q = out.shape[0]
    if factorise(at_reference, precision, scratch):
        if factorise(curvature, precision, out):
            safe = True
            for a in range(q):
                if out[a, a] * out[a, a] < SAFE * scratch[a, a] * scratch[a, a]:
                    safe = False
            if safe:
                return
        for a in range(q):
            for b in range(a + 1):
                out[a, b] = scratch[a, b]
        return
    for a in range(q):
        for b in range(q):
            scratch[a, b] = 0.0
            for c in range(min(a, b) + 1):
                scratch[a, b] += stretch[a, c] * stretch[b, c]
    factorise(scratch, precision, out)


@inlinable
def solve(factor: np.ndarray, vector: np.ndarray) -> None:
    """In place: L^-1 vector, then L^-T of it."""
    forward_solve(factor, vector)
    backward_solve(factor, vector)


@inlinable
def forward_solve(factor: np.ndarray, vector: np.ndarray) -> None:
    """In place: L^-1 vector."""
    for a in range(vector.size):
        for b in range(a):
            vector[a] -= factor[a, b] * vector[b]
        vector[a] /= factor[a, a]


@inlinable
def backward_solve(factor: np.ndarray, vector: np.ndarray) -> None:
    """In place: L^-T vector."""
    q = vector.size
    for k in range(q):
        a = q - 1 - k
        for b in range(a + 1, q):
            vector[a] -= factor[b, a] * vector[b]
        vector[a] /= factor[a, a]


@inlinable
def upper_product(factor: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = L' vector."""
    q = vector.size
    for a in range(q):
        out[a] = 0.0
        for b in range(a, q):
            out[a] += factor[b, a] * vector[b]


@inlinable
def deviation_product(factor: np.ndarray, vector: np.ndarray, mean: np.ndarray, out: np.ndarray) -> None:
    """out = L' (vector - mean)."""
    q = vector.size
    for a in range(q):
        out[a] = 0.0
        for b in range(a, q):
            out[a] += factor[b, a] * (vector[b] - mean[b])


@inlinable
def inner_product(first: np.ndarray, second: np.ndarray) -> float:
    """Sum of products."""
    total = 0.0
    for a in range(first.size):
        total += first[a] * second[a]
    return total


@inlinable
def quadratic_form(matrix: np.ndarray, vector: np.ndarray) -> float:
    """v' M v."""
    total = 0.0
    for a in range(vector.size):
        for b in range(vector.size):
            total += matrix[a, b] * vector[a] * vector[b]
    return total


@inlinable
def quadratic_gap(
    first: np.ndarray, second: np.ndarray, offset: np.ndarray, start: np.ndarray, offset_other: np.ndarray, end: np.ndarray
) -> float:
    """v' M v at M = `second`, v = offset_other + end, less that at M = `first`, v = offset + start."""
    total = 0.0
    for a in range(start.size):
        for b in range(start.size):
            total += second[a, b] * (offset_other[a] + end[a]) * (offset_other[b] + end[b])
            total -= first[a, b] * (offset[a] + start[a]) * (offset[b] + start[b])
    return total


@inlinable
def cubic_form(tensor: np.ndarray, vector: np.ndarray) -> float:
    """T[v, v, v]."""
    total = 0.0
    for a in range(vector.size):
        for b in range(vector.size):
            for c in range(vector.size):
                total += tensor[a, b, c] * vector[a] * vector[b] * vector[c]
    return total


@inlinable
def surrogate_value(slope: np.ndarray, curvature: np.ndarray, third: np.ndarray, effect: np.ndarray) -> float:
    """The surrogate of a level at a deviation from its centre."""
    return inner_product(slope, effect) - 0.5 * quadratic_form(curvature, effect) + cubic_form(third, effect) / 6.0


@inlinable
def whitened_skewness(factor: np.ndarray, third: np.ndarray, scratch: np.ndarray) -> float:
    """Root of the sum of squares of the cubic term in coordinates that whiten the fit; `scratch` is two q x q x q arrays."""
    q = factor.shape[0]
    if q == 1:
        return abs(third[0, 0, 0]) / (factor[0, 0] * factor[0, 0] * factor[0, 0])
    first, second = scratch[0], scratch[1]
    for a in range(q):
        for b in range(q):
            for c in range(q):
                first[a, b, c] = third[a, b, c]
    column = np.empty(q)
    for _ in range(3):  # L^-1 along the first index, then the indices rotate
        for b in range(q):
            for c in range(q):
                for a in range(q):
                    column[a] = first[a, b, c]
                forward_solve(factor, column)
                for a in range(q):
                    second[b, c, a] = column[a]
        for a in range(q):
            for b in range(q):
                for c in range(q):
                    first[a, b, c] = second[a, b, c]
    total = 0.0
    for a in range(q):
        for b in range(q):
            for c in range(q):
                total += first[a, b, c] * first[a, b, c]
    return math.sqrt(total)


@inlinable
def fit_mean(factor: np.ndarray, slope: np.ndarray, precision: np.ndarray, offset: np.ndarray, out: np.ndarray) -> None:
    """Mean of the fit: P^-1 (h - Sigma^-1 (c* - B beta_J))."""
    for a in range(out.size):
        out[a] = slope[a]
        for b in range(out.size):
            out[a] -= precision[a, b] * offset[b]
    solve(factor, out)


@inlinable
def log_t_ratio(factor: np.ndarray, mean: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Log density of the proposal at one effect less that at another."""
    q, here, there = first.size, 0.0, 0.0
    for a in range(q):
        one, two = 0.0, 0.0
        for b in range(a, q):
            one += factor[b, a] * (first[b] - mean[b])
            two += factor[b, a] * (second[b] - mean[b])
        here += one * one
        there += two * two
    unit = 1.0 / (DEGREES * SPREAD * SPREAD)
    return 0.5 * (DEGREES + q) * math.log((1.0 + there * unit) / (1.0 + here * unit))

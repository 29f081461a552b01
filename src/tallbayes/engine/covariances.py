"""Correlation matrices by partial correlations: R = L L' with L from y in R^(q(q-1)/2), p = tanh y, row by row.

L_ij = p_ij sqrt(r_ij) with r_i0 = 1, r_i,j+1 = r_ij (1 - p_ij^2), and L_ii = sqrt(r_ii). Under LKJ(eta) the p_ij are independent with
density (1 - p^2)^(eta - 1 + (q - 2 - j)/2); the map p = tanh y adds one power.
"""

from __future__ import annotations

import math

import numpy as np

from tallbayes.compile import inlinable


@inlinable
def correlation_factor(partial: np.ndarray, out: np.ndarray) -> float:
    """Fill `out`, q x q, with the lower factor L; returns the log of the product of its diagonal."""
    q, position, log_diagonal = out.shape[0], 0, 0.0
    for i in range(q):
        rest = 1.0
        for j in range(i):
            p = math.tanh(partial[position])
            out[i, j] = p * math.sqrt(rest)
            rest *= (1.0 - p) * (1.0 + p)
            out[j, i] = 0.0
            position += 1
        out[i, i] = math.sqrt(rest)
        log_diagonal += 0.5 * math.log(max(rest, 1e-300))
    return log_diagonal


@inlinable
def correlation_log_prior(partial: np.ndarray, q: int, eta: float) -> float:
    """Log density of y under LKJ(eta), up to a constant."""
    position, total = 0, 0.0
    for i in range(q):
        for j in range(i):
            power = eta + 0.5 * (q - 2 - j)
            total -= 2.0 * power * _log_cosh(partial[position])
            position += 1
    return total


@inlinable
def _log_cosh(y: float) -> float:
    distance = abs(y)
    return distance + math.log1p(math.exp(-2.0 * distance)) - 0.6931471805599453


@inlinable
def correlation_prior_gradient(partial: np.ndarray, q: int, eta: float, gradient: np.ndarray) -> None:
    """Add the gradient of `correlation_log_prior`."""
    position = 0
    for i in range(q):
        for j in range(i):
            gradient[position] -= 2.0 * (eta + 0.5 * (q - 2 - j)) * math.tanh(partial[position])
            position += 1


@inlinable
def factor_gradient(partial: np.ndarray, factor: np.ndarray, outer: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient in y of a function whose gradient in the entries of L is `outer`."""
    q, position = factor.shape[0], 0
    for i in range(q):
        rest = 1.0
        for j in range(i):
            p = math.tanh(partial[position])
            later = 0.0
            for k in range(j + 1, i + 1):
                later += outer[i, k] * factor[i, k]
            spread = (1.0 - p) * (1.0 + p)
            gradient[position] += spread * outer[i, j] * math.sqrt(rest) - p * later
            rest *= spread
            position += 1


@inlinable
def unconstrained_covariance(sigma: np.ndarray, correlations: np.ndarray, log_sd: np.ndarray, partial: np.ndarray) -> None:
    """Fill log sigma and y from standard deviations and the lower triangle of a correlation matrix, row by row."""
    q, position = log_sd.size, 0
    factor = np.zeros((q, q))
    for a in range(q):
        log_sd[a] = math.log(sigma[a])
        rest = 1.0
        for b in range(a):
            total = correlations[position]
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            factor[a, b] = total / factor[b, b]
            partial[position] = math.atanh(factor[a, b] / math.sqrt(rest))
            rest -= factor[a, b] * factor[a, b]
            position += 1
        factor[a, a] = math.sqrt(rest)

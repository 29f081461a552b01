"""Linear models with an intercept for every level: the likelihood with coefficients and levels integrated out, from sums of one pass.

With Z = (X, y), s_g the sum of w Z over the rows of level g and W_g that of the weights,

    Q = Z' V^-1 Z = sigma^-2 [Z' W Z - sum_g tau^2 / (sigma^2 + W_g tau^2) s_g s_g'],
    log|V| = (W - G) log sigma^2 + sum_g log(sigma^2 + W_g tau^2).

With a prior N(m, P^-1) of the coefficients and r = Q_xy + P m the log density of (sigma, tau) is
-[log|V| + log|Q_xx + P| + Q_yy + m'P m - r'(Q_xx + P)^-1 r] / 2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable, jit
from tallbayes.engine.grouped_rows import FactorRows, level_sums


class LinearSums(NamedTuple):
    """Sums over rows, of X and of the residuals of `centre`; levels of equal weight are added up."""

    centre: np.ndarray  # (d,): the coefficients that were subtracted
    products: np.ndarray  # (d + 1, d + 1): Z' W Z
    totals: np.ndarray  # (levels, d + 1): s_g
    weights: np.ndarray  # (levels,): W_g
    kinds: np.ndarray  # (m,): distinct weights
    counts: np.ndarray  # (m,): levels of each
    squares: np.ndarray  # (m, d + 1, d + 1): sum of s_g s_g' of each


def linear_sums(rows: FactorRows, levels: int, cores: int | None = None) -> LinearSums:
    """Two passes: the first for the least-squares coefficients, which the second subtracts so that sums of squares keep their digits."""
    zero, nothing = np.zeros((levels, 1)), np.empty(0)
    first = level_sums(rows, np.zeros(rows.columns), zero, nothing, False, cores)
    centre = np.linalg.lstsq(first.information, first.gradient, rcond=1e-12)[0]
    sums = level_sums(rows, centre, zero, nothing, False, cores)
    totals = np.column_stack([sums.crossed[:, :, 0], sums.slopes[:, 0]])
    products = np.empty((totals.shape[1], totals.shape[1]))
    products[:-1, :-1], products[:-1, -1], products[-1, :-1] = sums.information, sums.gradient, sums.gradient
    products[-1, -1] = -2.0 * sums.value
    weights = np.ascontiguousarray(sums.curvatures[:, 0, 0])
    kinds, own, counts = np.unique(weights, return_inverse=True, return_counts=True)
    squares = np.zeros((kinds.size, *products.shape))
    np.add.at(squares, own, totals[:, :, None] * totals[:, None, :])
    return LinearSums(centre, products, np.ascontiguousarray(totals), weights, kinds, counts.astype(float), squares)


@inlinable
def collapsed(
    sums: Any,
    precision: np.ndarray,
    location: np.ndarray,
    log_sigma: float,
    log_tau: float,
    mean: np.ndarray,
    factor: np.ndarray,
) -> float:
    """Log density of (log sigma, log tau) without their priors; fills mean and lower factor of the precision of the coefficients.

    `location` and `mean` are relative to `sums.centre`. Minus infinity where the precision is not positive definite.
    """
    d = mean.size
    variance, between = math.exp(2.0 * log_sigma), math.exp(2.0 * log_tau)
    whole = sums.products.copy()
    log_volume, weight = 0.0, 0.0
    for k in range(sums.kinds.size):
        spread = variance + sums.kinds[k] * between
        share = between / spread
        for a in range(d + 1):
            for b in range(a + 1):
                whole[a, b] -= share * sums.squares[k, a, b]
        log_volume += sums.counts[k] * (math.log(spread) - 2.0 * log_sigma)
        weight += sums.counts[k] * sums.kinds[k]
    log_volume += 2.0 * weight * log_sigma
    right, rest = np.empty(d), whole[d, d] / variance
    for a in range(d):
        right[a] = whole[d, a] / variance
        for b in range(d):
            right[a] += precision[a, b] * location[b]
            rest += location[a] * precision[a, b] * location[b]
    log_determinant = 0.0
    for a in range(d):
        for b in range(a + 1):
            total = whole[a, b] / variance + precision[a, b]
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            if a > b:
                factor[a, b] = total / factor[b, b]
            elif total > 0.0:
                factor[a, a] = math.sqrt(total)
            else:
                return -np.inf
        log_determinant += 2.0 * math.log(factor[a, a])
    for a in range(d):
        total = right[a]
        for b in range(a):
            total -= factor[a, b] * mean[b]
        mean[a] = total / factor[a, a]
        rest -= mean[a] * mean[a]
    for k in range(d):
        a = d - 1 - k
        for b in range(a + 1, d):
            mean[a] -= factor[b, a] * mean[b]
        mean[a] /= factor[a, a]
    return -0.5 * (log_volume + log_determinant + rest)


@jit
def collapsed_value(
    sums: np.ndarray,
    precision: np.ndarray,
    location: np.ndarray,
    log_sigma: float,
    log_tau: float,
    mean: np.ndarray,
    factor: np.ndarray,
) -> float:
    """`collapsed`, for callers that are not compiled."""
    return collapsed(sums, precision, location, log_sigma, log_tau, mean, factor)

"""Standard deviations and correlations of group effects given the effects, by slice sampling of one coordinate after the other.

With S = sum_g b_g b_g' over G levels, in (log sigma, y) the log density is
-G sum log sigma - (G/2) log|R| - tr(Sigma^-1 S)/2 + log prior + sum log sigma. Each update steps out from a random interval and
shrinks it (Neal 2003), which leaves the conditional law invariant whatever the width.
"""

from __future__ import annotations

import math

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.covariances import correlation_factor, correlation_log_prior
from tallbayes.scale_priors import scale_log_density

_STEPS = 50  # of stepping out, shared at random between the two sides


@inlinable
def covariance_prior(scales: np.ndarray, eta: float, log_sd: np.ndarray, partial: np.ndarray) -> float:
    """Log prior density of (log sigma, y)."""
    total = correlation_log_prior(partial, log_sd.size, eta)
    for a in range(log_sd.size):
        total += scale_log_density(scales[a], math.exp(log_sd[a])) + log_sd[a]
    return total


@inlinable
def whitener(log_sd: np.ndarray, partial: np.ndarray, out: np.ndarray) -> float:
    """Fill `out` with M, lower triangular, M Sigma M' = I; returns log |Sigma| / 2."""
    q = log_sd.size
    factor = np.empty((q, q))
    total = correlation_factor(partial, factor)
    for a in range(q):
        total += log_sd[a]
    for b in range(q):
        for a in range(q):
            if a < b:
                out[a, b] = 0.0
                continue
            value = 1.0 if a == b else 0.0
            for c in range(b, a):
                value -= factor[a, c] * out[c, b]
            out[a, b] = value / factor[a, a]
    for a in range(q):
        for b in range(a + 1):
            out[a, b] *= math.exp(-log_sd[b])
    return total


@inlinable
def covariance_log_density(
    scales: np.ndarray, eta: float, levels: np.ndarray, scatter: np.ndarray, log_sd: np.ndarray, partial: np.ndarray
) -> np.ndarray:
    """Log density of (log sigma, y) given the effects, up to a constant."""
    q = log_sd.size
    inverse = np.empty((q, q))
    total = -levels * whitener(log_sd, partial, inverse)
    for a in range(q):
        for b in range(a + 1):
            for c in range(a + 1):
                total -= 0.5 * inverse[a, b] * scatter[b, c] * inverse[a, c]
    return total + covariance_prior(scales, eta, log_sd, partial)


@inlinable
def _one_log_density(terms: np.ndarray, levels: np.ndarray, scatter: float, log_sd: float) -> np.ndarray:
    """The same for one term."""
    return (1.0 - levels) * log_sd - 0.5 * scatter * math.exp(-2.0 * log_sd) + scale_log_density(terms, math.exp(log_sd))


@inlinable
def _density(
    scales: np.ndarray, eta: float, levels: np.ndarray, scatter: np.ndarray, log_sd: np.ndarray, partial: np.ndarray
) -> np.ndarray:
    if log_sd.size == 1:
        return _one_log_density(scales[0], levels, scatter[0, 0], log_sd[0])
    return covariance_log_density(scales, eta, levels, scatter, log_sd, partial)


@inlinable
def draw_covariance(
    rng: np.random.Generator,
    scales: np.ndarray,
    eta: float,
    levels: int,
    scatter: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
) -> None:
    """Update log_sd and partial in place, each coordinate once."""
    q, width = log_sd.size, 3.0 / math.sqrt(levels + 1.0)
    for k in range(q + partial.size):
        vector, at = (log_sd, k) if k < q else (partial, k - q)
        start = vector[at]
        level = _density(scales, eta, levels, scatter, log_sd, partial) + math.log(1.0 - rng.random())
        low = start - width * rng.random()
        high = low + width
        left = int(rng.random() * _STEPS)
        right = _STEPS - 1 - left
        while left > 0:
            vector[at] = low
            if not _density(scales, eta, levels, scatter, log_sd, partial) > level:
                break
            low -= width
            left -= 1
        while right > 0:
            vector[at] = high
            if not _density(scales, eta, levels, scatter, log_sd, partial) > level:
                break
            high += width
            right -= 1
        while True:
            value = low + (high - low) * rng.random()
            vector[at] = value
            if _density(scales, eta, levels, scatter, log_sd, partial) > level:
                break
            if value < start:
                low = value
            else:
                high = value
            if not high - low > 1e-14 * (1.0 + abs(start)):
                vector[at] = start
                break

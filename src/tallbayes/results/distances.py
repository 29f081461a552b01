"""Distances between posteriors, in posterior standard deviations of a reference run, and their Monte Carlo noise floor.

W1 = integral |F - G| of each marginal; W2 of the normal laws with the two means and covariances, in coordinates in which the
reference has mean 0 and covariance I: W2^2 = |m|^2 + tr(I + C - 2 C^(1/2)).
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

_SPLITS, _BLOCKS, _LEVEL = 6, 4, 0.95  # halves of the chains, blocks of a half, and the quantile reported as floor


class Distance(NamedTuple):
    """How far draws are from a reference; all in its posterior standard deviations."""

    w1_largest: float
    w1_mean: float
    w2: float


def wasserstein(values: np.ndarray, other: np.ndarray, weights: np.ndarray | None = None) -> float:
    """W1 of two samples, integral |F - G|; the first may have weights, even signed ones.

    >>> wasserstein(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    2.0
    """
    weights = np.full(values.size, 1.0 / values.size) if weights is None else weights / weights.sum()
    points = np.concatenate([values, other])
    steps = np.concatenate([weights, np.full(other.size, -1.0 / other.size)])
    order = np.argsort(points, kind="stable")
    return float(np.abs(np.cumsum(steps[order])[:-1]) @ np.diff(points[order]))


def between(theta: np.ndarray, reference: np.ndarray, weights: np.ndarray | None = None) -> Distance:
    """Distance of draws (draws, dim) from reference draws (draws, dim).

    >>> rng = np.random.default_rng(0)
    >>> far = between(rng.standard_normal((4000, 2)) + [0.0, 1.0], rng.standard_normal((4000, 2)))
    >>> round(float(far.w1_largest), 1), round(float(far.w1_mean), 1), round(float(far.w2), 1)
    (1.0, 0.5, 1.0)
    """
    sd = _sd(reference)
    w1 = [wasserstein(theta[:, j], reference[:, j], weights) / sd[j] for j in range(sd.size)]
    w = np.ones(theta.shape[0]) if weights is None else weights
    mean = w @ theta / w.sum()
    shifted = theta - mean
    return Distance(max(w1), float(np.mean(w1)), _normal_w2(mean, (shifted.T * w) @ shifted / w.sum(), reference))


def from_normal(mean: np.ndarray, covariance: np.ndarray, reference: np.ndarray) -> Distance:
    """Distance of a normal law from reference draws."""
    sd, size = _sd(reference), reference.shape[0]
    normal = ndtri((np.arange(size) + 0.5) / size)
    spread = np.sqrt(np.diag(covariance))
    gaps = np.abs(np.sort(reference, axis=0) - (mean + normal[:, None] * spread)).mean(0) / sd
    return Distance(float(gaps.max()), float(gaps.mean()), _normal_w2(mean, covariance, reference))


def noise_floor(reference: np.ndarray, reference_ess: float, ess: float) -> Distance:
    """What the distance of an exact run with this effective size would be by chance: its 95 % quantile, nearly.

    From pairs of halves of the reference (chains, draws, dim): a block of one half with the effective size of the run against
    the other half. What they cannot match (a block is a quarter of its half at most) is scaled by
    sqrt(1/ess + 1/reference_ess). `ess` is infinite for a law that is not sampled.
    """
    chains, draws, dim = reference.shape
    if chains < 2 or not reference_ess > 0 or not ess > 0:
        return Distance(np.nan, np.nan, np.nan)
    share = min(1.0 / _BLOCKS, 2.0 * ess / reference_ess)  # several blocks, so that the quantile is one
    length = max(min(draws, 4), round(share * draws))
    half = chains // 2
    found = []
    for first in list(combinations(range(chains), half))[:_SPLITS]:
        rest = [c for c in range(chains) if c not in first][:half]
        other = reference[rest].reshape(-1, dim)
        for start in np.unique(np.linspace(0, draws - length, _BLOCKS).astype(int)):
            block = reference[list(first), start : start + length].reshape(-1, dim)
            found.append(between(block, other))
    halves = 2.0 * half / chains * reference_ess / 2.0
    scale = np.sqrt((1.0 / ess + 1.0 / reference_ess) / (1.0 / (halves * length / draws) + 1.0 / halves))
    return Distance(*(float(v) for v in scale * np.quantile(np.array(found), _LEVEL, axis=0)))


def _sd(reference: np.ndarray) -> np.ndarray:
    return np.maximum(reference.std(0), 1e-300)


def _normal_w2(mean: np.ndarray, covariance: np.ndarray, reference: np.ndarray) -> float:
    center = reference.mean(0)
    factor = np.linalg.cholesky(np.atleast_2d(np.cov(reference.T)) + 1e-12 * np.diag(_sd(reference) ** 2))
    shift = solve_triangular(factor, mean - center, lower=True)
    inner = solve_triangular(factor, solve_triangular(factor, covariance, lower=True).T, lower=True)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(0.5 * (inner + inner.T)), 0.0))
    return float(np.sqrt(shift @ shift + ((1.0 - roots) ** 2).sum()))

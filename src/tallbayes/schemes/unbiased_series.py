"""Rhee and Glynn's series: an unbiased, non-negative estimate of a likelihood; the law of the sampler is in `rhee_glynn`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.proxies.difference import proxy_sum
from tallbayes.schemes.estimates import control_values
from tallbayes.target import Target, stopped, subsample_values


@inlinable
def series_terms(rng: np.random.Generator, epsilon: float) -> int:
    """N with P(N >= k) = (1 + eps)^-k, k = 0, 1, ..: its support begins at 0."""
    return int(-math.log(1.0 - rng.random()) / math.log1p(epsilon))


@inlinable
def log_series(epsilon: float, differences: np.ndarray) -> float:
    """log [1 + sum_k (1 + eps)^k prod_{j <= k} D_j / k!]."""
    total, product = 0.0, 0.0  # logarithms
    for k in range(differences.size):
        if differences[k] <= 0.0:
            break
        product += math.log(differences[k]) + math.log1p(epsilon) - math.log(k + 1.0)
        top = max(total, product)
        total = top + math.log(math.exp(total - top) + math.exp(product - top))
    return total


@inlinable
def log_likelihood_estimate(rng: np.random.Generator, target: Target, options: Any, theta: np.ndarray) -> tuple[float, int]:
    """log Y and the number of terms."""
    n = options.everything.size
    values = np.empty(n)
    if options.proxies:
        control_values(target, options.everything, theta, values)
        total = proxy_sum(target.proxy, theta)
    else:
        subsample_values(target, options.everything, theta, values)
        total = 0.0
    lowest = n * values.min()
    terms = series_terms(rng, options.epsilon)
    differences = np.empty(terms)
    index, drawn = np.empty(options.batch, np.int64), np.empty(options.batch)
    for k in range(terms):
        if stopped(target):
            return -np.inf, k
        for r in range(options.batch):
            index[r] = min(int(rng.random() * n), n - 1)
        if options.proxies:
            control_values(target, index, theta, drawn)
        else:
            subsample_values(target, index, theta, drawn)
        differences[k] = n * drawn.sum() / options.batch - lowest
    return total + lowest + log_series(options.epsilon, differences), terms

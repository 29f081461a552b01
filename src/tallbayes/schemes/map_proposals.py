"""Proposals of carried coefficients and covariance for the map moves of hierarchical models: independent ones, and random walks.

Independent proposals are normal, fitted to what warm-up saw of the posterior, in (carried coefficients, log standard deviations, partial
correlations on the scale of atanh). The random walks stay beside them, for tails that the fit does not reach.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.moves.linear import dot, lower_times, normal_vector

JOINT, SCALE, SHIFT = (
    0,
    1,
    2,
)  # everything at once from the fit; covariance by a random walk; carried coefficients by a random walk
_SPREAD = 1.2  # of independent proposals, times the standard deviations that were seen
_ENOUGH = 20.0  # draws for each coordinate of a fit


class MapMoves(NamedTuple):
    """Probabilities of independent proposals and of each random walk in a sweep, the factor of the rates, and the proposals."""

    joint: float
    walks: float
    inflation: float
    scale_step: float
    shift_factor: np.ndarray  # (j, j), lower triangular
    centre: np.ndarray  # empty if there are no independent proposals
    root: np.ndarray  # lower triangular
    inverse: np.ndarray  # of `root`


class Seen(NamedTuple):
    """Number, mean and sum of products of deviations of draws."""

    number: float
    mean: np.ndarray
    products: np.ndarray


def nothing_seen(size: int) -> Seen:
    """No draws."""
    return Seen(0.0, np.zeros(size), np.zeros((size, size)))


def collect(seen: Seen, draws: np.ndarray) -> Seen:
    """Moments with more draws.

    >>> made = collect(collect(nothing_seen(1), np.array([[1.0], [3.0]])), np.array([[5.0]]))
    >>> made.number, made.mean.tolist(), made.products.tolist()
    (3.0, [3.0], [[8.0]])
    """
    if not draws.shape[0]:
        return seen
    number = seen.number + draws.shape[0]
    middle = draws.mean(0)
    apart, deviations = middle - seen.mean, draws - middle
    products = seen.products + deviations.T @ deviations + np.outer(apart, apart) * seen.number * draws.shape[0] / number
    return Seen(number, seen.mean + apart * draws.shape[0] / number, products)


def fitted_proposal(seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """Centre and factor of a wider normal law with the moments of the draws; empty if they are too few or do not vary."""
    size = seen.mean.size
    if seen.number < _ENOUGH * size:
        return np.zeros(0), np.zeros((0, 0))
    covariance = seen.products / (seen.number - 1.0)
    sds = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (sds > 0.0).all()):
        return np.zeros(0), np.zeros((0, 0))
    correlation = covariance / np.outer(sds, sds)
    correlation += 0.02 * (np.eye(size) - correlation)  # of few draws
    root = _SPREAD * sds[:, None] * np.linalg.cholesky(correlation)
    return seen.mean.copy(), np.ascontiguousarray(root)


@inlinable
def propose_map(
    rng: np.random.Generator,
    maps: MapMoves,
    kind: int,
    carried: np.ndarray,
    beta: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
) -> float:
    """Replace what a map move proposes, in place; returns the log density of proposing what was there less that of what is there now."""
    j, q = carried.size, log_sd.size
    if kind == SCALE:
        for a in range(q):
            log_sd[a] += maps.scale_step * rng.standard_normal()
        for a in range(partial.size):
            partial[a] += maps.scale_step * rng.standard_normal()
        return 0.0
    if kind == SHIFT:
        change = np.empty(j)
        lower_times(maps.shift_factor, normal_vector(rng, j), change)
        for k in range(j):
            beta[carried[k]] += change[k]
        return 0.0
    size = maps.centre.size
    before, after, white = np.empty(size), np.empty(size), np.empty(size)
    for k in range(j):
        before[k] = beta[carried[k]] - maps.centre[k]
    for a in range(q):
        before[j + a] = log_sd[a] - maps.centre[j + a]
    for a in range(partial.size):
        before[j + q + a] = partial[a] - maps.centre[j + q + a]
    noise = normal_vector(rng, size)
    lower_times(maps.root, noise, after)
    lower_times(maps.inverse, before, white)
    for k in range(j):
        beta[carried[k]] = maps.centre[k] + after[k]
    for a in range(q):
        log_sd[a] = maps.centre[j + a] + after[j + a]
    for a in range(partial.size):
        partial[a] = maps.centre[j + q + a] + after[j + q + a]
    return 0.5 * (dot(noise, noise) - dot(white, white))

"""Subsets of rows and how they are refreshed: a Metropolis-Hastings chain on nu(U) ~ exp(-penalty |Delta(U)|^2).

Both proposals are symmetric. `Swap` exchanges a few rows of U, chosen uniformly, for as many outside. `Windows` moves the start
of a contiguous window along a ring of all starts (index wrapped, so that the ends are no special places): by a discrete Laplace
jump, P(j) ~ exp(-rate |j|), or to a uniform start.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic, inlinable
from tallbayes.moves.linear import dot
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.target import (
    Target,
    log_prior,
    log_prior_gradient,
    subset_log_likelihood,
    subset_log_likelihood_gradient,
    window_log_likelihood,
    window_log_likelihood_gradient,
)


class Swap(NamedTuple):
    """Subsets of `size` rows of which `swaps` are exchanged at a time."""

    size: int
    swaps: int


class Windows(NamedTuple):
    """Windows of `size` rows that start at one of `starts` rows from `first` on."""

    first: int
    starts: int
    size: int
    local: float
    rate: float


class Chosen(NamedTuple):
    """Rows of a subset, in no order, and the sum of their features."""

    chosen: np.ndarray
    sums: np.ndarray


class Window(NamedTuple):
    """Number of the start of a window."""

    start: int


class SubsetPosterior(NamedTuple):
    """p(theta) times the likelihood of chosen rows to a power, as a density for moves."""

    target: Target
    chosen: np.ndarray
    power: float


class WindowPosterior(NamedTuple):
    """p(theta) times the likelihood of a window to a power, as a density for moves."""

    target: Target
    start: int
    size: int
    power: float


@log_density.register(SubsetPosterior)
def _subset_density(density, theta):
    likelihood = subset_log_likelihood(density.target, density.chosen, theta)
    return density.power * likelihood + log_prior(density.target, theta)


@log_density_gradient.register(SubsetPosterior)
def _subset_density_gradient(density, theta, gradient):
    factors = np.full(density.chosen.size, density.power)
    value = subset_log_likelihood_gradient(density.target, density.chosen, factors, theta, gradient)
    return value + log_prior_gradient(density.target, theta, gradient)


@log_density.register(WindowPosterior)
def _window_density(density, theta):
    likelihood = window_log_likelihood(density.target, density.start, density.size, theta)
    return density.power * likelihood + log_prior(density.target, theta)


@log_density_gradient.register(WindowPosterior)
def _window_density_gradient(density, theta, gradient):
    value = density.power * window_log_likelihood_gradient(density.target, density.start, density.size, theta, gradient)
    for j in range(gradient.size):
        gradient[j] *= density.power
    return value + log_prior_gradient(density.target, theta, gradient)


@generic
@declared
def density_of(scheme: Any, target: Target, subset: Any, power: float) -> Any:
    """The sub-posterior of a subset."""
    raise TypeError


@generic(argument=1)
@declared
def choose(rng: np.random.Generator, scheme: Any, target: Target) -> Any:
    """A uniform subset."""
    raise TypeError


@generic
@declared
def distance(scheme: Any, target: Target, subset: Any) -> float:
    """|Delta|^2 of a subset."""
    raise TypeError


@generic(argument=1)
@declared
def refresh(
    rng: np.random.Generator, scheme: Any, target: Target, penalty: float, subset: Any, squared: float
) -> tuple[Any, float, bool]:
    """One Metropolis-Hastings step on nu: subset, |Delta|^2, and whether the subset changed."""
    raise TypeError


@density_of.register(Swap)
def _swap_density(scheme, target, subset, power):
    return SubsetPosterior(target, subset.chosen, power)


@density_of.register(Windows)
def _windows_density(scheme, target, subset, power):
    return WindowPosterior(target, scheme.first + subset.start, scheme.size, power)


@inlinable
def uniform(rng, count):
    """A uniform whole number below `count`."""
    return min(int(rng.random() * count), count - 1)


@inlinable
def _contains(index, size, row):
    found = False
    for j in range(size):
        found |= index[j] == row
    return found


@choose.register(Swap)
def _swap_choose(rng, scheme, target):
    """Without replacement: Floyd's method for small subsets, selection in order for large ones."""
    values = target.proxy.values
    n, m = values.shape[0], scheme.size
    index, sums = np.empty(m, np.int64), np.zeros(values.shape[1])
    if m * m <= 32 * n:
        for j in range(m):
            row = uniform(rng, n - m + j + 1)
            index[j] = n - m + j if _contains(index, j, row) else row
    else:
        taken = 0
        for row in range(n):
            if rng.random() * (n - row) < m - taken:
                index[taken] = row
                taken += 1
    for j in range(m):
        for c in range(sums.size):
            sums[c] += values[index[j], c]
    return Chosen(index, sums)


@choose.register(Windows)
def _windows_choose(rng, scheme, target):
    return Window(uniform(rng, scheme.starts))


@distance.register(Swap)
def _swap_distance(scheme, target, subset):
    return dot(subset.sums, subset.sums) / (scheme.size * scheme.size)


@distance.register(Windows)
def _windows_distance(scheme, target, subset):
    return target.proxy.squared[subset.start]


@refresh.register(Swap)
def _swap_refresh(rng, scheme, target, penalty, subset, squared):
    """The rows that go are brought to the front of the index; on acceptance index and sums change in place."""
    values, index, k = target.proxy.values, subset.chosen, scheme.swaps
    n, m = values.shape[0], scheme.size
    rows, sums = np.empty(k, np.int64), subset.sums.copy()
    for j in range(k):
        at = j + uniform(rng, m - j)
        gone = index[at]
        index[at] = index[j]
        index[j] = gone
        row = uniform(rng, n)
        while _contains(index, m, row) or _contains(rows, j, row):
            row = uniform(rng, n)
        rows[j] = row
        for c in range(sums.size):
            sums[c] += values[row, c] - values[gone, c]
    proposed = dot(sums, sums) / (m * m)
    if math.log(1.0 - rng.random()) < penalty * (squared - proposed):
        for j in range(k):
            index[j] = rows[j]
        for c in range(sums.size):
            subset.sums[c] = sums[c]
        return subset, proposed, True
    return subset, squared, False


@inlinable
def geometric(rng, rate):
    """P(k) ~ exp(-rate k)."""
    return int(-math.log(1.0 - rng.random()) / rate)


@inlinable
def propose_start(rng, scheme, start):
    """A start on the ring; the difference of two geometric numbers has the discrete Laplace law."""
    if rng.random() < scheme.local:
        return (start + geometric(rng, scheme.rate) - geometric(rng, scheme.rate)) % scheme.starts
    return uniform(rng, scheme.starts)


@refresh.register(Windows)
def _windows_refresh(rng, scheme, target, penalty, subset, squared):
    start = propose_start(rng, scheme, subset.start)
    proposed = target.proxy.squared[start]
    accepted = math.log(1.0 - rng.random()) < penalty * (squared - proposed)
    if accepted and start != subset.start:
        return Window(start), proposed, True
    return subset, squared, False


def blank_subset(scheme: Any, table: Any) -> Any:
    """A subset of the right types, to be replaced by `choose`."""
    if isinstance(scheme, Windows):
        return Window(0)
    return Chosen(np.zeros(scheme.size, np.int64), np.zeros(table.values.shape[1]))

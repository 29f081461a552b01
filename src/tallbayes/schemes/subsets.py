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
from tallbayes.engine.random_rows import contains, draw_number, draw_subset
from tallbayes.engine.rows import range_gradient, range_value, weighted_gradient
from tallbayes.engine.windows import lead_rows
from tallbayes.moves.linear import dot
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.target import Target, count, log_prior, log_prior_gradient, stopped, subsample_values


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


class Subset(NamedTuple):
    """Rows of a subset, in no order, and the sum of their features."""

    rows: np.ndarray
    sums: np.ndarray


class Window(NamedTuple):
    """Number of the start of a window."""

    start: int


class SubsetPosterior(NamedTuple):
    """p(theta) times the likelihood of some rows to a power, as a density for moves."""

    target: Target
    rows: np.ndarray
    power: float


class WindowPosterior(NamedTuple):
    """p(theta) times the likelihood of a window to a power, as a density for moves."""

    target: Target
    start: int
    size: int
    power: float


@inlinable
def subset_log_likelihood(target: Target, index: np.ndarray, theta: np.ndarray) -> float:
    """Log-likelihood of the indexed rows: one evaluation per row."""
    values = np.empty(index.size)
    subsample_values(target, index, theta, values)
    total = 0.0
    for j in range(index.size):
        total += values[j]
    return total


@inlinable
def subset_log_likelihood_gradient(
    target: Target, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> float:
    """Sum of factors times log-likelihoods of the indexed rows, its gradient written to `gradient`: one evaluation per row."""
    count(target, index.size, index.size, index.size)
    gradient[:] = 0.0
    return weighted_gradient(target.rows, index, factors, theta, gradient)


@inlinable
def window_log_likelihood(target: Target, start: int, size: int, theta: np.ndarray) -> float:
    """Log-likelihood of `size` consecutive rows; those that start a recursion before them are evaluated and counted too."""
    m = size + lead_rows(target.rows, start)
    count(target, m, 0, m)
    return range_value(target.rows, start, start + size, theta)


@inlinable
def window_log_likelihood_gradient(target: Target, start: int, size: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same, with the gradient written to `gradient`."""
    m = size + lead_rows(target.rows, start)
    count(target, m, m, m)
    gradient[:] = 0.0
    return range_gradient(target.rows, start, start + size, theta, gradient)


@log_density.register(SubsetPosterior)
def _subset_density(density: SubsetPosterior, theta: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    likelihood = subset_log_likelihood(density.target, density.rows, theta)
    return density.power * likelihood + log_prior(density.target, theta)


@log_density_gradient.register(SubsetPosterior)
def _subset_density_gradient(density: SubsetPosterior, theta: np.ndarray, gradient: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    factors = np.full(density.rows.size, density.power)
    value = subset_log_likelihood_gradient(density.target, density.rows, factors, theta, gradient)
    return value + log_prior_gradient(density.target, theta, gradient)


@log_density.register(WindowPosterior)
def _window_density(density: WindowPosterior, theta: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    likelihood = window_log_likelihood(density.target, density.start, density.size, theta)
    return density.power * likelihood + log_prior(density.target, theta)


@log_density_gradient.register(WindowPosterior)
def _window_density_gradient(density: WindowPosterior, theta: np.ndarray, gradient: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
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
def _swap_density(scheme: Swap, target: Target, subset: Subset, power: float) -> SubsetPosterior:
    return SubsetPosterior(target, subset.rows, power)


@density_of.register(Windows)
def _windows_density(scheme: Windows, target: Target, subset: Window, power: float) -> WindowPosterior:
    return WindowPosterior(target, scheme.first + subset.start, scheme.size, power)


@choose.register(Swap)
def _swap_choose(rng: np.random.Generator, scheme: Swap, target: Target) -> Subset:
    values = target.proxy.values
    n, m = values.shape[0], scheme.size
    index, sums = np.empty(m, np.int64), np.zeros(values.shape[1])
    draw_subset(rng, n, index)
    for j in range(m):
        for c in range(sums.size):
            sums[c] += values[index[j], c]
    return Subset(index, sums)


@choose.register(Windows)
def _windows_choose(rng: np.random.Generator, scheme: Windows, target: Target) -> Window:
    return Window(draw_number(rng, scheme.starts))


@distance.register(Swap)
def _swap_distance(scheme: Swap, target: Target, subset: Subset) -> float:
    return dot(subset.sums, subset.sums) / (scheme.size * scheme.size)


@distance.register(Windows)
def _windows_distance(scheme: Windows, target: Target, subset: Window) -> float:
    return target.proxy.squared[subset.start]


@refresh.register(Swap)
def _swap_refresh(
    rng: np.random.Generator, scheme: Swap, target: Target, penalty: float, subset: Subset, squared: float
) -> tuple[Subset, float, bool]:
    """The rows that go are brought to the front of the index; on acceptance index and sums change in place."""
    values, index, k = target.proxy.values, subset.rows, scheme.swaps
    n, m = values.shape[0], scheme.size
    rows, sums = np.empty(k, np.int64), subset.sums.copy()
    for j in range(k):
        at = j + draw_number(rng, m - j)
        gone = index[at]
        index[at] = index[j]
        index[j] = gone
        row = draw_number(rng, n)
        while contains(index, m, row) or contains(rows, j, row):
            row = draw_number(rng, n)
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
def geometric(rng: np.random.Generator, rate: float) -> int:
    """P(k) ~ exp(-rate k)."""
    return int(-math.log(1.0 - rng.random()) / rate)


@inlinable
def propose_start(rng: np.random.Generator, scheme: Windows, start: int) -> int:
    """A start on the ring; the difference of two geometric numbers has the discrete Laplace law."""
    if rng.random() < scheme.local:
        return (start + geometric(rng, scheme.rate) - geometric(rng, scheme.rate)) % scheme.starts
    return draw_number(rng, scheme.starts)


@refresh.register(Windows)
def _windows_refresh(
    rng: np.random.Generator, scheme: Windows, target: Target, penalty: float, subset: Window, squared: float
) -> tuple[Window, float, bool]:
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
    return Subset(np.zeros(scheme.size, np.int64), np.zeros(table.values.shape[1]))

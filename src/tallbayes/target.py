"""Target: the only object a sampler sees of data, model and proxy. It counts every row read.

An evaluation is one distinct (row, theta) pair, value and/or gradient; both ends of a difference count, recomputed scalars
at the reference do not. Counters belong to one chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.rows import range_gradient, range_value, residual_differences, row_values, weighted_gradient
from tallbayes.engine.series import lead_rows
from tallbayes.models.priors import PriorTerms, prior_gradient, prior_value

EVALS, VALUES, GRADIENTS, PAPER, STATUS, ROW, SIZE = 0, 1, 2, 3, 4, 5, 8
COUNTED = ("evals", "evals_value", "evals_gradient", "evals_paper")

RUNNING, BOUND_EXCEEDED, NOT_FINITE = 0, 1, 2


class NoProxy(NamedTuple):
    """A target without a proxy: full data only."""


class Certified(NamedTuple):
    """A proxy in whitened coordinates, its value without reading rows, and a certified bound of what it leaves out."""

    whitening: Any
    proxy: Any
    bound: Any


class Target(NamedTuple):
    """Rows, prior and proxy of one chain, with its counters."""

    rows: Any
    prior: PriorTerms
    proxy: Any
    counters: np.ndarray


def counters() -> np.ndarray:
    """Fresh counters of a chain."""
    return np.zeros(SIZE, np.int64)


@inlinable
def row_total(target):
    """n."""
    return target.rows.records.shape[0]


@inlinable
def log_prior(target, theta):
    """Log prior density: reads no row."""
    return prior_value(target.prior, theta)


@inlinable
def log_prior_gradient(target, theta, gradient):
    """Log prior density, its gradient added to `gradient`: reads no row."""
    return prior_gradient(target.prior, theta, gradient)


@inlinable
def log_posterior(target, theta):
    """Log posterior density on all rows: n evaluations."""
    n = row_total(target)
    target.counters[EVALS] += n
    target.counters[VALUES] += n
    target.counters[PAPER] += n
    return range_value(target.rows, 0, n, theta) + prior_value(target.prior, theta)


@inlinable
def log_posterior_gradient(target, theta, gradient):
    """Log posterior density on all rows, its gradient written to `gradient`: n evaluations."""
    n = row_total(target)
    target.counters[EVALS] += n
    target.counters[VALUES] += n
    target.counters[GRADIENTS] += n
    target.counters[PAPER] += n
    gradient[:] = 0.0
    value = range_gradient(target.rows, 0, n, theta, gradient)
    return value + prior_gradient(target.prior, theta, gradient)


@inlinable
def residual_gaps(target, index, theta, other, out):
    """Residuals at `other` less those at `theta` of the indexed rows: two evaluations a row; papers count one."""
    m = index.size
    target.counters[EVALS] += 2 * m
    target.counters[VALUES] += 2 * m
    target.counters[PAPER] += m
    residual_differences(target.rows, index, theta, other, target.proxy.whitening.reference, out)


@inlinable
def log_likelihood_gap(target, theta, other):
    """Log-likelihood at `other` less that at `theta` on all rows: 2 n evaluations."""
    n = row_total(target)
    target.counters[EVALS] += 2 * n
    target.counters[VALUES] += 2 * n
    target.counters[PAPER] += 2 * n
    return range_value(target.rows, 0, n, other) - range_value(target.rows, 0, n, theta)


@inlinable
def stop_run(target, status, row):
    """End the chunk with a status and the row to blame."""
    target.counters[STATUS] = status
    target.counters[ROW] = row


@inlinable
def _count_rows(target, m, gradients):
    target.counters[EVALS] += m
    target.counters[VALUES] += m
    target.counters[GRADIENTS] += gradients
    target.counters[PAPER] += m


@inlinable
def subset_log_likelihood(target, index, theta):
    """Log-likelihood of the indexed rows: one evaluation a row."""
    _count_rows(target, index.size, 0)
    values = np.empty(index.size)
    row_values(target.rows, index, theta, values)
    total = 0.0
    for j in range(index.size):
        total += values[j]
    return total


@inlinable
def subset_log_likelihood_gradient(target, index, factors, theta, gradient):
    """Sum of factors times log-likelihoods of the indexed rows, its gradient written to `gradient`: one evaluation a row."""
    _count_rows(target, index.size, index.size)
    gradient[:] = 0.0
    return weighted_gradient(target.rows, index, factors, theta, gradient)


@inlinable
def window_log_likelihood(target, start, size, theta):
    """Log-likelihood of `size` consecutive rows; those that start a recursion before them are evaluated and counted too."""
    _count_rows(target, size + lead_rows(target.rows, start), 0)
    return range_value(target.rows, start, start + size, theta)


@inlinable
def window_log_likelihood_gradient(target, start, size, theta, gradient):
    """The same, with the gradient written to `gradient`."""
    m = size + lead_rows(target.rows, start)
    _count_rows(target, m, m)
    gradient[:] = 0.0
    return range_gradient(target.rows, start, start + size, theta, gradient)

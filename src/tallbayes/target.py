"""Target: the only object a sampler sees of data, model and proxy. It counts every row read.

An evaluation is one distinct (row, theta) pair, value and/or gradient; both ends of a difference count, recomputed scalars
at the reference do not. Counters belong to one chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.residuals import add_curvatures, add_slopes, residual_slopes, residual_values
from tallbayes.engine.rows import range_gradient, range_value, residual_differences, row_values
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
def row_log_likelihoods(target, index, theta, out):
    """l_i of the indexed rows: one evaluation a row."""
    m = index.size
    target.counters[EVALS] += m
    target.counters[VALUES] += m
    target.counters[PAPER] += m
    row_values(target.rows, index, theta, out)


@inlinable
def centre_log_likelihoods(target, theta, out):
    """l at the centres of groups of rows, which the proxy holds: one evaluation a centre."""
    m = out.size
    target.counters[EVALS] += m
    target.counters[VALUES] += m
    target.counters[PAPER] += m
    row_values(target.proxy.centres, np.arange(m), theta, out)


@inlinable
def control_values(target, index, theta, out):
    """Residuals l_i - q_i of the indexed rows: one evaluation a row."""
    m = index.size
    target.counters[EVALS] += m
    target.counters[VALUES] += m
    target.counters[PAPER] += m
    residual_values(target.rows, index, theta, target.proxy.whitening.reference, target.proxy.order, out)


@inlinable
def control_slopes(target, index, theta, out, slopes):
    """The same with gradients, as derivatives in the linear predictors: one evaluation a row."""
    m = index.size
    target.counters[EVALS] += m
    target.counters[VALUES] += m
    target.counters[GRADIENTS] += m
    target.counters[PAPER] += m
    residual_slopes(target.rows, index, theta, target.proxy.whitening.reference, target.proxy.order, out, slopes)


@inlinable
def add_control_gradient(target, index, slopes, factors, gradient):
    """Add gradients that `control_slopes` has evaluated, times factors: no new evaluation."""
    add_slopes(target.rows, index, slopes, factors, gradient)


@inlinable
def add_reference_curvature(target, index, factors, hessian):
    """Add Hessians of the indexed rows at the reference, times factors: scalars at the reference are not counted."""
    add_curvatures(target.rows, index, factors, target.proxy.whitening.reference, hessian)


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

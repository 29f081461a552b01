"""Target: the only object a sampler sees of data, model and proxy. It counts every row read.

An evaluation is one distinct (row, theta) pair, value and/or gradient; both ends of a difference count, recomputed scalars
at the reference do not. Counters belong to one chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.gradients import control_gradient
from tallbayes.engine.residuals import add_curvatures, add_slopes, residual_slopes, residual_values
from tallbayes.engine.rows import (
    proxy_values,
    range_gradient,
    range_hessian,
    range_value,
    residual_differences,
    row_values,
    weighted_gradient,
)
from tallbayes.engine.series import lead_rows
from tallbayes.priors import PriorTerms, prior_gradient, prior_value
from tallbayes.proxies.lower_bounds import gaps, log_odds_gradient
from tallbayes.proxies.taylor import proxy_value

EVALS, VALUES, GRADIENTS, PAPER, STATUS, ROW, ORACLE, SIZE = 0, 1, 2, 3, 4, 5, 6, 8
COUNTED = ("evals", "evals_value", "evals_gradient", "evals_paper")

RUNNING, BOUND_EXCEEDED, NOT_FINITE = 0, 1, 2
DIVERGED = 16


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
def stop_run(target: Target, status: int, row: int) -> None:
    """End the chunk with a status and the row to blame."""
    target.counters[STATUS] = status
    target.counters[ROW] = row


@inlinable
def _count(target: Target, values: int, gradients: int) -> None:
    target.counters[EVALS] += values
    target.counters[VALUES] += values
    target.counters[GRADIENTS] += gradients
    target.counters[PAPER] += values


@inlinable
def row_total(target: Target) -> int:
    """n."""
    return target.rows.records.shape[0]


@inlinable
def log_prior(target: Target, theta: np.ndarray) -> float:
    """Log prior density: reads no row."""
    return prior_value(target.prior, theta)


@inlinable
def log_prior_gradient(target: Target, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log prior density, its gradient added to `gradient`: reads no row."""
    return prior_gradient(target.prior, theta, gradient)


@inlinable
def log_posterior(target: Target, theta: np.ndarray) -> float:
    """Log posterior density on all rows: n evaluations."""
    n = row_total(target)
    _count(target, n, 0)
    return range_value(target.rows, 0, n, theta) + prior_value(target.prior, theta)


@inlinable
def log_posterior_gradient(target: Target, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log posterior density on all rows, its gradient written to `gradient`: n evaluations."""
    n = row_total(target)
    _count(target, n, n)
    gradient[:] = 0.0
    value = range_gradient(target.rows, 0, n, theta, gradient)
    return value + prior_gradient(target.prior, theta, gradient)


@inlinable
def residual_gaps(target: Target, index: np.ndarray, theta: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    """Residuals at `other` less those at `theta` of the indexed rows: two evaluations a row; papers count one."""
    m = index.size
    target.counters[EVALS] += 2 * m
    target.counters[VALUES] += 2 * m
    target.counters[PAPER] += m
    residual_differences(target.rows, index, theta, other, target.proxy.whitening.reference, out)


@inlinable
def log_likelihood_gap(target: Target, theta: np.ndarray, other: np.ndarray) -> float:
    """Log-likelihood at `other` less that at `theta` on all rows: 2 n evaluations."""
    n = row_total(target)
    _count(target, 2 * n, 0)
    return range_value(target.rows, 0, n, other) - range_value(target.rows, 0, n, theta)


@inlinable
def subsample_values(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Log-likelihoods of the indexed rows: one evaluation a row."""
    _count(target, index.size, 0)
    row_values(target.rows, index, theta, out)


class Seen(NamedTuple):
    """Whether the values of all rows at the present theta are known already: by our rule, and by that of the papers.

    Ours: all rows have been read at theta, in whatever iteration. Theirs: the iteration before was charged 2 n.
    """

    ours: bool
    papers: bool


@inlinable
def _count_gaps(target: Target, m: int, seen: Seen) -> None:
    values = m if seen.ours else 2 * m
    target.counters[EVALS] += values
    target.counters[VALUES] += values
    target.counters[PAPER] += m if seen.papers else 2 * m


@inlinable
def subsample_gaps(
    target: Target, index: np.ndarray, theta: np.ndarray, other: np.ndarray, seen: Seen, out: np.ndarray
) -> None:
    """Residuals of the Taylor proxy, of any order, at `other` less those at `theta`: two evaluations a row, one if `seen`.

    At order 0 these are the differences of log-likelihood.
    """
    _count_gaps(target, index.size, seen)
    _gaps(target, index, theta, other, out)


@inlinable
def _gaps(target: Target, index: np.ndarray, theta: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    m, order, reference = index.size, target.proxy.proxy.order, target.proxy.whitening.reference
    if order == 2:
        residual_differences(target.rows, index, theta, other, reference, out)
        return
    part = np.empty(m)
    row_values(target.rows, index, other, out)
    row_values(target.rows, index, theta, part)
    for k in range(m):
        out[k] -= part[k]
    if order == 1:
        proxy_values(target.rows, index, theta, reference, 1, part)
        for k in range(m):
            out[k] += part[k]
        proxy_values(target.rows, index, other, reference, 1, part)
        for k in range(m):
            out[k] -= part[k]


@inlinable
def total_residual_gap(
    target: Target, theta: np.ndarray, other: np.ndarray, white: np.ndarray, other_white: np.ndarray, seen: Seen
) -> float:
    """The sum over all rows of what `subsample_gaps` gives, in one sequential pass: 2 n evaluations, n if `seen`."""
    n = row_total(target)
    _count_gaps(target, n, seen)
    gap = range_value(target.rows, 0, n, other) - range_value(target.rows, 0, n, theta)
    return gap - (proxy_value(target.proxy.proxy, other_white) - proxy_value(target.proxy.proxy, white))


@inlinable
def oracle_range(target: Target, theta: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Smallest and largest of what `subsample_gaps` gives over all rows: 2 n evaluations of an oracle, which are counted apart."""
    n, size = row_total(target), 4096
    target.counters[ORACLE] += 2 * n
    out, low, high = np.empty(size), np.inf, -np.inf
    for start in range(0, n, size):
        index = np.arange(start, min(n, start + size))
        _gaps(target, index, theta, other, out[: index.size])
        low, high = min(low, out[: index.size].min()), max(high, out[: index.size].max())
    return low, high


@inlinable
def expand(target: Target, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Gradient and lower triangle of the Hessian of the log-likelihood, written: n evaluations; papers do not count them."""
    n = row_total(target)
    target.counters[EVALS] += n
    target.counters[VALUES] += n
    target.counters[GRADIENTS] += n
    gradient[:] = 0.0
    hessian[:] = 0.0
    return range_hessian(target.rows, 0, n, theta, gradient, hessian)


@inlinable
def centre_log_likelihoods(target: Target, theta: np.ndarray, out: np.ndarray) -> None:
    """l at the centres of groups of rows, which the proxy holds: one evaluation a centre."""
    _count(target, out.size, 0)
    row_values(target.proxy.centres, np.arange(out.size), theta, out)


@inlinable
def control_values(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Residuals l_i - q_i of the indexed rows: one evaluation a row."""
    _count(target, index.size, 0)
    residual_values(target.rows, index, theta, target.proxy.whitening.reference, target.proxy.order, out)


@inlinable
def control_slopes(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray, slopes: np.ndarray) -> None:
    """The same with gradients, as derivatives in the linear predictors: one evaluation a row."""
    _count(target, index.size, index.size)
    residual_slopes(target.rows, index, theta, target.proxy.whitening.reference, target.proxy.order, out, slopes)


@inlinable
def add_control_gradient(
    target: Target, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray
) -> None:
    """Add gradients that `control_slopes` has evaluated, times factors: no new evaluation."""
    add_slopes(target.rows, index, slopes, factors, gradient)


@inlinable
def add_reference_curvature(target: Target, index: np.ndarray, factors: np.ndarray, hessian: np.ndarray) -> None:
    """Add Hessians of the indexed rows at the reference, times factors: scalars at the reference are not counted."""
    add_curvatures(target.rows, index, factors, target.proxy.whitening.reference, hessian)


@inlinable
def residual_gradient(target: Target, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> None:
    """Add factors times gradients of l_i - q_i of the indexed rows, q_i of the proxy's order: one evaluation a row."""
    m = index.size
    target.counters[EVALS] += m
    target.counters[GRADIENTS] += m
    target.counters[PAPER] += m
    reference, order = target.proxy.whitening.reference, target.proxy.proxy.order
    control_gradient(target.rows, index, factors, theta, reference, order, gradient)


@inlinable
def subset_log_likelihood(target: Target, index: np.ndarray, theta: np.ndarray) -> float:
    """Log-likelihood of the indexed rows: one evaluation a row."""
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
    """Sum of factors times log-likelihoods of the indexed rows, its gradient written to `gradient`: one evaluation a row."""
    _count(target, index.size, index.size)
    gradient[:] = 0.0
    return weighted_gradient(target.rows, index, factors, theta, gradient)


@inlinable
def window_log_likelihood(target: Target, start: int, size: int, theta: np.ndarray) -> float:
    """Log-likelihood of `size` consecutive rows; those that start a recursion before them are evaluated and counted too."""
    _count(target, size + lead_rows(target.rows, start), 0)
    return range_value(target.rows, start, start + size, theta)


@inlinable
def window_log_likelihood_gradient(target: Target, start: int, size: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same, with the gradient written to `gradient`."""
    m = size + lead_rows(target.rows, start)
    _count(target, m, m)
    gradient[:] = 0.0
    return range_gradient(target.rows, start, start + size, theta, gradient)


@inlinable
def lower_gaps(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Gaps log L - log B of the indexed rows to their lower bounds: one evaluation a row. A negative one ends the run."""
    _count(target, index.size, 0)
    known_gaps(target, index, theta, out)


@inlinable
def known_gaps(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """The same for rows that were already evaluated at theta and not kept: the pair counts once."""
    gaps(target.rows, target.proxy, index, theta, out)
    _require_bounds(target, index, out)


@inlinable
def _require_bounds(target: Target, index: np.ndarray, gap: np.ndarray) -> None:
    for j in range(index.size):
        if gap[j] < 0.0:
            stop_run(target, BOUND_EXCEEDED, index[j])


@inlinable
def bright_gradient(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray, gradient: np.ndarray) -> None:
    """Gaps of the indexed rows; the gradient of sum_j log(L/B - 1) is added to `gradient`: one evaluation a row."""
    _count(target, index.size, index.size)
    log_odds_gradient(target.rows, target.proxy, index, np.ones(index.size), theta, out, gradient)
    _require_bounds(target, index, out)


@inlinable
def changed_gradient(target: Target, index: np.ndarray, sign: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> None:
    """Add sign[j] times the gradient of log(L/B - 1) of rows already evaluated at theta: counted as gradients alone."""
    target.counters[GRADIENTS] += index.size
    log_odds_gradient(target.rows, target.proxy, index, sign, theta, np.empty(index.size), gradient)

"""Target: the only object a sampler sees of data, model and proxy. Every row read through it is counted.

Here are the counters and the verbs that samplers share. Verbs of one scheme of rows are beside it in `schemes`; they read rows
through the engine as these do, and pay for them by `count`. Samplers cannot: they do not import the engine's readers of rows.

An evaluation is one distinct (row, theta) pair, value and/or gradient; both ends of a difference count, recomputed scalars
at the reference do not. Counters belong to one chain.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.deadline import present_deadline
from tallbayes.engine.callbacks import raise_kept
from tallbayes.engine.failures import raise_failure, verb_failed, with_own_answers
from tallbayes.engine.ledger import record
from tallbayes.engine.rows import proxy_values, range_gradient, range_value, residual_differences, row_values, rows_at_once
from tallbayes.engine.streamed_rows import row_number
from tallbayes.priors import log_prior_of, prior_gradient, prior_status, prior_value
from tallbayes.proxies.capabilities import HasBound, HasProxy
from tallbayes.proxies.taylor import proxy_value

EVALS, VALUES, GRADIENTS, PAPER, STATUS, ROW, ORACLE, STOP, SIZE = 0, 1, 2, 3, 4, 5, 6, 7, 8
COUNTED = ("evals", "evals_value", "evals_gradient", "evals_paper")

RUNNING, BOUND_EXCEEDED, NOT_FINITE, ABANDONED = 0, 1, 2, 3
RAISED = 4  # a function of the model that is not compiled
WAITING = 5  # for rows, or for a pass over rows, that are elsewhere
DIVERGED = 16
GO_ON, END_SOON, END_NOW = (
    0,
    1,
    2,
)  # what another thread asks by STOP: nothing, the end after this draw, the end of this iteration


class NoProxy(NamedTuple):
    """A target without a proxy: full data only."""


class Certified(NamedTuple):
    """A proxy in whitened coordinates, its value without reading rows, and a certified bound of what it leaves out."""

    whitening: Any
    proxy: Any
    bound: Any


Proxy = TypeVar("Proxy", covariant=True)


class Target(NamedTuple, Generic[Proxy]):
    """Rows, prior and proxy of one chain, with its counters. `Target[HasBound]` is one whose proxy has a bound."""

    rows: Any
    prior: Any  # LogPrior; of group engines, its terms
    proxy: Proxy
    counters: np.ndarray


def new_target(model: Any, proxy: Any) -> Target:
    """The target of a chain or a pilot on a model."""
    return Target(with_own_answers(model.rows), log_prior_of(model.prior_terms), proxy, counters())


def counters() -> np.ndarray:
    """Fresh counters of a chain; those of a pilot ask it to end when the time limit of the run is over."""
    fresh = np.zeros(SIZE, np.int64)
    deadline = present_deadline()
    if deadline is not None:
        deadline.watch(fresh, STOP, END_NOW)
    return fresh


@inlinable
def stop_run(target: Target, status: int, row: int) -> None:
    """End the chunk with a status and the row to blame; an iteration that is abandoned already has none."""
    if target.counters[STATUS] != ABANDONED:
        target.counters[STATUS] = status
        target.counters[ROW] = row


@inlinable
def failed(target: Target) -> bool:
    """Whether a function of the model that is not compiled has raised an exception: what is computed from then on is void."""
    return verb_failed(target.rows) or prior_status(target.prior) != 0.0


def raise_failures(target: Target) -> None:
    """Raise the exception of a function of the model, if there is one: whoever has run compiled code on a target calls this."""
    raise_failure(target.rows)
    raise_kept(prior_status(target.prior))


@inlinable
def stopped(target: Target) -> bool:
    """Whether the iteration is to be given up: what it computes from here on is thrown away.

    Every loop that may take long asks this between its rounds, at the latest after a tenth of a second, and leaves if so.
    """
    if target.counters[STOP] == END_NOW:
        stop_run(target, ABANDONED, 0)
    if failed(target):
        stop_run(target, RAISED, 0)
    return target.counters[STATUS] != RUNNING


@inlinable
def count(target: Target, values: int, gradients: int, paper: int) -> None:
    """Pay for rows: so many values and so many gradients at one theta, each pair of row and theta one evaluation; by the rule of the
    papers they cost `paper`. Every verb that reads rows calls this, here or beside the scheme it serves."""
    target.counters[EVALS] += max(values, gradients)
    target.counters[VALUES] += values
    target.counters[GRADIENTS] += gradients
    target.counters[PAPER] += paper


@inlinable
def count_again(target: Target, gradients: int) -> None:
    """Gradients of rows that were evaluated at this theta before: no new evaluation."""
    target.counters[GRADIENTS] += gradients


def charge(target: Target) -> None:
    """Record what a target of preparation has read in the account that is open; raise what it has failed with."""
    record(int(target.counters[EVALS]))
    raise_failures(target)


@inlinable
def row_total(target: Target) -> int:
    """n."""
    return row_number(target.rows)


@inlinable
def log_prior(target: Target, theta: np.ndarray) -> float:
    """Log prior density: reads no row."""
    return prior_value(target.prior, theta)


@inlinable
def log_prior_gradient(target: Target, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log prior density, its gradient added to `gradient`: reads no row."""
    return prior_gradient(target.prior, theta, gradient)


@inlinable
def all_values(target: Target, theta: np.ndarray) -> float:
    """Log-likelihood of all rows, in pieces between which a pass can be given up: -inf then."""
    total, start, n, size = 0.0, 0, row_total(target), rows_at_once(target.rows)
    while start < n:
        if stopped(target):
            return -np.inf
        total += range_value(target.rows, start, min(n, start + size), theta)
        start += size
    return total


@inlinable
def log_posterior(target: Target, theta: np.ndarray) -> float:
    """Log posterior density on all rows: n evaluations."""
    if stopped(target):
        return -np.inf
    n = row_total(target)
    count(target, n, 0, n)
    return all_values(target, theta) + prior_value(target.prior, theta)


@inlinable
def log_posterior_gradient(target: Target, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log posterior density on all rows, its gradient written to `gradient`: n evaluations."""
    if stopped(target):
        return -np.inf
    n = row_total(target)
    count(target, n, n, n)
    gradient[:] = 0.0
    value, start, size = 0.0, 0, rows_at_once(target.rows)
    while start < n:
        if stopped(target):
            return -np.inf
        value += range_gradient(target.rows, start, min(n, start + size), theta, gradient)
        start += size
    return value + prior_gradient(target.prior, theta, gradient)


@inlinable
def residual_gaps(target: Target[HasBound], index: np.ndarray, theta: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    """Residuals at `other` less those at `theta` of the indexed rows: two evaluations per row; papers count one."""
    count(target, 2 * index.size, 0, index.size)
    residual_differences(target.rows, index, theta, other, target.proxy.whitening.reference, out)


@inlinable
def log_likelihood_gap(target: Target, theta: np.ndarray, other: np.ndarray) -> float:
    """Log-likelihood at `other` less that at `theta` on all rows: 2 n evaluations."""
    n = row_total(target)
    count(target, 2 * n, 0, 2 * n)
    return all_values(target, other) - all_values(target, theta)


@inlinable
def subsample_values(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Log-likelihoods of the indexed rows: one evaluation per row."""
    count(target, index.size, 0, index.size)
    row_values(target.rows, index, theta, out)


class Cache(NamedTuple):
    """Whether the values of all rows at the present theta are known already: by our rule, and by that of the papers.

    Ours: all rows have been read at theta, in whatever iteration. Theirs: the iteration before was charged 2 n.
    """

    ours: bool
    papers: bool


@inlinable
def _count_gaps(target: Target, m: int, cache: Cache) -> None:
    count(target, m if cache.ours else 2 * m, 0, m if cache.papers else 2 * m)


@inlinable
def subsample_gaps(
    target: Target[HasProxy], index: np.ndarray, theta: np.ndarray, other: np.ndarray, cache: Cache, out: np.ndarray
) -> None:
    """Residuals of the Taylor proxy, of any order, at `other` less those at `theta`: two evaluations per row, one if they are in
    the cache.

    At order 0 these are the differences of log-likelihood.
    """
    _count_gaps(target, index.size, cache)
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
    target: Target[HasProxy],
    theta: np.ndarray,
    other: np.ndarray,
    white: np.ndarray,
    other_white: np.ndarray,
    cache: Cache,
) -> float:
    """The sum over all rows of what `subsample_gaps` gives, in one sequential pass: 2 n evaluations, n if they are
    in the cache."""
    n = row_total(target)
    _count_gaps(target, n, cache)
    gap = all_values(target, other) - all_values(target, theta)
    return gap - (proxy_value(target.proxy.proxy, other_white) - proxy_value(target.proxy.proxy, white))

"""Full passes over the rows: fixed blocks through a pool of threads, partial sums added in block order.

The blocks depend on n alone, so a pass gives the same bits on any number of cores. Kernels release the GIL; Numba's own
parallel loops are not used, because they abort under several calling threads and their reductions depend on the cores.

Every pass records its rows in the account that is open (`ledger`): those of blocks and ranges when the pass begins, those of an
index when they are read. Functions of a range (`survey`, `suprema`, `third_suprema`, `block`) are parts of such a pass and record
nothing of their own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tallbayes.compile import SUMS, jit
from tallbayes.deadline import present_deadline
from tallbayes.engine.failures import raise_failure, with_own_answers
from tallbayes.engine.indexed_rows import TILE
from tallbayes.engine.ledger import record
from tallbayes.engine.rows import (
    proxy_values,
    range_gradient,
    range_hessian,
    range_value,
    residual_differences,
    row_values,
    weighted_gradient,
)
from tallbayes.engine.survey import range_curvatures, range_norms, range_suprema, range_third_suprema
from tallbayes.engine.windows import lead_rows, range_scores, undivided
from tallbayes.errors import ModelError

BLOCKS = 64


class Elsewhere(ABC):
    """Rows that are not here: sums over all of them come from passes where they are."""

    @abstractmethod
    def total_value(self, theta: np.ndarray) -> float:
        """Log-likelihood of all rows."""

    @abstractmethod
    def total_values(self, thetas: np.ndarray) -> np.ndarray:
        """The same at several points."""

    @abstractmethod
    def total_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-likelihood of all rows and its gradient."""

    @abstractmethod
    def total_hessian(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log-likelihood of all rows, its gradient and its Hessian."""


def block_bounds(n: int) -> list[tuple[int, int]]:
    """At most `BLOCKS` ranges of whole tiles that cover n rows.

    >>> block_bounds(600)
    [(0, 256), (256, 512), (512, 600)]
    """
    size = max(TILE, -(-n // (BLOCKS * TILE)) * TILE)
    return [(start, min(n, start + size)) for start in range(0, n, size)]


def over_blocks(n: int, work: Callable[[int, int], Any], cores: int | None = None) -> list[Any]:
    """Results of `work(start, stop)` on every block of n rows, in block order: one pass."""
    record(n)
    return _over(block_bounds(n), work, 1 if n <= BLOCKS * TILE else cores)


def _over_rows(rows: Any, work: Callable[[int, int], Any], cores: int | None = None) -> list[Any]:
    """The same for rows of any kind: where each row needs those before it, all are one block."""
    n = row_count(rows)
    if undivided(rows):
        record(n)
        return [work(0, n)]
    return over_blocks(n, work, cores)


def over_chunks(n: int, size: int, work: Callable[[int, int], Any], cores: int | None = None) -> list[Any]:
    """Results of `work(start, stop)` on chunks of `size` rows, in order: one pass."""
    record(n)
    return over_ranges(n, size, work, cores)


def over_ranges(count: int, size: int, work: Callable[[int, int], Any], cores: int | None = None) -> list[Any]:
    """Results of `work(start, stop)` on ranges of `size` that cover `count` things, in order; reads no row itself."""
    return _over([(start, min(count, start + size)) for start in range(0, count, size)], work, cores)


def _over(bounds: list[tuple[int, int]], work: Callable[[int, int], Any], cores: int | None) -> list[Any]:
    workers, deadline = min(len(bounds), cores or os.cpu_count() or 1), present_deadline()

    def timely(bound: tuple[int, int]) -> Any:
        if deadline is not None:
            deadline.require()
        return work(*bound)

    if workers <= 1:
        return [timely(bound) for bound in bounds]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(timely, bounds))


def total_value(rows: Any, theta: np.ndarray, cores: int | None = None) -> float:
    """Log-likelihood of all rows."""
    if isinstance(rows, Elsewhere):
        return rows.total_value(theta)
    theta, rows = np.ascontiguousarray(theta, np.float64), with_own_answers(rows)
    total = float(sum(_over_rows(rows, lambda a, b: _value(rows, a, b, theta), cores)))
    raise_failure(rows)
    return total


def total_values(rows: Any, thetas: np.ndarray, cores: int | None = None) -> np.ndarray:
    """Log-likelihoods of all rows at several points."""
    if isinstance(rows, Elsewhere):
        return rows.total_values(thetas)
    return np.array([total_value(rows, theta, cores) for theta in thetas])


def total_gradient(rows: Any, theta: np.ndarray, cores: int | None = None) -> tuple[float, np.ndarray]:
    """Log-likelihood of all rows and its gradient."""
    if isinstance(rows, Elsewhere):
        return rows.total_gradient(theta)
    theta, rows = np.ascontiguousarray(theta, np.float64), with_own_answers(rows)

    def work(a: int, b: int) -> tuple[float, np.ndarray]:
        gradient = np.zeros(theta.size)
        return _gradient(rows, a, b, theta, gradient), gradient

    parts = _over_rows(rows, work, cores)
    raise_failure(rows)
    return float(sum(p[0] for p in parts)), np.sum([p[1] for p in parts], axis=0)


def total_hessian(
    rows: Any, theta: np.ndarray, cores: int | None = None, shift: np.ndarray | None = None
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log-likelihood of all rows, its gradient and its Hessian; with `shift`, of rows whose columns are less by it."""
    if isinstance(rows, Elsewhere):
        return rows.total_hessian(theta)
    theta, rows = np.ascontiguousarray(theta, np.float64), with_own_answers(rows)

    def work(a: int, b: int) -> tuple[float, np.ndarray, np.ndarray]:
        gradient, hessian = np.zeros(theta.size), np.zeros((theta.size, theta.size))
        if shift is None:
            return _hessian(rows, a, b, theta, gradient, hessian), gradient, hessian
        records = np.ascontiguousarray(rows.records[a:b]).copy()
        records[:, : shift.size] -= shift.astype(records.dtype)
        return _hessian(rows._replace(records=records), 0, b - a, theta, gradient, hessian), gradient, hessian

    parts = _over_rows(rows, work, cores)
    raise_failure(rows)
    with np.errstate(over="ignore", invalid="ignore"):  # far out terms may be infinite: the caller looks at the sum
        lower = np.sum([p[2] for p in parts], axis=0)
        hessian = lower + np.tril(lower, -1).T
        return float(sum(p[0] for p in parts)), np.sum([p[1] for p in parts], axis=0), hessian


def whitened_norms(rows: Any, factor: np.ndarray, cores: int | None = None) -> np.ndarray:
    """|factor' x_i| of every row."""
    _require_indices(rows)
    factor = np.ascontiguousarray(factor, np.float64)
    out = np.empty(row_count(rows))
    over_blocks(out.size, lambda a, b: _norms(rows, a, b, factor, out[a:b]), cores)
    return out


def scores(rows: Any, theta: np.ndarray, cores: int | None = None) -> np.ndarray:
    """Gradient of the log-likelihood of every row at theta: (n, dim)."""
    theta, rows = np.ascontiguousarray(theta, np.float64), with_own_answers(rows)
    out = np.empty((row_count(rows), theta.size))
    _over_rows(rows, lambda a, b: _scores(rows, a, b, theta, out[a:b]), cores)
    raise_failure(rows)
    return out


def survey(rows: Any, start: int, stop: int, factor: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Whitened norm, |f''| at the reference and sup |f'''| of a range of rows, weights included: (3, rows)."""
    _require_indices(rows)
    out = np.empty((3, stop - start))
    points = [np.ascontiguousarray(p, np.float64) for p in (factor, reference)]
    _survey(rows, start, stop, *points, out)
    return out


def suprema(rows: Any, start: int, stop: int, factor: np.ndarray) -> np.ndarray:
    """Norm of factor' x, sup |f'| and sup |f''| of a range of rows of one linear predictor, weights included: (3, rows)."""
    _require_indices(rows)
    out = np.empty((3, stop - start))
    _suprema(rows, start, stop, np.ascontiguousarray(factor, np.float64), out)
    return out


def third_suprema(rows: Any, start: int, stop: int, reference: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Weighted sup |f'''| of a range of rows over etas within `reach` of those at the reference."""
    _require_indices(rows)
    out = np.empty(stop - start)
    _third_suprema(rows, start, stop, *(np.ascontiguousarray(p, np.float64) for p in (reference, reach)), out)
    return out


def values_at(rows: Any, index: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Weighted log-likelihood of the indexed rows: one evaluation per row."""
    record(index.size)
    rows, out = with_own_answers(rows), np.empty(index.size)
    _values(rows, np.ascontiguousarray(index, np.int64), np.ascontiguousarray(theta, np.float64), out)
    raise_failure(rows)
    return out


def gradient_at(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum of factors times log-likelihoods of the indexed rows, and its gradient: one evaluation per row."""
    record(index.size)
    rows, gradient = with_own_answers(rows), np.zeros(theta.size)
    total = _indexed_gradient(
        rows,
        np.ascontiguousarray(index, np.int64),
        np.ascontiguousarray(factors, np.float64),
        np.ascontiguousarray(theta, np.float64),
        gradient,
    )
    raise_failure(rows)
    return float(total), gradient


def range_gradient_at(rows: Any, start: int, stop: int, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """Log-likelihood of consecutive rows and its gradient; rows that start a recursion before them are counted too."""
    record(stop - start + lead_rows(rows, start))
    rows, gradient = with_own_answers(rows), np.zeros(theta.size)
    total = float(_gradient(rows, start, stop, np.ascontiguousarray(theta, np.float64), gradient))
    raise_failure(rows)
    return total, gradient


def residuals_at(rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Differences of Taylor residuals of the indexed rows: two evaluations per row."""
    record(2 * index.size)
    rows, out = with_own_answers(rows), np.empty(index.size)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, other, reference)]
    _residuals(rows, np.ascontiguousarray(index, np.int64), *points, out)
    raise_failure(rows)
    return out


def proxies_at(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int) -> np.ndarray:
    """Taylor proxies of the indexed rows, from scalars at the reference, which do not count."""
    rows, out = with_own_answers(rows), np.empty(index.size)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, reference)]
    _proxies(rows, np.ascontiguousarray(index, np.int64), *points, order, out)
    raise_failure(rows)
    return out


def _require_indices(rows: Any) -> None:
    """Refuse a likelihood outside."""
    if getattr(rows, "outside", 0):
        raise ModelError("rows of this model have no linear predictor by which to weight them; use rows='uniform'.")


def block(rows: Any, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Design rows, responses, offsets and weights of a range, as float64 arrays, for set-up computations in NumPy."""
    part, d = rows.records[start:stop].astype(np.float64), rows.columns
    return part[:, :d], part[:, d], part[:, d + 1], part[:, d + 2]


def row_count(rows: Any) -> int:
    """Number of rows."""
    return int(rows.records.shape[0])


@jit(options=SUMS)
def _value(rows: Any, start: int, stop: int, theta: np.ndarray) -> float:
    return range_value(rows, start, stop, theta)


@jit(options=SUMS)
def _gradient(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    return range_gradient(rows, start, stop, theta, gradient)


@jit(options=SUMS)
def _hessian(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return range_hessian(rows, start, stop, theta, gradient, hessian)


@jit(options=SUMS)
def _norms(rows: Any, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    range_norms(rows, start, stop, factor, out)


@jit(options=SUMS)
def _scores(rows: Any, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    range_scores(rows, start, stop, theta, out)


@jit(options=SUMS)
def _survey(rows: Any, start: int, stop: int, factor: np.ndarray, reference: np.ndarray, out: np.ndarray) -> None:
    range_norms(rows, start, stop, factor, out[0])
    range_curvatures(rows, start, stop, reference, out[1], out[2])


@jit(options=SUMS)
def _suprema(rows: Any, start: int, stop: int, factor: np.ndarray, out: np.ndarray) -> None:
    range_norms(rows, start, stop, factor, out[0])
    range_suprema(rows, start, stop, out[1], out[2])


@jit(options=SUMS)
def _third_suprema(rows: Any, start: int, stop: int, reference: np.ndarray, reach: np.ndarray, out: np.ndarray) -> None:
    range_third_suprema(rows, start, stop, reference, reach, out)


@jit(options=SUMS)
def _values(rows: Any, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    row_values(rows, index, theta, out)


@jit(options=SUMS)
def _indexed_gradient(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    return weighted_gradient(rows, index, factors, theta, gradient)


@jit(options=SUMS)
def _proxies(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    proxy_values(rows, index, theta, reference, order, out)


@jit(options=SUMS)
def _residuals(
    rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    residual_differences(rows, index, theta, other, reference, out)

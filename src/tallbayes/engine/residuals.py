"""Row verbs of control variates: residuals l_i - q_i of a Taylor proxy of order 0, 1 or 2, and their gradients.

A gradient is kept as the derivative of the residual in the linear predictors (and nuisances) of its row, a few numbers, so
that rows can be summed with factors that are known only after all residuals are. Everything includes the row's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import INLINED, SUMS, declared, generic, jit
from tallbayes.engine.failures import raise_failure, with_own_answers
from tallbayes.engine.ledger import record
from tallbayes.engine.outside import ADD_CURVATURES, ADD_SLOPES, RESIDUAL_SLOPES, RESIDUAL_VALUES
from tallbayes.engine.rows import Rows, record_numbers
from tallbayes.engine.verb_calls import on_points, run_verb, without_total


@generic
@declared
def slope_count(rows: Any) -> int:
    """Numbers that describe the gradient of one row."""
    raise TypeError


@generic(options={**SUMS, **INLINED})
@declared
def residual_values(
    rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    """out[j] = l_i(theta) less its Taylor expansion at `reference` to `order`, i = index[j]."""


@generic(options={**SUMS, **INLINED})
@declared
def residual_slopes(
    rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray, slopes: np.ndarray
) -> None:
    """The same, with derivatives in the linear predictors in the rows of `slopes`."""


@generic(options={**SUMS, **INLINED})
@declared
def add_slopes(rows: Any, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    """Add sum_j factors[j] times the gradient in theta that slopes[j] describes."""


@generic(options={**SUMS, **INLINED})
@declared
def add_curvatures(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    """Add the lower triangle of sum_j factors[j] times the Hessian of l_i at theta."""


@slope_count.register(Rows)
def _slope_count(rows: Rows) -> int:
    return rows.slopes


@residual_values.register(Rows)
def _residual_values(
    rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    at = record_numbers(rows, index)
    on_points(rows, RESIDUAL_VALUES, at, (theta, theta, reference), order, theta, out)


@residual_slopes.register(Rows)
def _residual_slopes(
    rows: Rows,
    index: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    out: np.ndarray,
    slopes: np.ndarray,
) -> None:
    at = record_numbers(rows, index)
    if index.size > 0:
        run_verb(
            rows, RESIDUAL_SLOPES, at, 0, 0, (theta, theta, reference), order, theta, without_total(rows, out), out, slopes
        )


@add_slopes.register(Rows)
def _add_slopes(rows: Rows, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    if index.size > 0:
        at, total = record_numbers(rows, index), without_total(rows, gradient)
        run_verb(rows, ADD_SLOPES, at, 0, 0, (factors, factors, factors), 0, factors, total, gradient, slopes)


@add_curvatures.register(Rows)
def _add_curvatures(rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray) -> None:
    if index.size > 0:
        at, total = record_numbers(rows, index), without_total(rows, theta)
        run_verb(rows, ADD_CURVATURES, at, 0, 0, (theta, theta, theta), 0, factors, total, theta, hessian)


@jit(options=SUMS)
def _values_at(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    residual_values(rows, index, theta, reference, order, out)


def control_residuals(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int) -> np.ndarray:
    """l_i - q_i of the indexed rows, for set-up computations: one evaluation per row."""
    record(index.size)
    rows, out = with_own_answers(rows), np.empty(index.size)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, reference)]
    _values_at(rows, np.ascontiguousarray(index, np.int64), *points, order, out)
    raise_failure(rows)
    return out

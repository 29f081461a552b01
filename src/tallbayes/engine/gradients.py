"""Row verb of stochastic gradients: gradients of l_i - q_i, q_i the Taylor proxy of order 0, 1 or 2 of a row at a reference.

Order 0 leaves the gradient of the row itself (the constant proxy has none), order 1 takes its gradient at the reference
off, order 2 also the change that the Hessian there predicts. Rows are summed with factors, weights included, and added to
the array given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import INLINED, SUMS, declared, generic
from tallbayes.engine.bursts import burst_rows, request_rows
from tallbayes.engine.outside import CONTROL_GRADIENT
from tallbayes.engine.rows import Rows
from tallbayes.engine.verb_calls import on_points


@generic(options={**SUMS, **INLINED})
@declared
def control_gradient(
    rows: Any,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    """Add the sum of factors[j] grad (l_i - q_i)(theta), i = index[j], to `gradient`."""


@generic
def expect_rows(rows: Any, index: np.ndarray) -> None:
    """Ask for the first rows of an index that is read soon; nothing where records are not read one by one."""
    return


@expect_rows.register(Rows)
def _expect_records(rows: Rows, index: np.ndarray) -> None:
    if rows.indices == 1:
        request_rows(rows.records, index, 0, burst_rows(rows.records))


@control_gradient.register(Rows)
def _control_gradient(
    rows: Rows,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    on_points(rows, CONTROL_GRADIENT, index, (theta, theta, reference), order, factors, gradient)

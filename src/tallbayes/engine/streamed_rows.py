"""Rows of a chain that were drawn where they live and sent: a few records here, n rows elsewhere.

Subsampling verbs read the records; they are those of the kind of rows inside. A verb of all rows cannot: it looks the answer up in
`known`, or notes the question in `asked` and returns NaN, and whoever runs the chain stops it, makes a pass where the rows are, and
runs the chunk again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import generic, inlinable
from tallbayes.engine.gradients import control_gradient
from tallbayes.engine.residuals import add_curvatures, add_slopes, residual_slopes, residual_values, slope_count
from tallbayes.engine.rounding import rounding
from tallbayes.engine.rows import range_value, residual_differences, rows_at_once

QUESTIONS = 2  # an iteration compares two positions


class StreamedRows(NamedTuple):
    """Records of streams, and what is known of all n rows."""

    inner: Any  # rows of the records here
    n: int
    most: int  # candidates of a decision beyond which all rows are read
    known: np.ndarray  # (answers, dim + 1): theta and the log-likelihood of all rows there
    asked: np.ndarray  # (1 + QUESTIONS dim): the number of open questions, then their thetas
    numbers: np.ndarray  # in the stream, of each record, ascending: for samplers that keep rows


@generic
def row_number(rows: Any) -> int:
    """n."""
    return rows.records.shape[0]


@generic
def most_candidates(rows: Any) -> int:
    """Expected candidate rows of a decision at which all rows are read instead."""
    return rows.records.shape[0]


@generic
def awaiting(rows: Any) -> bool:
    """Whether a verb of all rows had no answer."""
    return False


@row_number.register(StreamedRows)
def _streamed_number(rows: StreamedRows) -> int:
    return rows.n


@most_candidates.register(StreamedRows)
def _streamed_most(rows: StreamedRows) -> int:
    return rows.most


@awaiting.register(StreamedRows)
def _streamed_awaiting(rows: StreamedRows) -> bool:
    return rows.asked[0] > 0.0


@rounding.register(StreamedRows)
def _streamed_rounding(rows: StreamedRows) -> float:
    return rounding(rows.inner)


@residual_differences.register(StreamedRows)
def _streamed_differences(
    rows: StreamedRows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    residual_differences(rows.inner, index, theta, other, reference, out)


@control_gradient.register(StreamedRows)
def _streamed_gradient(
    rows: StreamedRows,
    index: np.ndarray,
    factors: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    gradient: np.ndarray,
) -> None:
    control_gradient(rows.inner, index, factors, theta, reference, order, gradient)


@rows_at_once.register(StreamedRows)
def _streamed_at_once(rows: StreamedRows) -> int:
    return rows.n


@range_value.register(StreamedRows)
def _streamed_value(rows: StreamedRows, start: int, stop: int, theta: np.ndarray) -> float:
    d = theta.size
    for k in range(rows.known.shape[0]):
        same = True
        for j in range(d):
            same &= rows.known[k, j] == theta[j]
        if same:
            return rows.known[k, d]
    place = int(rows.asked[0])
    if place < QUESTIONS:
        for j in range(d):
            rows.asked[1 + place * d + j] = theta[j]
        rows.asked[0] += 1.0
    return np.nan


@inlinable
def _places(rows: StreamedRows, index: np.ndarray) -> np.ndarray:
    """Records of rows known by their numbers; one that is not here yet has any: what comes of it is void."""
    out, last = np.empty(index.size, np.int64), rows.numbers.size - 1
    for j in range(index.size):
        out[j] = min(np.searchsorted(rows.numbers, index[j]), last)
    return out


@slope_count.register(StreamedRows)
def _streamed_count(rows: StreamedRows) -> int:
    return slope_count(rows.inner)


@residual_values.register(StreamedRows)
def _streamed_residuals(
    rows: StreamedRows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray
) -> None:
    residual_values(rows.inner, _places(rows, index), theta, reference, order, out)


@residual_slopes.register(StreamedRows)
def _streamed_slopes(
    rows: StreamedRows,
    index: np.ndarray,
    theta: np.ndarray,
    reference: np.ndarray,
    order: int,
    out: np.ndarray,
    slopes: np.ndarray,
) -> None:
    residual_slopes(rows.inner, _places(rows, index), theta, reference, order, out, slopes)


@add_slopes.register(StreamedRows)
def _streamed_add(rows: StreamedRows, index: np.ndarray, slopes: np.ndarray, factors: np.ndarray, gradient: np.ndarray) -> None:
    add_slopes(rows.inner, _places(rows, index), slopes, factors, gradient)


@add_curvatures.register(StreamedRows)
def _streamed_curvatures(
    rows: StreamedRows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, hessian: np.ndarray
) -> None:
    add_curvatures(rows.inner, _places(rows, index), factors, theta, hessian)

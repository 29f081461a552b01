"""Verbs of rows are called here: by their address in compiled code, as plain functions when interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from tallbayes.compile import HELPER, SCALAR, inlinable
from tallbayes.engine.outside import call_outside, row_numbers
from tallbayes.engine.verb_tables import VERBS, verb_address
from tallbayes.pointers import PLAIN, borrowed

FAILED = 0  # in `Rows.answers`: whether a verb has failed, and why


def run_verb(
    rows: Any,
    verb: int,
    index: np.ndarray,
    start: int,
    stop: int,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    order: int,
    factors: np.ndarray,
    total: np.ndarray,
    out: np.ndarray,
    table: np.ndarray,
) -> None:
    """A verb, at up to three points (theta, another, the reference); whether it has failed is in the answers of the rows."""
    found = VERBS[verb] if rows.outside == 0 else PLAIN[rows.outside]
    numbers = rows.records, rows.layout, rows.p, verb, row_numbers(index), start, stop
    status = found(*numbers, *points, order, factors, total, out, table)
    if status != 0:
        rows.answers[FAILED] = status


@overload(run_verb, jit_options={**SCALAR, **HELPER}, strict=False)
def _compiled_run_verb(*arguments: Any) -> Any:
    def run(
        rows: Any,
        verb: int,
        index: np.ndarray,
        start: int,
        stop: int,
        points: tuple[np.ndarray, np.ndarray, np.ndarray],
        order: int,
        factors: np.ndarray,
        total: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> Any:
        address, numbers, of = verb_address(rows.verbs, verb), row_numbers(index), borrowed(rows)
        first, second, third = borrowed(points)
        records, layout, p = of.records, of.layout, of.p
        status = call_outside(
            address, records, layout, p, verb, numbers, start, stop, first, second, third, order, factors, total, out, table
        )
        if status != 0:
            rows.answers[FAILED] = status

    return run


def without_total(rows: Any, place: np.ndarray) -> np.ndarray:
    """Where a verb without a total may write one: nowhere of its own if nobody does."""
    return np.zeros(1)


@overload(without_total, jit_options={**SCALAR, **HELPER}, strict=False)
def _compiled_without_total(rows: Any, place: Any) -> Any:
    return lambda rows, place: np.zeros(1) if rows.outside != 0 else borrowed(place)


def without_table(rows: Any) -> np.ndarray:
    """A table for a verb that has none."""
    return np.empty((0, 0))


@overload(without_table, jit_options={**SCALAR, **HELPER}, strict=False)
def _compiled_without_table(rows: Any) -> Any:
    double = rows.types[rows.fields.index("records")].dtype == types.float64
    return (lambda rows: borrowed(rows).records) if double else (lambda rows: np.empty((0, 0)))


@inlinable(options=SCALAR)
def on_points(
    rows: Any,
    verb: int,
    index: np.ndarray,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    order: int,
    factors: np.ndarray,
    out: np.ndarray,
) -> None:
    """A verb without total and table on indexed rows, if there are any."""
    if index.size > 0:
        run_verb(rows, verb, index, 0, 0, points, order, factors, without_total(rows, out), out, without_table(rows))


@inlinable(options=SCALAR)
def on_index(rows: Any, verb: int, index: np.ndarray, theta: np.ndarray, factors: np.ndarray, out: np.ndarray) -> float:
    """The total of a verb on indexed rows at one point; NaN if it has failed."""
    total = np.zeros(1)
    if index.size > 0:
        run_verb(rows, verb, index, 0, 0, (theta, theta, theta), 0, factors, total, out, without_table(rows))
    return np.nan if rows.answers[FAILED] != 0.0 else float(total[0])


@inlinable(options=SCALAR)
def on_range(rows: Any, verb: int, start: int, stop: int, theta: np.ndarray, out: np.ndarray, table: np.ndarray) -> float:
    """The same on a range of rows."""
    total = np.zeros(1)
    run_verb(rows, verb, rows.numbers, start, stop, (theta, theta, theta), 0, theta, total, out, table)
    return np.nan if rows.answers[FAILED] != 0.0 else float(total[0])

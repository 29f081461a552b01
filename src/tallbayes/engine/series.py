"""Row verbs of a time series: conditional likelihood of an ARMA(p, q) process, by recursion over contiguous rows.

e_t = y_t - c - sum_i a_i y_{t-i} - sum_j b_j e_{t-j}, and a row adds log N(e_t; 0, sigma^2), constants left out. theta is
(a_1 .. a_p, b_1 .. b_q, c), followed by log sigma unless sigma is known. The first p rows are conditioned on.

A range [start, stop) is a window: its recursion starts `lead` rows before it with e = 0, and those rows add nothing. From row
0 on this is the conditional likelihood of the whole series. Outside the stationary and invertible region the value is -inf.
Derivatives of e obey the same recursion, and are carried along. Compiled code reaches all of it by one address (`outside`).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import STRICT, SUMS, inlinable
from tallbayes.engine import outside
from tallbayes.engine.rows import Rows, outside_rows
from tallbayes.pointers import Kind, kind_of, member_maker, member_pointer, numbers_of


class Series(NamedTuple):
    """What identifies a process, and where its observations are."""

    column: int  # of the observation in a record
    p: int
    q: int
    sigma: float  # 0 if log sigma is the last coordinate of theta
    lead: int  # rows before a window on which its recursion is started


@inlinable
def _first_row(series: Series, first: int) -> int:
    """Where the recursion of a window begins."""
    return first - max(0, min(series.lead, first - series.p))


@inlinable
def stable(coefficients: np.ndarray) -> bool:
    """Whether 1 - sum_j a_j z^j has all its roots outside the unit circle: the step-down recursion of Levinson and Durbin."""
    order = coefficients.size
    a, b = coefficients.copy(), np.empty(order)
    for k in range(order - 1, -1, -1):
        partial = a[k]
        if not abs(partial) < 1.0:
            return False
        for j in range(k):
            b[j] = (a[j] + partial * a[k - 1 - j]) / (1.0 - partial * partial)
        for j in range(k):
            a[j] = b[j]
    return True


@inlinable
def admissible(p: int, q: int, theta: np.ndarray) -> bool:
    """Whether theta is in the stationary and invertible region."""
    return stable(theta[:p]) and stable(-theta[p : p + q])


@inlinable
def _precision(series: Series, theta: np.ndarray) -> tuple[float, float]:
    """Log sigma (zero if sigma is known) and 1 / sigma^2."""
    if series.sigma > 0.0:
        return 0.0, 1.0 / (series.sigma * series.sigma)
    tau = theta[series.p + series.q + 1]
    return tau, math.exp(-2.0 * tau)


@inlinable(options=SUMS)
def _innovation(series: Series, records: np.ndarray, t: int, theta: np.ndarray, past: np.ndarray) -> float:
    """e_t given the last q of them."""
    p, q = series.p, series.q
    e = records[t, series.column] - theta[p + q]
    for i in range(p):
        e -= theta[i] * records[t - 1 - i, series.column]
    for j in range(q):
        e -= theta[p + j] * past[j]
    return e


@inlinable(options=SUMS)
def _slopes(
    series: Series, records: np.ndarray, t: int, theta: np.ndarray, past: np.ndarray, slopes: np.ndarray, now: np.ndarray
) -> None:
    """Derivatives of e_t in (a, b, c), given those of the last q."""
    p, q = series.p, series.q
    for i in range(p):
        now[i] = -records[t - 1 - i, series.column]
    for j in range(q):
        now[p + j] = -past[j]
    now[p + q] = -1.0
    for j in range(q):
        b = theta[p + j]
        for c in range(p + q + 1):
            now[c] -= b * slopes[j, c]


@inlinable
def _push(past: np.ndarray, value: float) -> None:
    """Put a value before the last ones, of which the oldest is forgotten."""
    for j in range(past.size - 1, 0, -1):
        past[j] = past[j - 1]
    if past.size > 0:
        past[0] = value


@inlinable
def _push_row(past: np.ndarray, values: np.ndarray) -> None:
    for j in range(past.shape[0] - 1, 0, -1):
        for c in range(values.size):
            past[j, c] = past[j - 1, c]
    if past.shape[0] > 0:
        for c in range(values.size):
            past[0, c] = values[c]


@inlinable(options=SUMS)
def window_value(series: Series, records: np.ndarray, start: int, stop: int, theta: np.ndarray) -> float:
    """Log-likelihood of a window."""
    if not admissible(series.p, series.q, theta):
        return -np.inf
    tau, precision = _precision(series, theta)
    past, squares = np.zeros(series.q), 0.0
    first = max(start, series.p)
    for t in range(_first_row(series, first), first):
        _push(past, _innovation(series, records, t, theta, past))
    for t in range(first, stop):
        e = _innovation(series, records, t, theta, past)
        squares += e * e
        _push(past, e)
    return -(stop - first) * tau - 0.5 * precision * squares


@inlinable(options=SUMS)
def window_gradient(
    series: Series, records: np.ndarray, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray
) -> float:
    """The same, its gradient added to `gradient`."""
    if not admissible(series.p, series.q, theta):
        return -np.inf
    tau, precision = _precision(series, theta)
    k = series.p + series.q + 1
    past, slopes, now, total = np.zeros(series.q), np.zeros((series.q, k)), np.empty(k), np.zeros(k)
    squares, first = 0.0, max(start, series.p)
    for t in range(_first_row(series, first), stop):
        e = _innovation(series, records, t, theta, past)
        _slopes(series, records, t, theta, past, slopes, now)
        if t >= first:
            squares += e * e
            for c in range(k):
                total[c] += e * now[c]
        _push(past, e)
        _push_row(slopes, now)
    for c in range(k):
        gradient[c] -= precision * total[c]
    if series.sigma <= 0.0:
        gradient[k] += precision * squares - (stop - first)
    return -(stop - first) * tau - 0.5 * precision * squares


@inlinable(options=SUMS)
def window_hessian(
    series: Series, records: np.ndarray, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    """The same, with the lower triangle of the Hessian."""
    if not admissible(series.p, series.q, theta):
        return -np.inf
    tau, precision = _precision(series, theta)
    p, q = series.p, series.q
    k = p + q + 1
    past, slopes, now, total = np.zeros(q), np.zeros((q, k)), np.empty(k), np.zeros(k)
    seconds, bend = np.zeros((q, k * k)), np.zeros(k * k)  # second derivatives; those that vanish stay zero
    squares, first = 0.0, max(start, p)
    for t in range(_first_row(series, first), stop):
        e = _innovation(series, records, t, theta, past)
        _slopes(series, records, t, theta, past, slopes, now)
        for a in range(k):
            for b in range(k):
                value = 0.0
                if p <= a < p + q:
                    value -= slopes[a - p, b]
                if p <= b < p + q:
                    value -= slopes[b - p, a]
                for j in range(q):
                    value -= theta[p + j] * seconds[j, a * k + b]
                bend[a * k + b] = value
        if t >= first:
            squares += e * e
            for a in range(k):
                total[a] += e * now[a]
                for b in range(a + 1):
                    hessian[a, b] -= precision * (now[a] * now[b] + e * bend[a * k + b])
        _push(past, e)
        _push_row(slopes, now)
        _push_row(seconds, bend)
    for c in range(k):
        gradient[c] -= precision * total[c]
    if series.sigma <= 0.0:
        gradient[k] += precision * squares - (stop - first)
        for c in range(k):
            hessian[k, c] += 2.0 * precision * total[c]
        hessian[k, k] -= 2.0 * precision * squares
    return -(stop - first) * tau - 0.5 * precision * squares


@inlinable
def window_scores(series: Series, records: np.ndarray, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    """One sweep; the recursion of the range starts `lead` rows before it."""
    k = series.p + series.q + 1
    precision = _precision(series, theta)[1]
    past, slopes, now = np.zeros(series.q), np.zeros((series.q, k)), np.empty(k)
    out[:] = 0.0
    first = max(start, series.p)
    for t in range(_first_row(series, first), stop):
        e = _innovation(series, records, t, theta, past)
        _slopes(series, records, t, theta, past, slopes, now)
        if t >= first:
            for c in range(k):
                out[t - start, c] = -precision * e * now[c]
            if series.sigma <= 0.0:
                out[t - start, k] = precision * e * e - 1.0
        _push(past, e)
        _push_row(slopes, now)


@functools.cache
def series_pointer(kind: Kind, single: bool) -> int:
    """The address of the verbs, for records of one precision or the other."""
    member = member_maker(kind)

    def verbs(
        records: np.ndarray,
        layout: np.ndarray,
        p: np.ndarray,
        verb: int,
        index: np.ndarray,
        start: int,
        stop: int,
        theta: np.ndarray,
        other: np.ndarray,
        reference: np.ndarray,
        order: int,
        factors: np.ndarray,
        total: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> int:
        series = member(p)
        if verb == outside.RANGE_VALUE:
            total[0] = window_value(series, records, start, stop, theta)
        elif verb == outside.RANGE_GRADIENT:
            total[0] = window_gradient(series, records, start, stop, theta, out)
        elif verb == outside.RANGE_HESSIAN:
            total[0] = window_hessian(series, records, start, stop, theta, out, table)
        elif verb == outside.RANGE_SCORES:
            window_scores(series, records, start, stop, theta, table)
        else:
            return outside.UNKNOWN
        return 0

    precision = "single" if single else "double"
    return member_pointer(verbs, f"series {precision}", kind, outside.SINGLE if single else outside.DOUBLE, options=STRICT)


def series_rows(series: Series, records: np.ndarray) -> Rows:
    """Contiguous observations, one per row."""
    address = series_pointer(kind_of(series), records.dtype == np.float32)
    rows = outside_rows(records, series.column, numbers_of(series), address, 0)
    return rows._replace(lead=series.lead, conditioned=series.p)

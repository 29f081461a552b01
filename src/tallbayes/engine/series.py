"""Row verbs of a time series: conditional likelihood of an ARMA(p, q) process, by recursion over contiguous rows.

e_t = y_t - c - sum_i a_i y_{t-i} - sum_j b_j e_{t-j}, and a row adds log N(e_t; 0, sigma^2), constants left out. theta is
(a_1 .. a_p, b_1 .. b_q, c), followed by log sigma unless sigma is known. The first p rows are conditioned on.

A range [start, stop) is a window: its recursion starts `lead` rows before it with e = 0, and those rows add nothing. From row
0 on this is the conditional likelihood of the whole series. Outside the stationary and invertible region the value is -inf.
Derivatives of e obey the same recursion, and are carried along.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, generic, inlinable
from tallbayes.engine.rows import range_gradient, range_hessian, range_value, rows_at_once


class Series(NamedTuple):
    """Contiguous observations, one per row."""

    records: np.ndarray  # (n, width)
    column: int  # of the observation in a record
    p: int
    q: int
    sigma: float  # 0 if log sigma is the last coordinate of theta
    lead: int  # rows before a window on which its recursion is started


@generic
def lead_rows(rows: Any, start: int) -> int:
    """Rows read before a window that begins at `start`."""
    return 0


@lead_rows.register(Series)
def _lead_rows(rows: Series, start: int) -> int:
    return max(0, min(rows.lead, start - rows.p))


@rows_at_once.register(Series)
def _rows_at_once(rows: Series) -> int:
    """All: every row needs those before it."""
    return rows.records.shape[0]


@generic
def range_scores(rows: Any, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    """out[i - start] = gradient of the log-likelihood of row i."""
    out[:] = 0.0
    for i in range(start, stop):
        range_gradient(rows, i, i + 1, theta, out[i - start])


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
def _precision(rows: Series, theta: np.ndarray) -> tuple[float, float]:
    """Log sigma (zero if sigma is known) and 1 / sigma^2."""
    if rows.sigma > 0.0:
        return 0.0, 1.0 / (rows.sigma * rows.sigma)
    tau = theta[rows.p + rows.q + 1]
    return tau, math.exp(-2.0 * tau)


@inlinable(options=SUMS)
def _innovation(rows: Series, t: int, theta: np.ndarray, past: np.ndarray) -> float:
    """e_t given the last q of them."""
    p, q = rows.p, rows.q
    e = rows.records[t, rows.column] - theta[p + q]
    for i in range(p):
        e -= theta[i] * rows.records[t - 1 - i, rows.column]
    for j in range(q):
        e -= theta[p + j] * past[j]
    return e


@inlinable(options=SUMS)
def _slopes(rows: Series, t: int, theta: np.ndarray, past: np.ndarray, slopes: np.ndarray, now: np.ndarray) -> None:
    """Derivatives of e_t in (a, b, c), given those of the last q."""
    p, q = rows.p, rows.q
    for i in range(p):
        now[i] = -rows.records[t - 1 - i, rows.column]
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


@range_value.register(Series)
def _range_value(rows: Series, start: int, stop: int, theta: np.ndarray) -> float:
    if not admissible(rows.p, rows.q, theta):
        return -np.inf
    tau, precision = _precision(rows, theta)
    past, squares = np.zeros(rows.q), 0.0
    first = max(start, rows.p)
    for t in range(first - lead_rows(rows, first), first):
        _push(past, _innovation(rows, t, theta, past))
    for t in range(first, stop):
        e = _innovation(rows, t, theta, past)
        squares += e * e
        _push(past, e)
    return -(stop - first) * tau - 0.5 * precision * squares


@range_gradient.register(Series)
def _range_gradient(rows: Series, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    if not admissible(rows.p, rows.q, theta):
        return -np.inf
    tau, precision = _precision(rows, theta)
    k = rows.p + rows.q + 1
    past, slopes, now, total = np.zeros(rows.q), np.zeros((rows.q, k)), np.empty(k), np.zeros(k)
    squares, first = 0.0, max(start, rows.p)
    for t in range(first - lead_rows(rows, first), stop):
        e = _innovation(rows, t, theta, past)
        _slopes(rows, t, theta, past, slopes, now)
        if t >= first:
            squares += e * e
            for c in range(k):
                total[c] += e * now[c]
        _push(past, e)
        _push_row(slopes, now)
    for c in range(k):
        gradient[c] -= precision * total[c]
    if rows.sigma <= 0.0:
        gradient[k] += precision * squares - (stop - first)
    return -(stop - first) * tau - 0.5 * precision * squares


@range_hessian.register(Series)
def _range_hessian(rows: Series, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    if not admissible(rows.p, rows.q, theta):
        return -np.inf
    tau, precision = _precision(rows, theta)
    p, q = rows.p, rows.q
    k = p + q + 1
    past, slopes, now, total = np.zeros(q), np.zeros((q, k)), np.empty(k), np.zeros(k)
    seconds, bend = np.zeros((q, k * k)), np.zeros(k * k)  # second derivatives; those that vanish stay zero
    squares, first = 0.0, max(start, p)
    for t in range(first - lead_rows(rows, first), stop):
        e = _innovation(rows, t, theta, past)
        _slopes(rows, t, theta, past, slopes, now)
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
    if rows.sigma <= 0.0:
        gradient[k] += precision * squares - (stop - first)
        for c in range(k):
            hessian[k, c] += 2.0 * precision * total[c]
        hessian[k, k] -= 2.0 * precision * squares
    return -(stop - first) * tau - 0.5 * precision * squares


@range_scores.register(Series)
def _range_scores(rows: Series, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    """One sweep; the recursion of the range starts `lead` rows before it."""
    k = rows.p + rows.q + 1
    precision = _precision(rows, theta)[1]
    past, slopes, now = np.zeros(rows.q), np.zeros((rows.q, k)), np.empty(k)
    out[:] = 0.0
    first = max(start, rows.p)
    for t in range(first - lead_rows(rows, first), stop):
        e = _innovation(rows, t, theta, past)
        _slopes(rows, t, theta, past, slopes, now)
        if t >= first:
            for c in range(k):
                out[t - start, c] = -precision * e * now[c]
            if rows.sigma <= 0.0:
                out[t - start, k] = precision * e * e - 1.0
        _push(past, e)
        _push_row(slopes, now)

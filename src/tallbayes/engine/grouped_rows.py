"""Rows with group effects: eta_i = o_i + x_i . beta + sum_k z_ik . b_{k, g_k(i)}, and what a pass over the rows of a factor adds up.

A pass goes level by level, so that the sums of a level are written once and never need an index; levels without rows keep sums
of zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable, jit
from tallbayes.engine import ledger
from tallbayes.engine.family_functions import jet2, third
from tallbayes.engine.indexed_rows import dot
from tallbayes.engine.passes import over_ranges

_RANGES = 64  # ranges of levels of a pass; they depend on the number of levels alone, so sums do not depend on the cores


class FactorRows(NamedTuple):
    """The rows of one factor, level by level."""

    family: Any
    records: np.ndarray  # (n, width): x, y, offset, weight, columns of terms, padding
    columns: int
    first: int  # position of the factor's terms in a record; -1 for an intercept alone
    terms: int
    offsets: np.ndarray
    members: np.ndarray  # row numbers level by level; empty if rows are sorted by the factor


class LevelSums(NamedTuple):
    """Sums over rows at a point: log-likelihood, and its derivatives in beta and in the effects of each level.

    With f the weighted log-likelihood of a row: gradient sum f' x, information A = sum -f'' x x', and for each level g = sum f' z,
    D = sum -f'' z z', C = sum -f'' x z', and if asked for K = sum f''' x z z' and T = sum f''' z z z'.
    """

    value: float
    gradient: np.ndarray  # (d,)
    information: np.ndarray  # (d, d)
    slopes: np.ndarray  # (levels, q)
    curvatures: np.ndarray  # (levels, q, q)
    crossed: np.ndarray  # (levels, d, q)
    crossed_third: np.ndarray  # (levels, d, q, q), or no levels
    thirds: np.ndarray  # (levels, q, q, q), or no levels


@inlinable
def row_of(rows: Any, position: int) -> Any:
    """Row number at a position in the list of all rows level by level."""
    return position if rows.members.size == 0 else rows.members[position]


@inlinable
def term(rows: Any, record: np.ndarray, a: int) -> Any:
    """z_a of a record."""
    return 1.0 if rows.first < 0 else record[rows.first + a]


def level_sums(
    rows: FactorRows, beta: np.ndarray, effects: np.ndarray, shift: np.ndarray, thirds: bool, cores: int | None = None
) -> LevelSums:
    """Sums at (beta, effects); `shift` is added to the linear predictors, the effects of other factors, or is empty."""
    levels, d, q = effects.shape[0], rows.columns, rows.terms
    own = levels if thirds else 0
    slopes, curvatures, crossed = np.zeros((levels, q)), np.zeros((levels, q, q)), np.zeros((levels, d, q))
    crossed_third, third_sums = np.zeros((own, d, q, q)), np.zeros((own, q, q, q))
    beta = np.ascontiguousarray(beta, np.float64)

    def work(start: int, stop: int) -> tuple[float, np.ndarray, np.ndarray]:
        gradient, information = np.zeros(d), np.zeros((d, d))
        arrays = gradient, information, slopes, curvatures, crossed, crossed_third, third_sums
        return _level_sums(rows, beta, effects, shift, start, stop, *arrays), gradient, information

    ledger.record(rows.records.shape[0])
    parts = over_ranges(levels, max(1, -(-levels // _RANGES)), work, cores)
    value = float(sum(p[0] for p in parts))
    lower = np.sum([p[2] for p in parts], axis=0)
    gradient = np.sum([p[1] for p in parts], axis=0)
    information = lower + np.tril(lower, -1).T
    return LevelSums(value, gradient, information, slopes, curvatures, crossed, crossed_third, third_sums)


@jit(options=SUMS)
def _level_sums(
    rows: Any,
    beta: np.ndarray,
    effects: np.ndarray,
    shift: np.ndarray,
    start: int,
    stop: int,
    gradient: np.ndarray,
    information: np.ndarray,
    slopes: np.ndarray,
    curvatures: np.ndarray,
    crossed: np.ndarray,
    crossed_third: np.ndarray,
    thirds: np.ndarray,
) -> float:
    d, q, total = rows.columns, rows.terms, 0.0
    z = np.empty(q)
    for g in range(start, stop):
        for position in range(rows.offsets[g], rows.offsets[g + 1]):
            i = row_of(rows, position)
            x = rows.records[i]
            eta = dot(x, beta, d) + x[d + 1]
            if shift.size > 0:
                eta += shift[i]
            for a in range(q):
                z[a] = term(rows, x, a)
                eta += z[a] * effects[g, a]
            weight = x[d + 2]
            f, slope, curvature = jet2(rows.family, eta, x[d])
            total += weight * f
            slope *= weight
            curvature *= -weight
            for j in range(d):
                gradient[j] += slope * x[j]
                scaled = curvature * x[j]
                for k in range(j + 1):
                    information[j, k] += scaled * x[k]
                for a in range(q):
                    crossed[g, j, a] += scaled * z[a]
            for a in range(q):
                slopes[g, a] += slope * z[a]
                for b in range(q):
                    curvatures[g, a, b] += curvature * z[a] * z[b]
            if thirds.shape[0] > 0:
                cubic = weight * third(rows.family, eta, x[d])
                for a in range(q):
                    for b in range(q):
                        product = cubic * z[a] * z[b]
                        for j in range(d):
                            crossed_third[g, j, a, b] += product * x[j]
                        for c in range(q):
                            thirds[g, a, b, c] += product * z[c]
    return total


@jit(options=SUMS)
def add_effects(rows: Any, effects: np.ndarray, out: np.ndarray) -> None:
    """Add the effects of a factor to the linear predictors of all rows."""
    for g in range(effects.shape[0]):
        for position in range(rows.offsets[g], rows.offsets[g + 1]):
            i = row_of(rows, position)
            for a in range(rows.terms):
                out[i] += term(rows, rows.records[i], a) * effects[g, a]

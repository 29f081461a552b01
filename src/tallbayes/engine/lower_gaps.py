"""Row verbs of lower bounds B_i <= L_i: gaps log L_i - log B_i of indexed rows, and gradients of log(L_i / B_i - 1).

A bound is tangent, or nearly so, at a reference: `base` is the linear predictor there, `shift` what theta adds to it. The kind
of bound and the family say what a row's gap is; weights are powers of the likelihood and multiply it. `known` has the linear
predictors at the reference of all rows, or of none: then they are computed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, SUMS, declared, generic, inlinable
from tallbayes.engine.family_functions import jet2
from tallbayes.engine.multi_index import BlockIndex, MultiIndex, _add_gradient, _indices, _shifts, vector_hessian
from tallbayes.engine.rows import AHEAD, TILE, SingleIndex, dot, prefetch_row, two_dots


class Lower(NamedTuple):
    """A bound as a family: rows with it in place of their family have log B for a log-likelihood, at the reference only."""

    kind: Any
    family: Any


@generic(options=SCALAR)
@declared
def lower_gap(kind: Any, family: Any, base: float, shift: float, y: float) -> float:
    """log L - log B of a row of weight one."""
    raise TypeError


@generic(options=SCALAR)
@declared
def lower_slope(kind: Any, family: Any, base: float, shift: float, y: float) -> float:
    """The derivative of the gap in eta."""
    raise TypeError


@generic(options=SCALAR)
@declared
def lower_jet(kind: Any, family: Any, base: float, y: float) -> tuple[float, float, float]:
    """log B and two derivatives in eta at the reference; the second is the same everywhere."""
    raise TypeError


@generic
@declared
def vector_lower_gap(kind: Any, family: Any, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """The same for several linear predictors."""
    raise TypeError


@generic
@declared
def vector_lower_slope(kind: Any, family: Any, base: np.ndarray, shift: np.ndarray, y: float, gradient: np.ndarray) -> None:
    """The gradient of the gap in u."""


@generic
@declared
def vector_lower_jet(kind: Any, family: Any, base: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """log B at the reference; its gradient and Hessian in u are written."""
    raise TypeError


@jet2.register(Lower)
def _jet2(family: Lower, eta: float, y: float) -> tuple[float, float, float]:
    return lower_jet(family.kind, family.family, eta, y)


@vector_hessian.register(Lower)
def _vector_hessian(family: Lower, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return vector_lower_jet(family.kind, family.family, u, y, gradient, hessian)


@generic
def has_centred_curvature(kind: Any) -> bool:
    """Whether the second derivative of log B in the K predictors of a row is -(I - 11'/K)/2 for every row."""
    return False


@generic(options=SUMS)
@declared
def add_gaps(
    rows: Any, kind: Any, reference: np.ndarray, known: np.ndarray, index: np.ndarray, theta: np.ndarray, out: np.ndarray
) -> None:
    """Add the weighted gaps of the indexed rows to `out`; a row of zero weight has none, whatever was there."""


@generic(options=SUMS)
@declared
def add_log_odds_gradient(
    rows: Any,
    kind: Any,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    sign: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """The same; and add sign[j] out[j]' / (1 - e^(-out[j])), the gradient of log(e^out[j] - 1), to `gradient`."""


@generic(options=SUMS)
@declared
def reference_predictors(rows: Any, reference: np.ndarray, start: int, out: np.ndarray) -> None:
    """Linear predictors at the reference of the rows from `start` on, as `known` has them."""


@reference_predictors.register(SingleIndex)
def _reference_predictors(rows: SingleIndex, reference: np.ndarray, start: int, out: np.ndarray) -> None:
    for j in range(out.shape[0]):
        x = rows.records[start + j]
        out[j, 0] = dot(x, reference, rows.columns) + x[rows.columns + 1]


@reference_predictors.register(BlockIndex)
@reference_predictors.register(MultiIndex)
def _reference_predictors_multi(rows: MultiIndex, reference: np.ndarray, start: int, out: np.ndarray) -> None:
    for j in range(out.shape[0]):
        _indices(rows, rows.records[start + j], reference, out[j])


@inlinable(options=SUMS)
def _dots(records: np.ndarray, index: np.ndarray, vector: np.ndarray, d: int, out: np.ndarray) -> None:
    """Dot products of indexed rows with one vector, which is read once for four rows."""
    whole = index.size - index.size % 4
    for j in range(0, whole, 4):
        i, k, m, n = index[j], index[j + 1], index[j + 2], index[j + 3]
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for c in range(d):
            first += records[i, c] * vector[c]
            second += records[k, c] * vector[c]
            third += records[m, c] * vector[c]
            fourth += records[n, c] * vector[c]
        out[j], out[j + 1], out[j + 2], out[j + 3] = first, second, third, fourth
    for j in range(whole, index.size):
        out[j] = dot(records[index[j]], vector, d)


@add_gaps.register(SingleIndex)
def _add_gaps(
    rows: SingleIndex,
    kind: Any,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
) -> None:
    records, d = rows.records, rows.columns
    base, shift, y, weight = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    change = theta - reference
    for j in range(min(AHEAD, index.size)):
        prefetch_row(records, index[j])
    for start in range(0, index.size, TILE):
        size = min(TILE, index.size - start)
        for j in range(size):
            if start + j + AHEAD < index.size:
                prefetch_row(records, index[start + j + AHEAD])
            x = records[index[start + j]]
            y[j] = x[d]
            weight[j] = x[d + 2]
            if known.shape[0] == 0:
                at, moved = two_dots(x, reference, change, d)
                base[j], shift[j] = at + x[d + 1], moved
            else:
                base[j] = known[index[start + j], 0]
        if known.shape[0] > 0:
            _dots(records, index[start : start + size], change, d, shift)
        part = out[start : start + size]
        for j in range(size):
            gap = part[j] + weight[j] * lower_gap(kind, rows.family, base[j], shift[j], y[j])
            part[j] = gap if weight[j] > 0.0 else 0.0


@add_log_odds_gradient.register(SingleIndex)
def _add_log_odds_gradient(
    rows: SingleIndex,
    kind: Any,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    sign: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
    gradient: np.ndarray,
) -> None:
    records, d = rows.records, rows.columns
    change = theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(records, index[j + AHEAD])
        x = records[index[j]]
        if known.shape[0] == 0:
            at, shift = two_dots(x, reference, change, d)
            base = at + x[d + 1]
        else:
            base, shift = known[index[j], 0], dot(x, change, d)
        y, weight = x[d], x[d + 2]
        if not weight > 0.0:
            out[j] = 0.0
            continue
        out[j] += weight * lower_gap(kind, rows.family, base, shift, y)
        factor = sign[j] * weight * lower_slope(kind, rows.family, base, shift, y) / -math.expm1(-out[j])
        for c in range(d):
            gradient[c] += factor * x[c]


@add_gaps.register(BlockIndex)
@add_gaps.register(MultiIndex)
def _add_gaps_multi(
    rows: MultiIndex,
    kind: Any,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
) -> None:
    d, q = rows.columns, rows.predictors + rows.nuisances
    base, shift, change = np.empty(q), np.empty(q), theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        if not x[d + 2] > 0.0:
            out[j] = 0.0
            continue
        if known.shape[0] == 0:
            _indices(rows, x, reference, base)
        else:
            for k in range(q):
                base[k] = known[index[j], k]
        _shifts(rows, x, change, shift)
        out[j] += x[d + 2] * vector_lower_gap(kind, rows.family, base, shift, x[d])


@add_log_odds_gradient.register(BlockIndex)
@add_log_odds_gradient.register(MultiIndex)
def _add_log_odds_gradient_multi(
    rows: MultiIndex,
    kind: Any,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    sign: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
    gradient: np.ndarray,
) -> None:
    d, q = rows.columns, rows.predictors + rows.nuisances
    base, shift, slope, change = np.empty(q), np.empty(q), np.empty(q), theta - reference
    for j in range(index.size):
        if j + AHEAD < index.size:
            prefetch_row(rows.records, index[j + AHEAD])
        x = rows.records[index[j]]
        if not x[d + 2] > 0.0:
            out[j] = 0.0
            continue
        if known.shape[0] == 0:
            _indices(rows, x, reference, base)
        else:
            for k in range(q):
                base[k] = known[index[j], k]
        _shifts(rows, x, change, shift)
        out[j] += x[d + 2] * vector_lower_gap(kind, rows.family, base, shift, x[d])
        vector_lower_slope(kind, rows.family, base, shift, x[d], slope)
        _add_gradient(rows, x, sign[j] * x[d + 2] / -math.expm1(-out[j]), slope, gradient)

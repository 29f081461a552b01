"""Row verbs of lower bounds B_i <= L_i: gaps log L_i - log B_i of indexed rows, and gradients of log(L_i / B_i - 1).

A bound is tangent, or nearly so, at a reference: `base` is the linear predictor there, `shift` what theta adds to it. The kind
of bound and the family say what a row's gap is; weights are powers of the likelihood and multiply it. `known` has the linear
predictors at the reference of all rows, or of none: then they are computed.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, SUMS, declared, generic, inlinable
from tallbayes.engine.family_functions import jet1, jet2, value
from tallbayes.engine.further import call_indices
from tallbayes.engine.indexed_rows import (
    AHEAD,
    add_gradients,
    dot,
    indexed,
    prefetch_row,
    scan_indices,
    shift_indices,
    tile_rows,
)
from tallbayes.engine.outside import row_numbers
from tallbayes.engine.rows import Rows, with_family
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value
from tallbayes.engine.tiles import RESIDUAL, tile_pointer
from tallbayes.pointers import Kind, calls, kind_of, member_maker, numbers_of


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


@value.register(Lower)
def _value(family: Lower, eta: float, y: float) -> float:
    return lower_jet(family.kind, family.family, eta, y)[0]


@jet1.register(Lower)
def _jet1(family: Lower, eta: float, y: float) -> tuple[float, float]:
    return lower_jet(family.kind, family.family, eta, y)[:2]


@jet2.register(Lower)
def _jet2(family: Lower, eta: float, y: float) -> tuple[float, float, float]:
    return lower_jet(family.kind, family.family, eta, y)


@vector_value.register(Lower)
def _vector_value(family: Lower, u: np.ndarray, y: float) -> float:
    return vector_lower_jet(family.kind, family.family, u, y, np.empty(u.size), np.empty((u.size, u.size)))


@vector_gradient.register(Lower)
def _vector_gradient(family: Lower, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    return vector_lower_jet(family.kind, family.family, u, y, gradient, np.empty((u.size, u.size)))


@vector_hessian.register(Lower)
def _vector_hessian(family: Lower, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return vector_lower_jet(family.kind, family.family, u, y, gradient, hessian)


@generic
def has_centred_curvature(kind: Any) -> bool:
    """Whether the second derivative of log B in the K predictors of a row is -(I - 11'/K)/2 for every row."""
    return False


call_floor = calls(RESIDUAL)  # (address, base, shift, y, p, K, size, out): gaps, or their gradients in the indices


class Floor(NamedTuple):
    """A bound of rows as compiled code knows it: addresses of gaps and their gradients, and its numbers."""

    gap: int
    slope: int
    p: np.ndarray


@functools.cache
def _floor_addresses(kind: Kind, several: bool) -> tuple[int, int]:
    """Loops over a tile of gaps, and of their gradients, of a kind of `Lower`."""
    member = member_maker(kind)

    def gap(base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray) -> int:
        lower = member(p)
        for j in range(size):
            out[j] = lower_gap(lower.kind, lower.family, base[j], shift[j], y[j])
        return 0

    def slope(base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray) -> int:
        lower = member(p)
        for j in range(size):
            out[j] = lower_slope(lower.kind, lower.family, base[j], shift[j], y[j])
        return 0

    def vector_gap(
        base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray
    ) -> int:
        lower = member(p)
        for j in range(size):
            at = base[j : k * size : size]
            out[j] = vector_lower_gap(lower.kind, lower.family, at, shift[j : k * size : size], y[j])
        return 0

    def vector_slope(
        base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray
    ) -> int:
        lower = member(p)
        for j in range(size):
            at, step = base[j : k * size : size], shift[j : k * size : size]
            vector_lower_slope(lower.kind, lower.family, at, step, y[j], out[j : k * size : size])
        return 0

    functions = (vector_gap, vector_slope) if several else (gap, slope)
    first, second = (
        tile_pointer(function, verb, kind, RESIDUAL) for function, verb in zip(functions, ("gap", "gap slope"), strict=True)
    )
    return first, second


def floor_of(kind: Any, member: Any, several: bool) -> Floor:
    """A kind of bound of a member of a family."""
    lower = Lower(kind, member)
    return Floor(*_floor_addresses(kind_of(lower), several), numbers_of(lower))


def lower_rows(rows: Rows, kind: Any, member: Any) -> Rows:
    """The rows with a bound in place of their family."""
    lower = Lower(kind, member)
    return with_family(rows, lower)


@inlinable(options=SUMS)
def reference_predictors(rows: Rows, reference: np.ndarray, start: int, out: np.ndarray) -> None:
    """Indices at the reference of the rows from `start` on, as `known` has them."""
    of = indexed(rows.records, rows.layout, rows.p)
    n, k = out.shape[0], of.indices
    most = min(tile_rows(k, k), n)
    u, y, weight = np.empty(most * k), np.empty(most), np.empty(most)
    for first in range(0, n, max(most, 1)):
        size = min(most, n - first)
        scan_indices(of, start + first, size, reference, u, y, weight)
        for a in range(k):
            for j in range(size):
                out[first + j, a] = u[a * size + j]


@inlinable(options=SUMS)
def _dots(records: np.ndarray, index: np.ndarray, vector: np.ndarray, d: int, out: np.ndarray) -> None:
    """Dot products of indexed rows, four rows at a time: as many sums as the processor adds at once."""
    fours = index.size // 4 * 4
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = records[index[j]], records[index[j + 1]], records[index[j + 2]], records[index[j + 3]]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for c in range(d):
            s0 += x0[c] * vector[c]
            s1 += x1[c] * vector[c]
            s2 += x2[c] * vector[c]
            s3 += x3[c] * vector[c]
        out[j], out[j + 1], out[j + 2], out[j + 3] = s0, s1, s2, s3
    for j in range(fours, index.size):
        out[j] = dot(records[index[j]], vector, d)


@inlinable(options=SUMS)
def gap_indices(
    rows: Any,
    index: np.ndarray,
    start: int,
    size: int,
    reference: np.ndarray,
    change: np.ndarray,
    known: np.ndarray,
    base: np.ndarray,
    shift: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Indices at the reference, their change, responses and weights of a tile of indexed rows."""
    if known.shape[0] == 0:
        shift_indices(rows, index, start, size, reference, change, base, shift, y, weight)
        return
    records, d, k = rows.records, rows.columns, rows.indices
    for j in range(size):
        if start + j + AHEAD < index.size:
            prefetch_row(records, index[start + j + AHEAD])
        i = index[start + j]
        y[j] = records[i, d]
        weight[j] = records[i, d + 2]
        for a in range(k):
            base[a * size + j] = known[i, a]
    at = index[start : start + size]
    _dots(records, at, change, rows.first, shift)
    if rows.further.indices != 0:
        call_indices(rows.further.indices, records, rows.blocks, d, at, size, change, False, shift)


@inlinable(options=SUMS)
def add_gaps(
    rows: Rows, floor: Floor, reference: np.ndarray, known: np.ndarray, index: np.ndarray, theta: np.ndarray, out: np.ndarray
) -> None:
    """Add the weighted gaps of the indexed rows to `out`; a row of zero weight has none, whatever was there."""
    numbers = row_numbers(index)
    of = indexed(rows.records, rows.layout, rows.p)
    k = of.indices
    most = min(tile_rows(k, k), numbers.size)
    base, shift, y, weight, gap = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most), np.empty(most)
    change = theta - reference
    for j in range(min(AHEAD, numbers.size)):
        prefetch_row(of.records, numbers[j])
    for start in range(0, numbers.size, max(most, 1)):
        size = min(most, numbers.size - start)
        gap_indices(of, numbers, start, size, reference, change, known, base, shift, y, weight)
        call_floor(floor.gap, base, shift, y, floor.p, k, size, gap)
        part = out[start : start + size]
        for j in range(size):
            total = part[j] + weight[j] * gap[j]
            part[j] = total if weight[j] > 0.0 else 0.0


@inlinable(options=SUMS)
def add_log_odds_gradient(
    rows: Rows,
    floor: Floor,
    reference: np.ndarray,
    known: np.ndarray,
    index: np.ndarray,
    sign: np.ndarray,
    theta: np.ndarray,
    out: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """The same; and add sign[j] out[j]' / (1 - e^(-out[j])), the gradient of log(e^out[j] - 1), to `gradient`."""
    numbers = row_numbers(index)
    of = indexed(rows.records, rows.layout, rows.p)
    k = of.indices
    most = min(tile_rows(k, k), numbers.size)
    base, shift, y, weight, gap = np.empty(most * k), np.empty(most * k), np.empty(most), np.empty(most), np.empty(most)
    slope, change = np.empty(most * k), theta - reference
    for start in range(0, numbers.size, max(most, 1)):
        size = min(most, numbers.size - start)
        gap_indices(of, numbers, start, size, reference, change, known, base, shift, y, weight)
        call_floor(floor.gap, base, shift, y, floor.p, k, size, gap)
        call_floor(floor.slope, base, shift, y, floor.p, k, size, slope)
        for j in range(size):
            if not weight[j] > 0.0:
                out[start + j] = 0.0
                weight[j] = 0.0
                continue
            total = out[start + j] + weight[j] * gap[j]
            out[start + j] = total
            weight[j] *= sign[start + j] / -math.expm1(-total)
        for a in range(k):
            for j in range(size):
                at = a * size + j
                slope[at] = slope[at] * weight[j] if weight[j] != 0.0 else 0.0
        add_gradients(of, numbers[start : start + size], size, slope, gradient)

"""Bounds as compiled code sees them: their sum over rows, a row drawn in proportion to its bound, the bound of one row.

A bound is a NamedTuple of tables that registers with the functions below. `catalogue` says what each is and makes it from a
model; `interval` and `user_given` register two more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.pair_functions import OVERFLOW, angular, cubic, norm, psi
from tallbayes.compile import declared, generic, inlinable, jit
from tallbayes.engine.random_rows import AliasTable, draw_item


@generic
@declared
def total_rate(bound: Any, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    """Lambda, the sum of lambda_i over all rows; `rates` receives what `draw_row` needs."""
    raise TypeError


@generic(argument=1)
@declared
def draw_row(rng: np.random.Generator, bound: Any, rates: np.ndarray, total: float) -> tuple[int, float]:
    """A row drawn in proportion to lambda_i, with its lambda_i."""
    raise TypeError


@generic(argument=1)
def draw_candidates(
    rng: np.random.Generator, bound: Any, rates: np.ndarray, total: float, index: np.ndarray, limits: np.ndarray
) -> int:
    """Fill `index` and `limits` with rows drawn by `draw_row`; returns how many were, fewer where a stream has run dry."""
    for k in range(index.size):
        index[k], limits[k] = draw_row(rng, bound, rates, total)
        if index[k] < 0:
            return k
    return index.size


@generic
@declared
def row_rate(bound: Any, rates: np.ndarray, row: int) -> float:
    """lambda_i of one row, for audits and tests."""
    raise TypeError


@generic
def rate_count(bound: Any) -> int:
    """Length of `rates`."""
    return 2


class Zero(NamedTuple):
    """No remainder: the proxy is the likelihood."""


@total_rate.register(Zero)
def _zero_total(bound: Zero, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    return 0.0


@draw_row.register(Zero)
def _zero_draw(rng: np.random.Generator, bound: Zero, rates: np.ndarray, total: float) -> tuple[int, float]:
    return 0, 0.0


@row_rate.register(Zero)
def _zero_row(bound: Zero, rates: np.ndarray, row: int) -> float:
    return 0.0


class NoBound(NamedTuple):
    """Residuals without a bound: every decision reads all rows."""


@total_rate.register(NoBound)
def _unbounded_total(bound: NoBound, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    return np.inf


@draw_row.register(NoBound)
def _unbounded_draw(rng: np.random.Generator, bound: NoBound, rates: np.ndarray, total: float) -> tuple[int, float]:
    return 0, np.inf


@row_rate.register(NoBound)
def _unbounded_row(bound: NoBound, rates: np.ndarray, row: int) -> float:
    return np.inf


class Angular(NamedTuple):
    """g(w, w')."""


class Cubic(NamedTuple):
    """|w' - w| (|w|^2 + |w'|^2 + w.w')."""


WHITE, EUCLID, SUM, BOX = 0, 1, 2, 3


class Cubes(NamedTuple):
    """Sum of the cubes of a norm of both: |w|, |h|, |h|_1 or b.|h|, h = factor w."""

    norm: int
    factor: np.ndarray
    box: np.ndarray


@generic
@declared
def pair_size(pair: Any, white: np.ndarray, other: np.ndarray) -> float:
    """M(theta, theta') of a separable bound."""
    raise TypeError


@pair_size.register(Angular)
def _angular_size(pair: Angular, white: np.ndarray, other: np.ndarray) -> float:
    return angular(white, other)


@pair_size.register(Cubic)
def _cubic_size(pair: Cubic, white: np.ndarray, other: np.ndarray) -> float:
    return cubic(white, other)


@pair_size.register(Cubes)
def _cubes_size(pair: Cubes, white: np.ndarray, other: np.ndarray) -> float:
    return _cube(pair, white) + _cube(pair, other)


@inlinable
def _cube(pair: Cubes, white: np.ndarray) -> float:
    if pair.norm == 0:
        return norm(white) ** 3
    size = 0.0
    for j in range(white.size):
        h = 0.0
        for k in range(j + 1):
            h += pair.factor[j, k] * white[k]
        if pair.norm == 1:
            size += h * h
        elif pair.norm == 2:
            size += abs(h)
        else:
            size += pair.box[j] * abs(h)
    return math.sqrt(size) ** 3 if pair.norm == 1 else size**3


class Separable(NamedTuple):
    """lambda_i = c_i M(theta, theta'), M of one of the pairs above: T1 to T6 and T8."""

    table: AliasTable
    pair: Any


@total_rate.register(Separable)
def _separable_total(bound: Separable, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    rates[0] = pair_size(bound.pair, white, other)
    return bound.table.cumulative[-1] * rates[0]


@draw_row.register(Separable)
def _separable_draw(rng: np.random.Generator, bound: Separable, rates: np.ndarray, total: float) -> tuple[int, float]:
    row = draw_item(rng, bound.table, 0, bound.table.start.size - 1)
    return row, bound.table.weight[row] * rates[0]


@row_rate.register(Separable)
def _separable_row(bound: Separable, rates: np.ndarray, row: int) -> float:
    return bound.table.weight[row] * rates[0]


class Local(NamedTuple):
    """T7: third derivative at the reference plus a fourth-derivative term, or T6, whichever sum is less."""

    third: AliasTable
    fourth: AliasTable
    globally: AliasTable


@total_rate.register(Local)
def _local_total(bound: Local, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    g = angular(white, other)
    quartic = norm(white) ** 4 + norm(other) ** 4
    here = bound.third.cumulative[-1] * g + bound.fourth.cumulative[-1] * quartic
    everywhere = bound.globally.cumulative[-1] * g
    rates[0] = g
    rates[1] = quartic if here < everywhere else -1.0
    return min(here, everywhere)


@row_rate.register(Local)
@inlinable
def _local_row(bound: Local, rates: np.ndarray, row: int) -> float:
    if rates[1] < 0.0:
        return bound.globally.weight[row] * rates[0]
    return bound.third.weight[row] * rates[0] + bound.fourth.weight[row] * rates[1]


@draw_row.register(Local)
def _local_draw(rng: np.random.Generator, bound: Local, rates: np.ndarray, total: float) -> tuple[int, float]:
    if rates[1] < 0.0:
        row = draw_item(rng, bound.globally, 0, bound.globally.start.size - 1)
    elif rng.random() * total < bound.third.cumulative[-1] * rates[0]:
        row = draw_item(rng, bound.third, 0, bound.third.start.size - 1)
    else:
        row = draw_item(rng, bound.fourth, 0, bound.fourth.start.size - 1)
    return row, _local_row(bound, rates, row)


class Classed(NamedTuple):
    """T9: rows sorted into classes of whitened norm, each with a self-concordant and, if there is one, a global table."""

    row: np.ndarray  # row of each item; items are sorted by class
    position: np.ndarray  # item of each row, -1 for rows left out; empty unless asked for
    radius: np.ndarray  # largest norm of each class
    chunk: np.ndarray  # first chunk of each class, and the number of chunks
    local: AliasTable
    globally: AliasTable
    bounded: bool  # whether the global table is finite


@rate_count.register(Classed)
def _classed_count(bound: Classed) -> int:
    return 2 * bound.radius.size


@total_rate.register(Classed)
def _classed_total(bound: Classed, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    g = angular(white, other)
    reach = max(norm(white), norm(other))
    total = 0.0
    for k in range(bound.radius.size):
        first, last = bound.chunk[k], bound.chunk[k + 1]
        local = bound.local.cumulative[last] - bound.local.cumulative[first]
        steps = bound.radius[k] * reach
        growth = psi(steps) if steps <= OVERFLOW else np.inf
        rate, factor = np.inf, -1.0
        if growth < np.inf:
            rate, factor = local * growth * g, growth * g
        if bound.bounded:
            everywhere = (bound.globally.cumulative[last] - bound.globally.cumulative[first]) * g
            if everywhere < rate:
                rate, factor = everywhere, -g
        if g == 0.0:
            rate, factor = 0.0, 0.0
        rates[2 * k], rates[2 * k + 1] = rate, factor
        total += rate
    return total


@inlinable
def _classed_item(bound: Classed, rates: np.ndarray, k: int, item: int) -> float:
    factor = rates[2 * k + 1]
    return bound.local.weight[item] * factor if factor > 0.0 else bound.globally.weight[item] * -factor


@draw_row.register(Classed)
def _classed_draw(rng: np.random.Generator, bound: Classed, rates: np.ndarray, total: float) -> tuple[int, float]:
    goal, k = rng.random() * total, 0
    while k < bound.radius.size - 1 and goal >= rates[2 * k]:
        goal -= rates[2 * k]
        k += 1
    while rates[2 * k] <= 0.0 and k > 0:  # rounding of the sum can end on an empty class
        k -= 1
    table = bound.local if rates[2 * k + 1] > 0.0 else bound.globally
    item = draw_item(rng, table, bound.chunk[k], bound.chunk[k + 1])
    return bound.row[item], _classed_item(bound, rates, k, item)


@row_rate.register(Classed)
def _classed_row(bound: Classed, rates: np.ndarray, row: int) -> float:
    item = bound.position[row]
    if item < 0:
        return 0.0
    k = 0
    while bound.local.start[bound.chunk[k + 1]] <= item:
        k += 1
    return _classed_item(bound, rates, k, item)


@jit
def row_rates(bound: Any, rates: np.ndarray, start: int, out: np.ndarray) -> None:
    """lambda_i of consecutive rows."""
    for k in range(out.size):
        out[k] = row_rate(bound, rates, start + k)

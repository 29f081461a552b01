"""Rows of levels: residuals of the surrogate of a hierarchical model, and rows drawn with probabilities in proportion to their bounds."""

from __future__ import annotations

import math

from tallbayes.bounds.level_rates import product
from tallbayes.compile import SUMS, inlinable
from tallbayes.engine.family_functions import residual, third
from tallbayes.engine.grouped_rows import row_of, term
from tallbayes.engine.rows import ALLOWANCE
from tallbayes.target import BOUND_EXCEEDED, EVALS, PAPER, VALUES, stop_run


@inlinable
def count_pairs(target, rows):
    """Count rows that were read at both ends of a move."""
    target.counters[EVALS] += 2 * rows
    target.counters[VALUES] += 2 * rows
    target.counters[PAPER] += rows


@inlinable(options=SUMS)
def coefficient_gap(tables, g, position, before, after, effect):
    """Residual of a row at delta = `after` less that at `before`, both of size d, its level at eps = `effect`."""
    rows, d = tables.rows, tables.rows.columns
    x = rows.records[row_of(rows, position)]
    base, first, second = x[d + 1] + 0.0, 0.0, 0.0
    for j in range(d):
        base += x[j] * tables.reference[j]
        first += x[j] * before[j]
        second += x[j] * after[j]
    e = 0.0
    for a in range(rows.terms):
        z = term(rows, x, a)
        base += z * tables.centres[g, a]
        e += z * effect[a]
    y = x[d] + 0.0
    gap = residual(rows.family, base, y, second + e) - residual(rows.family, base, y, first + e)
    return x[d + 2] * (gap - 0.5 * third(rows.family, base, y) * e * e * (second - first))


@inlinable(options=SUMS)
def effect_gap(tables, g, position, shift, before, after):
    """Residual of a row with the effects of its level at eps = `after` less that at `before`, coefficients at delta = `shift`."""
    rows, d = tables.rows, tables.rows.columns
    x = rows.records[row_of(rows, position)]
    base, v = x[d + 1] + 0.0, 0.0
    for j in range(d):
        base += x[j] * tables.reference[j]
        v += x[j] * shift[j]
    first, second = 0.0, 0.0
    for a in range(rows.terms):
        z = term(rows, x, a)
        base += z * tables.centres[g, a]
        first += z * before[a]
        second += z * after[a]
    y = x[d] + 0.0
    gap = residual(rows.family, base, y, v + second) - residual(rows.family, base, y, v + first)
    cubic = 0.5 * v * (second * second - first * first) + (second * second * second - first * first * first) / 6.0
    return x[d + 2] * (gap - third(rows.family, base, y) * cubic)


@inlinable
def level_rate(tables, g, factors):
    """Sum of the bounds of the rows of a level."""
    return (
        factors[0] * tables.sums[g, 0]
        + factors[1] * tables.sums[g, 1]
        + factors[2] * tables.sums[g, 2]
        + factors[3] * tables.sums[g, 3]
    )


@inlinable
def draw_position(rng, tables, g, factors, rate):
    """A row of level g with probability in proportion to its bound, and the bound.

    A product is drawn in proportion to its part of the rate, then a row in proportion to its product: uniform rows are kept with
    probability product / largest product.
    """
    level, chosen = rng.random() * rate, 3
    for k in range(4):
        level -= factors[k] * tables.sums[g, k]
        if level < 0.0:
            chosen = k
            break
    while chosen > 0 and not factors[chosen] * tables.sums[g, chosen] > 0.0:
        chosen -= 1  # rounding may leave `level` at the end of the last part
    first, size = tables.rows.offsets[g], tables.rows.offsets[g + 1] - tables.rows.offsets[g]
    while True:
        position = first + min(int(rng.random() * size), size - 1)
        a, load = tables.norms[position], tables.loads[position]
        zeta = 1.0 if tables.zetas.size == 0 else tables.zetas[position]
        if rng.random() * tables.peaks[g, chosen] < product(tables.exponential, chosen, load, a, zeta):
            break
    bound = 0.0
    for k in range(4):
        bound += factors[k] * product(tables.exponential, k, load, a, zeta)
    return position, bound


@inlinable
def kept_ratio(rng, target, tables, position, gap, bound):
    """What a candidate row adds to the log ratio under the rate phi = lambda + min(0, -gap); 0 if it is not kept."""
    if not abs(gap) <= bound * (1.0 + 1e-9) + ALLOWANCE * (1.0 + tables.loads[position]):  # not finite is exceeded too
        stop_run(target, BOUND_EXCEEDED, row_of(tables.rows, position))
    share = min(1.0, max(-1.0, -gap / bound))
    forward = 1.0 + min(0.0, share)
    if not rng.random() < forward:
        return 0.0
    backward = 1.0 - max(0.0, share)
    return -math.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))


@inlinable
def find_level(cumulative, value):
    """The first level whose cumulative rate exceeds `value`."""
    low, high = 0, cumulative.size - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    while low > 0 and cumulative[low] == cumulative[low - 1]:
        low -= 1  # rounding may lead past the last level with a rate
    return low

"""Rows of levels: residuals of the surrogate of a hierarchical model, and rows drawn with probabilities in proportion to their bounds.

Helpers of the inner loops take numbers and the few arrays they need: a NamedTuple of many arrays costs more to pass than a row to read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.bounds.level_rates import product
from tallbayes.compile import INLINED, SUMS, inlinable
from tallbayes.engine.family_functions import residual, third
from tallbayes.engine.grouped_rows import term
from tallbayes.engine.rounding import ALLOWANCE
from tallbayes.target import BOUND_EXCEEDED, EVALS, PAPER, ROW, STATUS, VALUES

ROW_READ = {**SUMS, **INLINED}


@inlinable
def count_pairs(counters: np.ndarray, rows: int) -> None:
    """Count rows that were read at both ends of a move."""
    counters[EVALS] += 2 * rows
    counters[VALUES] += 2 * rows
    counters[PAPER] += rows


@inlinable(options=ROW_READ)
def coefficient_gap(
    rows: Any,
    x: np.ndarray,
    reference: np.ndarray,
    centre: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    effect: np.ndarray,
) -> float:
    """Residual of a record at delta = `after` less that at `before`, both of size d, its level at eps = `effect` from `centre`."""
    d = rows.columns
    base, first, second, e = x[d + 1] + 0.0, 0.0, 0.0, 0.0
    for j in range(d):
        base += x[j] * reference[j]
        first += x[j] * before[j]
        second += x[j] * after[j]
    for a in range(rows.terms):
        z = term(rows, x, a)
        base += z * centre[a]
        e += z * effect[a]
    y = x[d] + 0.0
    gap = residual(rows.family, base, y, second + e) - residual(rows.family, base, y, first + e)
    return x[d + 2] * (gap - 0.5 * third(rows.family, base, y) * e * e * (second - first))


@inlinable(options=ROW_READ)
def effect_gap(
    rows: Any,
    x: np.ndarray,
    reference: np.ndarray,
    centre: np.ndarray,
    shift: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> float:
    """Residual of a record with the effects of its level at eps = `after` less that at `before`, coefficients at delta = `shift`."""
    d = rows.columns
    base, v, first, second = x[d + 1] + 0.0, 0.0, 0.0, 0.0
    for j in range(d):
        base += x[j] * reference[j]
        v += x[j] * shift[j]
    for a in range(rows.terms):
        z = term(rows, x, a)
        base += z * centre[a]
        first += z * before[a]
        second += z * after[a]
    y = x[d] + 0.0
    gap = residual(rows.family, base, y, v + second) - residual(rows.family, base, y, v + first)
    cubic = 0.5 * v * (second * second - first * first) + (second * second * second - first * first * first) / 6.0
    return x[d + 2] * (gap - third(rows.family, base, y) * cubic)


@inlinable
def accepts(rng: np.random.Generator, ratio: float) -> bool:
    """An acceptance test; no random number where it is certain, and no logarithm where e^ratio >= 1 + ratio says enough."""
    if ratio >= 0.0:
        return True
    u = 1.0 - rng.random()
    return u < 1.0 + ratio or math.log(u) < ratio


@inlinable
def waiting_time(rng: np.random.Generator) -> float:
    """Distance to the next event of a Poisson process of rate one."""
    return -math.log(1.0 - rng.random())


@inlinable
def draw_events(rng: np.random.Generator, left: float, rate: float) -> tuple[int, float]:
    """Events in the next stretch of a Poisson process, `rate` long, and the distance from there to the next one; `left` is it from here.

    The stretches of many levels need one random number for each event, and none for levels without one.
    """
    count = 0
    while not left > rate:
        count += 1
        left += waiting_time(rng)
    return count, left - rate


@inlinable
def draw_count(rng: np.random.Generator, rate: float) -> int:
    """A Poisson number; for the small rates of most levels one uniform number and rarely an exponential.

    It is 0 unless u < 1 - e^-rate, which is below the rate; otherwise u is inverted.
    """
    if rate > 5.0:
        return rng.poisson(rate)
    u = rng.random()
    if u >= rate or u >= -math.expm1(-rate):
        return 0
    count, part = 1, rate * math.exp(-rate)
    total = part
    while u >= total and count < 100:  # a count of 100 has probability 1e-90
        count += 1
        part *= rate / count
        total += part
    return count


@inlinable
def level_rate(sums: np.ndarray, g: int, factors: np.ndarray) -> float:
    """Sum of the bounds of the rows of a level."""
    return factors[0] * sums[g, 0] + factors[1] * sums[g, 1] + factors[2] * sums[g, 2] + factors[3] * sums[g, 3]


@inlinable
def draw_position(
    rng: np.random.Generator, shares: Any, g: int, first: np.ndarray, size: int, factors: np.ndarray
) -> tuple[Any, float]:
    """A row of level g, whose rows begin at `first`, with probability in proportion to its bound; and the bound.

    A product is drawn in proportion to its part of the rate, then a row in proportion to its product: uniform rows are kept with
    probability product / largest product.
    """
    parts = (
        factors[0] * shares.sums[g, 0],
        factors[1] * shares.sums[g, 1],
        factors[2] * shares.sums[g, 2],
        factors[3] * shares.sums[g, 3],
    )
    level, chosen = rng.random() * (parts[0] + parts[1] + parts[2] + parts[3]), 0
    for k in range(4):
        if parts[k] > 0.0:
            chosen = k
            level -= parts[k]
            if level < 0.0:
                break
    peak = shares.peaks[g, chosen]
    while True:
        position = first + min(int(rng.random() * size), size - 1)
        a, load = shares.norms[position], shares.loads[position]
        zeta = 1.0 if shares.zetas.size == 0 else shares.zetas[position]
        if rng.random() * peak < product(shares.exponential, chosen, load, a, zeta):
            break
    bound = 0.0
    for k in range(4):
        bound += factors[k] * product(shares.exponential, k, load, a, zeta)
    return position, bound


@inlinable
def kept_ratio(rng: np.random.Generator, counters: np.ndarray, row: int, load: float, gap: float, bound: float) -> float:
    """What a candidate row adds to the log ratio under the rate phi = lambda + min(0, -gap); 0 if it is not kept."""
    if not abs(gap) <= bound * (1.0 + 1e-9) + ALLOWANCE * (1.0 + load):  # not finite is exceeded too
        counters[STATUS], counters[ROW] = BOUND_EXCEEDED, row
    share = min(1.0, max(-1.0, -gap / bound))
    forward = 1.0 + min(0.0, share)
    if not rng.random() < forward:
        return 0.0
    backward = 1.0 - max(0.0, share)
    return -math.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))


@inlinable
def find_level(cumulative: np.ndarray, value: float) -> int:
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

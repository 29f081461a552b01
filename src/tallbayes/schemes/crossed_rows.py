"""Rows of several factors: residuals of their surrogate, and candidate rows drawn under sums of products, kept under their own bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.crossed_rates import effect_products, slope_products
from tallbayes.compile import inlinable
from tallbayes.engine.family_functions import jet2, residual, third
from tallbayes.schemes.level_rows import ROW_READ


@inlinable(options=ROW_READ)
def factor_effect(rows: Any, x: np.ndarray, i: int, k: int, effects: np.ndarray) -> float:
    """z_k . effects of the level of factor k that record i has."""
    q, first = rows.terms[k], rows.first[k]
    at = rows.starts[k] + rows.codes[i, k] * q
    if first < 0:
        return effects[at]
    total = 0.0
    for a in range(q):
        total += x[first + a] * effects[at + a]
    return total


@inlinable(options=ROW_READ)
def other_effects(
    rows: Any, x: np.ndarray, i: int, k: int, broad: np.ndarray, level_shift: float, effects: np.ndarray
) -> tuple[float, float]:
    """The effects of all factors but k: the part p - v that the surrogate of factor k knows, and the rest t."""
    known, rest = level_shift + 0.0, -level_shift
    for m in range(rows.terms.size):
        if m != k:
            effect = factor_effect(rows, x, i, m, effects)
            if broad[m]:
                rest += effect
            else:
                known += effect
    return known, rest


@inlinable(options=ROW_READ)
def _own_effect(rows: Any, x: np.ndarray, k: int, effect: np.ndarray) -> float:
    """z_k . effect, for effects of one level."""
    if rows.first[k] < 0:
        return effect[0]
    total = 0.0
    for a in range(rows.terms[k]):
        total += x[rows.first[k] + a] * effect[a]
    return total


@inlinable(options=ROW_READ)
def crossed_effect_gap(
    rows: Any,
    i: int,
    k: int,
    reference: np.ndarray,
    shift: np.ndarray,
    effects: np.ndarray,
    known: float,
    rest: float,
    before: np.ndarray,
    after: np.ndarray,
) -> float:
    """Residual of record i with its level of factor k at eps = `after` less that at `before`; `known` and `rest` are the effects of the
    other factors."""
    x, d = rows.records[i], rows.columns
    base, v = x[d + 1] + 0.0, 0.0
    for j in range(d):
        base += x[j] * reference[j]
        v += x[j] * shift[j]
    for m in range(rows.terms.size):
        base += factor_effect(rows, x, i, m, rows.centres)
    first, second = _own_effect(rows, x, k, before), _own_effect(rows, x, k, after)
    y, p = x[d] + 0.0, v + known
    gap = residual(rows.family, base, y, p + rest + second) - residual(rows.family, base, y, p + rest + first)
    gap += jet2(rows.family, base, y)[2] * rest * (second - first)
    square, cube = second * second - first * first, second * second * second - first * first * first
    return x[d + 2] * (gap - third(rows.family, base, y) * (0.5 * p * square + cube / 6.0))


@inlinable(options=ROW_READ)
def crossed_slope_gap(
    rows: Any,
    i: int,
    reference: np.ndarray,
    effects: np.ndarray,
    means: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> float:
    """Residual of record i at delta = `after` less that at `before`, levels held fixed; `means` the known shifts of the factors."""
    x, d = rows.records[i], rows.columns
    base, first, second = x[d + 1] + 0.0, 0.0, 0.0
    for j in range(d):
        base += x[j] * reference[j]
        first += x[j] * before[j]
        second += x[j] * after[j]
    total, shift, squares = 0.0, 0.0, 0.0
    for m in range(rows.terms.size):
        base += factor_effect(rows, x, i, m, rows.centres)
        e = factor_effect(rows, x, i, m, effects)
        total += e
        shift += means[m]
        squares += (e - means[m]) * (e - means[m])
    known = 0.5 * squares + shift * (total - shift) + 0.5 * shift * shift
    y = x[d] + 0.0
    gap = residual(rows.family, base, y, second + total) - residual(rows.family, base, y, first + total)
    return x[d + 2] * (gap - third(rows.family, base, y) * known * (second - first))


@inlinable(options=ROW_READ)
def effect_sizes_of_row(rows: Any, i: int, effects: np.ndarray, means: np.ndarray) -> tuple[float, float]:
    """|E| and the sum of |d_k d_l| over pairs of factors."""
    x = rows.records[i]
    total, sizes, squares = 0.0, 0.0, 0.0
    for m in range(rows.terms.size):
        e = factor_effect(rows, x, i, m, effects)
        total += e
        size = abs(e - means[m])
        sizes += size
        squares += size * size
    return abs(total), 0.5 * max(sizes * sizes - squares, 0.0)


@inlinable
def others_norm(shares: np.ndarray, i: int, k: int, spread: float) -> float:
    """B of a row for factor k."""
    total = 0.0
    for m in range(3, shares.shape[1]):
        if m != 3 + k:
            total += shares[i, m]
    return np.sqrt(total * total + spread * spread)


@inlinable
def parts_rate(sums: np.ndarray, g: int, factors: np.ndarray) -> float:
    """Sum of the dominating bounds of the rows of a level."""
    total = 0.0
    for c in range(7):
        total += factors[c] * sums[g, c]
    return total


class CandidateRows(NamedTuple):
    """What candidate rows of the levels of a factor are drawn by: few arrays, since every call counts references to each."""

    shares: np.ndarray
    offsets: np.ndarray
    members: np.ndarray
    sums: np.ndarray
    peaks: np.ndarray
    spread: float
    exponential: bool


@inlinable
def draw_candidate(
    rng: np.random.Generator,
    candidates: CandidateRows,
    k: int,
    g: int,
    slopes: bool,
    factors: np.ndarray,
    parts: np.ndarray,
) -> tuple[Any, float]:
    """A row of level g of factor k with probability in proportion to its dominating bound; and that bound."""
    sums, shares, members = candidates.sums, candidates.shares, candidates.members
    exponential, spread = candidates.exponential, candidates.spread
    first = candidates.offsets[g]
    size = candidates.offsets[g + 1] - first
    level, chosen = rng.random() * parts_rate(sums, g, factors), 0
    for c in range(7):
        part = factors[c] * sums[g, c]
        if part > 0.0:
            chosen = c
            level -= part
            if level < 0.0:
                break
    peak = candidates.peaks[g, chosen]
    while True:
        position = first + min(int(rng.random() * size), size - 1)
        i = position if members.size == 0 else members[position]
        others = others_norm(shares, i, k, spread)
        if slopes:
            slope_products(exponential, shares[i, 1], shares[i, 2], shares[i, 0], shares[i, 3 + k], others, parts)
        else:
            effect_products(exponential, shares[i, 1], shares[i, 2], shares[i, 0], shares[i, 3 + k], others, parts)
        if rng.random() * peak < parts[chosen]:
            break
    bound = 0.0
    for c in range(7):
        bound += factors[c] * parts[c]
    return i, bound

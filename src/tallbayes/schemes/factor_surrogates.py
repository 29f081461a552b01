"""The surrogate of the levels of one of several factors, given the coefficients and the other factors.

A level knows the effects of the levels that it meets from sums over the cells of two factors. A factor with which there are too many
cells is known by its mean alone; how far its levels are from that stays in the residual.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.schemes.level_fits import inner_product, upper_product


class RestOfFactor(NamedTuple):
    """What is held fixed while the levels of a factor move."""

    shift: np.ndarray  # delta over all columns
    radius: float  # its whitened length
    slope: np.ndarray  # (levels, q)
    curvature: np.ndarray  # (levels, q, q)
    level_shift: float  # s, of factors that are known by their mean alone
    reach: float  # |p - v| <= B times this
    rest: float  # |t| <= B times this


@inlinable
def factor_mean(own: Any, effects: np.ndarray) -> float:
    """Mean of the first effects of a factor, frozen weights."""
    q, total, weights, at = own.centres.shape[1], 0.0, own.mean_weights, own.start + own.one
    for g in range(weights.size):
        total += weights[g] * effects[at + g * q]
    return total


@inlinable
def factor_means(tables: Any, effects: np.ndarray) -> np.ndarray:
    """The known shift of every factor."""
    means = np.zeros(len(tables.factors))
    if tables.shifted:
        for k in range(len(tables.factors)):
            means[k] = factor_mean(tables.factors[k], effects)
    return means


@inlinable
def furthest_level(own: Any, effects: np.ndarray, mean: float) -> float:
    """Largest |nu| of the levels of a factor, relative to their mean."""
    q, one, begin, stretch = own.centres.shape[1], own.one, own.start, own.stretch
    eps, white, largest = np.empty(q), np.empty(q), 0.0
    for g in range(stretch.shape[0]):
        for a in range(q):
            eps[a] = effects[begin + g * q + a]
        if one >= 0:
            eps[one] -= mean
        upper_product(stretch[g], eps, white)
        largest = max(largest, inner_product(white, white))
    return math.sqrt(largest)


@inlinable
def rest_of_factor(
    tables: Any, k: int, effects: np.ndarray, delta: np.ndarray, shift: np.ndarray, radius: float
) -> RestOfFactor:
    """Surrogates of all levels of factor k and what bounds need, given the coefficients and the other factors."""
    own = tables.factors[k]
    count, q, f, one = own.centres.shape[0], own.centres.shape[1], delta.size, own.one
    means = factor_means(tables, effects)
    known, rest, others, s = 0.0, 0.0, 0.0, 0.0
    for m in range(means.size):
        if m != k:
            furthest = furthest_level(tables.factors[m], effects, means[m])
            others += means[m]
            if own.broad[m]:
                rest = max(rest, furthest)
                s += means[m]
            else:
                known = max(known, furthest)
    reach = math.sqrt(known * known + (others / own.spread) ** 2)
    slope, curvature = own.slopes.copy(), own.curvatures.copy()
    add_cells(own.cells, effects, slope, curvature)
    curvatures, thirds, crossed, crossed_third = own.curvatures, own.thirds, own.crossed, own.crossed_third
    for g in range(count):
        for a in range(q):
            if s != 0.0:
                slope[g, a] -= curvatures[g, a, one] * s
                for b in range(q):
                    curvature[g, a, b] -= thirds[g, a, b, one] * s
            total = 0.0
            for j in range(f):
                total += crossed[g, j, a] * delta[j]
            slope[g, a] -= total
            for b in range(q):
                total = 0.0
                for j in range(f):
                    total += crossed_third[g, j, a, b] * delta[j]
                curvature[g, a, b] -= total
    return RestOfFactor(shift, radius, slope, curvature, s, reach, rest)


@inlinable
def add_cells(cells: Any, effects: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> None:
    """What the levels that a level meets add to its surrogate: f'' e e_l and f''' e^2 e_l / 2, summed over rows."""
    offsets, starts, terms, seconds, thirds = cells.offsets, cells.starts, cells.terms, cells.seconds, cells.thirds
    q = slope.shape[1]
    for g in range(slope.shape[0]):
        if q == 1 and seconds.shape[2] == 1:
            first, second = 0.0, 0.0
            for c in range(offsets[g], offsets[g + 1]):
                e = effects[starts[c]]
                first += seconds[c, 0, 0] * e
                second += thirds[c, 0, 0, 0] * e
            slope[g, 0] -= first
            curvature[g, 0, 0] -= second
            continue
        for c in range(offsets[g], offsets[g + 1]):
            for j in range(terms[c]):
                e = effects[starts[c] + j]
                for a in range(q):
                    slope[g, a] -= seconds[c, a, j] * e
                    for b in range(q):
                        curvature[g, a, b] -= thirds[c, a, b, j] * e

"""Levels of one of several factors given everything else, and moves of its covariance or carried coefficients that take them along.

The moves of `level_vectors`, with two differences: the other factors are a known shift of each level plus a rest that stays in the
residual, and candidate rows are kept under their own bounds. State is eps, the deviation of all effects from their centres.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.crossed_rates import crossed_effect_factors, row_effect_bound, segment_moments
from tallbayes.compile import inlinable
from tallbayes.priors import prior_value
from tallbayes.schemes.covariance_slice import covariance_prior
from tallbayes.schemes.crossed_rows import crossed_effect_gap, draw_candidate, other_effects, parts_rate
from tallbayes.schemes.level_fits import (
    backward_solve,
    fit_factor,
    fit_mean,
    inner_product,
    level_precision,
    log_t_density,
    quadratic_form,
    surrogate_value,
    upper_product,
    whitened_skewness,
)
from tallbayes.schemes.level_moves import DEGREES, SKEWED, SPREAD, LevelsMoved, MapMoved, chi_square, prior_mean
from tallbayes.schemes.level_rows import accepts, count_pairs, draw_count, find_level, kept_ratio
from tallbayes.target import Target

WHOLE = 2.0  # times the rows of a level that its rate may reach: candidates are cheaper than rows


class RestOfFactor(NamedTuple):
    """What is held fixed while the levels of a factor move."""

    shift: np.ndarray  # delta over all columns
    radius: float  # its whitened length
    slope: np.ndarray  # (levels, q)
    curvature: np.ndarray  # (levels, q, q)
    level_shifts: np.ndarray  # (levels,): s
    rests: np.ndarray  # (levels,): |t| <= B times this


@inlinable
def factor_mean(own: Any, effects: np.ndarray) -> float:
    """Mean of the first effects of a factor, frozen weights."""
    q, total = own.centres.shape[1], 0.0
    for g in range(own.centres.shape[0]):
        total += own.mean_weights[g] * effects[own.start + g * q + own.one]
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
    count, q = own.centres.shape[0], own.centres.shape[1]
    eps, white, largest = np.empty(q), np.empty(q), 0.0
    for g in range(count):
        for a in range(q):
            eps[a] = effects[own.start + g * q + a]
        if own.one >= 0:
            eps[own.one] -= mean
        upper_product(own.stretch[g], eps, white)
        largest = max(largest, inner_product(white, white))
    return math.sqrt(largest)


@inlinable
def rest_of_factor(
    tables: Any, k: int, effects: np.ndarray, delta: np.ndarray, shift: np.ndarray, radius: float
) -> RestOfFactor:
    """Surrogates of all levels of factor k and what bounds need, given the coefficients and the other factors."""
    own = tables.factors[k]
    count, q, f = own.centres.shape[0], own.centres.shape[1], delta.size
    means = factor_means(tables, effects)
    furthest, others = 0.0, 0.0
    for m in range(len(tables.factors)):
        if m != k:
            furthest = max(furthest, furthest_level(tables.factors[m], effects, means[m]))
            others += means[m]
    slope, curvature = own.slopes.copy(), own.curvatures.copy()
    level_shifts, rests = np.zeros(count), np.empty(count)
    one = own.one
    for g in range(count):
        s = 0.0
        if tables.shifted:
            for m in range(len(tables.factors)):
                s += means[m] if own.broad[m] else 0.0
            for c in range(own.cell_offsets[g], own.cell_offsets[g + 1]):
                s += own.cell_weights[c] * effects[own.cell_levels[c]]
            for a in range(q):
                slope[g, a] -= own.curvatures[g, a, one] * s
                for b in range(q):
                    curvature[g, a, b] -= own.thirds[g, a, b, one] * s
        level_shifts[g] = s
        rests[g] = math.sqrt(furthest * furthest + ((others - s) / own.spread) ** 2)
        for j in range(f):
            for a in range(q):
                slope[g, a] -= own.crossed[g, j, a] * delta[j]
                for b in range(q):
                    curvature[g, a, b] -= own.crossed_third[g, j, a, b] * delta[j]
    return RestOfFactor(shift, radius, slope, curvature, level_shifts, rests)


@inlinable
def level_segment(own: Any, g: int, before: np.ndarray, after: np.ndarray) -> tuple[Any, float]:
    """Moments of the segment between two effects of a level, and the larger |nu|."""
    q = before.size
    first, second = np.empty(q), np.empty(q)
    upper_product(own.stretch[g], before, first)
    upper_product(own.stretch[g], after, second)
    here, there = inner_product(first, first), inner_product(second, second)
    return segment_moments(here, inner_product(first, second), there), math.sqrt(max(here, there))


@inlinable
def level_gap_rate(
    tables: Any, own: Any, g: int, given: RestOfFactor, before: np.ndarray, after: np.ndarray, factors: np.ndarray
) -> float:
    """Rate of candidate rows of a level, whose factors are filled in."""
    moments, furthest = level_segment(own, g, before, after)
    shift = abs(given.level_shifts[g]) / own.spread
    crossed_effect_factors(
        tables.exponential, tables.ratio, given.radius, given.rests[g], shift, moments, furthest, own.most[g], factors
    )
    return parts_rate(own.sums, g, factors)


@inlinable
def candidate_ratio(
    rng: np.random.Generator,
    target: Target,
    k: int,
    own: Any,
    g: int,
    given: RestOfFactor,
    effects: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
    parts: np.ndarray,
) -> tuple[float, int]:
    """What one candidate row of a level adds to the log ratio, and 1 if it was read."""
    tables, rows = target.proxy, target.rows
    i, dominating = draw_candidate(rng, tables, own, k, g, False, own.sums, own.peaks, factors, parts)
    shares, s = tables.shares, given.level_shifts[g]
    rest = abs(other_effects(rows, rows.records[i], i, k, effects) - s)
    moments, furthest = level_segment(own, g, before, after)
    a, curve, load, zeta = shares[i, 0], shares[i, 1], shares[i, 2], shares[i, 3 + k]
    bound = row_effect_bound(
        tables.exponential, tables.ratio, curve, load, a, zeta, given.radius, rest, abs(s), moments, furthest
    )
    if not rng.random() * dominating < bound:
        return 0.0, 0
    gap = crossed_effect_gap(rows, i, k, target.proxy.surrogate.reference, given.shift, effects, s, before, after)
    return kept_ratio(rng, target.counters, i, curve + load, gap, bound), 1


@inlinable
def whole_level_ratio(
    target: Target, k: int, own: Any, g: int, given: RestOfFactor, effects: np.ndarray, before: np.ndarray, after: np.ndarray
) -> float:
    """Log ratio of the residuals of all rows of a level."""
    reference, total = target.proxy.surrogate.reference, 0.0
    for position in range(own.offsets[g], own.offsets[g + 1]):
        i = position if own.members.size == 0 else own.members[position]
        total += crossed_effect_gap(target.rows, i, k, reference, given.shift, effects, given.level_shifts[g], before, after)
    return total


@inlinable
def move_factor_levels(
    rng: np.random.Generator,
    target: Target,
    k: int,
    beta: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
    effects: np.ndarray,
    given: RestOfFactor,
) -> LevelsMoved:
    """One move of every level of factor k, made in `effects`."""
    tables = target.proxy
    own = tables.factors[k]
    q, count = own.centres.shape[1], own.centres.shape[0]
    precision, factor, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    level_precision(log_sd, partial, precision)
    offset, mean, start, end, work = np.empty(q), np.empty(q), np.empty(q), np.empty(q), np.empty(q)
    cubes, factors, parts = np.empty((2, q, q, q)), np.empty(7), np.empty(7)
    accepted, read, full = 0, 0, 0
    for g in range(count):
        slope, curvature, third, at = given.slope[g], given.curvature[g], own.thirds[g], own.start + g * q
        fit_factor(curvature, own.curvatures[g], own.stretch[g], precision, factor, scratch)
        for a in range(q):
            offset[a] = own.centres[g, a] - prior_mean(own.prior.carriers, own.carried, beta, g, a)
            start[a] = effects[at + a]
            work[a] = rng.standard_normal()
        fit_mean(factor, slope, precision, offset, mean)
        spread = SPREAD * math.sqrt(DEGREES / chi_square(rng))
        backward_solve(factor, work)
        for a in range(q):
            end[a] = mean[a] + spread * work[a]
        ratio = surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * (quadratic_form(precision, offset + end) - quadratic_form(precision, offset + start))
        ratio += log_t_density(factor, start, mean, work) - log_t_density(factor, end, mean, work)
        size = own.offsets[g + 1] - own.offsets[g]
        rate = level_gap_rate(tables, own, g, given, start, end, factors)
        if whitened_skewness(factor, third, cubes) > SKEWED or not rate < WHOLE * size:
            ratio += whole_level_ratio(target, k, own, g, given, effects, start, end)
            read += size
            full += 1
        else:
            if not accepts(rng, ratio):
                continue
            ratio = 0.0
            for _ in range(draw_count(rng, rate)):
                added, looked = candidate_ratio(rng, target, k, own, g, given, effects, start, end, factors, parts)
                ratio += added
                read += looked
        if accepts(rng, ratio):
            for a in range(q):
                effects[at + a] = end[a]
            accepted += 1
    count_pairs(target.counters, read)
    return LevelsMoved(accepted, read, full)


@inlinable
def map_factor(
    rng: np.random.Generator,
    target: Target,
    k: int,
    beta: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
    effects: np.ndarray,
    given: RestOfFactor,
    other: np.ndarray,
    other_sd: np.ndarray,
    other_partial: np.ndarray,
) -> MapMoved:
    """Move to the carried coefficients of `other` and to another covariance of factor k, its levels by the map; made in place."""
    tables = target.proxy
    own = tables.factors[k]
    q, count = own.centres.shape[1], own.centres.shape[0]
    here, there, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    factor, factor_other = np.empty((q, q)), np.empty((q, q))
    first, second, mean, mean_other, work = np.empty(q), np.empty(q), np.empty(q), np.empty(q), np.empty(q)
    start, factors, parts = np.empty(q), np.empty(7), np.empty(7)
    half, half_other = level_precision(log_sd, partial, here), level_precision(other_sd, other_partial, there)
    ratio = prior_value(target.prior, other) - prior_value(target.prior, beta)
    ratio += covariance_prior(own.prior.scales, own.prior.eta, other_sd, other_partial)
    ratio -= covariance_prior(own.prior.scales, own.prior.eta, log_sd, partial)
    ratio -= count * (half_other - half)
    ends, cumulative, total = np.empty((count, q)), np.empty(count), 0.0
    for g in range(count):
        slope, curvature, at = given.slope[g], given.curvature[g], own.start + g * q
        fit_factor(curvature, own.curvatures[g], own.stretch[g], here, factor, scratch)
        fit_factor(curvature, own.curvatures[g], own.stretch[g], there, factor_other, scratch)
        for a in range(q):
            first[a] = own.centres[g, a] - prior_mean(own.prior.carriers, own.carried, beta, g, a)
            second[a] = own.centres[g, a] - prior_mean(own.prior.carriers, own.carried, other, g, a)
            start[a] = effects[at + a]
        fit_mean(factor, slope, here, first, mean)
        fit_mean(factor_other, slope, there, second, mean_other)
        upper_product(factor, start - mean, work)
        backward_solve(factor_other, work)
        end = ends[g]
        for a in range(q):
            end[a] = mean_other[a] + work[a]
            ratio += math.log(factor[a, a] / factor_other[a, a])
        third = own.thirds[g]
        ratio += surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * (quadratic_form(there, second + end) - quadratic_form(here, first + start))
        rate = level_gap_rate(tables, own, g, given, start, end, factors)
        total += rate if rate < WHOLE * (own.offsets[g + 1] - own.offsets[g]) else 0.0
        cumulative[g] = total
    if not accepts(rng, ratio):
        return MapMoved(False, 0)
    ratio, read, previous = 0.0, 0, 0.0
    for g in range(count):
        size = own.offsets[g + 1] - own.offsets[g]
        if cumulative[g] == previous and size > 0:
            for a in range(q):
                start[a] = effects[own.start + g * q + a]
            if not level_gap_rate(tables, own, g, given, start, ends[g], factors) < WHOLE * size:
                ratio += whole_level_ratio(target, k, own, g, given, effects, start, ends[g])
                read += size
        previous = cumulative[g]
    for _ in range(draw_count(rng, total) if total > 0.0 else 0):
        g = find_level(cumulative, rng.random() * total)
        for a in range(q):
            start[a] = effects[own.start + g * q + a]
        level_gap_rate(tables, own, g, given, start, ends[g], factors)
        added, looked = candidate_ratio(rng, target, k, own, g, given, effects, start, ends[g], factors, parts)
        ratio += added
        read += looked
    count_pairs(target.counters, read)
    if not accepts(rng, ratio):
        return MapMoved(False, read)
    for g in range(count):
        for a in range(q):
            effects[own.start + g * q + a] = ends[g, a]
    for j in range(own.carried.size):
        beta[own.carried[j]] = other[own.carried[j]]
    for a in range(q):
        log_sd[a] = other_sd[a]
    for a in range(partial.size):
        partial[a] = other_partial[a]
    return MapMoved(True, read)

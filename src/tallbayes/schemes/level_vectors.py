"""Levels with several effects each, such as an intercept and slopes: the moves of `level_moves` with matrices for numbers.

The fit of a level has precision P = D - K.delta + Sigma^-1 = L L' where that is safely positive definite. Proposals are
multivariate t. The map c' = mu' + L'^-T L^T (c - mu) has the Jacobian |L| / |L'|.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import effects_factors
from tallbayes.engine.grouped_rows import row_of
from tallbayes.priors import prior_value
from tallbayes.schemes.covariance_slice import covariance_prior
from tallbayes.schemes.level_fits import (
    backward_solve,
    deviation_product,
    fit_factor,
    fit_mean,
    level_precision,
    log_t_ratio,
    quadratic_gap,
    surrogate_value,
    whitened_skewness,
)
from tallbayes.schemes.level_moves import (
    DEGREES,
    SKEWED,
    SPREAD,
    LevelsMoved,
    MapMoved,
    RestOfLevels,
    chi_square,
    level_factors,
    level_surrogates,
    map_move,
    map_residuals,
    move_levels,
    prior_mean,
    start_levels,
)
from tallbayes.schemes.level_rows import (
    accepts,
    count_pairs,
    draw_count,
    draw_position,
    effect_gap,
    kept_ratio,
    level_rate,
)


class ManyEffects(NamedTuple):
    """Marks levels with several effects each."""


@level_surrogates.register(ManyEffects)
def _level_surrogates(form: ManyEffects, surrogate: Any, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    f, count, q = delta.size, surrogate.centres.shape[0], surrogate.centres.shape[1]
    slope, curvature = surrogate.slopes.copy(), surrogate.curvatures.copy()
    crossed, third = surrogate.crossed, surrogate.crossed_third
    for g in range(count):
        for j in range(f):
            for a in range(q):
                slope[g, a] -= crossed[g, j, a] * delta[j]
                for b in range(q):
                    curvature[g, a, b] -= third[g, j, a, b] * delta[j]
    return slope, curvature


@level_factors.register(ManyEffects)
def _level_factors(form: ManyEffects, shares: Any, stretch: Any, g: int, radius: float, before: Any, after: Any) -> Any:
    q, most, own = before.size, shares.most, stretch[g]
    here, inner, there = 0.0, 0.0, 0.0
    for a in range(q):
        first, second = 0.0, 0.0
        for b in range(a, q):
            first += own[b, a] * before[b]
            second += own[b, a] * after[b]
        here += first * first
        inner += first * second
        there += second * second
    return effects_factors(shares.exponential, shares.ratio, radius, here, inner, there, most[g, 0], most[g, 1])


@start_levels.register(ManyEffects)
def _start_levels(
    form: ManyEffects, rng: Any, tables: Any, beta: Any, log_sd: Any, partial: Any, slope: Any, curvature: Any
) -> Any:
    surrogate, carriers, q = tables.surrogate, tables.prior.carriers, log_sd.size
    levels, precision = np.empty(slope.shape), np.empty((q, q))
    factor, scratch, offset, mean, noise = np.empty((q, q)), np.empty((q, q)), np.empty(q), np.empty(q), np.empty(q)
    level_precision(log_sd, partial, precision)
    for g in range(slope.shape[0]):
        fit_factor(curvature[g], surrogate.curvatures[g], surrogate.stretch[g], precision, factor, scratch)
        for a in range(q):
            offset[a] = surrogate.centres[g, a] - prior_mean(carriers, surrogate.carried, beta, g, a)
            noise[a] = rng.standard_normal()
        fit_mean(factor, slope[g], precision, offset, mean)
        backward_solve(factor, noise)
        for a in range(q):
            levels[g, a] = surrogate.centres[g, a] + mean[a] + noise[a]
    return levels


@move_levels.register(ManyEffects)
def _move_levels(
    form: ManyEffects, rng: Any, target: Any, beta: Any, log_sd: Any, partial: Any, levels: Any, given: RestOfLevels
) -> LevelsMoved:
    rows, surrogate, shares, counters = target.rows, target.proxy.surrogate, target.proxy.shares, target.counters
    carriers, carried, records, offsets = target.proxy.prior.carriers, surrogate.carried, rows.records, rows.offsets
    centres, curvatures, thirds, reference = surrogate.centres, surrogate.curvatures, surrogate.thirds, surrogate.reference
    q, count, stretch, shift = log_sd.size, levels.shape[0], surrogate.stretch, given.shift
    precision, factor, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    level_precision(log_sd, partial, precision)
    offset, mean, start, end, work = np.empty(q), np.empty(q), np.empty(q), np.empty(q), np.empty(q)
    cubes = np.empty((2, q, q, q))
    accepted, read, full = 0, 0, 0
    for g in range(count):
        slope, curvature, third = given.slope[g], given.curvature[g], thirds[g]
        fit_factor(curvature, curvatures[g], stretch[g], precision, factor, scratch)
        for a in range(q):
            offset[a] = centres[g, a] - prior_mean(carriers, carried, beta, g, a)
            start[a] = levels[g, a] - centres[g, a]
            work[a] = rng.standard_normal()
        fit_mean(factor, slope, precision, offset, mean)
        spread = SPREAD * math.sqrt(DEGREES / (chi_square(rng)))
        backward_solve(factor, work)
        for a in range(q):
            end[a] = mean[a] + spread * work[a]
        ratio = surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * quadratic_gap(precision, precision, offset, start, offset, end)
        ratio += log_t_ratio(factor, mean, start, end)
        first = offsets[g]
        size = offsets[g + 1] - first
        factors = level_factors(form, shares, stretch, g, given.radius, start, end)
        rate = level_rate(shares.sums, g, factors)
        if whitened_skewness(factor, third, cubes) > SKEWED or not rate < size:
            for position in range(first, first + size):
                ratio += effect_gap(rows, records[row_of(rows, position)], reference, centres[g], shift, start, end)
            read += size
            full += 1
        else:
            if not accepts(rng, ratio):
                continue
            ratio = 0.0
            candidates = draw_count(rng, rate)
            for _ in range(candidates):
                position, bound = draw_position(rng, shares, g, first, size, factors)
                i = row_of(rows, position)
                gap = effect_gap(rows, records[i], reference, centres[g], shift, start, end)
                ratio += kept_ratio(rng, counters, i, shares.loads[position], gap, bound)
            read += candidates
        if accepts(rng, ratio):
            for a in range(q):
                levels[g, a] = centres[g, a] + end[a]
            accepted += 1
    count_pairs(counters, read)
    return LevelsMoved(accepted, read, full)


@map_move.register(ManyEffects)
def _map_move(
    form: ManyEffects,
    rng: Any,
    target: Any,
    beta: Any,
    log_sd: Any,
    partial: Any,
    levels: Any,
    given: RestOfLevels,
    other: Any,
    other_sd: Any,
    other_partial: Any,
) -> MapMoved:
    surrogate, shares, prior = target.proxy.surrogate, target.proxy.shares, target.proxy.prior
    carriers, carried, offsets = prior.carriers, surrogate.carried, target.rows.offsets
    centres, curvatures, thirds, stretch = surrogate.centres, surrogate.curvatures, surrogate.thirds, surrogate.stretch
    q, count = log_sd.size, levels.shape[0]
    here, there, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    factor, factor_other = np.empty((q, q)), np.empty((q, q))
    first, second, mean, mean_other, work = np.empty(q), np.empty(q), np.empty(q), np.empty(q), np.empty(q)
    start = np.empty(q)
    half, half_other = level_precision(log_sd, partial, here), level_precision(other_sd, other_partial, there)
    ratio = given.correction + prior_value(target.prior, other) - prior_value(target.prior, beta)
    ratio += covariance_prior(prior.scales, prior.eta, other_sd, other_partial)
    ratio -= covariance_prior(prior.scales, prior.eta, log_sd, partial)
    ratio -= count * (half_other - half)
    ends, cumulative, total, whole = np.empty((count, q)), np.empty(count), 0.0, 0
    for g in range(count):
        slope, curvature = given.slope[g], given.curvature[g]
        fit_factor(curvature, curvatures[g], stretch[g], here, factor, scratch)
        fit_factor(curvature, curvatures[g], stretch[g], there, factor_other, scratch)
        for a in range(q):
            first[a] = centres[g, a] - prior_mean(carriers, carried, beta, g, a)
            second[a] = centres[g, a] - prior_mean(carriers, carried, other, g, a)
        fit_mean(factor, slope, here, first, mean)
        fit_mean(factor_other, slope, there, second, mean_other)
        for a in range(q):
            start[a] = levels[g, a] - centres[g, a]
        deviation_product(factor, start, mean, work)
        backward_solve(factor_other, work)
        end = ends[g]
        for a in range(q):
            end[a] = mean_other[a] + work[a]
            ratio += math.log(factor[a, a] / factor_other[a, a])
        ratio += surrogate_value(slope, curvature, thirds[g], end) - surrogate_value(slope, curvature, thirds[g], start)
        ratio -= 0.5 * quadratic_gap(here, there, first, start, second, end)
        rate = level_rate(shares.sums, g, level_factors(form, shares, stretch, g, given.radius, start, end))
        if rate < offsets[g + 1] - offsets[g]:
            total += rate
        else:
            whole += 1
        cumulative[g] = total
    residuals, read = map_residuals(form, rng, target, given, levels, ends, cumulative, whole)
    count_pairs(target.counters, read)
    if not accepts(rng, ratio + residuals):
        return MapMoved(False, read)
    for g in range(count):
        for a in range(q):
            levels[g, a] = centres[g, a] + ends[g, a]
    for k in range(carried.size):
        beta[carried[k]] = other[carried[k]]
    for a in range(q):
        log_sd[a] = other_sd[a]
    for a in range(partial.size):
        partial[a] = other_partial[a]
    return MapMoved(True, read)

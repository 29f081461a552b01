"""Levels with several effects each, such as an intercept and slopes: the moves of `level_moves` with matrices for numbers.

The fit of a level has precision P = D - K.delta + Sigma^-1 = L L' where that is safely positive definite. Proposals are
multivariate t. The map c' = mu' + L'^-T L^T (c - mu) has the Jacobian |L| / |L'|.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import effects_factors
from tallbayes.compile import inlinable
from tallbayes.engine.grouped_rows import row_of
from tallbayes.priors import prior_value
from tallbayes.schemes.covariance_slice import covariance_prior, whitener
from tallbayes.schemes.level_moves import (
    DEGREES,
    SAFE,
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


@inlinable
def level_precision(log_sd: np.ndarray, partial: np.ndarray, out: np.ndarray) -> float:
    """Fill `out` with Sigma^-1; returns log |Sigma| / 2."""
    q = log_sd.size
    root = np.empty((q, q))
    half = whitener(log_sd, partial, root)
    for a in range(q):
        for b in range(q):
            out[a, b] = 0.0
            for c in range(q):
                out[a, b] += root[c, a] * root[c, b]
    return half


@inlinable
def _factorise(first: np.ndarray, second: np.ndarray, out: np.ndarray) -> bool:
    """Fill `out` with the lower factor of first + second; False if a pivot is not positive."""
    q = out.shape[0]
    for a in range(q):
        for b in range(a + 1):
            total = first[a, b] + second[a, b]
            for c in range(b):
                total -= out[a, c] * out[b, c]
            if a > b:
                out[a, b] = total / out[b, b]
            elif total > 0.0:
                out[a, a] = math.sqrt(total)
            else:
                return False
    return True


@inlinable
def fit_factor(
    curvature: np.ndarray,
    at_reference: np.ndarray,
    stretch: np.ndarray,
    precision: np.ndarray,
    out: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """Fill `out` with L of the fit's precision: with the curvature given the coefficients if that is safe, else with that at the reference.

    Where neither is positive definite, `stretch` stands in. Only what is held fixed during a move of levels decides.
    """
    q = out.shape[0]
    if _factorise(at_reference, precision, scratch):
        if _factorise(curvature, precision, out):
            safe = True
            for a in range(q):
                if out[a, a] * out[a, a] < SAFE * scratch[a, a] * scratch[a, a]:
                    safe = False
            if safe:
                return
        for a in range(q):
            for b in range(a + 1):
                out[a, b] = scratch[a, b]
        return
    for a in range(q):
        for b in range(q):
            scratch[a, b] = 0.0
            for c in range(min(a, b) + 1):
                scratch[a, b] += stretch[a, c] * stretch[b, c]
    _factorise(scratch, precision, out)


@inlinable
def _solve(factor: np.ndarray, vector: np.ndarray) -> None:
    """In place: L^-1 vector, then L^-T of it."""
    _forward(factor, vector)
    _backward(factor, vector)


@inlinable
def _forward(factor: np.ndarray, vector: np.ndarray) -> None:
    for a in range(vector.size):
        for b in range(a):
            vector[a] -= factor[a, b] * vector[b]
        vector[a] /= factor[a, a]


@inlinable
def _backward(factor: np.ndarray, vector: np.ndarray) -> None:
    q = vector.size
    for k in range(q):
        a = q - 1 - k
        for b in range(a + 1, q):
            vector[a] -= factor[b, a] * vector[b]
        vector[a] /= factor[a, a]


@inlinable
def _times_upper(factor: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = L' vector."""
    q = vector.size
    for a in range(q):
        out[a] = 0.0
        for b in range(a, q):
            out[a] += factor[b, a] * vector[b]


@inlinable
def _inner(first: np.ndarray, second: np.ndarray) -> float:
    total = 0.0
    for a in range(first.size):
        total += first[a] * second[a]
    return total


@inlinable
def _quadratic(matrix: np.ndarray, vector: np.ndarray) -> float:
    total = 0.0
    for a in range(vector.size):
        for b in range(vector.size):
            total += matrix[a, b] * vector[a] * vector[b]
    return total


@inlinable
def _cubic(tensor: np.ndarray, vector: np.ndarray) -> float:
    total = 0.0
    for a in range(vector.size):
        for b in range(vector.size):
            for c in range(vector.size):
                total += tensor[a, b, c] * vector[a] * vector[b] * vector[c]
    return total


@inlinable
def _surrogate_value(slope: np.ndarray, curvature: np.ndarray, third: np.ndarray, effect: np.ndarray) -> float:
    return _inner(slope, effect) - 0.5 * _quadratic(curvature, effect) + _cubic(third, effect) / 6.0


@inlinable
def whitened_skewness(factor: np.ndarray, third: np.ndarray, scratch: np.ndarray) -> float:
    """Root of the sum of squares of the cubic term in coordinates that whiten the fit; `scratch` is two q x q x q arrays."""
    q = factor.shape[0]
    first, second = scratch[0], scratch[1]
    for a in range(q):
        for b in range(q):
            for c in range(q):
                first[a, b, c] = third[a, b, c]
    column = np.empty(q)
    for _ in range(3):  # L^-1 along the first index, then the indices rotate
        for b in range(q):
            for c in range(q):
                for a in range(q):
                    column[a] = first[a, b, c]
                _forward(factor, column)
                for a in range(q):
                    second[b, c, a] = column[a]
        for a in range(q):
            for b in range(q):
                for c in range(q):
                    first[a, b, c] = second[a, b, c]
    total = 0.0
    for a in range(q):
        for b in range(q):
            for c in range(q):
                total += first[a, b, c] * first[a, b, c]
    return math.sqrt(total)


@inlinable
def _fit_mean(factor: np.ndarray, slope: np.ndarray, precision: np.ndarray, offset: np.ndarray, out: np.ndarray) -> None:
    """Mean of the fit: P^-1 (h - Sigma^-1 (c* - B beta_J))."""
    for a in range(out.size):
        out[a] = slope[a]
        for b in range(out.size):
            out[a] -= precision[a, b] * offset[b]
    _solve(factor, out)


@inlinable
def _log_t(factor: np.ndarray, effect: np.ndarray, mean: np.ndarray, scratch: np.ndarray) -> float:
    """Log density of the proposal."""
    q = effect.size
    _times_upper(factor, effect - mean, scratch)
    return -0.5 * (DEGREES + q) * math.log1p(_inner(scratch, scratch) / (DEGREES * SPREAD * SPREAD))


@level_factors.register(ManyEffects)
def _level_factors(form: ManyEffects, shares: Any, stretch: Any, g: int, radius: float, before: Any, after: Any) -> Any:
    q, most = before.size, shares.most
    first, second = np.empty(q), np.empty(q)
    _times_upper(stretch[g], before, first)
    _times_upper(stretch[g], after, second)
    ends = _inner(first, first), _inner(first, second), _inner(second, second)
    return effects_factors(shares.exponential, shares.ratio, radius, ends[0], ends[1], ends[2], most[g, 0], most[g, 1])


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
        _fit_mean(factor, slope[g], precision, offset, mean)
        _backward(factor, noise)
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
        _fit_mean(factor, slope, precision, offset, mean)
        spread = SPREAD * math.sqrt(DEGREES / (chi_square(rng)))
        _backward(factor, work)
        for a in range(q):
            end[a] = mean[a] + spread * work[a]
        ratio = _surrogate_value(slope, curvature, third, end) - _surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * (_quadratic(precision, offset + end) - _quadratic(precision, offset + start))
        ratio += _log_t(factor, start, mean, work) - _log_t(factor, end, mean, work)
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
    half, half_other = level_precision(log_sd, partial, here), level_precision(other_sd, other_partial, there)
    ratio = prior_value(target.prior, other) - prior_value(target.prior, beta)
    ratio += covariance_prior(prior.scales, prior.eta, other_sd, other_partial)
    ratio -= covariance_prior(prior.scales, prior.eta, log_sd, partial)
    ratio -= count * (half_other - half)
    ends, cumulative, total = np.empty((count, q)), np.empty(count), 0.0
    for g in range(count):
        slope, curvature = given.slope[g], given.curvature[g]
        fit_factor(curvature, curvatures[g], stretch[g], here, factor, scratch)
        fit_factor(curvature, curvatures[g], stretch[g], there, factor_other, scratch)
        for a in range(q):
            first[a] = centres[g, a] - prior_mean(carriers, carried, beta, g, a)
            second[a] = centres[g, a] - prior_mean(carriers, carried, other, g, a)
        _fit_mean(factor, slope, here, first, mean)
        _fit_mean(factor_other, slope, there, second, mean_other)
        start = levels[g] - centres[g]
        _times_upper(factor, start - mean, work)
        _backward(factor_other, work)
        end = ends[g]
        for a in range(q):
            end[a] = mean_other[a] + work[a]
            ratio += math.log(factor[a, a] / factor_other[a, a])
        ratio += _surrogate_value(slope, curvature, thirds[g], end) - _surrogate_value(slope, curvature, thirds[g], start)
        ratio -= 0.5 * (_quadratic(there, second + end) - _quadratic(here, first + start))
        rate = level_rate(shares.sums, g, level_factors(form, shares, stretch, g, given.radius, start, end))
        total += rate if rate < offsets[g + 1] - offsets[g] else 0.0
        cumulative[g] = total
    if not accepts(rng, ratio):
        return MapMoved(False, 0)
    ratio, read = map_residuals(form, rng, target, given.shift, given.radius, levels, ends, cumulative)
    count_pairs(target.counters, read)
    if not accepts(rng, ratio):
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

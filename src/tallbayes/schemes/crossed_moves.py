"""Levels of one of several factors given everything else, and moves of its covariance or carried coefficients that take them along.

The moves of `level_vectors`, with two differences: the effects of other factors are known to the surrogate, or their mean is and a rest
stays in the residual; and candidate rows are kept under their own bounds. State is eps, the deviation of all effects from their centres.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.bounds.crossed_rates import crossed_effect_factors, row_effect_bound, segment_moments
from tallbayes.compile import inlinable
from tallbayes.priors import prior_value
from tallbayes.schemes.covariance_slice import covariance_prior
from tallbayes.schemes.crossed_rows import CandidateRows, crossed_effect_gap, draw_candidate, other_effects, parts_rate
from tallbayes.schemes.factor_surrogates import RestOfFactor
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
from tallbayes.schemes.level_moves import DEGREES, SKEWED, SPREAD, LevelsMoved, MapMoved, chi_square, prior_mean
from tallbayes.schemes.level_rows import accepts, count_pairs, draw_count, find_level, kept_ratio
from tallbayes.target import Target

WHOLE = 2.0  # times the rows of a level that its rate may reach: candidates are cheaper than rows

# Loops over levels take arrays out of the tables first: a NamedTuple of many arrays costs more to pass than a level to move.


@inlinable
def level_segment(stretch: np.ndarray, before: np.ndarray, after: np.ndarray) -> tuple[Any, float]:
    """Moments of the segment between two effects of a level, and the larger |nu|."""
    q, here, inner, there = before.size, 0.0, 0.0, 0.0
    for a in range(q):
        first, second = 0.0, 0.0
        for b in range(a, q):
            first += stretch[b, a] * before[b]
            second += stretch[b, a] * after[b]
        here += first * first
        inner += first * second
        there += second * second
    return segment_moments(here, inner, there), math.sqrt(max(here, there))


@inlinable
def level_gap_rate(
    exponential: bool,
    bound_ratio: float,
    stretch: np.ndarray,
    most: np.ndarray,
    sums: np.ndarray,
    g: int,
    radius: float,
    rest: float,
    reach: float,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
) -> tuple[float, Any]:
    """Rate of candidate rows of a level, whose factors are filled in, and its segment."""
    segment = level_segment(stretch, before, after)
    crossed_effect_factors(exponential, bound_ratio, radius, rest, reach, segment[0], segment[1], most, factors)
    return parts_rate(sums, g, factors), segment


@inlinable
def candidate_ratio(
    rng: np.random.Generator,
    counters: np.ndarray,
    rows: Any,
    candidates: CandidateRows,
    bound_ratio: float,
    broad: np.ndarray,
    reference: np.ndarray,
    k: int,
    g: int,
    shift: np.ndarray,
    radius: float,
    level_shift: float,
    segment: Any,
    effects: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
    parts: np.ndarray,
    inflation: float,
) -> tuple[float, int]:
    """What one candidate row of a level adds to the log ratio, and 1 if it was read."""
    i, dominating = draw_candidate(rng, candidates, k, g, False, factors, parts)
    shares = candidates.shares
    known, rest = other_effects(rows, rows.records[i], i, k, broad, level_shift, effects)
    a, curve, load, zeta = shares[i, 0], shares[i, 1], shares[i, 2], shares[i, 3 + k]
    moments, furthest = segment
    bound = row_effect_bound(
        candidates.exponential, bound_ratio, curve, load, a, zeta, radius, abs(rest), abs(known), moments, furthest
    )
    if not rng.random() * dominating < bound:
        return 0.0, 0
    gap = crossed_effect_gap(rows, i, k, reference, shift, effects, known, rest, before, after)
    return kept_ratio(rng, counters, i, curve + load, gap, inflation * bound), 1


@inlinable
def whole_level_ratio(
    rows: Any,
    members: np.ndarray,
    first: int,
    last: int,
    broad: np.ndarray,
    reference: np.ndarray,
    k: int,
    shift: np.ndarray,
    level_shift: float,
    effects: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> float:
    """Log ratio of the residuals of all rows of a level."""
    total = 0.0
    for position in range(first, last):
        i = position if members.size == 0 else members[position]
        known, rest = other_effects(rows, rows.records[i], i, k, broad, level_shift, effects)
        total += crossed_effect_gap(rows, i, k, reference, shift, effects, known, rest, before, after)
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
    tables, rows, counters = target.proxy, target.rows, target.counters
    own, exponential, bound_ratio = tables.factors[k], tables.exponential, tables.ratio
    reference, broad, offsets, members = tables.surrogate.reference, own.broad, own.offsets, own.members
    centres, curvatures, thirds, stretch = own.centres, own.curvatures, own.thirds, own.stretch
    carriers, carried, begin, sums, most = own.prior.carriers, own.carried, own.start, own.sums, own.most
    candidates = CandidateRows(tables.shares, offsets, members, sums, own.peaks, own.spread, exponential)
    shift, radius, slopes, curves = given.shift, given.radius, given.slope, given.curvature
    level_shift, reach, rest = given.level_shift, given.reach, given.rest
    q, count = centres.shape[1], centres.shape[0]
    precision, factor, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    level_precision(log_sd, partial, precision)
    offset, mean, start, end, work = np.empty(q), np.empty(q), np.empty(q), np.empty(q), np.empty(q)
    cubes, factors, parts = np.empty((2, q, q, q)), np.empty(7), np.empty(7)
    accepted, read, full = 0, 0, 0
    for g in range(count):
        slope, curvature, third, at = slopes[g], curves[g], thirds[g], begin + g * q
        fit_factor(curvature, curvatures[g], stretch[g], precision, factor, scratch)
        for a in range(q):
            offset[a] = centres[g, a] - prior_mean(carriers, carried, beta, g, a)
            start[a] = effects[at + a]
            work[a] = rng.standard_normal()
        fit_mean(factor, slope, precision, offset, mean)
        spread = SPREAD * math.sqrt(DEGREES / chi_square(rng))
        backward_solve(factor, work)
        for a in range(q):
            end[a] = mean[a] + spread * work[a]
        ratio = surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * quadratic_gap(precision, precision, offset, start, offset, end)
        ratio += log_t_ratio(factor, mean, start, end)
        size = offsets[g + 1] - offsets[g]
        rate, segment = level_gap_rate(
            exponential, bound_ratio, stretch[g], most[g], sums, g, radius, rest, reach, start, end, factors
        )
        if not rate < WHOLE * size or whitened_skewness(factor, third, cubes) > SKEWED:
            ratio += whole_level_ratio(
                rows, members, offsets[g], offsets[g + 1], broad, reference, k, shift, level_shift, effects, start, end
            )
            read += size
            full += 1
        else:
            if not accepts(rng, ratio):
                continue
            ratio = 0.0
            for _ in range(draw_count(rng, rate)):
                added, looked = candidate_ratio(
                    rng,
                    counters,
                    rows,
                    candidates,
                    bound_ratio,
                    broad,
                    reference,
                    k,
                    g,
                    shift,
                    radius,
                    level_shift,
                    segment,
                    effects,
                    start,
                    end,
                    factors,
                    parts,
                    1.0,
                )
                ratio += added
                read += looked
        if accepts(rng, ratio):
            for a in range(q):
                effects[at + a] = end[a]
            accepted += 1
    count_pairs(counters, read)
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
    inflation: float,
) -> MapMoved:
    """Move to the carried coefficients of `other` and to another covariance of factor k, its levels by the map; made in place."""
    tables, rows, counters = target.proxy, target.rows, target.counters
    own, exponential, bound_ratio = tables.factors[k], tables.exponential, tables.ratio
    reference, broad, offsets, members = tables.surrogate.reference, own.broad, own.offsets, own.members
    centres, curvatures, thirds, stretch = own.centres, own.curvatures, own.thirds, own.stretch
    carriers, carried, begin, sums, most = own.prior.carriers, own.carried, own.start, own.sums, own.most
    candidates = CandidateRows(tables.shares, offsets, members, sums, own.peaks, own.spread, exponential)
    shift, radius, slopes, curves = given.shift, given.radius, given.slope, given.curvature
    level_shift, reach, rest = given.level_shift, given.reach, given.rest
    q, count = centres.shape[1], centres.shape[0]
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
        slope, curvature, third, at = slopes[g], curves[g], thirds[g], begin + g * q
        fit_factor(curvature, curvatures[g], stretch[g], here, factor, scratch)
        fit_factor(curvature, curvatures[g], stretch[g], there, factor_other, scratch)
        for a in range(q):
            first[a] = centres[g, a] - prior_mean(carriers, carried, beta, g, a)
            second[a] = centres[g, a] - prior_mean(carriers, carried, other, g, a)
            start[a] = effects[at + a]
        fit_mean(factor, slope, here, first, mean)
        fit_mean(factor_other, slope, there, second, mean_other)
        deviation_product(factor, start, mean, work)
        backward_solve(factor_other, work)
        end = ends[g]
        for a in range(q):
            end[a] = mean_other[a] + work[a]
            ratio += math.log(factor[a, a] / factor_other[a, a])
        ratio += surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        ratio -= 0.5 * quadratic_gap(here, there, first, start, second, end)
        rate, segment = level_gap_rate(
            exponential, bound_ratio, stretch[g], most[g], sums, g, radius, rest, reach, start, end, factors
        )
        total += rate if rate < WHOLE * (offsets[g + 1] - offsets[g]) else 0.0
        cumulative[g] = total
    read, previous = 0, 0.0
    for g in range(count):
        size = offsets[g + 1] - offsets[g]
        if cumulative[g] == previous and size > 0:
            for a in range(q):
                start[a] = effects[begin + g * q + a]
            rate, segment = level_gap_rate(
                exponential, bound_ratio, stretch[g], most[g], sums, g, radius, rest, reach, start, ends[g], factors
            )
            if not rate < WHOLE * size:
                ratio += whole_level_ratio(
                    rows, members, offsets[g], offsets[g + 1], broad, reference, k, shift, level_shift, effects, start, ends[g]
                )
                read += size
        previous = cumulative[g]
    for _ in range(draw_count(rng, inflation * total) if total > 0.0 else 0):
        g = find_level(cumulative, rng.random() * total)
        for a in range(q):
            start[a] = effects[begin + g * q + a]
        rate, segment = level_gap_rate(
            exponential, bound_ratio, stretch[g], most[g], sums, g, radius, rest, reach, start, ends[g], factors
        )
        added, looked = candidate_ratio(
            rng,
            counters,
            rows,
            candidates,
            bound_ratio,
            broad,
            reference,
            k,
            g,
            shift,
            radius,
            level_shift,
            segment,
            effects,
            start,
            ends[g],
            factors,
            parts,
            inflation,
        )
        ratio += added
        read += looked
    count_pairs(counters, read)
    if not accepts(rng, ratio):
        return MapMoved(False, read)
    for g in range(count):
        for a in range(q):
            effects[begin + g * q + a] = ends[g, a]
    for j in range(carried.size):
        beta[carried[j]] = other[carried[j]]
    for a in range(q):
        log_sd[a] = other_sd[a]
    for a in range(partial.size):
        partial[a] = other_partial[a]
    return MapMoved(True, read)

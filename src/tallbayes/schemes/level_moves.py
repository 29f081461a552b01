"""Levels with one effect each, given the coefficients; and moves of standard deviation or carried coefficients that take the levels along.

A level's surrogate is h eps - (D - K.delta) eps^2/2 + T eps^3/6 with h = g - C'delta, its prior N(B beta_J, tau^2). In most sweeps
levels with a small cubic term are proposed from the Gaussian fit, nearly always accepted. All others are proposed from a t law with 5
degrees of freedom, so that tails and skewed levels are left again. Where the cubic term is large or the rate reaches the number of
rows, the level is read in full and there is one test on the exact ratio. All of this is symmetric in the two ends.

The map c' = mu'_g + sqrt(p_g / p'_g) (c - mu_g), mu_g and p_g mean and precision of the fit at (beta_J, tau), keeps every level where
its conditional law has it; its Jacobian is the product of sqrt(p_g / p'_g). There is one test on surrogate and residuals together: summed
over many levels both have a trend in the standard deviation, opposite to each other, and two tests would reject for either.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import effect_factors
from tallbayes.compile import declared, generic, inlinable
from tallbayes.engine.grouped_rows import row_of
from tallbayes.engine.indexed_rows import prefetch_row
from tallbayes.priors import prior_value
from tallbayes.scale_priors import scale_log_density
from tallbayes.schemes.level_rows import (
    accepts,
    count_pairs,
    draw_count,
    draw_events,
    draw_position,
    effect_gap,
    find_level,
    kept_ratio,
    level_rate,
    waiting_time,
)
from tallbayes.target import Target

DEGREES, SPREAD = 5.0, 1.1  # of the t proposal
LIGHT = 0.75  # share of sweeps in which levels that are hardly skewed are proposed from their Gaussian fit
SYMMETRIC = 0.15  # |T| p^(-3/2) up to which they are
SKEWED = 0.4  # and from which a level is read in full
MAP_INFLATION = 64.0  # most by which rates of map moves are inflated
SAFE = 0.3  # share of D that D - K.delta must keep to be used in a proposal


class LevelsMoved(NamedTuple):
    """What a sweep over the levels did."""

    accepted: int
    rows: int
    full: int


class MapMoved(NamedTuple):
    """What a map move did."""

    accepted: bool
    rows: int


class OneEffect(NamedTuple):
    """Marks levels with one effect each."""


class RestOfLevels(NamedTuple):
    """What is held fixed while levels move: delta over all columns, its whitened length, and the surrogates of the levels."""

    shift: np.ndarray
    radius: float
    slope: np.ndarray
    curvature: np.ndarray
    inflation: float = 1.0  # of the rates of map moves
    correction: float = 0.0  # log ratio of the densities of the proposals of a map move


def map_budget(levels: int) -> float:
    """Rows that map moves of a sweep may read, little beside what a sweep costs: their noise falls with the rate."""
    return 20.0 + 0.02 * levels


@generic
@declared
def level_surrogates(form: Any, surrogate: Any, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope h and curvature D - K.delta of the surrogate of every level at eps = 0."""
    raise TypeError


@generic
@declared
def start_levels(form: Any, rng: Any, tables: Any, beta: Any, log_sd: Any, partial: Any, slope: Any, curvature: Any) -> Any:
    """Levels drawn from their Gaussian fits, to start from."""
    raise TypeError


@generic
@declared
def move_levels(
    form: Any, rng: Any, target: Any, beta: Any, log_sd: Any, partial: Any, levels: Any, given: RestOfLevels
) -> LevelsMoved:
    """One move of every level, made in `levels`."""
    raise TypeError


@generic
@declared
def map_move(
    form: Any,
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
    """Move to the carried coefficients of `other` and to another covariance, the levels by the map; made in place."""
    raise TypeError


@generic
@declared
def level_factors(form: Any, shares: Any, stretch: Any, g: int, radius: float, before: Any, after: Any) -> Any:
    """Factors of the products for a move of the effects of level g."""
    raise TypeError


@level_factors.register(OneEffect)
def _level_factors(form: OneEffect, shares: Any, stretch: Any, g: int, radius: float, before: Any, after: Any) -> Any:
    most = shares.most
    return effect_factors(shares.exponential, shares.ratio, radius, before[0], after[0], most[g, 0], most[g, 1])


@inlinable
def whitened_radius(inverse: np.ndarray, delta: np.ndarray) -> float:
    """Length of delta in whitened coordinates."""
    square = 0.0
    for k in range(delta.size):
        total = 0.0
        for j in range(k + 1):
            total += inverse[k, j] * delta[j]
        square += total * total
    return math.sqrt(square)


@inlinable
def prior_mean(carriers: np.ndarray, carried: np.ndarray, beta: np.ndarray, g: int, a: int) -> float:
    """Element a of B_g beta_J."""
    total = 0.0
    for k in range(carried.size):
        total += carriers[g, a, k] * beta[carried[k]]
    return total


@level_surrogates.register(OneEffect)
def _level_surrogates(form: OneEffect, surrogate: Any, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    f, count = delta.size, surrogate.centres.shape[0]
    slope, curvature = np.empty(count), np.empty(count)
    slopes, curvatures = surrogate.slopes, surrogate.curvatures
    crossed, third = surrogate.crossed.reshape((count, f)), surrogate.crossed_third.reshape((count, f))
    for g in range(count):
        h, k = 0.0, 0.0
        for j in range(f):
            h += crossed[g, j] * delta[j]
            k += third[g, j] * delta[j]
        slope[g] = slopes[g, 0] - h
        curvature[g] = curvatures[g, 0, 0] - k
    return slope, curvature


@inlinable
def fit_precision(curvature: float, at_reference: Any, prior: float) -> float:
    """Precision of the Gaussian fit: a curvature that is safely positive, and that of the prior."""
    return max(curvature, SAFE * abs(at_reference)) + prior


@start_levels.register(OneEffect)
def _start_levels(
    form: OneEffect, rng: Any, tables: Any, beta: Any, log_sd: Any, partial: Any, slope: Any, curvature: Any
) -> Any:
    surrogate, carriers = tables.surrogate, tables.prior.carriers
    levels, precision = np.empty((slope.size, 1)), math.exp(-2.0 * log_sd[0])
    for g in range(slope.size):
        p = fit_precision(curvature[g], surrogate.curvatures[g, 0, 0], precision)
        offset = surrogate.centres[g, 0] - prior_mean(carriers, surrogate.carried, beta, g, 0)
        middle = (slope[g] - offset * precision) / p
        levels[g, 0] = surrogate.centres[g, 0] + middle + rng.standard_normal() / math.sqrt(p)
    return levels


@inlinable
def _surrogate_gap(slope: float, curvature: float, third: np.ndarray, before: float, after: float) -> np.ndarray:
    gap = slope * (after - before) - 0.5 * curvature * (after - before) * (after + before)
    return gap + third * (after * after * after - before * before * before) / 6.0


@inlinable
def _fit_gap(excess: float, third: np.ndarray, before: float, after: float) -> np.ndarray:
    """Change of the log density of surrogate and prior over that of the Gaussian fit, whose precision is larger by `excess`."""
    return 0.5 * excess * (after - before) * (after + before) + third * (after * after * after - before * before * before) / 6.0


@inlinable
def heavy_tails(rng: np.random.Generator) -> bool:
    """Whether this sweep proposes all levels from a t law, and not only the skewed ones."""
    return not rng.random() < LIGHT


@inlinable
def _log_t_ratio(first: float, second: float, precision: float) -> float:
    """Log density of the proposal at one distance from its mean less that at another."""
    unit = precision / (DEGREES * SPREAD * SPREAD)
    return 0.5 * (DEGREES + 1.0) * math.log((1.0 + second * second * unit) / (1.0 + first * first * unit))


@inlinable
def chi_square(rng: np.random.Generator) -> float:
    """A chi-square number with 5 degrees of freedom: two exponential numbers and the square of a normal one."""
    z = rng.standard_normal()
    return z * z - 2.0 * math.log((1.0 - rng.random()) * (1.0 - rng.random()))


@move_levels.register(OneEffect)
def _move_levels(
    form: OneEffect, rng: Any, target: Any, beta: Any, log_sd: Any, partial: Any, levels: Any, given: RestOfLevels
) -> LevelsMoved:
    rows, surrogate, shares, counters = target.rows, target.proxy.surrogate, target.proxy.shares, target.counters
    carriers, carried, records, offsets = target.proxy.prior.carriers, surrogate.carried, rows.records, rows.offsets
    centres, curvatures, thirds, reference = surrogate.centres, surrogate.curvatures, surrogate.thirds, surrogate.reference
    slope, curvature, shift, radius = given.slope, given.curvature, given.shift, given.radius
    exponential, bound_ratio, most, sums = shares.exponential, shares.ratio, shares.most, shares.sums
    precision = math.exp(-2.0 * log_sd[0])
    accepted, read, full = 0, 0, 0
    before, after = np.empty(1), np.empty(1)
    heavy, left = heavy_tails(rng), waiting_time(rng)
    for g in range(slope.size):
        centre, third, bend = centres[g, 0], thirds[g, 0, 0, 0], curvature[g]
        offset = centre - prior_mean(carriers, carried, beta, g, 0)
        p = fit_precision(bend, curvatures[g, 0, 0], precision)
        root = math.sqrt(p)
        middle, skewness = (slope[g] - offset * precision) / p, abs(third) / (p * root)
        start, noise, excess = levels[g, 0] - centre, rng.standard_normal() / root, p - bend - precision
        if heavy or skewness > SYMMETRIC or excess > 1e-9 * p:
            end = middle + SPREAD * noise * math.sqrt(DEGREES / chi_square(rng))
            ratio = _surrogate_gap(slope[g], bend, third, start, end)
            ratio -= 0.5 * precision * (end - start) * (end + start + 2.0 * offset)
            ratio += _log_t_ratio(start - middle, end - middle, p)
        else:
            end = middle + noise
            ratio = _fit_gap(excess, third, start, end)
        first = offsets[g]
        size = offsets[g + 1] - first
        factors = effect_factors(exponential, bound_ratio, radius, start, end, most[g, 0], most[g, 1])
        rate = level_rate(sums, g, factors)
        if skewness > SKEWED or not rate < size:
            before[0], after[0] = start, end
            for position in range(first, first + size):
                ratio += effect_gap(rows, records[row_of(rows, position)], reference, centres[g], shift, before, after)
            read += size
            full += 1
        else:
            if not accepts(rng, ratio):
                continue
            ratio = 0.0
            candidates, left = draw_events(rng, left, rate)
            if candidates > 0:
                before[0], after[0] = start, end
            for _ in range(candidates):
                position, bound = draw_position(rng, shares, g, first, size, factors)
                i = row_of(rows, position)
                gap = effect_gap(rows, records[i], reference, centres[g], shift, before, after)
                ratio += kept_ratio(rng, counters, i, shares.loads[position], gap, bound)
            read += candidates
        if accepts(rng, ratio):
            levels[g, 0] = centre + end
            accepted += 1
    count_pairs(counters, read)
    return LevelsMoved(accepted, read, full)


@map_move.register(OneEffect)
def _map_move(
    form: OneEffect,
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
    centres, curvatures, thirds = surrogate.centres, surrogate.curvatures, surrogate.thirds
    slope, curvature, most, sums = given.slope, given.curvature, shares.most, shares.sums
    exponential, bound_ratio, radius = shares.exponential, shares.ratio, given.radius
    count, stretch = slope.size, other_sd[0] - log_sd[0]
    here, there = math.exp(-2.0 * log_sd[0]), math.exp(-2.0 * other_sd[0])
    ratio = given.correction + prior_value(target.prior, other) - prior_value(target.prior, beta) + (1 - count) * stretch
    ratio += scale_log_density(prior.scales[0], math.exp(other_sd[0])) - scale_log_density(prior.scales[0], math.exp(log_sd[0]))
    ends, cumulative, total, whole, jacobian = np.empty((count, 1)), np.empty(count), 0.0, 0, 1.0
    for g in range(count):
        centre = centres[g, 0]
        first, second = prior_mean(carriers, carried, beta, g, 0), prior_mean(carriers, carried, other, g, 0)
        p = fit_precision(curvature[g], curvatures[g, 0, 0], here)
        p_other = fit_precision(curvature[g], curvatures[g, 0, 0], there)
        both = 1.0 / (p * p_other)
        change = p * p * both
        start = levels[g, 0] - centre
        middle = (slope[g] - (centre - first) * here) * p_other * both
        end = (slope[g] - (centre - second) * there) * p * both + math.sqrt(change) * (start - middle)
        ends[g, 0] = end
        jacobian *= change
        if not 1e-100 < jacobian < 1e100:
            ratio += 0.5 * math.log(jacobian)
            jacobian = 1.0
        ratio += _surrogate_gap(slope[g], curvature[g], thirds[g, 0, 0, 0], start, end)
        ratio -= 0.5 * (there * (centre + end - second) ** 2 - here * (centre + start - first) ** 2)
        factors = effect_factors(exponential, bound_ratio, radius, start, end, most[g, 0], most[g, 1])
        rate = level_rate(sums, g, factors)
        if rate < offsets[g + 1] - offsets[g]:
            total += rate
        else:
            whole += 1
        cumulative[g] = total
    ratio += 0.5 * math.log(jacobian)
    residuals, read = map_residuals(form, rng, target, given, levels, ends, cumulative, whole)
    count_pairs(target.counters, read)
    if not accepts(rng, ratio + residuals):
        return MapMoved(False, read)
    for g in range(count):
        levels[g, 0] = centres[g, 0] + ends[g, 0]
    for k in range(carried.size):
        beta[carried[k]] = other[carried[k]]
    log_sd[0] = other_sd[0]
    return MapMoved(True, read)


@inlinable
def map_residuals(
    form: OneEffect,
    rng: np.random.Generator,
    target: Target,
    given: RestOfLevels,
    levels: np.ndarray,
    ends: np.ndarray,
    cumulative: np.ndarray,
    whole: int,
) -> tuple[float, Any]:
    """Log ratio of the residuals of all levels: `whole` ones, whose rate reaches their rows, in full, others from a Poisson number."""
    rows, surrogate, shares = target.rows, target.proxy.surrogate, target.proxy.shares
    centres, reference, records, offsets = surrogate.centres, surrogate.reference, rows.records, rows.offsets
    shift, radius, inflation = given.shift, given.radius, given.inflation
    ratio, read, previous, total = 0.0, 0, 0.0, cumulative[-1]
    for g in range(ends.shape[0] if whole > 0 else 0):
        first, size = offsets[g], offsets[g + 1] - offsets[g]
        if cumulative[g] == previous and size > 0:
            before, after = levels[g] - centres[g], ends[g]
            factors = level_factors(form, shares, surrogate.stretch, g, radius, before, after)
            if not level_rate(shares.sums, g, factors) < size:
                for position in range(first, first + size):
                    ratio += effect_gap(rows, records[row_of(rows, position)], reference, centres[g], shift, before, after)
                read += size
        previous = cumulative[g]
    candidates = draw_count(rng, inflation * total) if total > 0.0 else 0
    owner, drawn, bounds = np.empty(candidates, np.int64), np.empty(candidates, np.int64), np.empty(candidates)
    for c in range(candidates):
        g = find_level(cumulative, rng.random() * total)
        factors = level_factors(form, shares, surrogate.stretch, g, radius, levels[g] - centres[g], ends[g])
        owner[c] = g
        drawn[c], bounds[c] = draw_position(rng, shares, g, offsets[g], offsets[g + 1] - offsets[g], factors)
        prefetch_row(records, row_of(rows, drawn[c]))
    for c in range(candidates):
        g, i = owner[c], row_of(rows, drawn[c])
        gap = effect_gap(rows, records[i], reference, centres[g], shift, levels[g] - centres[g], ends[g])
        ratio += kept_ratio(rng, target.counters, i, shares.loads[drawn[c]], gap, inflation * bounds[c])
    return ratio, read + candidates

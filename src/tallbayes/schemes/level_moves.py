"""Levels with one effect each, given the coefficients; and moves of standard deviation or carried coefficients that take the levels along.

A level's surrogate is h eps - (D - K.delta) eps^2/2 + T eps^3/6 with h = g - C'delta, its prior N(B beta_J, tau^2). Proposals are t with 5 degrees of
freedom about the Gaussian fit, so that skewed levels are left again; where the cubic term is large or the rate reaches the number
of rows, the level is read in full and there is one test on the exact ratio. That choice is symmetric in the two ends.

The map c' = mu'_g + sqrt(p_g / p'_g) (c - mu_g), mu_g and p_g mean and precision of the fit at (beta_J, tau), keeps every level where its
conditional law has it; its Jacobian is the product of sqrt(p_g / p'_g).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import effect_factors
from tallbayes.compile import declared, generic, inlinable
from tallbayes.moves.linear import dot
from tallbayes.priors import prior_value
from tallbayes.scale_priors import scale_log_density
from tallbayes.schemes.level_rows import count_pairs, draw_position, effect_gap, find_level, kept_ratio, level_rate

DEGREES, SPREAD = 5.0, 1.1  # of the t proposal
SKEWED = 0.4  # |T| p^(-3/2) from which a level is read in full
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


@generic
@declared
def level_surrogates(form: Any, tables: Any, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    form: Any,
    rng: Any,
    target: Any,
    tables: Any,
    beta: Any,
    shift: Any,
    radius: Any,
    log_sd: Any,
    partial: Any,
    levels: Any,
    slope: Any,
    curvature: Any,
) -> LevelsMoved:
    """One move of every level, made in `levels`; `shift` is delta over all columns and `radius` its length in whitened coordinates."""
    raise TypeError


@generic
@declared
def map_move(
    form: Any,
    rng: Any,
    target: Any,
    tables: Any,
    beta: Any,
    shift: Any,
    radius: Any,
    log_sd: Any,
    partial: Any,
    levels: Any,
    slope: Any,
    curvature: Any,
    other: Any,
    other_sd: Any,
    other_partial: Any,
) -> MapMoved:
    """Move to the carried coefficients of `other` and to another covariance, the levels by the map; made in place."""
    raise TypeError


@level_surrogates.register(OneEffect)
def _level_surrogates(form, tables, delta):
    f, count = delta.size, tables.centres.shape[0]
    slope, curvature = np.empty(count), np.empty(count)
    for g in range(count):
        h, k = 0.0, 0.0
        for j in range(f):
            h += tables.crossed[g, j, 0] * delta[j]
            k += tables.crossed_third[g, j, 0, 0] * delta[j]
        slope[g] = tables.slopes[g, 0] - h
        curvature[g] = tables.curvatures[g, 0, 0] - k
    return slope, curvature


@start_levels.register(OneEffect)
def _start_levels(form, rng, tables, beta, log_sd, partial, slope, curvature):
    levels, precision = np.empty((slope.size, 1)), math.exp(-2.0 * log_sd[0])
    for g in range(slope.size):
        p = fit_curvature(tables, curvature, g) + precision
        middle = (slope[g] - (tables.centres[g, 0] - prior_mean(tables, beta, g)) * precision) / p
        levels[g, 0] = tables.centres[g, 0] + middle + rng.standard_normal() / math.sqrt(p)
    return levels


@inlinable
def fit_curvature(tables, curvature, g):
    """A curvature that is safely positive, for proposals."""
    return max(curvature[g], SAFE * abs(tables.curvatures[g, 0, 0]))


@inlinable
def prior_mean(tables, beta, g):
    """B_g beta_J."""
    total = 0.0
    for k in range(tables.carried.size):
        total += tables.carriers[g, 0, k] * beta[tables.carried[k]]
    return total


@inlinable
def _surrogate_gap(tables, slope, curvature, g, before, after):
    gap = slope[g] * (after - before) - 0.5 * curvature[g] * (after - before) * (after + before)
    return gap + tables.thirds[g, 0, 0, 0] * (after * after * after - before * before * before) / 6.0


@inlinable
def _log_t(distance, precision):
    """Log density of the proposal at a distance from its mean."""
    return -0.5 * (DEGREES + 1.0) * math.log1p(distance * distance * precision / (DEGREES * SPREAD * SPREAD))


@move_levels.register(OneEffect)
def _move_levels(form, rng, target, tables, beta, shift, radius, log_sd, partial, levels, slope, curvature):
    tau = math.exp(log_sd[0])
    precision = 1.0 / (tau * tau)
    accepted, rows, full = 0, 0, 0
    factors, before, after = np.empty(4), np.empty(1), np.empty(1)
    for g in range(slope.size):
        centre, mean = tables.centres[g, 0], prior_mean(tables, beta, g)
        p = fit_curvature(tables, curvature, g) + precision
        middle = (slope[g] - (centre - mean) * precision) / p
        chi = rng.standard_gamma(0.5 * DEGREES) * 2.0
        end = middle + SPREAD * rng.standard_normal() * math.sqrt(DEGREES / (chi * p))
        start = levels[g, 0] - centre
        ratio = _surrogate_gap(tables, slope, curvature, g, start, end)
        ratio -= 0.5 * precision * (end - start) * (end + start + 2.0 * (centre - mean))
        ratio += _log_t(start - middle, p) - _log_t(end - middle, p)
        first = tables.rows.offsets[g]
        size = tables.rows.offsets[g + 1] - first
        effect_factors(tables.exponential, tables.ratio, radius, start, end, tables.most[g], factors)
        rate = level_rate(tables, g, factors)
        before[0], after[0] = start, end
        if abs(tables.thirds[g, 0, 0, 0]) > SKEWED * p * math.sqrt(p) or not rate < size:
            for position in range(first, first + size):
                ratio += effect_gap(tables, g, position, shift, before, after)
            rows += size
            full += 1
        else:
            if not math.log(1.0 - rng.random()) < ratio:
                continue
            ratio = 0.0
            candidates = rng.poisson(rate)
            for _ in range(candidates):
                position, bound = draw_position(rng, tables, g, factors, rate)
                gap = effect_gap(tables, g, position, shift, before, after)
                ratio += kept_ratio(rng, target, tables, position, gap, bound)
            rows += candidates
        if math.log(1.0 - rng.random()) < ratio:
            levels[g, 0] = centre + end
            accepted += 1
    count_pairs(target, rows)
    return LevelsMoved(accepted, rows, full)


@map_move.register(OneEffect)
def _map_move(
    form,
    rng,
    target,
    tables,
    beta,
    shift,
    radius,
    log_sd,
    partial,
    levels,
    slope,
    curvature,
    other,
    other_sd,
    other_partial,
):
    count = slope.size
    first, second = math.exp(-2.0 * log_sd[0]), math.exp(-2.0 * other_sd[0])
    stretch = other_sd[0] - log_sd[0]
    ratio = prior_value(target.prior.coefficients, other) - prior_value(target.prior.coefficients, beta) + stretch
    ratio += scale_log_density(tables.scales[0], math.exp(other_sd[0])) - scale_log_density(tables.scales[0], math.exp(log_sd[0]))
    ends, cumulative, factors = np.empty(count), np.empty(count), np.empty(4)
    total = 0.0
    for g in range(count):
        centre, own = tables.centres[g, 0], fit_curvature(tables, curvature, g)
        mean, moved = prior_mean(tables, beta, g), prior_mean(tables, other, g)
        p, p_other = own + first, own + second
        start = levels[g, 0] - centre
        middle = (slope[g] - (centre - mean) * first) / p
        middle_other = (slope[g] - (centre - moved) * second) / p_other
        end = middle_other + math.sqrt(p / p_other) * (start - middle)
        ends[g] = end
        ratio += 0.5 * math.log(p / p_other) - stretch + _surrogate_gap(tables, slope, curvature, g, start, end)
        ratio -= 0.5 * (second * (centre + end - moved) ** 2 - first * (centre + start - mean) ** 2)
        effect_factors(tables.exponential, tables.ratio, radius, start, end, tables.most[g], factors)
        rate = level_rate(tables, g, factors)
        total += rate if rate < tables.rows.offsets[g + 1] - tables.rows.offsets[g] else 0.0
        cumulative[g] = total
    if not math.log(1.0 - rng.random()) < ratio:
        return MapMoved(False, 0)
    ratio, rows = _map_residuals(rng, target, tables, shift, radius, levels, ends, cumulative)
    if not math.log(1.0 - rng.random()) < ratio:
        return MapMoved(False, rows)
    for g in range(count):
        levels[g, 0] = tables.centres[g, 0] + ends[g]
    for k in range(tables.carried.size):
        beta[tables.carried[k]] = other[tables.carried[k]]
    log_sd[0] = other_sd[0]
    return MapMoved(True, rows)


@inlinable
def _map_residuals(rng, target, tables, shift, radius, levels, ends, cumulative):
    """Log ratio of the residuals of all levels: those whose rate reaches their rows in full, the others from a Poisson number of rows."""
    ratio, rows, total = 0.0, 0, cumulative[-1]
    factors, before, after = np.empty(4), np.empty(1), np.empty(1)
    previous = 0.0
    for g in range(ends.size):
        first, stop = tables.rows.offsets[g], tables.rows.offsets[g + 1]
        if cumulative[g] == previous and stop > first:
            before[0], after[0] = levels[g, 0] - tables.centres[g, 0], ends[g]
            effect_factors(tables.exponential, tables.ratio, radius, before[0], after[0], tables.most[g], factors)
            if not level_rate(tables, g, factors) < stop - first:
                for position in range(first, stop):
                    ratio += effect_gap(tables, g, position, shift, before, after)
                rows += stop - first
        previous = cumulative[g]
    candidates = rng.poisson(total) if total > 0.0 else 0
    for _ in range(candidates):
        g = find_level(cumulative, rng.random() * total)
        before[0], after[0] = levels[g, 0] - tables.centres[g, 0], ends[g]
        effect_factors(tables.exponential, tables.ratio, radius, before[0], after[0], tables.most[g], factors)
        position, bound = draw_position(rng, tables, g, factors, level_rate(tables, g, factors))
        gap = effect_gap(tables, g, position, shift, before, after)
        ratio += kept_ratio(rng, target, tables, position, gap, bound)
    count_pairs(target, rows + candidates)
    return ratio, rows + candidates


@inlinable
def whitened_radius(tables, delta):
    """Length of delta in whitened coordinates."""
    square = 0.0
    for k in range(delta.size):
        total = dot(tables.inverse[k, : k + 1], delta[: k + 1])
        square += total * total
    return math.sqrt(square)

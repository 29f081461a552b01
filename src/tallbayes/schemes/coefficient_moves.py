"""Coefficients of a hierarchical model given the levels: the free ones by two-stage exact minibatch, the carried ones without rows.

Free: surrogate log density lin . delta - delta' A delta / 2 + log prior, lin = g - sum_g C_g eps_g + sum_g K_g[eps_g, eps_g] / 2;
proposals from its Gaussian fit, from pCN about the same mean, or a random walk. Carried: c_g ~ N(B_g beta_J, Sigma) and the prior
say all there is to know.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import coefficient_factors
from tallbayes.compile import inlinable
from tallbayes.engine.grouped_rows import row_of
from tallbayes.engine.indexed_rows import prefetch_row
from tallbayes.moves.linear import dot, inverse_factor, lower_times, normal_vector, symmetric_times, upper_times
from tallbayes.priors import PriorTerms, prior_value
from tallbayes.schemes.level_rows import (
    accepts,
    coefficient_gap,
    count_pairs,
    draw_count,
    draw_position,
    find_level,
    kept_ratio,
    level_rate,
)
from tallbayes.target import Target

INDEPENDENT, AUTOREGRESSIVE, WALK = 0, 1, 2
MEMORY = 0.7  # of the autoregressive proposal


class CoefficientMove(NamedTuple):
    """Shares of the kinds of proposals, the step of the random walk, and the factor by which rates are inflated."""

    independent: float
    autoregressive: float
    step: float
    inflation: float


class Moved(NamedTuple):
    """What a move of the free coefficients did."""

    accepted: bool
    component: int
    rows: int


@inlinable
def free_shift(surrogate: Any, beta: np.ndarray, out: np.ndarray) -> None:
    """delta of the free columns, in the order of `free`."""
    for k in range(out.size):
        j = surrogate.free[k]
        out[k] = beta[j] - surrogate.reference[j]


@inlinable
def widened(surrogate: Any, delta: np.ndarray, out: np.ndarray) -> None:
    """delta as a vector over all columns: -m . delta for the column of ones, 0 for other carried ones."""
    free, means, constant, total = surrogate.free, surrogate.means, surrogate.constant, 0.0
    for j in range(out.size):
        out[j] = 0.0
    for k in range(delta.size):
        out[free[k]] = delta[k]
        total += means[free[k]] * delta[k]
    if constant >= 0:
        out[constant] = -total


@inlinable
def effect_sizes(centres: np.ndarray, stretch: np.ndarray, levels: np.ndarray, out: np.ndarray) -> None:
    """|nu| of every level."""
    q = levels.shape[1]
    for g in range(levels.shape[0]):
        if q == 1:
            out[g] = abs(levels[g, 0] - centres[g, 0])
            continue
        square = 0.0
        for b in range(q):
            total = 0.0
            for a in range(b, q):
                total += stretch[g, a, b] * (levels[g, a] - centres[g, a])
            square += total * total
        out[g] = math.sqrt(square)


@inlinable
def linear_term(surrogate: Any, levels: np.ndarray, out: np.ndarray) -> None:
    """Slope of the surrogate in delta at 0, given the levels."""
    q, f = levels.shape[1], out.size
    centres, crossed, third = surrogate.centres, surrogate.crossed, surrogate.crossed_third
    for k in range(f):
        out[k] = surrogate.gradient[k]
    if q == 1:
        flat, flat_third = crossed.reshape((levels.shape[0], f)), third.reshape((levels.shape[0], f))
        for g in range(levels.shape[0]):
            first = levels[g, 0] - centres[g, 0]
            for k in range(f):
                out[k] -= first * (flat[g, k] - 0.5 * first * flat_third[g, k])
        return
    for g in range(levels.shape[0]):
        for a in range(q):
            first = levels[g, a] - centres[g, a]
            for k in range(f):
                out[k] -= first * crossed[g, k, a]
            for b in range(q):
                half = 0.5 * first * (levels[g, b] - centres[g, b])
                for k in range(f):
                    out[k] += half * third[g, k, a, b]


@inlinable
def _surrogate_value(information: np.ndarray, linear: np.ndarray, delta: np.ndarray, scratch: np.ndarray) -> float:
    symmetric_times(information, delta, scratch)
    return dot(linear, delta) - 0.5 * dot(delta, scratch)


@inlinable
def _proposal_mean(surrogate: Any, prior: Any, linear: np.ndarray, beta: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """Mean of the Gaussian fit: its slope at delta = 0 times its covariance."""
    f = linear.size
    at, slope = surrogate.reference.copy(), linear.copy()
    for m in range(surrogate.carried.size):
        at[surrogate.carried[m]] = beta[surrogate.carried[m]]
    for k in range(f):
        for i in range(beta.size):
            slope[k] -= prior.precision[surrogate.free[k], i] * (at[i] - prior.location[i])
    upper_times(surrogate.factor, slope, scratch)
    mean = np.empty(f)
    lower_times(surrogate.factor, scratch, mean)
    return mean


@inlinable
def _fit_value(inverse: np.ndarray, delta: np.ndarray, mean: np.ndarray, scratch: np.ndarray) -> float:
    """Log density of the Gaussian fit."""
    lower_times(inverse, delta - mean, scratch)
    return -0.5 * dot(scratch, scratch)


class Proposed(NamedTuple):
    """A proposal of the free coefficients: delta at both ends, all coefficients there, the log ratio of stage one, and its kind."""

    delta: np.ndarray
    other: np.ndarray
    moved: np.ndarray
    ratio: float
    component: int


@inlinable
def propose_coefficients(
    rng: np.random.Generator,
    surrogate: Any,
    prior: Any,
    terms: PriorTerms,
    kernel: CoefficientMove,
    beta: np.ndarray,
    linear: np.ndarray,
) -> Proposed:
    """A proposal given `linear`, the slope of the surrogate in delta at 0; `terms` is the prior, `prior` its Gaussian part."""
    f = surrogate.free.size
    scratch, delta = np.empty(f), np.empty(f)
    free_shift(surrogate, beta, delta)
    u = rng.random()
    noise, other = normal_vector(rng, f), np.empty(f)
    lower_times(surrogate.factor, noise, other)
    ratio, component = 0.0, WALK
    if u < kernel.independent + kernel.autoregressive:
        component = INDEPENDENT if u < kernel.independent else AUTOREGRESSIVE
        memory = 0.0 if u < kernel.independent else MEMORY
        fresh = math.sqrt(1.0 - memory * memory)
        mean = _proposal_mean(surrogate, prior, linear, beta, scratch)
        for k in range(f):
            other[k] = mean[k] + memory * (delta[k] - mean[k]) + fresh * other[k]
        ratio += _fit_value(surrogate.inverse, delta, mean, scratch) - _fit_value(surrogate.inverse, other, mean, scratch)
    else:
        for k in range(f):
            other[k] = delta[k] + kernel.step * other[k]
    moved = beta.copy()
    for k in range(f):
        moved[surrogate.free[k]] = surrogate.reference[surrogate.free[k]] + other[k]
    ratio += _surrogate_value(surrogate.information, linear, other, scratch)
    ratio -= _surrogate_value(surrogate.information, linear, delta, scratch)
    ratio += prior_value(terms, moved) - prior_value(terms, beta)
    return Proposed(delta, other, moved, ratio, component)


@inlinable
def move_coefficients(
    rng: np.random.Generator, target: Target, kernel: CoefficientMove, beta: np.ndarray, levels: np.ndarray
) -> Moved:
    """One move of the free coefficients, made in `beta`."""
    surrogate = target.proxy.surrogate
    linear = np.empty(surrogate.free.size)
    linear_term(surrogate, levels, linear)
    proposed = propose_coefficients(rng, surrogate, target.proxy.prior, target.prior, kernel, beta, linear)
    if not accepts(rng, proposed.ratio):
        return Moved(False, proposed.component, 0)
    residuals, rows = coefficient_residuals(rng, target, kernel.inflation, proposed.delta, proposed.other, levels)
    count_pairs(target.counters, rows)
    if not accepts(rng, residuals):
        return Moved(False, proposed.component, rows)
    for j in range(beta.size):
        beta[j] = proposed.moved[j]
    return Moved(True, proposed.component, rows)


@inlinable
def coefficient_residuals(
    rng: np.random.Generator, target: Target, inflation: float, delta: np.ndarray, other: np.ndarray, levels: np.ndarray
) -> tuple[float, Any]:
    """Log ratio of the second stage, from a Poisson number of rows or from all of them, and how many were read."""
    rows, surrogate, shares = target.rows, target.proxy.surrogate, target.proxy.shares
    reference, centres, records = surrogate.reference, surrogate.centres, rows.records
    f, count, n = delta.size, levels.shape[0], shares.norms.size
    first, second = np.empty(f), np.empty(f)
    lower_times(surrogate.inverse, delta, first)
    lower_times(surrogate.inverse, other, second)
    gap = 0.0
    for k in range(f):
        gap += (second[k] - first[k]) ** 2
    here, there = dot(first, first), dot(second, second)
    square = max((here + dot(first, second) + there) / 3.0, 0.0)
    distance, radius = math.sqrt(gap), math.sqrt(max(here, there))
    sizes, cumulative, total = np.empty(count), np.empty(count), 0.0
    effect_sizes(centres, surrogate.stretch, levels, sizes)
    exponential, ratio, most, sums = shares.exponential, shares.ratio, shares.most, shares.sums
    for g in range(count):
        factors = coefficient_factors(exponential, ratio, distance, square, radius, sizes[g], most[g, 0], most[g, 1])
        total += level_rate(sums, g, factors)
        cumulative[g] = total
    before, after = np.empty(reference.size), np.empty(reference.size)
    widened(surrogate, delta, before)
    widened(surrogate, other, after)
    log_ratio = 0.0
    if not inflation * total < n:
        for g in range(count):
            effect = levels[g] - centres[g]
            for position in range(rows.offsets[g], rows.offsets[g + 1]):
                log_ratio += coefficient_gap(
                    rows, records[row_of(rows, position)], reference, centres[g], before, after, effect
                )
        return log_ratio, n
    candidates = draw_count(rng, inflation * total) if total > 0.0 else 0
    owner, drawn, bounds = np.empty(candidates, np.int64), np.empty(candidates, np.int64), np.empty(candidates)
    for c in range(candidates):
        g = find_level(cumulative, rng.random() * total)
        factors = coefficient_factors(exponential, ratio, distance, square, radius, sizes[g], most[g, 0], most[g, 1])
        owner[c] = g
        drawn[c], bounds[c] = draw_position(rng, shares, g, rows.offsets[g], rows.offsets[g + 1] - rows.offsets[g], factors)
        prefetch_row(records, row_of(rows, drawn[c]))
    for c in range(candidates):
        g, i = owner[c], row_of(rows, drawn[c])
        change = coefficient_gap(rows, records[i], reference, centres[g], before, after, levels[g] - centres[g])
        log_ratio += kept_ratio(rng, target.counters, i, shares.loads[drawn[c]], change, inflation * bounds[c])
    return log_ratio, candidates


@inlinable
def draw_carried(
    rng: np.random.Generator,
    carried: np.ndarray,
    free: np.ndarray,
    prior: Any,
    carriers: np.ndarray,
    carrier_products: np.ndarray,
    inverse: np.ndarray,
    beta: np.ndarray,
    levels: np.ndarray,
) -> bool:
    """Draw the carried coefficients given the levels, `inverse` = Sigma^-1; a prior that is not Gaussian decides on its ratio."""
    j, q = carried.size, levels.shape[1]
    if j == 0:
        return False
    precision, linear = np.zeros((j, j)), np.zeros(j)
    for k in range(j):
        for m in range(j):
            total = prior.precision[carried[k], carried[m]]
            for a in range(q):
                for b in range(q):
                    total += inverse[a, b] * carrier_products[a, b, k, m]
            precision[k, m] = total
    for g in range(levels.shape[0]):
        for a in range(q):
            total = 0.0
            for b in range(q):
                total += inverse[a, b] * levels[g, b]
            for k in range(j):
                linear[k] += carriers[g, a, k] * total
    for k in range(j):
        for i in range(beta.size):
            linear[k] += prior.precision[carried[k], i] * prior.location[i]
        for m in range(free.size):
            linear[k] -= prior.precision[carried[k], free[m]] * beta[free[m]]
    factor, scratch, drawn = inverse_factor(precision), np.empty(j), np.empty(j)
    upper_times(factor, linear, scratch)
    for k in range(j):
        scratch[k] += rng.standard_normal()
    lower_times(factor, scratch, drawn)
    moved = beta.copy()
    for k in range(j):
        moved[carried[k]] = drawn[k]
    if not prior.gaussian:
        ratio = prior_value(prior.others, moved) - prior_value(prior.others, beta)
        if not accepts(rng, ratio):
            return False
    for k in range(j):
        beta[carried[k]] = moved[carried[k]]
    return True

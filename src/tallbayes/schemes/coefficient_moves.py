"""Coefficients of a hierarchical model given the levels: the free ones by two-stage exact minibatch, the carried ones without rows.

Free: surrogate log density lin . delta - delta' A delta / 2 + log prior, lin = g - sum_g C_g eps_g + sum_g K_g[eps_g, eps_g] / 2; proposals from its Gaussian
fit, from pCN about the same mean, or a random walk. Carried: c_g ~ N(B_g beta_J, Sigma) and the prior say all there is to know.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import coefficient_factors
from tallbayes.compile import inlinable
from tallbayes.engine.grouped_rows import row_of
from tallbayes.engine.rows import prefetch_row
from tallbayes.moves.linear import dot, inverse_factor, lower_times, normal_vector, symmetric_times, upper_times
from tallbayes.priors import prior_value
from tallbayes.schemes.level_rows import coefficient_gap, count_pairs, draw_position, find_level, kept_ratio, level_rate

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
def free_shift(tables, beta, out):
    """delta of the free columns, in the order of `free`."""
    for k in range(out.size):
        j = tables.free[k]
        out[k] = beta[j] - tables.reference[j]


@inlinable
def widened(tables, delta, out):
    """delta as a vector over all columns, 0 for carried ones."""
    out[:] = 0.0
    for k in range(delta.size):
        out[tables.free[k]] = delta[k]


@inlinable
def effect_sizes(tables, levels, out):
    """|nu| of every level."""
    q = levels.shape[1]
    for g in range(levels.shape[0]):
        if q == 1:
            out[g] = abs(levels[g, 0] - tables.centres[g, 0])
            continue
        square = 0.0
        for b in range(q):
            total = 0.0
            for a in range(b, q):
                total += tables.stretch[g, a, b] * (levels[g, a] - tables.centres[g, a])
            square += total * total
        out[g] = math.sqrt(square)


@inlinable
def linear_term(tables, levels, out):
    """Slope of the surrogate in delta at 0, given the levels."""
    q, f = levels.shape[1], out.size
    for k in range(f):
        out[k] = tables.gradient[k]
    for g in range(levels.shape[0]):
        if q == 1:
            e = levels[g, 0] - tables.centres[g, 0]
            half = 0.5 * e * e
            for k in range(f):
                out[k] += half * tables.crossed_third[g, k, 0, 0] - e * tables.crossed[g, k, 0]
            continue
        for a in range(q):
            first = levels[g, a] - tables.centres[g, a]
            for k in range(f):
                total = -tables.crossed[g, k, a]
                for b in range(q):
                    total += 0.5 * tables.crossed_third[g, k, a, b] * (levels[g, b] - tables.centres[g, b])
                out[k] += total * first


@inlinable
def _surrogate(tables, linear, delta, scratch):
    symmetric_times(tables.information, delta, scratch)
    return dot(linear, delta) - 0.5 * dot(delta, scratch)


@inlinable
def _proposal_mean(tables, linear, beta, scratch):
    """Mean of the Gaussian fit: its slope at delta = 0 times its covariance."""
    d, f = beta.size, linear.size
    at, slope = tables.reference.copy(), linear.copy()
    for m in range(tables.carried.size):
        at[tables.carried[m]] = beta[tables.carried[m]]
    for k in range(f):
        for i in range(d):
            slope[k] -= tables.precision[tables.free[k], i] * (at[i] - tables.location[i])
    upper_times(tables.factor, slope, scratch)
    mean = np.empty(f)
    lower_times(tables.factor, scratch, mean)
    return mean


@inlinable
def _fit_value(tables, delta, mean, scratch):
    """Log density of the Gaussian fit."""
    lower_times(tables.inverse, delta - mean, scratch)
    return -0.5 * dot(scratch, scratch)


@inlinable
def move_coefficients(rng, target, tables, kernel, beta, levels, sizes):
    """One move of the free coefficients, made in `beta`; `sizes` are those of `effect_sizes`."""
    f, d = tables.free.size, beta.size
    linear, scratch, delta = np.empty(f), np.empty(f), np.empty(f)
    linear_term(tables, levels, linear)
    free_shift(tables, beta, delta)
    u = rng.random()
    noise, other = normal_vector(rng, f), np.empty(f)
    lower_times(tables.factor, noise, other)
    ratio = 0.0
    if u < kernel.independent + kernel.autoregressive:
        component = INDEPENDENT if u < kernel.independent else AUTOREGRESSIVE
        memory = 0.0 if u < kernel.independent else MEMORY
        fresh = math.sqrt(1.0 - memory * memory)
        mean = _proposal_mean(tables, linear, beta, scratch)
        for k in range(f):
            other[k] = mean[k] + memory * (delta[k] - mean[k]) + fresh * other[k]
        ratio += _fit_value(tables, delta, mean, scratch) - _fit_value(tables, other, mean, scratch)
    else:
        component = WALK
        for k in range(f):
            other[k] = delta[k] + kernel.step * other[k]
    moved = beta.copy()
    for k in range(f):
        moved[tables.free[k]] = tables.reference[tables.free[k]] + other[k]
    ratio += _surrogate(tables, linear, other, scratch) - _surrogate(tables, linear, delta, scratch)
    ratio += prior_value(target.prior.coefficients, moved) - prior_value(target.prior.coefficients, beta)
    if not math.log(1.0 - rng.random()) < ratio:
        return Moved(False, component, 0)
    residuals, rows = _residual_ratio(rng, target, tables, kernel.inflation, delta, other, levels, sizes, d)
    if not math.log(1.0 - rng.random()) < residuals:
        return Moved(False, component, rows)
    for j in range(d):
        beta[j] = moved[j]
    return Moved(True, component, rows)


@inlinable
def _residual_ratio(rng, target, tables, inflation, delta, other, levels, sizes, d):
    """Log ratio of the second stage, from a Poisson number of rows or from all of them, and how many were read."""
    f, count = delta.size, levels.shape[0]
    first, second = np.empty(f), np.empty(f)
    lower_times(tables.inverse, delta, first)
    lower_times(tables.inverse, other, second)
    gap = 0.0
    for k in range(f):
        gap += (second[k] - first[k]) ** 2
    ends = dot(first, first), dot(second, second)
    square = max((ends[0] + dot(first, second) + ends[1]) / 3.0, 0.0)
    distance, radius = math.sqrt(gap), math.sqrt(max(ends[0], ends[1]))
    factors, cumulative, total = np.empty(4), np.empty(count), 0.0
    for g in range(count):
        coefficient_factors(tables.exponential, tables.ratio, distance, square, radius, sizes[g], tables.most[g], factors)
        total += level_rate(tables, g, factors)
        cumulative[g] = total
    n = tables.norms.size
    before, after = np.empty(d), np.empty(d)
    widened(tables, delta, before)
    widened(tables, other, after)
    if not inflation * total < n:
        ratio = 0.0
        for g in range(count):
            effect = levels[g] - tables.centres[g]
            for position in range(tables.rows.offsets[g], tables.rows.offsets[g + 1]):
                ratio += coefficient_gap(tables, g, position, before, after, effect)
        count_pairs(target, n)
        return ratio, n
    if total <= 0.0:
        return 0.0, 0
    candidates = rng.poisson(inflation * total)
    owner, positions, bounds = np.empty(candidates, np.int64), np.empty(candidates, np.int64), np.empty(candidates)
    for c in range(candidates):
        g = find_level(cumulative, rng.random() * total)
        coefficient_factors(tables.exponential, tables.ratio, distance, square, radius, sizes[g], tables.most[g], factors)
        owner[c] = g
        positions[c], bounds[c] = draw_position(rng, tables, g, factors, level_rate(tables, g, factors))
        prefetch_row(tables.rows.records, row_of(tables.rows, positions[c]))
    ratio = 0.0
    for c in range(candidates):
        g = owner[c]
        change = coefficient_gap(tables, g, positions[c], before, after, levels[g] - tables.centres[g])
        ratio += kept_ratio(rng, target, tables, positions[c], change, inflation * bounds[c])
    count_pairs(target, candidates)
    return ratio, candidates


@inlinable
def draw_carried(rng, target, tables, inverse, beta, levels):
    """Draw the carried coefficients given the levels, `inverse` = Sigma^-1; a prior that is not Gaussian decides on its ratio."""
    j, q, d = tables.carried.size, levels.shape[1], beta.size
    if j == 0:
        return True
    precision, linear = np.zeros((j, j)), np.zeros(j)
    for k in range(j):
        for m in range(j):
            total = tables.precision[tables.carried[k], tables.carried[m]]
            for a in range(q):
                for b in range(q):
                    total += inverse[a, b] * tables.carrier_products[a, b, k, m]
            precision[k, m] = total
    for g in range(levels.shape[0]):
        for a in range(q):
            total = 0.0
            for b in range(q):
                total += inverse[a, b] * levels[g, b]
            for k in range(j):
                linear[k] += tables.carriers[g, a, k] * total
    for k in range(j):
        row = tables.carried[k]
        for i in range(d):
            linear[k] += tables.precision[row, i] * tables.location[i]
        for m in range(tables.free.size):
            i = tables.free[m]
            linear[k] -= tables.precision[row, i] * beta[i]
    factor, scratch, drawn = inverse_factor(precision), np.empty(j), np.empty(j)
    upper_times(factor, linear, scratch)
    for k in range(j):
        scratch[k] += rng.standard_normal()
    lower_times(factor, scratch, drawn)
    moved = beta.copy()
    for k in range(j):
        moved[tables.carried[k]] = drawn[k]
    if not tables.gaussian:
        ratio = prior_value(tables.others, moved) - prior_value(tables.others, beta)
        if not math.log(1.0 - rng.random()) < ratio:
            return False
    for k in range(j):
        beta[tables.carried[k]] = moved[tables.carried[k]]
    return True

"""Coefficients of a model with several factors given the levels, by two-stage exact minibatch; and moves that leave all linear
predictors as they are: coefficients against a factor that could carry them, and two factors against each other. These read no rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.bounds.crossed_rates import crossed_slope_factors, row_slope_bound
from tallbayes.compile import inlinable
from tallbayes.moves.linear import dot, inverse_factor, lower_times, upper_times
from tallbayes.priors import prior_value
from tallbayes.schemes.coefficient_moves import CoefficientMove, Moved, propose_coefficients, widened
from tallbayes.schemes.crossed_rows import CandidateRows, crossed_slope_gap, draw_candidate, effect_sizes_of_row, parts_rate
from tallbayes.schemes.factor_surrogates import factor_means, furthest_level
from tallbayes.schemes.level_fits import inner_product, upper_product
from tallbayes.schemes.level_moves import prior_mean
from tallbayes.schemes.level_rows import accepts, count_pairs, draw_count, find_level, kept_ratio
from tallbayes.target import Target


@inlinable
def crossed_linear_term(tables: Any, effects: np.ndarray, means: np.ndarray, out: np.ndarray) -> None:
    """Slope of the surrogate in delta at 0, given the levels: g - sum C eps + sum K[d, d]/2 + s sum K[1, d] + s^2/2 sum f''' x."""
    core, f, shift = tables.surrogate, out.size, 0.0
    for k in range(means.size):
        shift += means[k]
    for j in range(f):
        out[j] = core.gradient[j] + 0.5 * shift * shift * core.thirds[j]
    for k in range(len(tables.factors)):
        own = tables.factors[k]
        count, q, one, mean, begin = own.centres.shape[0], own.centres.shape[1], own.one, means[k], own.start
        crossed, third = own.crossed, own.crossed_third
        for g in range(count):
            for a in range(q):
                eps = effects[begin + g * q + a]
                first = eps - mean if a == one else eps
                for j in range(f):
                    out[j] -= eps * crossed[g, j, a]
                if shift != 0.0:
                    for j in range(f):
                        out[j] += shift * first * third[g, j, a, one]
                for b in range(q):
                    second = effects[begin + g * q + b]
                    if b == one:
                        second -= mean
                    half = 0.5 * first * second
                    for j in range(f):
                        out[j] += half * third[g, j, a, b]


@inlinable
def move_crossed_coefficients(
    rng: np.random.Generator, target: Target, kernel: CoefficientMove, beta: np.ndarray, effects: np.ndarray
) -> Moved:
    """One move of the free coefficients, made in `beta`."""
    tables = target.proxy
    linear, means = np.empty(tables.surrogate.free.size), factor_means(tables, effects)
    crossed_linear_term(tables, effects, means, linear)
    proposed = propose_coefficients(rng, tables.surrogate, tables.prior, target.prior, kernel, beta, linear)
    if not accepts(rng, proposed.ratio):
        return Moved(False, proposed.component, 0)
    residuals, rows = crossed_residuals(rng, target, kernel.inflation, proposed.delta, proposed.other, effects, means)
    count_pairs(target.counters, rows)
    if not accepts(rng, residuals):
        return Moved(False, proposed.component, rows)
    for j in range(beta.size):
        beta[j] = proposed.moved[j]
    return Moved(True, proposed.component, rows)


@inlinable
def slope_rates(
    tables: Any, effects: np.ndarray, means: np.ndarray, distance: float, square: float, radius: float, factors: np.ndarray
) -> float:
    """Fill the factors of the bounds of every level of the leading factor; returns the rate of candidate rows."""
    lead = tables.lead
    own = tables.factors[lead]
    q, rest, total_mean, total = own.centres.shape[1], 0.0, 0.0, 0.0
    for m in range(means.size):
        total_mean += means[m]
        if m != lead:
            rest = max(rest, furthest_level(tables.factors[m], effects, means[m]))
    shift, pairs, exponential, bound_ratio = abs(total_mean) / own.spread, means.size > 2, tables.exponential, tables.ratio
    eps, white, one, begin, stretch, most, sums = (
        np.empty(q),
        np.empty(q),
        own.one,
        own.start,
        own.stretch,
        own.most,
        tables.slope_sums,
    )
    for g in range(stretch.shape[0]):
        for a in range(q):
            eps[a] = effects[begin + g * q + a]
        if one >= 0:
            eps[one] -= means[lead]
        upper_product(stretch[g], eps, white)
        size = math.sqrt(inner_product(white, white))
        crossed_slope_factors(exponential, bound_ratio, distance, square, radius, size, rest, shift, pairs, most[g], factors[g])
        total += parts_rate(sums, g, factors[g])
    return total


@inlinable
def crossed_residuals(
    rng: np.random.Generator,
    target: Target,
    inflation: float,
    delta: np.ndarray,
    other: np.ndarray,
    effects: np.ndarray,
    means: np.ndarray,
) -> tuple[float, Any]:
    """Log ratio of the second stage, from a Poisson number of rows or from all of them, and how many were read."""
    rows, tables = target.rows, target.proxy
    core, shares, lead, n = tables.surrogate, tables.shares, tables.lead, rows.records.shape[0]
    own, exponential, bound_ratio = tables.factors[lead], tables.exponential, tables.ratio
    f, count = delta.size, own.centres.shape[0]
    first, second = np.empty(f), np.empty(f)
    lower_times(core.inverse, delta, first)
    lower_times(core.inverse, other, second)
    gap = 0.0
    for k in range(f):
        gap += (second[k] - first[k]) ** 2
    here, there = dot(first, first), dot(second, second)
    square = max((here + dot(first, second) + there) / 3.0, 0.0)
    distance, radius = math.sqrt(gap), math.sqrt(max(here, there))
    factors = np.empty((count, 7))
    total = slope_rates(tables, effects, means, distance, square, radius, factors)
    cumulative, level_total, sums, parts, reference = np.empty(count), 0.0, tables.slope_sums, np.empty(7), core.reference
    for g in range(count):
        level_total += parts_rate(sums, g, factors[g])
        cumulative[g] = level_total
    chosen = CandidateRows(shares, own.offsets, own.members, sums, tables.slope_peaks, own.spread, exponential)
    before, after = np.empty(reference.size), np.empty(reference.size)
    widened(core, delta, before)
    widened(core, other, after)
    log_ratio, read = 0.0, 0
    if not inflation * total < 2.0 * n:
        for i in range(n):
            log_ratio += crossed_slope_gap(rows, i, reference, effects, means, before, after)
        return log_ratio, n
    for _ in range(draw_count(rng, inflation * total) if total > 0.0 else 0):
        g = find_level(cumulative, rng.random() * total)
        i, dominating = draw_candidate(rng, chosen, lead, g, True, factors[g], parts)
        size, products = effect_sizes_of_row(rows, i, effects, means)
        a, curve, load = shares[i, 0], shares[i, 1], shares[i, 2]
        bound = row_slope_bound(exponential, bound_ratio, curve, load, a, distance, square, radius, size, products)
        if not rng.random() * dominating < bound:
            continue
        change = crossed_slope_gap(rows, i, reference, effects, means, before, after)
        log_ratio += kept_ratio(rng, target.counters, i, curve + load, change, inflation * bound)
        read += 1
    return log_ratio, read


@inlinable
def translate_coefficients(
    rng: np.random.Generator, tables: Any, k: int, inverse: np.ndarray, beta: np.ndarray, effects: np.ndarray
) -> bool:
    """beta_T += delta and b_k -= B delta for the columns T that factor k could carry; `inverse` = Sigma_k^-1.

    Factors that carry one of these columns keep their b, so that their c moves with it.
    """
    own, prior = tables.factors[k], tables.prior
    t, q, count = own.translated.size, own.centres.shape[1], own.centres.shape[0]
    if t == 0:
        return False
    precision, linear = np.zeros((t, t)), np.zeros(t)
    for u in range(t):
        for w in range(t):
            total = prior.precision[own.translated[u], own.translated[w]]
            for a in range(q):
                for b in range(q):
                    total += inverse[a, b] * own.translator_products[a, b, u, w]
            precision[u, w] = total
        for i in range(beta.size):
            linear[u] -= prior.precision[own.translated[u], i] * (beta[i] - prior.location[i])
    centres, carriers, carried, translators, begin = own.centres, own.prior.carriers, own.carried, own.translators, own.start
    for g in range(count):
        for a in range(q):
            total = 0.0
            for b in range(q):
                value = centres[g, b] + effects[begin + g * q + b]
                total += inverse[a, b] * (value - prior_mean(carriers, carried, beta, g, b))
            for u in range(t):
                linear[u] += translators[g, a, u] * total
    factor, scratch, drawn = inverse_factor(precision), np.empty(t), np.empty(t)
    upper_times(factor, linear, scratch)
    for u in range(t):
        scratch[u] += rng.standard_normal()
    lower_times(factor, scratch, drawn)
    moved = beta.copy()
    for u in range(t):
        moved[own.translated[u]] += drawn[u]
    if not prior.gaussian and not accepts(rng, prior_value(prior.others, moved) - prior_value(prior.others, beta)):
        return False
    for m in range(len(tables.factors)):
        other = tables.factors[m]
        terms, levels, carriers, carried, begin = (
            other.centres.shape[1],
            other.centres.shape[0],
            other.prior.carriers,
            other.carried,
            other.start,
        )
        for g in range(levels):
            for a in range(terms):
                change = 0.0
                for j in range(carried.size):
                    change += carriers[g, a, j] * (moved[carried[j]] - beta[carried[j]])
                if m == k:
                    for u in range(t):
                        change -= translators[g, a, u] * drawn[u]
                effects[begin + g * terms + a] += change
    for j in range(beta.size):
        beta[j] = moved[j]
    return True


@inlinable
def trade_factors(
    rng: np.random.Generator,
    tables: Any,
    pair: int,
    first_inverse: np.ndarray,
    second_inverse: np.ndarray,
    beta: np.ndarray,
    effects: np.ndarray,
) -> None:
    """Intercepts of the first factor of a pair += delta, of the second -= delta, for each connected part of their levels."""
    pairs = tables.pairs
    count, parts, begins = pairs.counts[pair], pairs.parts, pairs.begins
    precision, linear = np.zeros(count), np.zeros(count)
    for side in range(2):
        k = pairs.factors[pair, side]
        own, sign = tables.factors[k], -1.0 if side == 0 else 1.0
        inverse = first_inverse if side == 0 else second_inverse
        q, one, centres, carriers, carried, begin = (
            own.centres.shape[1],
            own.one,
            own.centres,
            own.prior.carriers,
            own.carried,
            own.start,
        )
        for g in range(centres.shape[0]):
            part = parts[pair, begins[k] + g]
            precision[part] += inverse[one, one]
            for b in range(q):
                value = centres[g, b] + effects[begin + g * q + b] - prior_mean(carriers, carried, beta, g, b)
                linear[part] += sign * inverse[one, b] * value
    for part in range(count):
        linear[part] = linear[part] / precision[part] + rng.standard_normal() / math.sqrt(precision[part])
    for side in range(2):
        k = pairs.factors[pair, side]
        own, sign = tables.factors[k], 1.0 if side == 0 else -1.0
        levels, terms, begin = own.centres.shape[0], own.centres.shape[1], own.start + own.one
        for g in range(levels):
            effects[begin + g * terms] += sign * linear[parts[pair, begins[k] + g]]

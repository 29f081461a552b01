"""Blocks of a linear model with several factors, each from its exact law given the rest, from sums over rows alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.moves.linear import inverse_factor, lower_times, upper_times
from tallbayes.priors import prior_value
from tallbayes.schemes.level_fits import backward_solve, factorise, fit_mean
from tallbayes.schemes.level_rows import accepts


@inlinable
def level_score(own: Any, beta: np.ndarray, effects: np.ndarray, g: int, out: np.ndarray) -> None:
    """w z r of a level with coefficients and the other factors taken off."""
    for a in range(out.size):
        total = own.scores[g, a]
        for j in range(beta.size):
            total -= own.crossed[g, j, a] * beta[j]
        for c in range(own.offsets[g], own.offsets[g + 1]):
            for b in range(own.sizes[c]):
                total -= own.cells[c, a, b] * effects[own.others[c] + b]
        out[a] = total


@inlinable
def draw_factor(
    rng: np.random.Generator, sums: Any, k: int, beta: np.ndarray, variance: float, inverse: np.ndarray, effects: np.ndarray
) -> None:
    """Effects of all levels of factor k from their Gaussian law; `inverse` = Sigma^-1."""
    own, start = sums.factors[k], sums.starts[k]
    q = own.scores.shape[1]
    factor, scaled, zero = np.empty((q, q)), np.empty((q, q)), np.zeros(q)
    score, mean, noise = np.empty(q), np.empty(q), np.empty(q)
    for g in range(own.scores.shape[0]):
        level_score(own, beta, effects, g, score)
        for a in range(q):
            score[a] /= variance
            noise[a] = rng.standard_normal()
            for b in range(q):
                scaled[a, b] = own.products[g, a, b] / variance
        factorise(scaled, inverse, factor)
        fit_mean(factor, score, inverse, zero, mean)
        backward_solve(factor, noise)
        for a in range(q):
            effects[start + g * q + a] = mean[a] + noise[a]


@inlinable
def _gaussian_draw(rng: np.random.Generator, precision: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """A draw from the Gaussian law with this precision and linear term."""
    factor, scratch, out = inverse_factor(precision), np.empty(linear.size), np.empty(linear.size)
    upper_times(factor, linear, scratch)
    for j in range(linear.size):
        scratch[j] += rng.standard_normal()
    lower_times(factor, scratch, out)
    return out


@inlinable
def _prior_accepts(rng: np.random.Generator, tables: Any, beta: np.ndarray, other: np.ndarray) -> bool:
    """A test on the part of the prior that is not Gaussian."""
    if tables.gaussian:
        return True
    centre = tables.sums.centre
    return accepts(rng, prior_value(tables.others, centre + other) - prior_value(tables.others, centre + beta))


@inlinable
def draw_coefficients(rng: np.random.Generator, tables: Any, variance: float, beta: np.ndarray, effects: np.ndarray) -> None:
    """Coefficients given all effects."""
    sums, d = tables.sums, beta.size
    precision, linear = np.empty((d, d)), np.empty(d)
    for i in range(d):
        linear[i] = sums.gradient[i]
    for k in range(len(sums.factors)):
        own, start = sums.factors[k], sums.starts[k]
        q = own.scores.shape[1]
        for g in range(own.scores.shape[0]):
            for a in range(q):
                b = effects[start + g * q + a]
                for i in range(d):
                    linear[i] -= own.crossed[g, i, a] * b
    for i in range(d):
        linear[i] /= variance
        for j in range(d):
            precision[i, j] = sums.information[i, j] / variance + tables.precision[i, j]
            linear[i] += tables.precision[i, j] * (tables.location[j] - sums.centre[j])
    other = _gaussian_draw(rng, precision, linear)
    if _prior_accepts(rng, tables, beta, other):
        for i in range(d):
            beta[i] = other[i]


@inlinable
def translate_factor(
    rng: np.random.Generator, tables: Any, k: int, inverse: np.ndarray, beta: np.ndarray, effects: np.ndarray
) -> None:
    """beta_T += delta, b_k -= B delta: linear predictors stay as they are."""
    own, start = tables.factors[k], tables.sums.starts[k]
    t, q, count = own.columns.size, own.carriers.shape[1], own.carriers.shape[0]
    if t == 0:
        return
    precision, linear = np.empty((t, t)), np.zeros(t)
    for u in range(t):
        for w in range(t):
            precision[u, w] = tables.precision[own.columns[u], own.columns[w]]
            for a in range(q):
                for b in range(q):
                    precision[u, w] += inverse[a, b] * own.carrier_products[a, b, u, w]
        for i in range(beta.size):
            linear[u] -= tables.precision[own.columns[u], i] * (beta[i] + tables.sums.centre[i] - tables.location[i])
    for g in range(count):
        for a in range(q):
            total = 0.0
            for b in range(q):
                total += inverse[a, b] * effects[start + g * q + b]
            for u in range(t):
                linear[u] += own.carriers[g, a, u] * total
    shift, other = _gaussian_draw(rng, precision, linear), beta.copy()
    for u in range(t):
        other[own.columns[u]] += shift[u]
    if not _prior_accepts(rng, tables, beta, other):
        return
    for i in range(beta.size):
        beta[i] = other[i]
    for g in range(count):
        for a in range(q):
            for u in range(t):
                effects[start + g * q + a] -= own.carriers[g, a, u] * shift[u]


@inlinable
def trade_pair(
    rng: np.random.Generator, tables: Any, pair: int, first: np.ndarray, second: np.ndarray, effects: np.ndarray
) -> None:
    """Intercepts of the first factor of a pair += delta, of the second -= delta, for each connected part of their levels."""
    pairs = tables.pairs
    precision, linear = np.zeros(pairs.counts[pair]), np.zeros(pairs.counts[pair])
    for side in range(2):
        k = pairs.factors[pair, side]
        sign, inverse = (-1.0, first) if side == 0 else (1.0, second)
        own, start = tables.factors[k], tables.sums.starts[k]
        q = own.carriers.shape[1]
        for g in range(own.carriers.shape[0]):
            part = pairs.parts[pair, pairs.begins[k] + g]
            precision[part] += inverse[own.one, own.one]
            for b in range(q):
                linear[part] += sign * inverse[own.one, b] * effects[start + g * q + b]
    for part in range(linear.size):
        linear[part] = linear[part] / precision[part] + rng.standard_normal() / math.sqrt(precision[part])
    for side in range(2):
        k = pairs.factors[pair, side]
        own, start, sign = tables.factors[k], tables.sums.starts[k], 1.0 if side == 0 else -1.0
        for g in range(own.carriers.shape[0]):
            effects[start + g * own.carriers.shape[1] + own.one] += sign * linear[pairs.parts[pair, pairs.begins[k] + g]]


@inlinable
def factor_squares(sums: Any, k: int, beta: np.ndarray, effects: np.ndarray) -> tuple[float, float, float]:
    """For factor k: b . score with everything else taken off, b . score with coefficients taken off, and b' (w z z') b."""
    own, start = sums.factors[k], sums.starts[k]
    q = own.scores.shape[1]
    score, alone, first, square = np.empty(q), 0.0, 0.0, 0.0
    for g in range(own.scores.shape[0]):
        level_score(own, beta, effects, g, score)
        for a in range(q):
            b, rest = effects[start + g * q + a], own.scores[g, a]
            for j in range(beta.size):
                rest -= own.crossed[g, j, a] * beta[j]
            first += b * score[a]
            alone += b * rest
            for c in range(q):
                square += b * own.products[g, a, c] * effects[start + g * q + c]
    return first, alone, square

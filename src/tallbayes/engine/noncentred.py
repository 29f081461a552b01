"""Full-data likelihood and prior of hierarchical models in unconstrained, non-centred coordinates, for gradient-based moves.

theta = (beta, log sigma_k and partial correlations y_k of each factor k, then z): level g of factor k has effects b = diag(sigma_k) L_k z_g
with z standard normal and L_k the factor of its correlation matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.engine.covariances import (
    correlation_factor,
    correlation_log_prior,
    correlation_prior_gradient,
    factor_gradient,
    unconstrained_covariance,
)
from tallbayes.engine.family_functions import jet1, value
from tallbayes.engine.indexed_rows import dot
from tallbayes.engine.rows import range_gradient, range_value
from tallbayes.scale_priors import scale_log_density, scale_slope


class NonCentredRows(NamedTuple):
    """Rows of a hierarchical model with any number of factors."""

    family: Any
    records: np.ndarray
    columns: int
    codes: np.ndarray  # (factors, n)
    first: np.ndarray  # (factors,): position of the terms in a record, -1 for an intercept alone
    terms: np.ndarray  # (factors,)
    levels: np.ndarray  # (factors,)


@inlinable
def population_size(rows: NonCentredRows) -> int:
    """Number of coefficients, standard deviations and correlations."""
    size = rows.columns
    for k in range(rows.terms.size):
        size += rows.terms[k] * (rows.terms[k] + 1) // 2
    return size


@inlinable
def level_effects(rows: NonCentredRows, theta: np.ndarray) -> np.ndarray:
    """b of all levels of all factors, one after the other."""
    at = rows.columns
    source = population_size(rows)
    out = np.empty(theta.size - source)
    shift = source
    for k in range(rows.terms.size):
        q = rows.terms[k]
        factor, sigma = np.empty((q, q)), np.empty(q)
        correlation_factor(theta[at + q : at + q * (q + 1) // 2], factor)
        for a in range(q):
            sigma[a] = math.exp(theta[at + a])
        for _ in range(rows.levels[k]):
            for a in range(q):
                total = 0.0
                for b in range(a + 1):
                    total += factor[a, b] * theta[source + b]
                out[source - shift + a] = sigma[a] * total
            source += q
        at += q * (q + 1) // 2
    return out


@inlinable
def unconstrained(rows: Any, theta: np.ndarray, out: np.ndarray) -> None:
    """Fill the first part of `out` with beta, log sigma and y from the parameters of the model; the inverse of `natural` for them."""
    for j in range(rows.columns):
        out[j] = theta[j]
    at = rows.columns
    for k in range(rows.terms.size):
        q = rows.terms[k]
        middle, end = at + q, at + q * (q + 1) // 2
        unconstrained_covariance(theta[at:middle], theta[middle:end], out[at:middle], out[middle:end])
        at = end


@inlinable
def natural(rows: NonCentredRows, theta: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with beta, sigma and correlations of each factor, then the effects: for each factor and term those of all levels."""
    for j in range(rows.columns):
        out[j] = theta[j]
    at = rows.columns
    for k in range(rows.terms.size):
        q = rows.terms[k]
        factor = np.empty((q, q))
        correlation_factor(theta[at + q : at + q * (q + 1) // 2], factor)
        for a in range(q):
            out[at + a] = math.exp(theta[at + a])
        position = at + q
        for a in range(q):
            for b in range(a):
                total = 0.0
                for c in range(b + 1):
                    total += factor[a, c] * factor[b, c]
                out[position] = total
                position += 1
        at = position
    effects, base = level_effects(rows, theta), 0
    for k in range(rows.terms.size):
        q = rows.terms[k]
        for a in range(q):
            for g in range(rows.levels[k]):
                out[at] = effects[base + g * q + a]
                at += 1
        base += rows.levels[k] * q


@inlinable(options=SUMS)
def _predictor(rows: NonCentredRows, effects: np.ndarray, x: np.ndarray, i: int, beta: np.ndarray) -> float:
    eta = dot(x, beta, rows.columns) + x[rows.columns + 1]
    base = 0
    for k in range(rows.terms.size):
        q, first = rows.terms[k], rows.first[k]
        at = base + rows.codes[k, i] * q
        if first < 0:
            eta += effects[at]
        else:
            for a in range(q):
                eta += x[first + a] * effects[at + a]
        base += rows.levels[k] * q
    return eta


@range_value.register(NonCentredRows)
def _range_value(rows: NonCentredRows, start: int, stop: int, theta: np.ndarray) -> float:
    effects, total, d = level_effects(rows, theta), 0.0, rows.columns
    for i in range(start, stop):
        x = rows.records[i]
        total += x[d + 2] * value(rows.family, _predictor(rows, effects, x, i, theta), x[d])
    return total


@range_gradient.register(NonCentredRows)
def _range_gradient(rows: NonCentredRows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    effects, total, d = level_effects(rows, theta), 0.0, rows.columns
    slopes = np.zeros(effects.size)
    for i in range(start, stop):
        x = rows.records[i]
        f, slope = jet1(rows.family, _predictor(rows, effects, x, i, theta), x[d])
        total += x[d + 2] * f
        slope *= x[d + 2]
        for j in range(d):
            gradient[j] += slope * x[j]
        base = 0
        for k in range(rows.terms.size):
            q, first = rows.terms[k], rows.first[k]
            at = base + rows.codes[k, i] * q
            for a in range(q):
                slopes[at + a] += slope if first < 0 else slope * x[first + a]
            base += rows.levels[k] * q
    _pull_back(rows, theta, effects, slopes, gradient)
    return total


@inlinable
def _pull_back(rows: NonCentredRows, theta: np.ndarray, effects: np.ndarray, slopes: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient in (log sigma, y, z) of a function whose gradient in b is `slopes`."""
    at, source = rows.columns, population_size(rows)
    shift = source
    for k in range(rows.terms.size):
        q = rows.terms[k]
        factor, outer, sigma = np.empty((q, q)), np.zeros((q, q)), np.empty(q)
        for a in range(q):
            sigma[a] = math.exp(theta[at + a])
        partial = theta[at + q : at + q * (q + 1) // 2]
        correlation_factor(partial, factor)
        for _ in range(rows.levels[k]):
            for a in range(q):
                slope = slopes[source - shift + a]
                gradient[at + a] += slope * effects[source - shift + a]
                scaled = slope * sigma[a]
                for b in range(a + 1):
                    gradient[source + b] += scaled * factor[a, b]
                    outer[a, b] += scaled * theta[source + b]
            source += q
        factor_gradient(partial, factor, outer, gradient[at + q : at + q * (q + 1) // 2])
        at += q * (q + 1) // 2


class NonCentredPrior(NamedTuple):
    """Prior of all of theta."""

    coefficients: Any  # PriorTerms
    columns: int
    terms: np.ndarray  # (factors,)
    scales: np.ndarray  # (standard deviations, 3)
    eta: np.ndarray  # (factors,)


@inlinable
def noncentred_prior_value(prior: NonCentredPrior, theta: np.ndarray) -> float:
    """Log density of standard deviations, correlations and z, with the Jacobian of log sigma."""
    at, row, total = prior.columns, 0, 0.0
    for k in range(prior.terms.size):
        q = prior.terms[k]
        for a in range(q):
            total += scale_log_density(prior.scales[row], math.exp(theta[at + a])) + theta[at + a]
            row += 1
        total += correlation_log_prior(theta[at + q : at + q * (q + 1) // 2], q, prior.eta[k])
        at += q * (q + 1) // 2
    for j in range(at, theta.size):
        total -= 0.5 * theta[j] * theta[j]
    return total


@inlinable
def noncentred_prior_gradient(prior: NonCentredPrior, theta: np.ndarray, gradient: np.ndarray) -> None:
    """Add its gradient."""
    at, row = prior.columns, 0
    for k in range(prior.terms.size):
        q = prior.terms[k]
        for a in range(q):
            gradient[at + a] += scale_slope(prior.scales[row], math.exp(theta[at + a])) + 1.0
            row += 1
        end = at + q * (q + 1) // 2
        correlation_prior_gradient(theta[at + q : end], q, prior.eta[k], gradient[at + q : end])
        at = end
    for j in range(at, theta.size):
        gradient[j] -= theta[j]

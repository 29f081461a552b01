"""The surrogate of a hierarchical model with one factor: sums at the reference, and the rows' shares in the bounds of what it leaves out.

For a row f* + f' u + f'' u^2/2 + f''' (v e^2/2 + e^3/6), u = v + e, v = x . delta, e = z . eps. Columns of x that are constant within
levels or also have random slopes, x_J = z' B_g, are carried by the levels: c_g = b_g + B_g beta_J has the prior N(B_g beta_J, Sigma),
and x, delta are those of the other columns, taken from their means (`centred_columns`). Everything is float64 and frozen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.level_rates import (
    PRODUCTS,
    coefficient_factors,
    effects_factors,
    product,
    proven_bounds,
)
from tallbayes.compile import SUMS, jit
from tallbayes.data.groups import CONSTANT
from tallbayes.engine import ledger
from tallbayes.engine.family_functions import jet2, third_supremum
from tallbayes.engine.grouped_rows import FactorRows, level_sums, row_of, term
from tallbayes.engine.indexed_rows import dot
from tallbayes.engine.passes import over_ranges
from tallbayes.errors import ModelError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.linear_mixed import split_prior
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.priors import FLAT, LAPLACE, PriorTerms, prior_precision
from tallbayes.proxies.centred_columns import centred_prior, column_means, of_free_columns, to_coefficients


class Surrogate(NamedTuple):
    """Sums at the reference. f free columns, j carried ones, q terms."""

    reference: np.ndarray  # (d,): beta* of the free columns, -m . beta* for the column of ones, 0 for the others
    free: np.ndarray
    carried: np.ndarray
    constant: int  # the column of ones that levels carry; -1 for none
    means: np.ndarray  # (d,): m, 0 for columns that are not free
    centres: np.ndarray  # (levels, q): c*
    gradient: np.ndarray  # (f,)
    information: np.ndarray  # (f, f)
    slopes: np.ndarray  # (levels, q)
    curvatures: np.ndarray  # (levels, q, q)
    crossed: np.ndarray  # (levels, f, q)
    crossed_third: np.ndarray  # (levels, f, q, q)
    thirds: np.ndarray  # (levels, q, q, q)
    factor: np.ndarray  # (f, f): F F' = inverse of the precision of the coefficients given the levels, lower triangular
    inverse: np.ndarray  # (f, f): of F
    stretch: np.ndarray  # (levels, q, q): L of zeta = |L^-1 z|, lower triangular; 1 for one term


class RowShares(NamedTuple):
    """What each row adds to the bounds, level by level, and sums, largest values of the products by level."""

    norms: np.ndarray  # (rows,): a
    zetas: np.ndarray  # (rows,), or none where all are 1
    loads: np.ndarray  # (rows,): M3 or |f''*|, weight included
    sums: np.ndarray  # (levels, 4)
    peaks: np.ndarray  # (levels, 4)
    most: np.ndarray  # (levels, 2): largest a and zeta
    exponential: bool
    ratio: float  # M4 / M3


class LevelPrior(NamedTuple):
    """Prior of coefficients, split into a Gaussian part and the rest, and of the covariance of the levels."""

    carriers: np.ndarray  # (levels, q, j): B
    carrier_products: np.ndarray  # (q, q, j, j): sum over levels of B_a' B_b
    precision: np.ndarray  # (d, d): of the Gaussian part
    location: np.ndarray
    others: PriorTerms
    gaussian: bool  # whether there is no rest
    scales: np.ndarray  # (q, 3)
    eta: float


class LevelTables(NamedTuple):
    """Everything that a sweep needs besides rows and state."""

    surrogate: Surrogate
    shares: RowShares
    prior: LevelPrior


def level_tables(mode: HierarchicalMode, cores: int | None = None) -> LevelTables:
    """Tables at the reference: two passes over the rows."""
    model = mode.model
    assert isinstance(model, HierarchicalModel)
    ratio, exponential = proven_bounds(model)
    rows, beta, effects = model.factor_rows(0), mode.coefficients, mode.effects[0]
    carriers, carried = carrier_columns(model, 0)
    free = np.array([j for j in range(model.data.d) if j not in carried], np.int64)
    centres = np.ascontiguousarray(effects + carriers @ beta[carried])
    reference = np.zeros(model.data.d)
    reference[free] = beta[free]
    sums = level_sums(rows, reference, centres, np.empty(0), True, cores)
    constant, means = column_means(model, sums.information, free, carried)
    if constant >= 0:
        reference[constant] = -means @ beta
        centres = np.ascontiguousarray(centres + (means @ beta) * carriers[:, :, list(carried).index(constant)])
    terms = centred_prior(model.coefficient_terms, constant, means)
    precision, location, others = split_prior(terms)
    information = of_free_columns(of_free_columns(sums.information, free, constant, means).T, free, constant, means)
    factor, inverse = whitening(terms, np.linalg.solve(to_coefficients(constant, means), beta), information, precision, free)
    covariance = np.outer(mode.sigmas[0], mode.sigmas[0]) * mode.correlations[0]
    stretch = _stretch(sums.curvatures, covariance)
    surrogate = Surrogate(
        reference,
        free,
        carried,
        constant,
        means,
        centres,
        of_free_columns(sums.gradient, free, constant, means),
        information,
        sums.slopes,
        sums.curvatures,
        by_level(sums.crossed, free, constant, means),
        by_level(sums.crossed_third, free, constant, means),
        sums.thirds,
        factor,
        inverse,
        stretch,
    )
    prior = LevelPrior(
        carriers,
        np.einsum("gaj,gbk->abjk", carriers, carriers),
        precision,
        location,
        others,
        bool((others.kind == FLAT).all()),
        np.array([own.terms() for own in model.scale_priors[0]]),
        float(model.correlation_priors[0].eta),
    )
    kinds = [kind for kind, proven in ((False, ratio is not None), (True, exponential)) if proven]
    choices = [row_shares(rows, surrogate, kind, ratio or 0.0, cores) for kind in kinds]
    sizes = np.diff(rows.offsets)
    best = (
        choices[0] if len(choices) == 1 else min(choices, key=lambda shares: typical_rate(surrogate, shares, sizes, covariance))
    )
    return LevelTables(surrogate, best, prior)


def typical_rate(surrogate: Surrogate, shares: RowShares, sizes: np.ndarray, covariance: np.ndarray) -> float:
    """Rows that a sweep would read if all effects moved by one posterior standard deviation and the coefficients to a typical point."""
    f, total = surrogate.free.size, 0.0
    spread = np.linalg.inv(positive_part(surrogate.curvatures) + np.linalg.inv(covariance))
    sds = np.sqrt(np.einsum("gaa->ga", spread))
    nu = np.sqrt((np.einsum("gab,ga->gb", surrogate.stretch, sds) ** 2).sum(1))
    bound = shares.exponential, shares.ratio
    for g in range(0, sizes.size, max(1, sizes.size // 1000)):
        moved = coefficient_factors(*bound, np.sqrt(2.0 * f), 0.7 * f, np.sqrt(f), nu[g], *shares.most[g])
        swept = effects_factors(*bound, np.sqrt(f), nu[g] ** 2, 0.0, nu[g] ** 2, *shares.most[g])
        total += sum(min(float(np.dot(factors, shares.sums[g])), float(sizes[g])) for factors in (moved, swept))
    return total


def carrier_columns(model: HierarchicalModel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """B of every level of factor k, and the columns that its levels can carry: constant within levels, or random slopes too; never
    dependent ones."""
    factor, data = model.factors[k], model.data
    q, levels = len(factor.terms), factor.levels
    filled = np.flatnonzero(np.diff(factor.offsets))
    columns: list[int] = []
    carriers: list[np.ndarray] = []
    for j, name in enumerate(data.columns):
        own = np.zeros((levels, q))
        if name in factor.terms and name != CONSTANT:
            own[:, factor.terms.index(name)] = 1.0
        elif CONSTANT in factor.terms:
            x = data.records[:, j] if factor.sorted else data.records[factor.members, j]
            low = np.minimum.reduceat(x, factor.offsets[filled])
            if not (low == np.maximum.reduceat(x, factor.offsets[filled])).all():
                continue
            own[filled, factor.terms.index(CONSTANT)] = low
        else:
            continue
        trial = np.stack([*carriers, own], axis=2).reshape(levels * q, -1)
        scaled = trial / np.maximum(np.linalg.norm(trial, axis=0), 1e-300)
        if np.linalg.eigvalsh(scaled.T @ scaled)[0] > 1e-6:
            columns.append(j)
            carriers.append(own)
    stacked = np.stack(carriers, axis=2) if carriers else np.zeros((levels, q, 0))
    return np.ascontiguousarray(stacked), np.array(columns, np.int64)


def by_level(sums: np.ndarray, free: np.ndarray, constant: int, means: np.ndarray) -> np.ndarray:
    """Sums with an axis of levels before that of all columns: those of the free columns, from their means."""
    return np.ascontiguousarray(np.moveaxis(of_free_columns(np.moveaxis(sums, 1, 0), free, constant, means), 0, 1))


def whitening(
    terms: PriorTerms, beta: np.ndarray, information: np.ndarray, precision: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """F with F F' the inverse of the precision of the free coefficients given the levels, and its inverse."""
    prior = prior_precision(terms, beta) - precision
    prior = precision + positive_part(prior) + np.diag(np.where(terms.kind == LAPLACE, 1.0 / terms.scale**2, 0.0))
    total = positive_part(information) + prior[np.ix_(free, free)]
    if free.size == 0:
        return np.zeros((0, 0)), np.zeros((0, 0))
    scale = 1.0 / np.sqrt(np.maximum(np.diag(total), 1e-300))
    values = np.linalg.eigvalsh(total * np.outer(scale, scale))
    if values[0] < 1e-10:
        raise ModelError(
            "columns of X are collinear, and the prior does not separate them. Drop one of the columns, or use a proper prior "
            "such as tallbayes.priors.normal(10.0)."
        )
    factor = np.linalg.cholesky(np.linalg.inv(total))
    return np.ascontiguousarray(factor), np.ascontiguousarray(np.linalg.inv(factor))


def _stretch(curvatures: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    if covariance.shape[0] == 1:
        return np.ones_like(curvatures)
    return np.ascontiguousarray(np.linalg.cholesky(positive_part(curvatures) + np.linalg.inv(covariance)))


def positive_part(matrices: np.ndarray) -> np.ndarray:
    """Symmetric matrices with negative eigenvalues set to zero."""
    if matrices.size == 0:
        return matrices
    values, vectors = np.linalg.eigh(matrices)
    return np.einsum("...ab,...b,...cb->...ac", vectors, np.maximum(values, 0.0), vectors)


def row_shares(rows: FactorRows, surrogate: Surrogate, exponential: bool, ratio: float, cores: int | None) -> RowShares:
    """a, zeta and load of every row, level by level, with sums and largest values: one pass."""
    n, levels = rows.records.shape[0], surrogate.centres.shape[0]
    norms, loads = np.empty(n), np.empty(n)
    zetas = np.empty(0 if rows.first < 0 else n)
    sums, peaks, most = np.zeros((levels, PRODUCTS)), np.zeros((levels, PRODUCTS)), np.zeros((levels, 2))
    inverse = np.ascontiguousarray(np.linalg.inv(surrogate.stretch))
    at = surrogate.reference, surrogate.free, surrogate.means, surrogate.factor, surrogate.centres, inverse
    arrays = norms, zetas, loads, sums, peaks, most

    def work(start: int, stop: int) -> None:
        _fill_shares(rows, *at, exponential, start, stop, *arrays)

    ledger.record(n)
    over_ranges(levels, max(1, -(-levels // 64)), work, cores)
    return RowShares(*arrays, exponential, ratio)


@jit(options=SUMS)
def _fill_shares(
    rows: Any,
    reference: np.ndarray,
    free: np.ndarray,
    means: np.ndarray,
    factor: np.ndarray,
    centres: np.ndarray,
    inverse: np.ndarray,
    exponential: bool,
    start: int,
    stop: int,
    norms: np.ndarray,
    zetas: np.ndarray,
    loads: np.ndarray,
    sums: np.ndarray,
    peaks: np.ndarray,
    most: np.ndarray,
) -> None:
    d, q, f = rows.columns, rows.terms, free.size
    for g in range(start, stop):
        for position in range(rows.offsets[g], rows.offsets[g + 1]):
            x = rows.records[row_of(rows, position)]
            square = 0.0
            for k in range(f):
                total = 0.0
                for j in range(k, f):
                    total += factor[j, k] * (x[free[j]] - means[free[j]])
                square += total * total
            a = np.sqrt(square)
            zeta, eta = 1.0, dot(x, reference, d) + x[d + 1]
            for b in range(q):
                eta += term(rows, x, b) * centres[g, b]
            if rows.first >= 0:
                square = 0.0
                for b in range(q):
                    total = 0.0
                    for c in range(b + 1):
                        total += inverse[g, b, c] * x[rows.first + c]
                    square += total * total
                zeta = np.sqrt(square)
                zetas[position] = zeta
            if exponential:
                load = x[d + 2] * abs(jet2(rows.family, eta, x[d])[2])
            else:
                load = x[d + 2] * third_supremum(rows.family, x[d])
            norms[position], loads[position] = a, load
            for k in range(4):
                share = product(exponential, k, load, a, zeta)
                sums[g, k] += share
                peaks[g, k] = max(peaks[g, k], share)
            most[g, 0], most[g, 1] = max(most[g, 0], a), max(most[g, 1], zeta)

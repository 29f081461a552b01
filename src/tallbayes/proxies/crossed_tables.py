"""The surrogate of a hierarchical model with several factors, and the rows' shares in the bounds of what it leaves out.

For a row f* + f' u + f'' [v^2/2 + v sum e_k + sum e_k^2/2] + f''' [v H + sum e_k^3/6], u = v + sum e_k: products of different factors
stay in the residual of moves of the coefficients. Moves of a level know the effects of the other factors, row by row, from sums of f''
and f''' over the cells of two factors; where there are too many cells, they know s_k, the mean of the first effects of factor k, frozen
weights. Each column of X that levels can carry is carried by the first factor that can; other factors that could carry it are
translated against it. Everything is float64 and frozen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.crossed_rates import PARTS, effect_products, slope_products
from tallbayes.bounds.level_rates import proven_bounds
from tallbayes.compile import SUMS, jit
from tallbayes.data.groups import CONSTANT
from tallbayes.engine import ledger
from tallbayes.engine.family_functions import jet2, third, third_supremum
from tallbayes.engine.grouped_rows import add_effects, level_sums
from tallbayes.engine.indexed_rows import dot
from tallbayes.engine.passes import over_ranges
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.linear_mixed import split_prior
from tallbayes.mode.pairs import FactorPairs, factor_pairs
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.priors import FLAT, PriorTerms
from tallbayes.proxies.centred_columns import centred_prior, column_means, of_free_columns, to_coefficients
from tallbayes.proxies.factor_cells import FactorCells, factor_cells
from tallbayes.proxies.level_tables import by_level, carrier_columns, positive_part, whitening


class CrossedRows(NamedTuple):
    """Rows with any number of factors, and the centres of their levels."""

    family: Any
    records: np.ndarray
    columns: int
    codes: np.ndarray  # (n, factors)
    first: np.ndarray  # (factors,): position of the terms in a record, -1 for an intercept alone
    terms: np.ndarray  # (factors,)
    starts: np.ndarray  # (factors,): where the effects of a factor begin, level by level
    centres: np.ndarray  # effects of all levels at the reference


class CrossedCore(NamedTuple):
    """What all factors share. f free columns."""

    reference: np.ndarray  # (d,): beta* of the free columns, -m . beta* for the column of ones, 0 for the others
    free: np.ndarray
    carried: np.ndarray
    constant: int  # the column of ones that levels carry; -1 for none
    means: np.ndarray  # (d,): m, 0 for columns that are not free
    gradient: np.ndarray  # (f,)
    information: np.ndarray  # (f, f)
    thirds: np.ndarray  # (f,): sum of f''' x
    factor: np.ndarray  # (f, f): F F' = inverse of the precision of the coefficients given the levels, lower triangular
    inverse: np.ndarray


class FactorPrior(NamedTuple):
    """Priors of the effects of one factor; that of the coefficients is with all factors."""

    carriers: np.ndarray  # (levels, q, j): B
    carrier_products: np.ndarray  # (q, q, j, j): sums of B B'
    scales: np.ndarray  # (q, 3)
    eta: float


class CrossedFactor(NamedTuple):
    """Sums and shares of one factor with q terms."""

    offsets: np.ndarray
    members: np.ndarray
    start: int
    one: int  # position of the intercept among the terms; -1 for none
    centres: np.ndarray  # (levels, q)
    slopes: np.ndarray  # (levels, q)
    curvatures: np.ndarray  # (levels, q, q)
    crossed: np.ndarray  # (levels, f, q)
    crossed_third: np.ndarray  # (levels, f, q, q)
    thirds: np.ndarray  # (levels, q, q, q)
    stretch: np.ndarray  # (levels, q, q): L of zeta = |L^-1 z|
    spread: float  # sigma of B^2 = (sum of the other zetas)^2 + sigma^2
    sums: np.ndarray  # (levels, 7)
    peaks: np.ndarray
    most: np.ndarray  # (levels, 3): largest a, zeta, B
    mean_weights: np.ndarray  # (levels,): of the first effects in their mean
    broad: np.ndarray  # (factors,): other factors that are known to a level by their mean alone
    cells: FactorCells
    prior: FactorPrior
    carried: np.ndarray
    kept: np.ndarray  # columns that it does not carry
    translated: np.ndarray  # columns that it could carry, but another factor does, or none
    translators: np.ndarray  # (levels, q, translated)
    translator_products: np.ndarray  # (q, q, translated, translated)


class CoefficientPrior(NamedTuple):
    """The prior of the coefficients: its Gaussian part, and the rest."""

    precision: np.ndarray
    location: np.ndarray
    others: PriorTerms
    gaussian: bool  # whether there is no rest


class CrossedTables(NamedTuple):
    """Everything that a sweep over several factors needs besides rows and state."""

    surrogate: CrossedCore
    prior: CoefficientPrior
    shares: np.ndarray  # (n, 3 + factors): a, w |f''*|, w M3, and zeta of each factor
    slope_sums: np.ndarray  # (levels of the lead, 7)
    slope_peaks: np.ndarray
    exponential: bool
    ratio: float  # M4 / M3
    lead: int  # the factor by which rows are sorted: candidate rows of the coefficients are drawn level by level of it
    shifted: bool  # whether all factors have an intercept, so that means of effects are known shifts
    pairs: FactorPairs
    factors: tuple[CrossedFactor, ...]


def crossed_rows(model: HierarchicalModel, centres: list[np.ndarray]) -> CrossedRows:
    """Rows as moves of several factors see them."""
    codes = np.ascontiguousarray(np.stack([f.codes for f in model.factors], axis=1))
    first, terms, sizes = (
        np.array(v, np.int64) for v in zip(*((f.first, len(f.terms), f.levels) for f in model.factors), strict=True)
    )
    starts = np.concatenate([[0], np.cumsum(sizes * terms)[:-1]]).astype(np.int64)
    flat = np.concatenate([c.reshape(-1) for c in centres])
    return CrossedRows(model.member, model.data.records, model.data.d, codes, first, terms, starts, flat)


def crossed_tables(mode: HierarchicalMode, cores: int | None = None) -> tuple[CrossedTables, CrossedRows]:
    """Tables at the reference: a pass for each factor and two more."""
    model = mode.model
    assert isinstance(model, HierarchicalModel)
    ratio, _ = proven_bounds(model)
    K, d, beta = len(model.factors), model.data.d, mode.coefficients
    able = [carrier_columns(model, k) for k in range(K)]  # carriers and columns of each factor
    owner: dict[int, int] = {}
    for k, (_, columns) in enumerate(able):
        for j in columns:
            owner.setdefault(int(j), k)
    carried = [np.array([j for j in able[k][1] if owner[int(j)] == k], np.int64) for k in range(K)]
    carriers = [np.ascontiguousarray(able[k][0][:, :, np.isin(able[k][1], carried[k])]) for k in range(K)]
    free = np.array([j for j in range(d) if j not in owner], np.int64)
    reference = np.zeros(d)
    reference[free] = beta[free]
    centres = [np.ascontiguousarray(mode.effects[k] + carriers[k] @ beta[carried[k]]) for k in range(K)]
    every = np.array(sorted(owner), np.int64)
    sums = []
    for k in range(K):
        shift = np.zeros(model.data.n)
        for other in range(K):
            if other != k:
                add_effects(model.factor_rows(other), centres[other], shift)
        sums.append(level_sums(model.factor_rows(k), reference, centres[k], shift, True, cores))
    constant, means = column_means(model, sums[0].information, free, every)
    if constant >= 0:
        reference[constant], k = -means @ beta, owner[constant]
        centres[k] = np.ascontiguousarray(centres[k] + (means @ beta) * carriers[k][:, :, list(carried[k]).index(constant)])
    rows, terms = crossed_rows(model, centres), centred_prior(model.coefficient_terms, constant, means)
    precision, location, others = split_prior(terms)
    information = of_free_columns(of_free_columns(sums[0].information, free, constant, means).T, free, constant, means)
    factor, inverse = whitening(terms, np.linalg.solve(to_coefficients(constant, means), beta), information, precision, free)
    covariances = [np.outer(s, s) * r for s, r in zip(mode.sigmas, mode.correlations, strict=True)]
    stretch = [
        np.ascontiguousarray(np.linalg.cholesky(positive_part(sums[k].curvatures) + np.linalg.inv(covariances[k])))
        for k in range(K)
    ]
    inverses = [np.ascontiguousarray(np.linalg.inv(s)) for s in stretch]
    exponential = ratio is None
    shares, curves = _row_shares(rows, reference, free, means, factor, inverses, exponential, cores)
    ones = [f.terms.index(CONSTANT) if CONSTANT in f.terms else -1 for f in model.factors]
    pairs = factor_pairs(model)
    lead = next(k for k in range(K) if model.factors[k].sorted)
    prior_all = CoefficientPrior(precision, location, others, bool((others.kind == FLAT).all()))
    factors, slopes = [], (np.zeros((0, PARTS)), np.zeros((0, PARTS)))
    for k in range(K):
        own, rest = model.factors[k], [m for m in range(K) if m != k]
        zetas = shares[:, 3:].sum(1) - shares[:, 3 + k]
        between = sum(covariances[m][max(ones[m], 0), max(ones[m], 0)] / model.factors[m].levels for m in rest)
        spread = float(max(zetas.mean(), np.sqrt(between), 1e-12))
        level = model.factor_rows(k)
        parts = _level_shares(level.offsets, level.members, shares, k, spread, exponential, cores)
        if k == lead:
            slopes = parts[3], parts[4]
        could = ~np.isin(able[k][1], carried[k])
        translators = np.ascontiguousarray(able[k][0][:, :, could])
        broad, cells = factor_cells(model, k, rows.starts, curves)
        information_one = np.abs(sums[k].curvatures[:, max(ones[k], 0), max(ones[k], 0)])
        weights = information_one if information_one.sum() > 0.0 else np.ones(own.levels)
        prior = FactorPrior(
            carriers[k],
            np.einsum("gaj,gbk->abjk", carriers[k], carriers[k]),
            np.array([p.terms() for p in model.scale_priors[k]]),
            float(model.correlation_priors[k].eta),
        )
        factors.append(
            CrossedFactor(
                level.offsets,
                level.members,
                int(rows.starts[k]),
                ones[k],
                centres[k],
                sums[k].slopes,
                sums[k].curvatures,
                by_level(sums[k].crossed, free, constant, means),
                by_level(sums[k].crossed_third, free, constant, means),
                sums[k].thirds,
                stretch[k],
                spread,
                parts[0],
                parts[1],
                parts[2],
                weights / weights.sum(),
                broad,
                cells,
                prior,
                carried[k],
                np.array([j for j in range(d) if j not in carried[k]], np.int64),
                able[k][1][could],
                translators,
                np.einsum("gaj,gbk->abjk", translators, translators),
            )
        )
    shifted = min(ones) >= 0
    thirds = factors[0].crossed_third[:, :, ones[0], ones[0]].sum(0) if shifted else np.zeros(free.size)
    gradient = of_free_columns(sums[0].gradient, free, constant, means)
    core = CrossedCore(reference, free, every, constant, means, gradient, information, thirds, factor, inverse)
    tables = CrossedTables(core, prior_all, shares, *slopes, exponential, ratio or 0.0, lead, shifted, pairs, tuple(factors))
    return tables, rows


def _row_shares(
    rows: CrossedRows,
    reference: np.ndarray,
    free: np.ndarray,
    means: np.ndarray,
    factor: np.ndarray,
    inverses: list[np.ndarray],
    exponential: bool,
    cores: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of all rows, and -f'' and f''' at the reference, weights included."""
    n, flat = rows.records.shape[0], np.concatenate([v.reshape(-1) for v in inverses])
    begins = np.concatenate([[0], np.cumsum([v.size for v in inverses])[:-1]]).astype(np.int64)
    out, curves = np.empty((n, 3 + rows.terms.size)), np.empty((n, 2))

    def work(start: int, stop: int) -> None:
        _fill_row_shares(rows, reference, free, means, factor, flat, begins, exponential, start, stop, out, curves)

    ledger.record(n)
    over_ranges(n, max(1, -(-n // 64)), work, cores)
    return out, curves


@jit(options=SUMS)
def _fill_row_shares(
    rows: Any,
    reference: np.ndarray,
    free: np.ndarray,
    means: np.ndarray,
    factor: np.ndarray,
    inverses: np.ndarray,
    begins: np.ndarray,
    exponential: bool,
    start: int,
    stop: int,
    out: np.ndarray,
    curves: np.ndarray,
) -> None:
    d, f = rows.columns, free.size
    for i in range(start, stop):
        x = rows.records[i]
        square = 0.0
        for k in range(f):
            total = 0.0
            for j in range(k, f):
                total += factor[j, k] * (x[free[j]] - means[free[j]])
            square += total * total
        eta = dot(x, reference, d) + x[d + 1]
        for k in range(rows.terms.size):
            q, first, code = rows.terms[k], rows.first[k], rows.codes[i, k]
            at, norm = rows.starts[k] + code * q, 0.0
            for b in range(q):
                z = 1.0 if first < 0 else x[first + b]
                eta += z * rows.centres[at + b]
                total = 0.0
                for c in range(b + 1):
                    total += inverses[begins[k] + (code * q + b) * q + c] * (1.0 if first < 0 else x[first + c])
                norm += total * total
            out[i, 3 + k] = np.sqrt(norm)
        curves[i, 0] = -x[d + 2] * jet2(rows.family, eta, x[d])[2]
        curves[i, 1] = x[d + 2] * third(rows.family, eta, x[d])
        curve = abs(curves[i, 0])
        out[i, 0], out[i, 1] = np.sqrt(square), curve
        out[i, 2] = curve if exponential else x[d + 2] * third_supremum(rows.family, x[d])


def _level_shares(
    offsets: np.ndarray, members: np.ndarray, shares: np.ndarray, k: int, spread: float, exponential: bool, cores: int | None
) -> tuple[np.ndarray, ...]:
    levels = offsets.size - 1
    arrays = tuple(np.zeros((levels, width)) for width in (PARTS, PARTS, 3, PARTS, PARTS))

    def work(start: int, stop: int) -> None:
        _fill_level_shares(offsets, members, shares, k, spread, exponential, start, stop, *arrays)

    over_ranges(levels, max(1, -(-levels // 64)), work, cores)
    return arrays


@jit(options=SUMS)
def _fill_level_shares(
    offsets: np.ndarray,
    members: np.ndarray,
    shares: np.ndarray,
    k: int,
    spread: float,
    exponential: bool,
    start: int,
    stop: int,
    sums: np.ndarray,
    peaks: np.ndarray,
    most: np.ndarray,
    slope_sums: np.ndarray,
    slope_peaks: np.ndarray,
) -> None:
    parts = np.empty(7)
    for g in range(start, stop):
        for position in range(offsets[g], offsets[g + 1]):
            i = position if members.size == 0 else members[position]
            others = 0.0
            for m in range(3, shares.shape[1]):
                others += shares[i, m] if m != 3 + k else 0.0
            others = np.sqrt(others * others + spread * spread)
            a, curve, load, zeta = shares[i, 0], shares[i, 1], shares[i, 2], shares[i, 3 + k]
            effect_products(exponential, curve, load, a, zeta, others, parts)
            for c in range(7):
                sums[g, c] += parts[c]
                peaks[g, c] = max(peaks[g, c], parts[c])
            slope_products(exponential, curve, load, a, zeta, others, parts)
            for c in range(7):
                slope_sums[g, c] += parts[c]
                slope_peaks[g, c] = max(slope_peaks[g, c], parts[c])
            most[g, 0], most[g, 1], most[g, 2] = max(most[g, 0], a), max(most[g, 1], zeta), max(most[g, 2], others)

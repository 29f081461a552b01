"""The reference of a linear model with several factors or random slopes and unknown error: expectation-maximisation on sums of one pass."""

from __future__ import annotations

import numpy as np

from tallbayes.data.groups import CONSTANT
from tallbayes.engine.cell_sums import FactorSums, SeveralSums, several_sums
from tallbayes.engine.grouped_rows import FactorRows
from tallbayes.errors import ModelError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.linear_mixed import split_prior
from tallbayes.mode.pairs import FactorPairs, factor_pairs, part_shifts
from tallbayes.models.group_effects import HierarchicalModel

_ROUNDS = 200
_SETTLED = 1e-3  # relative change of every standard deviation


class SeveralMode(HierarchicalMode):
    """The sums that a linear model with several factors needs."""

    sums: SeveralSums


def other_scores(sums: SeveralSums, k: int, beta: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """w z r of the levels of factor k with coefficients and the other factors taken off."""
    own = sums.factors[k]
    out = own.scores - np.einsum("gja,j->ga", own.crossed, beta)
    if own.others.size:
        level = np.repeat(np.arange(len(out)), np.diff(own.offsets))
        for b in range(own.cells.shape[2]):
            known = np.where(b < own.sizes, flat[np.minimum(own.others + b, flat.size - 1)], 0.0)
            for a in range(own.cells.shape[1]):
                out[:, a] -= np.bincount(level, own.cells[:, a, b] * known, len(out))
    return out


def find_several_mode(model: HierarchicalModel, cores: int | None = None) -> SeveralMode:
    """A few passes over the rows, then none."""
    d = model.data.d
    rows = [
        FactorRows(model.unit_scale_member, model.data.records, d, f.first, len(f.terms), f.offsets, f.members)
        for f in model.factors
    ]
    sums = several_sums(rows, [f.codes for f in model.factors], [f.levels for f in model.factors], cores)
    precision, location, _ = split_prior(model.coefficient_terms)
    pairs, beta = factor_pairs(model), np.zeros(d)
    flat = np.zeros(sum(s.scores.size for s in sums.factors))
    slices = [slice(s, s + f.scores.size) for s, f in zip(sums.starts, sums.factors, strict=True)]
    variance = max(sums.square / max(sums.weight, 1.0), 1e-300)
    covariances = [0.3 * variance * np.diag(1.0 / _typical(f.products, q)) for f, q in _terms(model, sums)]
    own = [np.zeros_like(f.products) for f in sums.factors]
    for number in range(_ROUNDS):
        before = np.concatenate([[variance], *(np.diag(c) for c in covariances)])
        for k, factor in enumerate(sums.factors):
            inverse = np.linalg.inv(covariances[k])
            own[k] = np.linalg.inv(factor.products / variance + inverse)
            b = np.einsum("gab,gb->ga", own[k], other_scores(sums, k, beta, flat) / variance)
            flat[slices[k]] = b.reshape(-1)
        for pair in range(pairs.counts.size):
            _trade(model, pairs, pair, covariances, flat, slices)
        right = sums.gradient - sum(
            np.einsum("gja,ga->j", f.crossed, flat[s].reshape(f.scores.shape))
            for f, s in zip(sums.factors, slices, strict=True)
        )
        whole = sums.information / variance + precision
        beta = _solve(whole, right / variance + precision @ (location - sums.centre))
        left = residual_square(sums, beta, flat)
        spread = sum(float(np.einsum("gab,gba->", f.products, v)) for f, v in zip(sums.factors, own, strict=True))
        variance = max((left + spread) / max(sums.weight, 1.0), 1e-12 * max(sums.square, 1e-300))
        for k, factor in enumerate(sums.factors):
            b = flat[slices[k]].reshape(factor.scores.shape)
            scales = np.array([p.scale for p in model.scale_priors[k]])
            covariances[k] = (b.T @ b + own[k].sum(0) + np.diag(0.02 * scales**2)) / (len(b) + 1)
        after = np.concatenate([[variance], *(np.diag(c) for c in covariances)])
        if number > 5 and np.abs(np.log(after / before)).max() < _SETTLED:
            break
    return _mode(model, sums, beta, flat, slices, variance, covariances, precision, own)


def residual_square(sums: SeveralSums, beta: np.ndarray, flat: np.ndarray) -> float:
    """Weighted sum of squared residuals."""
    total = sums.square - 2.0 * beta @ sums.gradient + beta @ sums.information @ beta
    for k, own in enumerate(sums.factors):
        b = flat[sums.starts[k] : sums.starts[k] + own.scores.size].reshape(own.scores.shape)
        rest = own.scores - np.einsum("gja,j->ga", own.crossed, beta)
        total -= float((b * (rest + other_scores(sums, k, beta, flat))).sum())
        total += float(np.einsum("ga,gab,gb->", b, own.products, b))
    return float(total)


def _terms(model: HierarchicalModel, sums: SeveralSums) -> list[tuple[FactorSums, int]]:
    return [(f, len(g.terms)) for f, g in zip(sums.factors, model.factors, strict=True)]


def _typical(products: np.ndarray, q: int) -> np.ndarray:
    """Mean square of each term over the rows, as far as the sums know."""
    diagonal = np.einsum("gaa->a", products)
    return np.maximum(diagonal / max(diagonal.max(), 1e-300), 1e-6)[:q]


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix * np.outer(scale, scale)
    if scale.size and np.linalg.eigvalsh(scaled)[0] < 1e-10:
        raise ModelError(
            "columns of X are collinear, and the prior does not separate them. Drop a column, or use a proper prior such as "
            "tallbayes.priors.normal(10.0)."
        )
    return scale * np.linalg.solve(scaled, scale * right)


def _trade(
    model: HierarchicalModel,
    pairs: FactorPairs,
    pair: int,
    covariances: list[np.ndarray],
    flat: np.ndarray,
    slices: list[slice],
) -> None:
    """Shift the intercepts of two factors against each other to where their priors have it."""
    k, m = pairs.factors[pair]
    ones = [model.factors[f].terms.index(CONSTANT) for f in (k, m)]
    inverses = [np.linalg.inv(covariances[f]) for f in (k, m)]
    effects = [flat[slices[f]].reshape(-1, len(model.factors[f].terms)) for f in (k, m)]
    scores = [(e @ i)[:, one] for e, i, one in zip(effects, inverses, ones, strict=True)]
    both = (float(inverses[0][ones[0], ones[0]]), float(inverses[1][ones[1], ones[1]]))
    precision, linear = part_shifts(pairs, pair, scores[0], scores[1], both)
    for f, e, one, sign in ((k, effects[0], ones[0], 1.0), (m, effects[1], ones[1], -1.0)):
        e[:, one] += sign * (linear / precision)[pairs.parts[pair, pairs.begins[f] : pairs.begins[f] + len(e)]]


def _mode(
    model: HierarchicalModel,
    sums: SeveralSums,
    beta: np.ndarray,
    flat: np.ndarray,
    slices: list[slice],
    variance: float,
    covariances: list[np.ndarray],
    prior: np.ndarray,
    own: list[np.ndarray],
) -> SeveralMode:
    """What was found, with rough standard deviations."""
    d = model.data.d
    sigmas = [np.sqrt(np.diag(c)) for c in covariances]
    correlations = [c / np.outer(s, s) for c, s in zip(covariances, sigmas, strict=True)]
    reference, spread = [*(sums.centre + beta), 0.5 * np.log(variance)], [1.0 / (2.0 * max(sums.weight, 1.0))]
    weakness = []
    for factor, sigma, correlation in zip(sums.factors, sigmas, correlations, strict=True):
        information = np.einsum("gaa->ga", factor.products) * sigma**2 / variance
        weakness.append((1.0 / (1.0 + information)).max(1))
        told = ((information / (1.0 + information)) ** 2).sum(0)
        reference += [*sigma]
        spread += [*(sigma**2 / (2.0 * told + 2.0))]
        for a in range(sigma.size):
            for b in range(a):
                reference.append(correlation[a, b])
                spread.append((1.0 - correlation[a, b] ** 2) ** 2 / (min(told[a], told[b]) + 4.0))
    lead = int(np.argmax([c.trace() / f.levels for c, f in zip(covariances, model.factors, strict=True)]))
    tied = np.einsum("gja,gab,gkb->jk", sums.factors[lead].crossed, own[lead], sums.factors[lead].crossed) / variance**2
    precision = np.zeros((model.dim, model.dim))
    precision[:d, :d] = sums.information / variance + prior - tied
    precision[range(d, model.dim), range(d, model.dim)] = 1.0 / np.array(spread)
    hessian = np.zeros((model.dim, model.dim))
    hessian[:d, :d] = -sums.information / variance
    passes = 1 + len(model.factors)
    effects = [flat[s].reshape(f.scores.shape).copy() for f, s in zip(sums.factors, slices, strict=True)]
    out = SeveralMode(
        model,
        np.array(reference),
        float("nan"),
        np.zeros(model.dim),
        hessian,
        precision,
        passes,
        passes * model.data.n,
        effects=effects,
        sigmas=sigmas,
        correlations=correlations,
        weakness=weakness,
    )
    out.sums = sums
    return out

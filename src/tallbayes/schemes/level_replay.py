"""Decisions of minibatch Gibbs replayed on all rows concerned, for audits.

A decision is right if surrogate and residuals of both ends add up to the log-likelihood, no residual exceeds its bound, and the bounds
add up to the rate at which candidate rows are drawn. The ends are two posterior draws; the log-likelihood comes from a pass that
knows nothing of surrogates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.crossed_rates import effect_products, row_effect_bound, row_slope_bound, slope_products
from tallbayes.bounds.level_rates import coefficient_factors, product
from tallbayes.compile import inlinable, jit
from tallbayes.engine.grouped_rows import add_effects, level_sums, row_of
from tallbayes.engine.rounding import ALLOWANCE
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.proxies.crossed_tables import CrossedTables
from tallbayes.schemes import crossed_coefficients, crossed_moves, factor_surrogates
from tallbayes.schemes.coefficient_moves import effect_sizes, free_shift, linear_term, widened
from tallbayes.schemes.crossed_moves import level_segment
from tallbayes.schemes.crossed_rows import (
    crossed_effect_gap,
    crossed_slope_gap,
    effect_sizes_of_row,
    other_effects,
    others_norm,
)
from tallbayes.schemes.level_fits import surrogate_value
from tallbayes.schemes.level_moves import OneEffect, level_factors, level_surrogates, whitened_radius
from tallbayes.schemes.level_rows import coefficient_gap, effect_gap, level_rate
from tallbayes.schemes.level_vectors import ManyEffects
from tallbayes.target import Target

KINDS = ("coefficients", "levels", "maps")


class Replayed(NamedTuple):
    """One decision: error of surrogate and residuals, largest residual over its bound, relative error of the rate, rows."""

    error: float
    ratio: float
    rate: float
    rows: int


class DrawnState(NamedTuple):
    """A posterior draw: coefficients, and c = b + B beta_J of each factor."""

    beta: np.ndarray
    levels: list[np.ndarray]


@inlinable
def _count_row(shares: Any, position: int, factors: np.ndarray, gap: float, out: np.ndarray) -> None:
    """Add a residual to the sum, its ratio to the largest, its bound to the rate."""
    a, load, bound = shares.norms[position], shares.loads[position], 0.0
    zeta = 1.0 if shares.zetas.size == 0 else shares.zetas[position]
    for k in range(4):
        bound += factors[k] * product(shares.exponential, k, load, a, zeta)
    out[0] += gap
    out[1] = max(out[1], (abs(gap) - ALLOWANCE * (1.0 + load)) / max(bound, 1e-300))
    out[2] += bound


@inlinable
def _count_thinned(gap: float, bound: float, factors: np.ndarray, parts: np.ndarray, load: float, out: np.ndarray) -> None:
    """The same where a candidate row is kept under its own bound; the dominating bounds make up the rate."""
    dominating = 0.0
    for c in range(7):
        dominating += factors[c] * parts[c]
    out[0] += gap
    out[1] = max(out[1], (abs(gap) - ALLOWANCE * (1.0 + load)) / max(bound, 1e-300), bound / max(dominating, 1e-300))
    out[2] += dominating


@jit
def _replay_coefficients(
    rows: Any,
    shares: Any,
    reference: np.ndarray,
    centres: np.ndarray,
    levels: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
) -> None:
    for g in range(levels.shape[0]):
        effect = levels[g] - centres[g]
        for position in range(rows.offsets[g], rows.offsets[g + 1]):
            gap = coefficient_gap(rows, rows.records[row_of(rows, position)], reference, centres[g], before, after, effect)
            _count_row(shares, position, factors[g], gap, out)


@jit
def _replay_level(
    rows: Any,
    shares: Any,
    reference: np.ndarray,
    centre: np.ndarray,
    shift: np.ndarray,
    g: int,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
) -> None:
    for position in range(rows.offsets[g], rows.offsets[g + 1]):
        gap = effect_gap(rows, rows.records[row_of(rows, position)], reference, centre, shift, before, after)
        _count_row(shares, position, factors, gap, out)


@jit
def _replay_crossed_slopes(
    rows: Any,
    tables: Any,
    effects: np.ndarray,
    means: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    ends: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
) -> None:
    lead, parts = tables.lead, np.empty(7)
    shares, exponential, spread = tables.shares, tables.exponential, tables.factors[lead].spread
    for i in range(rows.records.shape[0]):
        gap = crossed_slope_gap(rows, i, tables.surrogate.reference, effects, means, before, after)
        total, products = effect_sizes_of_row(rows, i, effects, means)
        a, curve, load = shares[i, 0], shares[i, 1], shares[i, 2]
        bound = row_slope_bound(exponential, tables.ratio, curve, load, a, ends[0], ends[1], ends[2], total, products)
        slope_products(exponential, curve, load, a, shares[i, 3 + lead], others_norm(shares, i, lead, spread), parts)
        _count_thinned(gap, bound, factors[rows.codes[i, lead]], parts, curve + load, out)


@jit
def _replay_crossed_level(
    rows: Any,
    tables: Any,
    k: int,
    g: int,
    effects: np.ndarray,
    given: Any,
    before: np.ndarray,
    after: np.ndarray,
    factors: np.ndarray,
    out: np.ndarray,
) -> None:
    own, shares, exponential, parts = tables.factors[k], tables.shares, tables.exponential, np.empty(7)
    moments, furthest = level_segment(own.stretch[g], before, after)
    for position in range(own.offsets[g], own.offsets[g + 1]):
        i = position if own.members.size == 0 else own.members[position]
        known, rest = other_effects(rows, rows.records[i], i, k, own.broad, given.level_shift, effects)
        gap = crossed_effect_gap(rows, i, k, tables.surrogate.reference, given.shift, effects, known, rest, before, after)
        a, curve, load, zeta = shares[i, 0], shares[i, 1], shares[i, 2], shares[i, 3 + k]
        bound = row_effect_bound(
            exponential, tables.ratio, curve, load, a, zeta, given.radius, abs(rest), abs(known), moments, furthest
        )
        effect_products(exponential, curve, load, a, zeta, others_norm(shares, i, k, own.spread), parts)
        _count_thinned(gap, bound, factors, parts, curve + load, out)


def _log_likelihood(model: HierarchicalModel, beta: np.ndarray, levels: list[np.ndarray]) -> float:
    """In centred form: `beta` 0 for carried columns, effects c."""
    shift = np.zeros(model.data.n if len(levels) > 1 else 0)
    for k in range(1, len(levels)):
        add_effects(model.factor_rows(k), levels[k], shift)
    return level_sums(model.factor_rows(0), beta, levels[0], shift, False).value


def _relative(found: float, expected: float) -> float:
    return abs(found - expected) / max(abs(expected), 1e-12)


def replay_one_factor(
    model: HierarchicalModel, target: Target, kind: str, here: DrawnState, there: DrawnState, g: int
) -> Replayed:
    """A decision on a move from one draw to another: of the free coefficients, of level g, or of all levels at once."""
    rows, surrogate, shares = target.rows, target.proxy.surrogate, target.proxy.shares
    centres, reference = surrogate.centres, surrogate.reference
    levels, others = here.levels[0], there.levels[0]
    form: Any = OneEffect() if centres.shape[1] == 1 else ManyEffects()
    delta, before, after = np.empty(surrogate.free.size), np.empty(reference.size), np.empty(reference.size)
    free_shift(surrogate, here.beta, delta)
    widened(surrogate, delta, before)
    out = np.zeros(3)
    if kind == "coefficients":
        other, linear = np.empty(delta.size), np.empty(delta.size)
        free_shift(surrogate, there.beta, other)
        widened(surrogate, other, after)
        linear_term(surrogate, levels, linear)
        known = _quadratic(surrogate.information, linear, other) - _quadratic(surrogate.information, linear, delta)
        sizes = np.empty(len(levels))
        effect_sizes(centres, surrogate.stretch, levels, sizes)
        ends = _segment(surrogate.inverse, delta, other)
        factors = np.array(
            [
                coefficient_factors(shares.exponential, shares.ratio, *ends, n, *m)
                for n, m in zip(sizes, shares.most, strict=True)
            ]
        )
        rate = sum(level_rate(shares.sums, h, factors[h]) for h in range(len(levels)))
        _replay_coefficients(rows, shares, reference, centres, levels, before, after, factors, out)
        exact = _log_likelihood(model, reference + after, [levels]) - _log_likelihood(model, reference + before, [levels])
        return Replayed(abs(known + out[0] - exact), out[1], _relative(out[2], rate), model.data.n)
    slope, curvature = level_surrogates(form, surrogate, delta)
    slope, curvature = slope.reshape(centres.shape), curvature.reshape(surrogate.curvatures.shape)
    radius, moved, known, rate = whitened_radius(surrogate.inverse, delta), levels.copy(), 0.0, 0.0
    chosen = range(len(levels)) if kind == "maps" else [g]
    for h in chosen:
        start, end = levels[h] - centres[h], others[h] - centres[h]
        moved[h] = others[h]
        third = surrogate.thirds[h]
        known += surrogate_value(slope[h], curvature[h], third, end) - surrogate_value(slope[h], curvature[h], third, start)
        own = np.array(level_factors(form, shares, surrogate.stretch, h, radius, start, end))
        rate += level_rate(shares.sums, h, own)
        _replay_level(rows, shares, reference, centres[h], before, h, start, end, own, out)
    exact = _log_likelihood(model, reference + before, [moved]) - _log_likelihood(model, reference + before, [levels])
    count = int(sum(rows.offsets[h + 1] - rows.offsets[h] for h in chosen))
    return Replayed(abs(known + out[0] - exact), out[1], _relative(out[2], rate) if rate > 0.0 else 0.0, count)


def replay_several(
    model: HierarchicalModel, target: Target, kind: str, here: DrawnState, there: DrawnState, k: int, g: int
) -> Replayed:
    """The same for several factors: of the free coefficients, of level g of factor k, or of all levels of factor k at once."""
    rows, tables = target.rows, target.proxy
    assert isinstance(tables, CrossedTables)
    core, own = tables.surrogate, tables.factors[k]
    effects = np.concatenate([c.reshape(-1) for c in here.levels]) - rows.centres
    delta, before, after = np.empty(core.free.size), np.empty(core.reference.size), np.empty(core.reference.size)
    free_shift(core, here.beta, delta)
    widened(core, delta, before)
    out, start_levels = np.zeros(3), here.levels
    if kind == "coefficients":
        means = factor_surrogates.factor_means(tables, effects)
        other, linear, lead = np.empty(delta.size), np.empty(delta.size), tables.factors[tables.lead]
        free_shift(core, there.beta, other)
        widened(core, other, after)
        crossed_coefficients.crossed_linear_term(tables, effects, means, linear)
        known = _quadratic(core.information, linear, other) - _quadratic(core.information, linear, delta)
        ends = np.array(_segment(core.inverse, delta, other))
        factors = np.empty((len(lead.centres), 7))
        rate = crossed_coefficients.slope_rates(tables, effects, means, *ends, factors)
        _replay_crossed_slopes(rows, tables, effects, means, before, after, ends, factors, out)
        exact = _log_likelihood(model, core.reference + after, start_levels)
        exact -= _log_likelihood(model, core.reference + before, start_levels)
        return Replayed(abs(known + out[0] - exact), out[1], _relative(out[2], rate), model.data.n)
    given = factor_surrogates.rest_of_factor(tables, k, effects, delta, before, whitened_radius(core.inverse, delta))
    moved, known, rate, one = here.levels[k].copy(), 0.0, 0.0, np.empty(7)
    chosen = range(len(moved)) if kind == "maps" else [g]
    for h in chosen:
        start, end = here.levels[k][h] - own.centres[h], there.levels[k][h] - own.centres[h]
        moved[h] = there.levels[k][h]
        slope, curvature, third = given.slope[h], given.curvature[h], own.thirds[h]
        known += surrogate_value(slope, curvature, third, end) - surrogate_value(slope, curvature, third, start)
        fixed = given.radius, given.rest, given.reach
        rate += crossed_moves.level_gap_rate(
            tables.exponential, tables.ratio, own.stretch[h], own.most[h], own.sums, h, *fixed, start, end, one
        )[0]
        _replay_crossed_level(rows, tables, k, h, effects, given, start, end, one, out)
    ends_levels = [moved if m == k else c for m, c in enumerate(here.levels)]
    exact = _log_likelihood(model, core.reference + before, ends_levels)
    exact -= _log_likelihood(model, core.reference + before, start_levels)
    count = int(sum(own.offsets[h + 1] - own.offsets[h] for h in chosen))
    return Replayed(abs(known + out[0] - exact), out[1], _relative(out[2], rate) if rate > 0.0 else 0.0, count)


def _quadratic(information: np.ndarray, linear: np.ndarray, delta: np.ndarray) -> float:
    return float(linear @ delta - 0.5 * delta @ information @ delta)


def _segment(inverse: np.ndarray, delta: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Length of the whitened segment, mean of the squared length along it, and the larger end."""
    first, second = inverse @ delta, inverse @ other
    square = float(first @ first + first @ second + second @ second) / 3.0
    return float(np.linalg.norm(second - first)), square, float(max(np.linalg.norm(first), np.linalg.norm(second)))

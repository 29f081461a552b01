"""Minibatch Gibbs over several factors, crossed or nested: one sweep, and how warm-up tunes it.

A sweep moves the free coefficients; then for each factor its levels, the coefficients that they carry, their covariance, and maps of
the covariance and of the carried coefficients that take all levels along; then coefficients against factors that could carry them,
and pairs of factors against each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Policy, init, step
from tallbayes.engine.covariances import correlation_factor, unconstrained_covariance
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import tuning
from tallbayes.moves.linear import lower_times, normal_vector
from tallbayes.proxies.centred_columns import add_means, to_coefficients
from tallbayes.proxies.crossed_tables import CrossedTables
from tallbayes.schemes.coefficient_moves import INDEPENDENT, WALK, CoefficientMove, draw_carried, free_shift, widened
from tallbayes.schemes.covariance_slice import draw_covariance
from tallbayes.schemes.crossed_coefficients import move_crossed_coefficients, trade_factors, translate_coefficients
from tallbayes.schemes.crossed_moves import map_factor, move_factor_levels
from tallbayes.schemes.factor_surrogates import rest_of_factor
from tallbayes.schemes.gibbs_info import AT
from tallbayes.schemes.level_fits import backward_solve, fit_factor, fit_mean, level_precision
from tallbayes.schemes.level_moves import MAP_INFLATION, map_budget, prior_mean, whitened_radius
from tallbayes.target import Target


class CrossedState(NamedTuple):
    """theta has coefficients, standard deviations, correlations and effects b; `beta` has gamma_0 for the intercept (`centred_columns`);
    `effects` are deviations of c = b + B beta_J from the centres, factor by factor and level by level."""

    theta: np.ndarray
    beta: np.ndarray
    log_sd: np.ndarray
    partial: np.ndarray
    effects: np.ndarray


class CrossedOptions(NamedTuple):
    """Compiled options."""

    coefficients: CoefficientMove
    map_share: float  # probability of each kind of map move of a factor in a sweep
    map_inflation: float  # factor of the rates of map moves
    scale_steps: np.ndarray  # (factors,)
    shift_factors: np.ndarray  # (factors, j, j): lower triangular, of proposals of carried coefficients; padded with zeros


@inlinable
def _fill_theta(tables: Any, rows: Any, state: CrossedState) -> None:
    """Write the state in the parameters of the model."""
    beta, theta = state.beta, state.theta
    at, sd, partial = beta.size, 0, 0
    for j in range(beta.size):
        theta[j] = beta[j]
    add_means(tables.surrogate, -1.0, theta[: beta.size])
    for k in range(len(tables.factors)):
        q = rows.terms[k]
        factor = np.empty((q, q))
        correlation_factor(state.partial[partial : partial + q * (q - 1) // 2], factor)
        for a in range(q):
            theta[at + a] = math.exp(state.log_sd[sd + a])
        at += q
        for a in range(q):
            for b in range(a):
                total = 0.0
                for c in range(b + 1):
                    total += factor[a, c] * factor[b, c]
                theta[at] = total
                at += 1
        sd += q
        partial += q * (q - 1) // 2
    for k in range(len(tables.factors)):
        own = tables.factors[k]
        q, begin, effects = own.centres.shape[1], own.start, state.effects
        centres, carriers, carried = own.centres, own.prior.carriers, own.carried
        for a in range(q):
            for g in range(centres.shape[0]):
                theta[at] = centres[g, a] + effects[begin + g * q + a] - prior_mean(carriers, carried, beta, g, a)
                at += 1


@inlinable
def _start_levels(
    rng: np.random.Generator,
    own: Any,
    given: Any,
    beta: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
    effects: np.ndarray,
) -> None:
    """Levels of a factor drawn from their Gaussian fits."""
    q = log_sd.size
    precision, factor, scratch = np.empty((q, q)), np.empty((q, q)), np.empty((q, q))
    offset, mean, noise = np.empty(q), np.empty(q), np.empty(q)
    level_precision(log_sd, partial, precision)
    for g in range(own.centres.shape[0]):
        fit_factor(given.curvature[g], own.curvatures[g], own.stretch[g], precision, factor, scratch)
        for a in range(q):
            offset[a] = own.centres[g, a] - prior_mean(own.prior.carriers, own.carried, beta, g, a)
            noise[a] = rng.standard_normal()
        fit_mean(factor, given.slope[g], precision, offset, mean)
        backward_solve(factor, noise)
        for a in range(q):
            effects[own.start + g * q + a] = mean[a] + noise[a]


@init.register(CrossedOptions)
def _init(rng: np.random.Generator, target: Target, options: CrossedOptions, theta: np.ndarray) -> Any:
    tables, rows = target.proxy, target.rows
    core, d = tables.surrogate, rows.columns
    sds, partials = 0, 0
    for k in range(rows.terms.size):
        sds += rows.terms[k]
        partials += rows.terms[k] * (rows.terms[k] - 1) // 2
    beta, log_sd, partial = theta[:d].copy(), np.empty(sds), np.empty(partials)
    add_means(core, 1.0, beta)
    effects, at, sd, corr = np.zeros(rows.centres.size), d, 0, 0
    delta, shift = np.empty(core.free.size), np.empty(d)
    free_shift(core, beta, delta)
    widened(core, delta, shift)
    radius = whitened_radius(core.inverse, delta)
    for k in range(rows.terms.size):
        q, own = rows.terms[k], tables.factors[k]
        pairs = q * (q - 1) // 2
        log_own, partial_own = log_sd[sd : sd + q], partial[corr : corr + pairs]
        unconstrained_covariance(theta[at : at + q], theta[at + q : at + q + pairs], log_own, partial_own)
        given = rest_of_factor(tables, k, effects, delta, shift, radius)
        _start_levels(rng, own, given, beta, log_own, partial_own, effects)
        at += q + pairs
        sd += q
        corr += pairs
    state = CrossedState(theta.copy(), beta, log_sd, partial, effects)
    _fill_theta(tables, rows, state)
    return state


@inlinable
def _scatter(own: Any, beta: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """Sum over the levels of a factor of b b'."""
    q = own.centres.shape[1]
    out, b, begin = np.zeros((q, q)), np.empty(q), own.start
    centres, carriers, carried = own.centres, own.prior.carriers, own.carried
    for g in range(centres.shape[0]):
        for a in range(q):
            b[a] = centres[g, a] + effects[begin + g * q + a] - prior_mean(carriers, carried, beta, g, a)
        for a in range(q):
            for c in range(q):
                out[a, c] += b[a] * b[c]
    return out


@inlinable
def _sweep_factor(
    rng: np.random.Generator,
    target: Target,
    options: CrossedOptions,
    k: int,
    beta: np.ndarray,
    log_sd: np.ndarray,
    partial: np.ndarray,
    effects: np.ndarray,
    info: np.ndarray,
) -> int:
    """Everything that belongs to factor k; returns the levels that moved."""
    tables = target.proxy
    core, own = tables.surrogate, tables.factors[k]
    count, q = own.centres.shape[0], own.centres.shape[1]
    delta, shift = np.empty(core.free.size), np.empty(beta.size)
    free_shift(core, beta, delta)
    widened(core, delta, shift)
    given = rest_of_factor(tables, k, effects, delta, shift, whitened_radius(core.inverse, delta))
    swept = move_factor_levels(rng, target, k, beta, log_sd, partial, effects, given)
    info[AT.level_rows] += swept.rows
    info[AT.full_levels] += swept.full
    inverse = np.empty((q, q))
    level_precision(log_sd, partial, inverse)
    if own.carried.size > 0:
        levels = np.empty((count, q))
        for g in range(count):
            for a in range(q):
                levels[g, a] = own.centres[g, a] + effects[own.start + g * q + a]
        prior = own.prior
        draw_carried(rng, own.carried, own.kept, tables.prior, prior.carriers, prior.carrier_products, inverse, beta, levels)
    draw_covariance(rng, own.prior.scales, own.prior.eta, count, _scatter(own, beta, effects), log_sd, partial)
    for kind in range(2 if own.carried.size > 0 else 1):
        if not rng.random() < options.map_share:
            continue
        other, other_sd, other_partial = beta.copy(), log_sd.copy(), partial.copy()
        if kind == 0:
            for a in range(log_sd.size):
                other_sd[a] += options.scale_steps[k] * rng.standard_normal()
            for a in range(partial.size):
                other_partial[a] += options.scale_steps[k] * rng.standard_normal()
        else:
            j = own.carried.size
            change = np.empty(j)
            lower_times(options.shift_factors[k, :j, :j].copy(), normal_vector(rng, j), change)
            for c in range(j):
                other[own.carried[c]] += change[c]
        mapped = map_factor(
            rng, target, k, beta, log_sd, partial, effects, given, other, other_sd, other_partial, options.map_inflation
        )
        at = AT.scale_tried if kind == 0 else AT.shift_tried
        info[at] += 1.0
        info[at + 1] += 1.0 if mapped.accepted else 0.0
        info[AT.map_rows] += mapped.rows
    level_precision(log_sd, partial, inverse)
    translate_coefficients(rng, tables, k, inverse, beta, effects)
    return swept.accepted


@step.register(CrossedOptions)
def _step(rng: np.random.Generator, target: Target, options: CrossedOptions, state: Any, info: np.ndarray) -> Any:
    tables, rows = target.proxy, target.rows
    beta, log_sd, partial, effects = state.beta.copy(), state.log_sd.copy(), state.partial.copy(), state.effects.copy()
    info[:] = 0.0
    if tables.surrogate.free.size > 0:
        moved = move_crossed_coefficients(rng, target, options.coefficients, beta, effects)
        info[AT.accepted] = 1.0 if moved.accepted else 0.0
        info[AT.component] = moved.component
        info[AT.coefficient_rows] = moved.rows
    sd, corr, accepted, count = 0, 0, 0, 0
    starts = np.empty((rows.terms.size, 2), np.int64)
    for k in range(rows.terms.size):
        q = rows.terms[k]
        starts[k, 0], starts[k, 1] = sd, corr
        log_own, partial_own = log_sd[sd : sd + q], partial[corr : corr + q * (q - 1) // 2]
        accepted += _sweep_factor(rng, target, options, k, beta, log_own, partial_own, effects, info)
        count += tables.factors[k].centres.shape[0]
        sd += q
        corr += q * (q - 1) // 2
    info[AT.level_acceptance] = accepted / count
    info[AT.acceptance_rate] = accepted / count
    for pair in range(tables.pairs.counts.size):
        first, second = tables.pairs.factors[pair, 0], tables.pairs.factors[pair, 1]
        q, p = rows.terms[first], rows.terms[second]
        one, two = np.empty((q, q)), np.empty((p, p))
        at, to = starts[first], starts[second]
        level_precision(log_sd[at[0] : at[0] + q], partial[at[1] : at[1] + q * (q - 1) // 2], one)
        level_precision(log_sd[to[0] : to[0] + p], partial[to[1] : to[1] + p * (p - 1) // 2], two)
        trade_factors(rng, tables, pair, one, two, beta, effects)
    state = CrossedState(np.empty(state.theta.size), beta, log_sd, partial, effects)
    _fill_theta(tables, rows, state)
    return state


class CrossedTuning(NamedTuple):
    """What warm-up knows of a chain."""

    updates: float
    log_walk: float
    log_scale: float
    log_shift: float
    independent: float
    inflation: float
    map_inflation: float


class CrossedPolicy(Policy):
    """Warm-up: steps by stochastic approximation, one multiple of the Laplace standard deviations for all factors."""

    def __init__(
        self, model: HierarchicalModel, mode: HierarchicalMode, tables: CrossedTables, inflation: float | None
    ) -> None:
        self.model, self.tables, self.inflation = model, tables, inflation
        at, scales, sds = model.data.d, [], mode.laplace().sd
        for sigma in mode.sigmas:
            q = sigma.size
            scales.append(2.4 * float(np.mean(sds[at : at + q] / sigma)) / math.sqrt(q * (q + 1) / 2))
            at += q * (q + 1) // 2
        self.scales = np.array(scales)
        widest = max(1, *(own.carried.size for own in tables.factors))
        self.shifts = np.zeros((len(tables.factors), widest, widest))
        back = np.linalg.inv(to_coefficients(tables.surrogate.constant, tables.surrogate.means))
        covariance = back @ mode.covariance[: len(back), : len(back)] @ back.T
        for k, own in enumerate(tables.factors):
            j = own.carried.size
            if j:
                root = np.linalg.cholesky(covariance[np.ix_(own.carried, own.carried)])
                self.shifts[k, :j, :j] = 2.4 / math.sqrt(j) * root
        self.levels = sum(factor.levels for factor in model.factors)
        weak = max(float(w.mean()) for w in mode.weakness)
        self.map_share = 1.0 if weak > 0.05 else 0.25

    def begin(self) -> CrossedTuning:
        """Steps of 2.4 standard deviations over the root of the dimension."""
        walk = 2.4 / math.sqrt(max(1, self.tables.surrogate.free.size))
        return CrossedTuning(0.0, math.log(walk), 0.0, 0.0, 0.7, self.inflation or 1.0, self.inflation or 1.0)

    def seen(self, theta: np.ndarray) -> np.ndarray:
        """None."""
        return theta[:, :0]

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> CrossedTuning:
        """Steps towards 0.35 accepted map moves and 0.25 accepted random walks; independent proposals as far as they are accepted."""
        gain = 2.0 / math.sqrt(state.updates + 2.0)
        values, free = state._asdict(), self.tables.surrogate.free.size
        walks = info["component"] == WALK
        if free and walks.any():
            values["log_walk"] += gain * (float(info["accepted"][walks].mean()) - 0.25)
        for name, kind in (("log_scale", "scale"), ("log_shift", "shift")):
            tried = float(info[f"{kind}_tried"].sum())
            if tried > 0.0:
                values[name] += gain * (float(info[f"{kind}_accepted"].sum()) / tried - 0.35)
        fresh = info["component"] == INDEPENDENT
        if free and fresh.any():
            rate = float(info["accepted"][fresh].mean())
            values["independent"] = 0.8 * state.independent + 0.2 * min(0.8, max(0.2, rate))
            rows = float(info["coefficient_rows"].mean())
            if self.inflation is None and rate < 0.8 and rows < 0.5 * float(info["level_rows"].mean()) + 20.0:
                values["inflation"] = min(10.0, 1.5 * state.inflation)
        if self.inflation is None and float(info["map_rows"].mean()) < map_budget(self.levels):
            values["map_inflation"] = min(MAP_INFLATION, 2.0 * state.map_inflation)
        values["updates"] += 1.0
        return CrossedTuning(**values)

    def options(self, state: Any, final: bool) -> CrossedOptions:
        """Kernels at the present numbers."""
        rest = 1.0 - state.independent
        kernel = CoefficientMove(state.independent, 0.6 * rest, math.exp(state.log_walk), state.inflation)
        return CrossedOptions(
            kernel,
            self.map_share,
            state.map_inflation,
            math.exp(state.log_scale) * self.scales,
            math.exp(state.log_shift) * self.shifts,
        )

    def blank(self, theta: np.ndarray) -> CrossedState:
        """A state at the parameters, levels still to be drawn."""
        m, effects = self.model.dim, self.model.level_count
        whole = np.zeros(m + effects)
        whole[:m] = theta[:m]
        terms = [len(f.terms) for f in self.model.factors]
        pairs = sum(q * (q - 1) // 2 for q in terms)
        return CrossedState(whole, np.zeros(self.model.data.d), np.zeros(sum(terms)), np.zeros(pairs), np.zeros(effects))

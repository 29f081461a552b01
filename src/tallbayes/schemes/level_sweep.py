"""Minibatch Gibbs over the levels of one factor: one sweep, and how warm-up tunes it.

A sweep moves the free coefficients; then the levels, the coefficients that they carry and their covariance; then carried coefficients and
covariance with all levels taken along by the map of `level_moves`, proposed from their posterior as warm-up saw it or by a random walk.
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
from tallbayes.proxies.centred_columns import add_means, to_coefficients
from tallbayes.proxies.level_tables import LevelTables
from tallbayes.schemes.coefficient_moves import (
    INDEPENDENT,
    WALK,
    CoefficientMove,
    draw_carried,
    free_shift,
    move_coefficients,
    widened,
)
from tallbayes.schemes.covariance_slice import draw_covariance
from tallbayes.schemes.gibbs_info import AT
from tallbayes.schemes.level_fits import level_precision
from tallbayes.schemes.level_moves import (
    MAP_INFLATION,
    RestOfLevels,
    level_surrogates,
    map_budget,
    map_move,
    move_levels,
    start_levels,
    whitened_radius,
)
from tallbayes.schemes.map_proposals import (
    JOINT,
    SCALE,
    SHIFT,
    MapMoves,
    Seen,
    collect,
    fitted_proposal,
    nothing_seen,
    propose_map,
)
from tallbayes.target import Target


class State(NamedTuple):
    """theta has coefficients, standard deviations, correlations and effects b; `beta` has gamma_0 for the intercept (`centred_columns`);
    `levels` are c = b + B beta_J."""

    theta: np.ndarray
    beta: np.ndarray
    log_sd: np.ndarray
    partial: np.ndarray
    levels: np.ndarray


class GibbsOptions(NamedTuple):
    """Compiled options."""

    form: Any
    coefficients: CoefficientMove
    maps: MapMoves


@inlinable
def _effect(carriers: np.ndarray, carried: np.ndarray, beta: np.ndarray, levels: np.ndarray, g: int, a: int) -> float:
    """b = c - B beta_J of a level."""
    total = levels[g, a]
    for k in range(carried.size):
        total -= carriers[g, a, k] * beta[carried[k]]
    return total


@inlinable
def _fill_theta(carriers: np.ndarray, surrogate: Any, state: State) -> None:
    """Write the state in the parameters of the model."""
    beta, theta, levels, q = state.beta, state.theta, state.levels, state.log_sd.size
    d, carried = beta.size, surrogate.carried
    for j in range(d):
        theta[j] = beta[j]
    add_means(surrogate, -1.0, theta[:d])
    factor = np.empty((q, q))
    correlation_factor(state.partial, factor)
    at = d + q
    for a in range(q):
        theta[d + a] = math.exp(state.log_sd[a])
        for b in range(a):
            total = 0.0
            for c in range(b + 1):
                total += factor[a, c] * factor[b, c]
            theta[at] = total
            at += 1
    for a in range(q):
        for g in range(levels.shape[0]):
            theta[at] = _effect(carriers, carried, beta, levels, g, a)
            at += 1


@init.register(GibbsOptions)
def _init(rng: np.random.Generator, target: Target, options: GibbsOptions, theta: np.ndarray) -> Any:
    tables, surrogate = target.proxy, target.proxy.surrogate
    d, q = surrogate.reference.size, surrogate.centres.shape[1]
    beta, log_sd, partial = theta[:d].copy(), np.empty(q), np.empty(q * (q - 1) // 2)
    add_means(surrogate, 1.0, beta)
    unconstrained_covariance(theta[d : d + q], theta[d + q : d + q + partial.size], log_sd, partial)
    delta = np.empty(surrogate.free.size)
    free_shift(surrogate, beta, delta)
    slope, curvature = level_surrogates(options.form, surrogate, delta)
    levels = start_levels(options.form, rng, tables, beta, log_sd, partial, slope, curvature)
    state = State(theta.copy(), beta, log_sd, partial, levels)
    _fill_theta(tables.prior.carriers, surrogate, state)
    return state


@inlinable
def _scatter(carriers: np.ndarray, carried: np.ndarray, beta: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Sum over levels of b b'."""
    q = levels.shape[1]
    out, b = np.zeros((q, q)), np.empty(q)
    for g in range(levels.shape[0]):
        for a in range(q):
            b[a] = _effect(carriers, carried, beta, levels, g, a)
        for a in range(q):
            for c in range(q):
                out[a, c] += b[a] * b[c]
    return out


@step.register(GibbsOptions)
def _step(rng: np.random.Generator, target: Target, options: GibbsOptions, state: Any, info: np.ndarray) -> Any:
    surrogate, prior, form = target.proxy.surrogate, target.proxy.prior, options.form
    beta, log_sd, partial = state.beta.copy(), state.log_sd.copy(), state.partial.copy()
    levels, carriers, carried, free = state.levels.copy(), prior.carriers, surrogate.carried, surrogate.free
    count = levels.shape[0]
    info[:] = 0.0
    if free.size > 0:
        moved = move_coefficients(rng, target, options.coefficients, beta, levels)
        info[AT.accepted] = 1.0 if moved.accepted else 0.0
        info[AT.component] = moved.component
        info[AT.coefficient_rows] = moved.rows
    delta, shift = np.empty(free.size), np.empty(beta.size)
    free_shift(surrogate, beta, delta)
    widened(surrogate, delta, shift)
    slope, curvature = level_surrogates(form, surrogate, delta)
    radius = whitened_radius(surrogate.inverse, delta)
    given = RestOfLevels(shift, radius, slope, curvature)
    swept = move_levels(form, rng, target, beta, log_sd, partial, levels, given)
    info[AT.level_acceptance] = swept.accepted / count
    info[AT.acceptance_rate] = swept.accepted / count
    info[AT.level_rows] = swept.rows
    info[AT.full_levels] = swept.full
    precision = np.empty((log_sd.size, log_sd.size))
    level_precision(log_sd, partial, precision)
    draw_carried(rng, carried, free, prior, carriers, prior.carrier_products, precision, beta, levels)
    draw_covariance(rng, prior.scales, prior.eta, count, _scatter(carriers, carried, beta, levels), log_sd, partial)
    maps = options.maps
    for kind in range(3):
        share = maps.joint if kind == JOINT else maps.walks
        if (kind == SHIFT and carried.size == 0) or not rng.random() < share:
            continue
        other, other_sd, other_partial = beta.copy(), log_sd.copy(), partial.copy()
        correction = propose_map(rng, maps, kind, carried, other, other_sd, other_partial)
        given = RestOfLevels(shift, radius, slope, curvature, maps.inflation, correction)
        mapped = map_move(form, rng, target, beta, log_sd, partial, levels, given, other, other_sd, other_partial)
        at = AT.joint_tried if kind == JOINT else AT.scale_tried if kind == SCALE else AT.shift_tried
        info[at] = 1.0
        info[at + 1] = 1.0 if mapped.accepted else 0.0
        info[AT.map_rows] += mapped.rows
    state = State(np.empty(state.theta.size), beta, log_sd, partial, levels)
    _fill_theta(carriers, surrogate, state)
    return state


class GibbsTuning(NamedTuple):
    """What warm-up knows of a chain."""

    updates: float
    log_walk: float
    log_scale: float
    log_shift: float
    independent: float
    inflation: float
    map_inflation: float
    walks: float  # probability of each random walk of a map move in a sweep, as a share of that of map moves
    seen: Seen
    centre: np.ndarray  # of independent proposals of map moves, and their factor; empty until enough was seen
    root: np.ndarray


class GibbsPolicy(Policy):
    """Warm-up: steps by stochastic approximation, shares of proposals and inflation of rates from what was accepted.

    The draws of the first half of warm-up, without its beginning, give independent proposals of map moves to the second half, whose
    draws give those of the run.
    """

    def __init__(
        self, model: HierarchicalModel, mode: HierarchicalMode, tables: LevelTables, form: Any, inflation: float | None
    ) -> None:
        self.model, self.form = model, form
        self.surrogate = surrogate = tables.surrogate
        d, q = model.data.d, len(model.factors[0].terms)
        back = np.linalg.inv(to_coefficients(surrogate.constant, surrogate.means))
        covariance = (back @ mode.covariance[: len(back), : len(back)] @ back.T)[np.ix_(surrogate.carried, surrogate.carried)]
        self.shift = np.linalg.cholesky(covariance) if surrogate.carried.size else np.zeros((0, 0))
        self.scale = float(np.mean(mode.laplace().sd[d : d + q] / mode.sigmas[0]))
        self.inflation = inflation
        self.size = surrogate.carried.size + q * (q + 1) // 2
        self.map_share = 1.0 if float(mode.weakness[0].mean()) > 0.05 else 0.25

    def begin(self) -> GibbsTuning:
        """Steps of 2.4 standard deviations over the root of the dimension."""
        m = self.surrogate.centres.shape[1]
        walk = 2.4 / math.sqrt(max(1, self.surrogate.free.size))
        scale = 2.4 * self.scale / math.sqrt(m * (m + 1) / 2)
        return GibbsTuning(
            0.0,
            math.log(walk),
            math.log(scale),
            math.log(2.4 / math.sqrt(max(1, self.surrogate.carried.size))),
            0.7,
            self.inflation or 1.0,
            self.inflation or 1.0,
            1.0,
            nothing_seen(self.size),
            np.zeros(0),
            np.zeros((0, 0)),
        )

    def seen(self, theta: np.ndarray) -> np.ndarray:
        """Parameters without levels."""
        return theta[:, : self.model.dim].copy()

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> GibbsTuning:
        """Steps towards 0.35 accepted map moves and 0.25 accepted random walks; rates up while that buys acceptance cheaply."""
        gain = 2.0 / math.sqrt(state.updates + 2.0)
        values = state._asdict()
        for name, tried, accepted, goal in (
            ("log_walk", info["component"] == WALK, info["accepted"], 0.25),
            ("log_scale", info["scale_tried"] > 0, info["scale_accepted"], 0.35),
            ("log_shift", info["shift_tried"] > 0, info["shift_accepted"], 0.35),
        ):
            if tried.any() and (name != "log_walk" or self.surrogate.free.size):
                values[name] += gain * (float(accepted[tried].mean()) - goal)
        fresh = info["component"] == INDEPENDENT
        if self.surrogate.free.size and fresh.any():
            rate = float(info["accepted"][fresh].mean())
            values["independent"] = 0.8 * state.independent + 0.2 * min(0.9, max(0.2, 1.2 * rate))
            rows = float(info["coefficient_rows"].mean())
            if self.inflation is None and rate < 0.9 and rows < 0.5 * float(info["level_rows"].mean()) + 20.0:
                values["inflation"] = min(10.0, 1.5 * state.inflation)
        if self.inflation is None and float(info["map_rows"].mean()) < map_budget(self.surrogate.centres.shape[0]):
            values["map_inflation"] = min(MAP_INFLATION, 2.0 * state.map_inflation)
        self._learn(values, info, self._hyperparameters(draws), end, warmup)
        values["updates"] += 1.0
        return GibbsTuning(**values)

    def _hyperparameters(self, draws: np.ndarray) -> np.ndarray:
        """Carried coefficients, log standard deviations and partial correlations of draws, as map moves have them."""
        core, d, q = self.surrogate, self.model.data.d, len(self.model.factors[0].terms)
        out = np.empty((draws.shape[0], self.size))
        for row, theta in zip(out, draws, strict=True):
            beta, log_sd, partial = theta[:d].copy(), np.empty(q), np.empty(q * (q - 1) // 2)
            add_means(core, 1.0, beta)
            unconstrained_covariance(theta[d : d + q], theta[d + q : d + q + partial.size], log_sd, partial)
            row[:] = np.concatenate([beta[core.carried], log_sd, partial])
        return out

    def _learn(self, values: dict[str, Any], info: dict[str, np.ndarray], draws: np.ndarray, end: int, warmup: int) -> None:
        """Collect draws from a fifth of warm-up on; proposals from them half-way and at the end, random walks as far as needed."""
        begun = end - draws.shape[0]
        if begun >= 0.2 * warmup:
            values["seen"] = collect(values["seen"], draws)
        tried = info["joint_tried"] > 0
        if tried.any():
            accepted = float(info["joint_accepted"][tried].mean())
            values["walks"] = 0.5 * values["walks"] + 0.5 * min(1.0, max(0.05, 1.2 - 1.6 * accepted))
        if begun < 0.5 * warmup <= end or end == warmup:
            centre, root = fitted_proposal(values["seen"])
            if centre.size:
                values["centre"], values["root"] = centre, root
            values["seen"] = nothing_seen(self.size)

    def options(self, state: Any, final: bool) -> GibbsOptions:
        """Kernels at the present numbers."""
        rest = 1.0 - state.independent
        kernel = CoefficientMove(state.independent, 0.6 * rest, math.exp(state.log_walk), state.inflation)
        shift = np.ascontiguousarray(math.exp(state.log_shift) * self.shift)
        maps = MapMoves(
            self.map_share if state.centre.size else 0.0,
            self.map_share * state.walks,
            state.map_inflation,
            math.exp(state.log_scale),
            shift,
            state.centre,
            state.root,
            np.ascontiguousarray(np.linalg.inv(state.root)),
        )
        return GibbsOptions(self.form, kernel, maps)

    def blank(self, theta: np.ndarray) -> State:
        """A state at the parameters, levels still to be drawn."""
        factor, d = self.model.factors[0], self.model.data.d
        q, m = len(factor.terms), self.model.dim
        whole = np.zeros(m + self.model.level_count)
        whole[:m] = theta[:m]
        return State(whole, np.zeros(d), np.zeros(q), np.zeros(q * (q - 1) // 2), np.zeros((factor.levels, q)))

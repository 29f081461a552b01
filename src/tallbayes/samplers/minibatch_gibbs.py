"""Minibatch Gibbs: hierarchical models drawn exactly at a few rows per sweep, independent of n.

eta_i = o_i + x_i . beta + z_i . b_g(i), b_g ~ N(0, Sigma). A sweep moves, in turn,

* the coefficients given the levels, and every level given the coefficients: two stages, first on the surrogate (second order, with the
  third-order terms of the levels), then on the residuals of a Poisson number of rows under certified bounds, as in exact-minibatch;
* the coefficients that levels carry (intercept, group covariates, random slopes), and Sigma, given the levels: no rows;
* Sigma, or the carried coefficients, with all levels taken along by an affine map and its Jacobian: levels with little information mix.

Every move leaves the joint posterior of (beta, Sigma, b) invariant. Tables, reference, steps and shares are frozen after warm-up. EXACT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Guarantee, Policy, Sampler, Setup, init, step
from tallbayes.engine.covariances import correlation_factor, unconstrained_covariance
from tallbayes.errors import OptionError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.mode.laplace import Mode
from tallbayes.mode.linear_mixed import LinearMode
from tallbayes.mode.linear_several import SeveralMode
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import tuning
from tallbayes.moves.linear import lower_times, normal_vector
from tallbayes.proxies.centred_columns import add_means, centred_prior, to_coefficients
from tallbayes.proxies.crossed_tables import CrossedTables, crossed_tables
from tallbayes.proxies.level_tables import LevelTables, level_tables
from tallbayes.schemes.blocked_draws import BlockedPolicy
from tallbayes.schemes.coefficient_moves import (
    INDEPENDENT,
    WALK,
    CoefficientMove,
    draw_carried,
    free_shift,
    move_coefficients,
    widened,
)
from tallbayes.schemes.collapsed_draws import LinearPolicy
from tallbayes.schemes.covariance_slice import draw_covariance
from tallbayes.schemes.crossed_sweep import CrossedPolicy
from tallbayes.schemes.gibbs_info import AT, Info
from tallbayes.schemes.level_audit import audit_levels
from tallbayes.schemes.level_fits import level_precision
from tallbayes.schemes.level_moves import (
    MAP_INFLATION,
    OneEffect,
    RestOfLevels,
    level_surrogates,
    map_budget,
    map_move,
    move_levels,
    start_levels,
    whitened_radius,
)
from tallbayes.schemes.level_vectors import ManyEffects
from tallbayes.target import Target, counters


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
    map_share: float  # probability of each kind of map move in a sweep
    map_inflation: float  # factor of the rates of map moves
    scale_step: float
    shift_factor: np.ndarray  # of proposals of the carried coefficients in map moves


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
    given = RestOfLevels(shift, whitened_radius(surrogate.inverse, delta), slope, curvature, options.map_inflation)
    swept = move_levels(form, rng, target, beta, log_sd, partial, levels, given)
    info[AT.level_acceptance] = swept.accepted / count
    info[AT.acceptance_rate] = swept.accepted / count
    info[AT.level_rows] = swept.rows
    info[AT.full_levels] = swept.full
    precision = np.empty((log_sd.size, log_sd.size))
    level_precision(log_sd, partial, precision)
    draw_carried(rng, carried, free, prior, carriers, prior.carrier_products, precision, beta, levels)
    draw_covariance(rng, prior.scales, prior.eta, count, _scatter(carriers, carried, beta, levels), log_sd, partial)
    for kind in range(2 if carried.size > 0 else 1):
        if not rng.random() < options.map_share:
            continue
        other, other_sd, other_partial = beta.copy(), log_sd.copy(), partial.copy()
        if kind == 0:
            for a in range(log_sd.size):
                other_sd[a] += options.scale_step * rng.standard_normal()
            for a in range(partial.size):
                other_partial[a] += options.scale_step * rng.standard_normal()
        else:
            change = np.empty(carried.size)
            lower_times(options.shift_factor, normal_vector(rng, change.size), change)
            for k in range(change.size):
                other[carried[k]] += change[k]
        mapped = map_move(form, rng, target, beta, log_sd, partial, levels, given, other, other_sd, other_partial)
        at = AT.scale_tried if kind == 0 else AT.shift_tried
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


class GibbsPolicy(Policy):
    """Warm-up: steps by stochastic approximation, shares of proposals and inflation of rates from what was accepted."""

    sees_draws = False

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
        )

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
            values["independent"] = 0.8 * state.independent + 0.2 * min(0.8, max(0.2, rate))
            rows = float(info["coefficient_rows"].mean())
            if self.inflation is None and rate < 0.8 and rows < 0.5 * float(info["level_rows"].mean()) + 20.0:
                values["inflation"] = min(10.0, 1.5 * state.inflation)
        if self.inflation is None and float(info["map_rows"].mean()) < map_budget(self.surrogate.centres.shape[0]):
            values["map_inflation"] = min(MAP_INFLATION, 2.0 * state.map_inflation)
        values["updates"] += 1.0
        return GibbsTuning(**values)

    def options(self, state: Any, final: bool) -> GibbsOptions:
        """Kernels at the present numbers."""
        rest = 1.0 - state.independent
        kernel = CoefficientMove(state.independent, 0.6 * rest, math.exp(state.log_walk), state.inflation)
        shift = np.ascontiguousarray(math.exp(state.log_shift) * self.shift)
        return GibbsOptions(self.form, kernel, self.map_share, state.map_inflation, math.exp(state.log_scale), shift)

    def blank(self, theta: np.ndarray) -> State:
        """A state at the parameters, levels still to be drawn."""
        factor, d = self.model.factors[0], self.model.data.d
        q, m = len(factor.terms), self.model.dim
        whole = np.zeros(m + self.model.level_count)
        whole[:m] = theta[:m]
        return State(whole, np.zeros(d), np.zeros(q), np.zeros(q * (q - 1) // 2), np.zeros((factor.levels, q)))


@dataclass(frozen=True, eq=False)
class GibbsSetup(Setup):
    """Rows level by level, and the prior of the coefficients alone."""

    def target(self, number: int = 0) -> Target:
        """A target for one chain."""
        assert isinstance(self.model, HierarchicalModel)
        terms = self.model.coefficient_terms
        if isinstance(self.proxy, LevelTables):
            terms = centred_prior(terms, self.proxy.surrogate.constant, self.proxy.surrogate.means)
        return Target(self.model.factor_rows(0), terms, self.proxy, counters())


@dataclass(frozen=True, eq=False)
class CrossedSetup(Setup):
    """Rows with their levels of all factors, and the prior of the coefficients alone."""

    rows: Any = None

    def target(self, number: int = 0) -> Target:
        """A target for one chain."""
        assert isinstance(self.model, HierarchicalModel)
        core = self.proxy.surrogate
        terms = centred_prior(self.model.coefficient_terms, core.constant, core.means)
        return Target(self.rows, terms, self.proxy, counters())


def crossed_reason(model: HierarchicalModel, tables: CrossedTables) -> str:
    """What a fit says of the sampler it was made with."""
    sizes = " and ".join(f"{f.levels:,} levels of {f.name!r}" for f in model.factors)
    kind = "exponential" if tables.exponential else "third- and fourth-derivative"
    carried = [
        f"{f.name!r} carries {model.data.columns[j]}"
        for f, own in zip(model.factors, tables.factors, strict=True)
        for j in own.carried
    ]
    return f"minibatch Gibbs over {sizes} with {kind} bounds" + (f"; {', '.join(carried)}" if carried else "")


@dataclass(frozen=True)
class MinibatchGibbs(Sampler):
    """Minibatch Gibbs for hierarchical models with one grouping factor or several, crossed or nested.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 2))])
    >>> shop = rng.integers(0, 50, 20_000)
    >>> eta = X @ [0.1, 0.5, -0.5] + 0.7 * rng.standard_normal(50)[shop]
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-eta))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"shop": shop}))
    >>> fit = tb.sample(model, "minibatch-gibbs", draws=200, warmup=200, chains=2, seed=1, progress=False)
    >>> fit.names, fit.draws("1|shop").shape, bool(fit.evals.mean() < 400)
    (('x0', 'x1', 'x2', '1|shop_sigma'), (2, 200, 50), True)
    """

    inflation: float | None = None
    guarantee: ClassVar[Guarantee] = Guarantee(
        "EXACT",
        "every move of a sweep leaves the posterior invariant; rows are drawn at random under certified bounds",
        assumed=("the proven bounds of the third and fourth derivative of the family", "arithmetic in double precision"),
        checked=("every residual read is within its bound",),
    )
    name: ClassVar[str] = "minibatch-gibbs"
    Info: ClassVar[type] = Info
    cost: ClassVar[str] = "a few rows per group, independent of n"
    needs_groups: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range."""
        if self.inflation is not None and not self.inflation >= 1.0:
            raise OptionError(f"inflation of the rates must be at least 1; got {self.inflation}.")

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """Tables at the reference: three passes over the rows."""
        assert isinstance(model, HierarchicalModel) and isinstance(mode, HierarchicalMode)
        if isinstance(mode, LinearMode | SeveralMode):
            if self.inflation is not None:
                raise OptionError("inflation= belongs to models whose rows are read; a linear mixed model reads none.")
            linear = LinearPolicy(model, mode) if isinstance(mode, LinearMode) else BlockedPolicy(model, mode)
            return GibbsSetup(
                model, linear, linear.tables, "linear mixed model: exact draws from sums of one pass, no rows are read"
            )
        if len(model.factors) > 1:
            several, rows = crossed_tables(mode)
            return CrossedSetup(
                model, CrossedPolicy(model, mode, several, self.inflation), several, crossed_reason(model, several), rows=rows
            )
        tables = level_tables(mode)
        form: Any = OneEffect() if len(model.factors[0].terms) == 1 else ManyEffects()
        policy = GibbsPolicy(model, mode, tables, form, self.inflation)
        carried = [model.data.columns[j] for j in tables.surrogate.carried]
        kind = "exponential" if tables.shares.exponential else "third- and fourth-derivative"
        why = f"minibatch Gibbs over {model.factors[0].levels:,} levels of {model.factors[0].name!r} with {kind} bounds"
        why += f"; the levels carry {', '.join(carried)}" if carried else ""
        return GibbsSetup(model, policy, tables, why)

    def audit(
        self, model: Model, fit: Any, pairs: int, repeats: int, rng: np.random.Generator
    ) -> tuple[dict[str, Any], list[str]] | None:
        """Decisions of every kind of step replayed on all rows concerned, between pairs of posterior draws."""
        assert isinstance(model, HierarchicalModel)
        from tallbayes.mode.search import find_mode

        mode = find_mode(model, progress=False)
        if isinstance(mode, LinearMode | SeveralMode):
            return {"rows read": "none: draws come from sums of one pass"}, []
        return audit_levels(model, self.prepare(model, mode, 0, False).target(), fit, pairs, rng)

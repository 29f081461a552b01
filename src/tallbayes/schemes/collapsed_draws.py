"""Linear models with an intercept for every level and unknown error: exact draws that read no rows.

(sigma, tau, beta) by Metropolis-Hastings with beta' drawn from its Gaussian law at (sigma', tau'): the ratio is that of the collapsed
density of (sigma, tau) and, where the prior of beta is not Gaussian, of the rest of that prior. Then every b_g from its Gaussian law
N(tau^2 (s_gy - s_gx . beta) / (sigma^2 + W_g tau^2), sigma^2 tau^2 / (sigma^2 + W_g tau^2)).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Policy, init, step
from tallbayes.engine.collapsed_sums import LinearSums, collapsed
from tallbayes.mode.linear_mixed import LinearMode, split_prior
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import tuning
from tallbayes.priors import PriorTerms, prior_value
from tallbayes.scale_priors import scale_log_density
from tallbayes.target import Target

REPEATS = 5  # proposals of (sigma, tau, beta) in a sweep


class LinearTables(NamedTuple):
    """Sums over rows and the prior."""

    sums: LinearSums
    precision: np.ndarray
    location: np.ndarray  # relative to the centre of the sums
    others: PriorTerms
    scale: np.ndarray  # kind, scale, df of the prior of tau


class LinearState(NamedTuple):
    """theta has beta, log sigma, tau and b; `value` is the collapsed log density with priors, `rest` the prior's other part."""

    theta: np.ndarray
    value: float
    rest: float


class LinearOptions(NamedTuple):
    """Compiled options: lower factor of proposals of (log sigma, log tau)."""

    factor: np.ndarray


@inlinable
def _collapsed(tables: Any, log_sigma: float, log_tau: float, mean: np.ndarray, factor: np.ndarray) -> float:
    value = collapsed(tables.sums, tables.precision, tables.location, log_sigma, log_tau, mean, factor)
    return value + scale_log_density(tables.scale, math.exp(log_tau)) + log_tau


@inlinable
def _draw_levels(rng: np.random.Generator, tables: Any, theta: np.ndarray, d: int) -> None:
    sums, variance, between = tables.sums, math.exp(2.0 * theta[d]), theta[d + 1] * theta[d + 1]
    for g in range(sums.weights.size):
        spread = variance + sums.weights[g] * between
        total = sums.totals[g, d]
        for j in range(d):
            total -= sums.totals[g, j] * (theta[j] - sums.centre[j])
        theta[d + 2 + g] = between * total / spread + math.sqrt(variance * between / spread) * rng.standard_normal()


@init.register(LinearOptions)
def _init(rng: np.random.Generator, target: Target, options: LinearOptions, theta: np.ndarray) -> Any:
    tables = target.proxy
    d = tables.location.size
    mean, factor = np.empty(d), np.empty((d, d))
    value = _collapsed(tables, theta[d], math.log(theta[d + 1]), mean, factor)
    whole = theta.copy()
    for j in range(d):
        whole[j] = tables.sums.centre[j] + mean[j]
    _draw_levels(rng, tables, whole, d)
    return LinearState(whole, value, prior_value(tables.others, whole[:d]))


@step.register(LinearOptions)
def _step(rng: np.random.Generator, target: Target, options: LinearOptions, state: Any, info: np.ndarray) -> Any:
    tables = target.proxy
    d = tables.location.size
    theta, value, rest, accepted = state.theta.copy(), state.value, state.rest, 0
    mean, factor, beta = np.empty(d), np.empty((d, d)), np.empty(d)
    info[:] = 0.0
    for _ in range(REPEATS):
        first, second = rng.standard_normal(), rng.standard_normal()
        log_sigma = theta[d] + options.factor[0, 0] * first
        log_tau = math.log(theta[d + 1]) + options.factor[1, 0] * first + options.factor[1, 1] * second
        other = _collapsed(tables, log_sigma, log_tau, mean, factor)
        if not other > -np.inf:
            continue
        for j in range(d):
            beta[j] = rng.standard_normal()
        for k in range(d):
            a = d - 1 - k
            for b in range(a + 1, d):
                beta[a] -= factor[b, a] * beta[b]
            beta[a] /= factor[a, a]
        for j in range(d):
            beta[j] += mean[j] + tables.sums.centre[j]
        other_rest = prior_value(tables.others, beta)
        if math.log(1.0 - rng.random()) < other - value + other_rest - rest:
            value, rest = other, other_rest
            theta[d], theta[d + 1] = log_sigma, math.exp(log_tau)
            for j in range(d):
                theta[j] = beta[j]
            accepted += 1
    _draw_levels(rng, tables, theta, d)
    info[0] = accepted / REPEATS
    return LinearState(theta, value, rest)


class LinearTuning(NamedTuple):
    """What warm-up knows of a chain."""

    updates: float
    log_step: float


class LinearPolicy(Policy):
    """Warm-up of the step of (log sigma, log tau), whose shape is that of the Laplace fit."""

    def __init__(self, model: HierarchicalModel, mode: LinearMode) -> None:
        self.model = model
        self.factor = np.linalg.cholesky(np.linalg.inv(mode.curvature))
        precision, location, others = split_prior(model.coefficient_terms)
        scale = model.scale_priors[0][0].terms()
        self.tables = LinearTables(mode.sums, precision, location - mode.sums.centre, others, scale)

    def begin(self) -> LinearTuning:
        """2.4 standard deviations over the root of two."""
        return LinearTuning(0.0, math.log(2.4 / math.sqrt(2.0)))

    def seen(self, theta: np.ndarray) -> np.ndarray:
        """None."""
        return theta[:, :0]

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> LinearTuning:
        """Towards 0.35 accepted proposals."""
        gain = 1.0 / math.sqrt(state.updates + 1.0)
        return LinearTuning(state.updates + 1.0, state.log_step + gain * (float(info["acceptance_rate"].mean()) - 0.35))

    def options(self, state: Any, final: bool) -> LinearOptions:
        """The factor of the proposals."""
        return LinearOptions(np.ascontiguousarray(math.exp(state.log_step) * self.factor))

    def blank(self, theta: np.ndarray) -> LinearState:
        """A state at the parameters, levels still to be drawn."""
        whole = np.zeros(self.model.dim + self.model.level_count)
        whole[: self.model.dim] = theta[: self.model.dim]
        return LinearState(whole, 0.0, 0.0)

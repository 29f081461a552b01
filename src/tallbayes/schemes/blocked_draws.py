"""Linear models with several factors or random slopes and unknown error: exact blocked Gibbs that reads no rows.

A sweep draws, each from its exact law given the rest: the effects of every factor, coefficients, coefficients against each factor that
could carry them, pairs of factors against each other, every covariance (by slice sampling), and sigma. A scale move takes all effects
of a factor along with its standard deviations.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Policy, init, step
from tallbayes.data.groups import CONSTANT
from tallbayes.engine.cell_sums import SeveralSums
from tallbayes.engine.covariances import correlation_factor, unconstrained_covariance
from tallbayes.mode.linear_mixed import split_prior
from tallbayes.mode.linear_several import SeveralMode
from tallbayes.mode.pairs import FactorPairs, factor_pairs
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.moves import tuning
from tallbayes.priors import FLAT, PriorTerms
from tallbayes.proxies.level_tables import carrier_columns
from tallbayes.schemes.blocked_moves import draw_coefficients, draw_factor, factor_squares, trade_pair, translate_factor
from tallbayes.schemes.covariance_slice import covariance_prior, draw_covariance
from tallbayes.schemes.level_fits import level_precision
from tallbayes.schemes.level_rows import accepts
from tallbayes.target import Target


class BlockedFactor(NamedTuple):
    """Columns that a factor can be translated against, and the prior of its covariance."""

    one: int
    columns: np.ndarray
    carriers: np.ndarray  # (levels, q, columns)
    carrier_products: np.ndarray  # (q, q, columns, columns)
    scales: np.ndarray
    eta: float


class BlockedTables(NamedTuple):
    """Sums over rows and the prior."""

    sums: SeveralSums
    precision: np.ndarray
    location: np.ndarray
    others: PriorTerms
    gaussian: bool
    pairs: FactorPairs
    factors: tuple[BlockedFactor, ...]


class BlockedState(NamedTuple):
    """theta has beta, log sigma, standard deviations, correlations and effects; `beta` is relative to the centre of the sums, `effects`
    go factor by factor and level by level."""

    theta: np.ndarray
    beta: np.ndarray
    log_sigma: float
    log_sd: np.ndarray
    partial: np.ndarray
    effects: np.ndarray


class BlockedOptions(NamedTuple):
    """Compiled options: steps of the scale moves of the factors."""

    steps: np.ndarray


@inlinable
def _scatter(sums: Any, k: int, effects: np.ndarray) -> np.ndarray:
    """Sum over the levels of a factor of b b'."""
    start, count, q = sums.starts[k], sums.factors[k].scores.shape[0], sums.factors[k].scores.shape[1]
    out = np.zeros((q, q))
    for g in range(count):
        for a in range(q):
            for b in range(q):
                out[a, b] += effects[start + g * q + a] * effects[start + g * q + b]
    return out


@inlinable
def _fill_theta(sums: Any, state: BlockedState) -> None:
    theta, d = state.theta, state.beta.size
    for j in range(d):
        theta[j] = sums.centre[j] + state.beta[j]
    theta[d] = state.log_sigma
    at, sd, partial = d + 1, 0, 0
    for k in range(len(sums.factors)):
        q = sums.factors[k].scores.shape[1]
        factor = np.empty((q, q))
        correlation_factor(state.partial[partial : partial + q * (q - 1) // 2], factor)
        for a in range(q):
            theta[at] = math.exp(state.log_sd[sd + a])
            at += 1
        for a in range(q):
            for b in range(a):
                total = 0.0
                for c in range(b + 1):
                    total += factor[a, c] * factor[b, c]
                theta[at] = total
                at += 1
        sd += q
        partial += q * (q - 1) // 2
    for k in range(len(sums.factors)):
        count, q = sums.factors[k].scores.shape[0], sums.factors[k].scores.shape[1]
        for a in range(q):
            for g in range(count):
                theta[at] = state.effects[sums.starts[k] + g * q + a]
                at += 1


@init.register(BlockedOptions)
def _init(rng: np.random.Generator, target: Target, options: BlockedOptions, theta: np.ndarray) -> Any:
    sums = target.proxy.sums
    d, at, sds, pairs, total = sums.centre.size, sums.centre.size + 1, 0, 0, 0
    for k in range(len(sums.factors)):
        q = sums.factors[k].scores.shape[1]
        sds += q
        pairs += q * (q - 1) // 2
        total += sums.factors[k].scores.size
    beta, log_sd, partial, effects = theta[:d] - sums.centre, np.empty(sds), np.empty(pairs), np.zeros(total)
    variance, sd, corr = math.exp(2.0 * theta[d]), 0, 0
    for k in range(len(sums.factors)):
        q = sums.factors[k].scores.shape[1]
        m = q * (q - 1) // 2
        unconstrained_covariance(theta[at : at + q], theta[at + q : at + q + m], log_sd[sd : sd + q], partial[corr : corr + m])
        inverse = np.empty((q, q))
        level_precision(log_sd[sd : sd + q], partial[corr : corr + m], inverse)
        draw_factor(rng, sums, k, beta, variance, inverse, effects)
        at += q + m
        sd += q
        corr += m
    state = BlockedState(theta.copy(), beta, theta[d], log_sd, partial, effects)
    _fill_theta(sums, state)
    return state


@step.register(BlockedOptions)
def _step(rng: np.random.Generator, target: Target, options: BlockedOptions, state: Any, info: np.ndarray) -> Any:
    tables = target.proxy
    sums = tables.sums
    beta, log_sd, partial, effects = state.beta.copy(), state.log_sd.copy(), state.partial.copy(), state.effects.copy()
    variance, accepted, sd, corr = math.exp(2.0 * state.log_sigma), 0, 0, 0
    starts = np.empty((len(sums.factors), 2), np.int64)
    for k in range(len(sums.factors)):
        count, q = sums.factors[k].scores.shape[0], sums.factors[k].scores.shape[1]
        own, inverse = tables.factors[k], np.empty((q, q))
        starts[k, 0], starts[k, 1] = sd, corr
        log_own, partial_own = log_sd[sd : sd + q], partial[corr : corr + q * (q - 1) // 2]
        level_precision(log_own, partial_own, inverse)
        draw_factor(rng, sums, k, beta, variance, inverse, effects)
        translate_factor(rng, tables, k, inverse, beta, effects)
        draw_covariance(rng, own.scales, own.eta, count, _scatter(sums, k, effects), log_own, partial_own)
        stretch = options.steps[k] * rng.standard_normal()
        scale, moved = math.exp(stretch), log_own + stretch
        first, _, square = factor_squares(sums, k, beta, effects)
        ratio = ((scale - 1.0) * first - 0.5 * (scale * scale - 1.0) * square) / variance
        ratio += covariance_prior(own.scales, own.eta, moved, partial_own)
        ratio -= covariance_prior(own.scales, own.eta, log_own, partial_own)
        if accepts(rng, ratio):
            accepted += 1
            for a in range(q):
                log_own[a] = moved[a]
            for b in range(sums.starts[k], sums.starts[k] + count * q):
                effects[b] *= scale
        sd += q
        corr += q * (q - 1) // 2
    draw_coefficients(rng, tables, variance, beta, effects)
    for pair in range(tables.pairs.counts.size):
        one, two = tables.pairs.factors[pair, 0], tables.pairs.factors[pair, 1]
        q, p = sums.factors[one].scores.shape[1], sums.factors[two].scores.shape[1]
        first_inverse, second_inverse = np.empty((q, q)), np.empty((p, p))
        at, to = starts[one], starts[two]
        level_precision(log_sd[at[0] : at[0] + q], partial[at[1] : at[1] + q * (q - 1) // 2], first_inverse)
        level_precision(log_sd[to[0] : to[0] + p], partial[to[1] : to[1] + p * (p - 1) // 2], second_inverse)
        trade_pair(rng, tables, pair, first_inverse, second_inverse, effects)
    left = sums.square
    for i in range(beta.size):
        left -= 2.0 * beta[i] * sums.gradient[i]
        for j in range(beta.size):
            left += beta[i] * sums.information[i, j] * beta[j]
    for k in range(len(sums.factors)):
        first, alone, square = factor_squares(sums, k, beta, effects)
        left += square - first - alone
    log_sigma = 0.5 * math.log(max(left, 1e-300) / (2.0 * rng.standard_gamma(0.5 * sums.weight)))
    info[:] = 0.0
    info[0] = accepted / len(sums.factors)
    state = BlockedState(np.empty(state.theta.size), beta, log_sigma, log_sd, partial, effects)
    _fill_theta(sums, state)
    return state


class BlockedTuning(NamedTuple):
    """What warm-up knows of a chain."""

    updates: float
    log_step: float


class BlockedPolicy(Policy):
    """Warm-up of the steps of the scale moves, one multiple of the Laplace standard deviations for all factors."""

    def __init__(self, model: HierarchicalModel, mode: SeveralMode) -> None:
        self.model = model
        precision, location, others = split_prior(model.coefficient_terms)
        factors, at, sds, steps = [], model.data.d + 1, mode.laplace().sd, []
        for k, factor in enumerate(model.factors):
            carriers, columns = carrier_columns(model, k)
            scales = np.array([p.terms() for p in model.scale_priors[k]])
            one = factor.terms.index(CONSTANT) if CONSTANT in factor.terms else -1
            products = np.einsum("gaj,gbk->abjk", carriers, carriers)
            factors.append(BlockedFactor(one, columns, carriers, products, scales, float(model.correlation_priors[k].eta)))
            q = len(factor.terms)
            steps.append(2.4 * float(np.mean(sds[at : at + q] / mode.sigmas[k])))
            at += q * (q + 1) // 2
        self.steps = np.array(steps)
        gaussian = bool((others.kind == FLAT).all())
        self.tables = BlockedTables(mode.sums, precision, location, others, gaussian, factor_pairs(model), tuple(factors))

    def begin(self) -> BlockedTuning:
        """Steps of 2.4 standard deviations."""
        return BlockedTuning(0.0, 0.0)

    def window_ends(self, warmup: int) -> list[int]:
        """As for moves."""
        return tuning.window_ends(warmup)

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> BlockedTuning:
        """Towards 0.4 accepted scale moves."""
        gain = 1.0 / math.sqrt(state.updates + 1.0)
        return BlockedTuning(state.updates + 1.0, state.log_step + gain * (float(info["acceptance_rate"].mean()) - 0.4))

    def options(self, state: Any, final: bool) -> BlockedOptions:
        """The steps."""
        return BlockedOptions(math.exp(state.log_step) * self.steps)

    def blank(self, theta: np.ndarray) -> BlockedState:
        """A state at the parameters, levels still to be drawn."""
        m, d, terms = self.model.dim, self.model.data.d, [len(f.terms) for f in self.model.factors]
        whole = np.zeros(m + self.model.level_count)
        whole[:m] = theta[:m]
        pairs = np.zeros(sum(q * (q - 1) // 2 for q in terms))
        return BlockedState(whole, np.zeros(d), 0.0, np.zeros(sum(terms)), pairs, np.zeros(self.model.level_count))

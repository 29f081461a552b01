"""Rows drawn in proportion to a log-likelihood learned in data space, and as many as it takes (Quiroz, Villani, Kohn 2014).

Rows are grouped by a tree of median splits of their whitened columns and response. At theta a group g of N_g rows has weight
N_g (|l_g| + floor), l_g the log-likelihood at the centre of the group; a row of it is drawn uniformly. With uniform numbers v as
auxiliary variables, Z_k = l_{i(v_k, theta)} / p_i(theta), and

    log L-hat(theta; v) = Z-bar - s^2/2,   s^2 = sum_k (Z_k - Z-bar)^2 / m^2,

over the first m numbers, m doubled from its least until s^2 is at most a given variance or the numbers end. L-hat is a function of
(theta, v), so Metropolis-Hastings on the pair leaves L-hat p(theta) invariant on the unit cube of v. That this is near the posterior
rests on the normality of Z-bar. Bardenet, Doucet and Holmes (2017), section 6.2.1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import init, step
from tallbayes.engine.ledger import record
from tallbayes.engine.passes import values_at
from tallbayes.engine.random_rows import draw_number
from tallbayes.engine.rows import row_values, with_records
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.moves.proposals import propose
from tallbayes.proxies.capabilities import HasGroups
from tallbayes.proxies.taylor import Whitening, unwhiten, whiten, whitening_of
from tallbayes.schemes.estimates import AT, at_wall, inside, pulled_in
from tallbayes.target import NOT_FINITE, Target, count, log_prior, stop_run, stopped, subsample_values

FLOOR = 0.1  # of the mean |l|, added to that of each group: bounds 1/p
GROUPS = 512  # at most; a group has at least 20 rows


class Groups(NamedTuple):
    """Rows in groups: the proxy of a target that is sampled this way."""

    whitening: Whitening
    radius: float
    centres: np.ndarray  # records, one for each group
    members: np.ndarray  # row numbers, group after group
    start: np.ndarray  # of each group in `members`, and n


class LearnedState(NamedTuple):
    """Position, its whitened coordinates, uniform numbers, and the estimate there."""

    theta: np.ndarray
    white: np.ndarray
    numbers: np.ndarray
    log_likelihood: float
    variance: float
    rows: float
    log_target: float


class LearnedOptions(NamedTuple):
    """Compiled options: the proposal, numbers in all, the fewest used, blocks, and the variance aimed at."""

    kernel: Any
    size: int
    least: int
    blocks: int
    variance: float


@inlinable
def centre_log_likelihoods(target: Target[HasGroups], theta: np.ndarray, out: np.ndarray) -> None:
    """l at the centres of groups of rows, which the proxy holds: one evaluation a centre."""
    count(target, out.size, 0, out.size)
    row_values(with_records(target.rows, target.proxy.centres), np.arange(out.size), theta, out)


@inlinable
def estimate(
    target: Target[HasGroups], options: LearnedOptions, theta: np.ndarray, numbers: np.ndarray
) -> tuple[float, float, int]:
    """log L-hat, its variance and the rows used."""
    groups = target.proxy
    last = groups.start.size - 1
    level, cumulative = np.empty(last), np.zeros(last + 1)
    centre_log_likelihoods(target, theta, level)
    total = 0.0
    for g in range(last):
        level[g] = abs(level[g])
        total += level[g] * (groups.start[g + 1] - groups.start[g])
    floor = FLOOR * total / groups.members.size + 1e-300
    for g in range(last):
        level[g] += floor
        cumulative[g + 1] = cumulative[g] + level[g] * (groups.start[g + 1] - groups.start[g])
    index, values = np.empty(options.size, np.int64), np.empty(options.size)
    done, m = 0, min(options.least, options.size)
    while True:
        for k in range(done, m):
            g = np.searchsorted(cumulative, numbers[0, k] * cumulative[last], side="right") - 1
            g = min(max(g, 0), last - 1)
            size = groups.start[g + 1] - groups.start[g]
            index[k] = groups.members[groups.start[g] + min(int(numbers[1, k] * size), size - 1)]
            values[k] = cumulative[last] / level[g]
        drawn = np.empty(m - done)
        subsample_values(target, index[done:m], theta, drawn)
        for k in range(done, m):
            values[k] *= drawn[k - done]
        mean, squares = 0.0, 0.0
        for k in range(m):
            mean += values[k]
        mean /= m
        for k in range(m):
            squares += (values[k] - mean) * (values[k] - mean)
        squares /= m * m
        if squares <= options.variance or m >= options.size or stopped(target):
            return mean - 0.5 * squares, squares, m
        done, m = m, min(2 * m, options.size)


@init.register(LearnedOptions)
def _init(rng: np.random.Generator, target: Target[HasGroups], options: LearnedOptions, theta: np.ndarray) -> LearnedState:
    theta = pulled_in(target, theta)
    numbers = np.empty((2, options.size))
    for k in range(options.size):
        numbers[0, k], numbers[1, k] = rng.random(), rng.random()
    value, variance, rows = estimate(target, options, theta, numbers)
    log_target = value + log_prior(target, theta)
    if not abs(log_target) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return LearnedState(theta, whiten(target.proxy.whitening, theta), numbers, value, variance, float(rows), log_target)


@step.register(LearnedOptions)
def _step(
    rng: np.random.Generator, target: Target[HasGroups], options: LearnedOptions, state: LearnedState, info: np.ndarray
) -> LearnedState:
    d = state.theta.size
    white, theta = np.empty(d), np.empty(d)
    ratio, component = propose(rng, options.kernel, state.white, white)
    unwhiten(target.proxy.whitening, white, theta)
    numbers = state.numbers.copy()
    block = draw_number(rng, options.blocks)
    for k in range(block, options.size, options.blocks):  # every block has its share of the first numbers
        numbers[0, k], numbers[1, k] = rng.random(), rng.random()
    threshold = math.log(1.0 - rng.random())
    info[:] = 0.0
    info[AT.component] = component
    if inside(target, theta):
        value, variance, rows = estimate(target, options, theta, numbers)
        log_target = value + log_prior(target, theta)
        ratio += log_target - state.log_target
        info[AT.acceptance_rate] = math.exp(min(0.0, ratio)) if ratio == ratio else 0.0
        if threshold < ratio:
            info[AT.accepted], info[AT.u_accepted] = 1.0, 1.0
            state = LearnedState(theta, white, numbers, value, variance, float(rows), log_target)
    info[AT.log_likelihood], info[AT.variance], info[AT.wall] = (
        state.log_likelihood,
        state.variance,
        at_wall(target, state.white),
    )
    info[AT.rows] = state.rows
    return state


def group(mode: Mode, radius: float, most: int = GROUPS) -> Groups:
    """Median splits of the widest of the whitened columns and the response, until groups are small or many."""
    model = mode.model
    rows, n, d = model.rows, model.data.n, model.data.d
    record(n)
    records = np.asarray(rows.records[:, : d + 3], np.float64)
    scale = np.sqrt(np.maximum(np.diag(mode.covariance)[:d], 1e-300))  # a column counts by what it moves the predictor
    features = np.column_stack([records[:, :d] * scale, records[:, d] * np.median(scale) * 10.0])
    leaves: list[np.ndarray] = []
    waiting = [np.arange(n)]
    while waiting:
        part = waiting.pop()
        if len(leaves) + len(waiting) + 1 >= most or part.size < 40:
            leaves.append(part)
            continue
        spread = features[part].std(0)
        axis = int(np.argmax(spread))
        column = features[part, axis]
        upper = column > np.median(column)
        if not 0 < upper.sum() < part.size:
            upper = column >= column.mean()
        if not 0 < upper.sum() < part.size:
            leaves.append(part)
            continue
        waiting[:0] = [part[~upper], part[upper]]  # breadth first: groups of like size
    width = rows.records.shape[1]
    centres = np.zeros((len(leaves), width))
    for g, part in enumerate(leaves):
        centres[g, : d + 3] = records[part].mean(0)
    start = np.concatenate([[0], np.cumsum([part.size for part in leaves])])
    return Groups(whitening_of(mode), float(radius), centres, np.concatenate(leaves), start.astype(np.int64))


def needed(mode: Mode, groups: Groups, variance: float, rng: np.random.Generator, points: int = 10) -> tuple[int, float]:
    """Rows for a variance of l-hat, on 95 % of Laplace draws, and the variance of one Z there."""
    n, gammas = mode.model.data.n, []
    index = groups.members if n <= 20_000 else np.sort(rng.choice(n, 20_000, replace=False))
    of_row = np.empty(n, np.int64)
    of_row[groups.members] = np.repeat(np.arange(groups.start.size - 1), np.diff(groups.start))
    sizes = np.diff(groups.start)
    for theta in mode.laplace().draw(rng, points):
        level = np.abs(values_at(with_records(mode.model.rows, groups.centres), np.arange(sizes.size), theta))
        level += FLOOR * (sizes @ level) / n + 1e-300
        p = level[of_row[index]] / (sizes @ level)
        z = values_at(mode.model.rows, index, theta) / p
        weight = p / p.sum()
        gammas.append(float(weight @ (z - weight @ z) ** 2))
    gamma = float(np.quantile(gammas, 0.95))
    if gamma / variance > 100.0 * n:
        raise ModelError(
            f"the learned likelihood is too coarse: {gamma / variance:,.0f} rows would be needed for a variance of {variance:g}, and there "
            f"are {n:,}. Use rows='uniform' with control variates, or another sampler."
        )
    return max(1, math.ceil(gamma / variance)), gamma

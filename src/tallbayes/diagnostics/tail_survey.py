"""Tails foreseen: the posterior a few Laplace standard deviations from the mode, before a chain runs.

Proposals from the normal law at the mode need E[ratio^2] under that law, ratio = posterior over normal density, to be small: it is
about the iterations per effective draw. Along a line at distance r its integrand is phi(r) ratio(r)^2; where 2 log ratio exceeds
r^2 / 2, the tail there weighs as much as all the rest, and a chain that meets it stays for `ratio` iterations.

Lines: from the mode along the regression of theta on each coordinate, both ways, and along random directions. Where the certified
bound shows that no tail at that distance can be heavy, no row is read; otherwise rows are drawn under the bound, or all are read.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.bounds.tables import draw_row, rate_count, total_rate
from tallbayes.compile import jit
from tallbayes.contract import Setup
from tallbayes.engine import passes
from tallbayes.proxies.taylor import factor_of, proxy_value_at, reference_of, unwhitened
from tallbayes.target import Target, charge, log_prior, residual_gaps, row_total

FIRST = 4.5  # standard deviations from the mode at which every line is looked at
FURTHER = (3.0, 6.0)  # and at which the likeliest lines are
LINES = 4  # that are looked at further
RANDOM = 8  # random directions
MARGIN = 1.0  # 2 log ratio - r^2 / 2 above minus this is heavy
FEWEST, MOST = 100, 4000  # rows drawn for a distance
PRECISE = 0.5  # standard error of a log ratio above which the likeliest lines are looked at on all rows


class HeavyTail(NamedTuple):
    """Where the posterior is much larger than the normal law at the mode: distance in standard deviations, log of the ratio."""

    distance: float
    log_ratio: float


@jit
def _gaps_along(target: Target, index: np.ndarray, thetas: np.ndarray, gaps: np.ndarray) -> None:
    """Residuals of the indexed rows at every theta less those at the reference."""
    for k in range(thetas.shape[0]):
        residual_gaps(target, index, reference_of(target.proxy.whitening), thetas[k], gaps[k])


def heaviest_tail(setup: Setup, rng: np.random.Generator) -> HeavyTail | None:
    """The heaviest tail found, or None if proposals from the Laplace fit will do; `setup` is that of a sampler with a bound.

    >>> import numpy as np, tallbayes as tb
    >>> x = np.linspace(-1, 1, 400)
    >>> data = tb.Dataset.from_arrays(np.column_stack([np.ones(400), x]), np.arange(400) % 2)
    >>> mode = tb.find_mode(tb.models.logistic(data), progress=False)
    >>> setup = tb.samplers.ExactMinibatch().setup(mode.model, mode, 0, False)
    >>> heaviest_tail(setup, np.random.default_rng(0)) is None
    True
    """
    factor = factor_of(setup.proxy.whitening)
    axes = factor / np.sqrt((factor**2).sum(1))[:, None]  # rows of L: regressions on each coordinate, whitened
    others = rng.standard_normal((RANDOM, factor.shape[0]))
    others /= np.sqrt((others**2).sum(1))[:, None]
    lines = np.concatenate([axes, -axes, others, -others])
    ratios = _log_ratios(setup, FIRST * lines, rng)
    likeliest = lines[np.argsort(-ratios)[:LINES]]
    seen = [(FIRST, float(ratios.max()))]
    seen += [(r, float(_log_ratios(setup, r * likeliest, rng).max())) for r in FURTHER]
    distance, ratio = max(seen, key=lambda pair: _weight(*pair))
    return HeavyTail(distance, ratio) if _weight(distance, ratio) > -MARGIN else None


def _weight(distance: float, log_ratio: float) -> float:
    """Log of phi(r) ratio(r)^2, less a constant."""
    return 2.0 * log_ratio - 0.5 * distance**2


def _log_ratios(setup: Setup, white: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Log of the posterior over the normal law at whitened points (k, d) of one distance, 0 at the mode, less two standard errors."""
    target, certified = setup.target(), setup.proxy
    reference, k = reference_of(certified.whitening), white.shape[0]
    thetas, known, proxies = np.empty_like(white), np.empty(k), np.empty(k)
    for j in range(k):
        thetas[j] = unwhitened(certified.whitening, white[j])
        proxies[j] = proxy_value_at(certified.proxy, white[j])
        known[j] = log_prior(target, thetas[j]) - log_prior(target, reference) + 0.5 * float(white[j] @ white[j])
    proxies -= proxy_value_at(certified.proxy, np.zeros(white.shape[1]))
    rates, origin = np.zeros(rate_count(certified.bound)), np.zeros(white.shape[1])
    distance = math.sqrt(float(white[0] @ white[0]))
    total = max(total_rate(certified.bound, origin, point, rates) for point in white[:: max(1, k // 8)])
    possible = 2.0 * (known + proxies + total) - 0.5 * distance**2 > -MARGIN
    if not total > 0.0 or not possible.any():
        return known + proxies
    n, line = row_total(target), white[int(rng.integers(k))]
    total = total_rate(certified.bound, origin, line, rates)
    rows = int(min(MOST, max(FEWEST, 4.0 * min(total, MOST) ** 2)))
    if 2 * rows > n:
        return known + _differences(setup, thetas)
    drawn = [draw_row(rng, certified.bound, rates, total) for _ in range(rows)]
    gaps = np.empty((k, rows))
    _gaps_along(target, np.array([i for i, _ in drawn], np.int64), thetas, gaps)
    charge(target)
    parts = gaps * (total / np.array([limit for _, limit in drawn]))
    error = parts.std(1) / math.sqrt(rows)
    result = known + proxies + parts.mean(1) - 2.0 * error
    likeliest = np.argsort(-(result + 4.0 * error))[:LINES]
    unclear = likeliest[error[likeliest] > PRECISE]
    if unclear.size:
        result[unclear] = known[unclear] + _differences(setup, thetas[unclear])
    return result


def _differences(setup: Setup, thetas: np.ndarray) -> np.ndarray:
    """Log-likelihoods less that at the reference, on all rows."""
    start = passes.total_value(setup.model.rows, reference_of(setup.proxy.whitening))
    return np.array([passes.total_value(setup.model.rows, theta) for theta in thetas]) - start

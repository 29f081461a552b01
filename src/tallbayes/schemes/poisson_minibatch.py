"""The minibatch of exact minibatch Metropolis-Hastings: candidate rows under a certified bound, thinned; the law is in `exact_minibatch`.

A rate is a NamedTuple that registers `dominating` and `thin`. With dU the change of a row's residual energy and lambda its bound:

* mh-ss: phi = lambda + min(0, dU); tuna: phi = chi lambda Lambda + (dU + lambda) / 2; smh: phi = max(0, dU).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.tables import draw_candidates, draw_row, rate_count, total_rate
from tallbayes.compile import SCALAR, declared, generic, inlinable, jit
from tallbayes.contract import Setup, positions
from tallbayes.engine import passes
from tallbayes.engine.rounding import rounding
from tallbayes.engine.rows_elsewhere import awaiting, most_candidates
from tallbayes.proxies.taylor import proxy_value, proxy_value_at, reference_of, unwhiten, unwhitened
from tallbayes.proxies.third_order import pair_value, subtract_pair_terms
from tallbayes.target import (
    BOUND_EXCEEDED,
    WAITING,
    Target,
    charge,
    log_likelihood_gap,
    log_prior,
    residual_gaps,
    row_total,
    stop_run,
)


class Info(NamedTuple):
    """What a step reports, by position."""

    accepted: int
    acceptance_rate: int
    component: int
    stage_one: int
    rate: int
    rows: int
    full_read: int
    largest_ratio: int


AT = positions(Info)


class MHSS(NamedTuple):
    """phi = lambda + min(0, dU)."""


class SMH(NamedTuple):
    """phi = max(0, dU)."""


class Tuna(NamedTuple):
    """phi = chi lambda Lambda + (dU + lambda) / 2."""

    chi: float


@generic
@declared
def dominating(rate: Any, total: float) -> float:
    """Rate of the Poisson number of candidate rows, given Lambda."""
    raise TypeError


@generic
@declared
def thin(rate: Any, share: float, total: float) -> tuple[float, float]:
    """Given dU/lambda and Lambda: the probability that a candidate is kept, and the log ratio a kept one contributes."""
    raise TypeError


@dominating.register(MHSS)
def _mhss_dominating(rate: MHSS, total: float) -> float:
    return total


@thin.register(MHSS)
def _mhss_thin(rate: MHSS, share: float, total: float) -> tuple[float, float]:
    forward, backward = 1.0 + min(0.0, share), 1.0 - max(0.0, share)
    ratio = -np.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))
    return forward, ratio


@dominating.register(SMH)
def _smh_dominating(rate: SMH, total: float) -> float:
    return total


@thin.register(SMH)
def _smh_thin(rate: SMH, share: float, total: float) -> tuple[float, float]:
    return max(0.0, share), -np.inf


@dominating.register(Tuna)
def _tuna_dominating(rate: Tuna, total: float) -> float:
    return total * (1.0 + rate.chi * total)


@thin.register(Tuna)
def _tuna_thin(rate: Tuna, share: float, total: float) -> tuple[float, float]:
    extra = rate.chi * total
    forward, backward = extra + 0.5 * (1.0 + share), extra + 0.5 * (1.0 - share)
    ratio = -np.inf if backward <= 0.0 else math.log(backward) - math.log(max(forward, 1e-300))
    return forward / (extra + 1.0), ratio


RATES: dict[str, Any] = {"mh-ss": lambda chi: MHSS(), "smh": lambda chi: SMH(), "tuna": Tuna}
"""By name, given chi."""


@inlinable(options=SCALAR)
def residual_ratio(
    rng: np.random.Generator,
    target: Target,
    options: Any,
    theta: np.ndarray,
    other: np.ndarray,
    white: np.ndarray,
    other_white: np.ndarray,
    info: np.ndarray,
) -> float:
    """Log of the product over kept rows, or the residual ratio on all rows where the rate exceeds their number."""
    bound = target.proxy.bound
    rates = np.zeros(rate_count(bound))
    total = total_rate(bound, white, other_white, rates)
    expected = dominating(options.rate, total)
    info[AT.rate] = expected
    n = row_total(target)
    if not expected < most_candidates(target.rows):
        info[AT.full_read] = 1.0
        info[AT.rows] = n
        proxies = proxy_value(target.proxy.proxy, other_white) - proxy_value(target.proxy.proxy, white)
        proxies += pair_value(target.proxy.proxy, white, other_white)
        gap = log_likelihood_gap(target, theta, other)
        if awaiting(target.rows):
            stop_run(target, WAITING, -1)
        return gap - proxies
    if expected <= 0.0:
        return 0.0
    count = rng.poisson(expected)
    info[AT.rows] = count
    index, limit, gap = np.empty(count, np.int64), np.empty(count), np.empty(count)
    if draw_candidates(rng, bound, rates, total, index, limit) < count:
        stop_run(target, WAITING, -1)  # a stream has run dry: the chunk is run again when it has been refilled
        return 0.0
    residual_gaps(target, index, theta, other, gap)
    points = (theta, other, reference_of(target.proxy.whitening))
    subtract_pair_terms(target.proxy.proxy, target.rows, index, points, white, other_white, gap)
    ratio = 0.0
    for k in range(count):
        share = -gap[k] / limit[k]
        if not abs(gap[k]) <= limit[k] * (1.0 + 1e-9) + rounding(target.rows):  # not finite is exceeded too
            stop_run(target, BOUND_EXCEEDED, index[k])
        info[AT.largest_ratio] = max(info[AT.largest_ratio], abs(share))
        keep, contribution = thin(options.rate, min(1.0, max(-1.0, share)), total)
        if rng.random() < keep:
            ratio += contribution
    return ratio


@jit
def replay(
    rng: np.random.Generator, target: Target, options: Any, white: np.ndarray, other_white: np.ndarray, out: np.ndarray
) -> None:
    """Fill `out` with independent log ratios of one pair of whitened positions: what a decision would have used."""
    d = white.size
    theta, other, info = np.empty(d), np.empty(d), np.zeros(len(AT))
    unwhiten(target.proxy.whitening, white, theta)
    unwhiten(target.proxy.whitening, other_white, other)
    for k in range(out.size):
        out[k] = residual_ratio(rng, target, options, theta, other, white, other_white, info)


def tail_excesses(setup: Setup, points: np.ndarray, enough: float = -math.inf) -> Iterator[tuple[float, float]]:
    """`tail_excess` at several whitened points, as they are asked for; of rows that are elsewhere, in one pass.

    Of these no row is read for a point where the bound proves that the excess is at most `enough`.
    """
    if not isinstance(setup.model.rows, passes.Elsewhere):
        yield from (tail_excess(setup, np.ascontiguousarray(white)) for white in points)
        return
    whitening = setup.proxy.whitening
    parts = [_excess_parts(setup, np.ascontiguousarray(white)) for white in points]
    open_ = [k for k, part in enumerate(parts) if not part.known + part.total <= enough]
    gains = {}
    if open_:
        first, *others = passes.total_values(
            setup.model.rows, np.stack([reference_of(whitening), *(parts[k].theta for k in open_)])
        )
        gains = {k: float(other - first) for k, other in zip(open_, others, strict=True)}
    for k, part in enumerate(parts):
        yield (part.known + gains[k] - part.proxies, 0.0) if k in gains else (part.known, part.total)


class _ExcessParts(NamedTuple):
    theta: np.ndarray
    known: float  # all but the residuals of the rows
    proxies: float
    rates: np.ndarray
    total: float  # of their bounds


def _excess_parts(setup: Setup, white: np.ndarray) -> _ExcessParts:
    target, certified = setup.target(), setup.proxy
    theta, origin = unwhitened(certified.whitening, white), np.zeros(white.size)
    proxies = proxy_value_at(certified.proxy, white) - proxy_value_at(certified.proxy, origin)
    proxies += pair_value(certified.proxy, origin, white)
    priors = log_prior(target, theta) - log_prior(target, reference_of(certified.whitening))
    rates = np.zeros(rate_count(certified.bound))
    total = total_rate(certified.bound, origin, white, rates)
    return _ExcessParts(theta, proxies + priors + 0.5 * float(white @ white), proxies, rates, total)


def tail_excess(setup: Setup, white: np.ndarray, rows: int = 1000) -> tuple[float, float]:
    """Log of the posterior over the Laplace fit, both 1 at the reference, and its standard error.

    From rows drawn under the bound: the residuals of all rows add up to Lambda E[residual / lambda] for a row drawn with probability
    lambda / Lambda.
    """
    target, certified = setup.target(), setup.proxy
    reference = reference_of(certified.whitening)
    theta, known, proxies, rates, total = _excess_parts(setup, white)
    residual, error = 0.0, 0.0
    if not total < row_total(target) or row_total(target) <= rows:
        rows_at = [passes.total_value(setup.model.rows, at) for at in (theta, reference)]  # compiled, unlike this function
        residual = rows_at[0] - rows_at[1] - proxies
    elif total > 0.0:
        rng = np.random.default_rng(0)
        drawn = [draw_row(rng, certified.bound, rates, total) for _ in range(rows)]
        gaps = np.empty(rows)
        index = np.array([i for i, _ in drawn], np.int64)
        residual_gaps(target, index, reference, theta, gaps)
        origin = np.zeros(white.size)
        subtract_pair_terms(certified.proxy, target.rows, index, (reference, theta, reference), origin, white, gaps)
        ratios = gaps / np.array([limit for _, limit in drawn])
        residual, error = total * float(ratios.mean()), total * float(ratios.std()) / math.sqrt(rows)
    charge(target)
    return known + residual, error

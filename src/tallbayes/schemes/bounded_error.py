"""Decisions that are wrong with probability at most delta: rules for uniform and for weighted rows, options, notes, and an audit.

A test of `sequential_tests` is fed with rows until it decides; what a row may add is bounded by a certificate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.tables import draw_candidates, rate_count, total_rate
from tallbayes.bounds.uniform_ranges import Oracle, gap_range
from tallbayes.compile import generic
from tallbayes.contract import Diagnosis, Outcome, positions
from tallbayes.engine.random_rows import draw_distinct_rows
from tallbayes.errors import OptionError, unknown
from tallbayes.proxies.taylor import reference_of
from tallbayes.schemes import sequential_tests
from tallbayes.schemes.acceptance import Pair, decide
from tallbayes.schemes.oracle import oracle_range
from tallbayes.schemes.sequential_tests import ACCEPT, EVIDENCE, EXHAUSTED, UNDECIDED, begin_test, feed, next_draws, open_test
from tallbayes.target import BOUND_EXCEEDED, ORACLE, row_total, stop_run, stopped, subsample_gaps, total_residual_gap


class Info(NamedTuple):
    """What a decision reports, by position: the shared columns, and the test's own."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    draws: int
    half_range: int
    largest_ratio: int
    oracle_evals: int


AT = positions(Info)


class Uniform(NamedTuple):
    """Rows without replacement, each with the same chance."""

    test: Any
    symmetric: bool  # the range is [-C, C], C the largest of the two ends, as the papers take it
    free: bool  # whether the range alone may decide
    slack: float


class Weighted(NamedTuple):
    """Rows with replacement, in proportion to their bounds."""

    test: Any
    free: bool
    slack: float


@generic
def row_range(bound: Any, target: Any, pair: Any) -> Any:
    """low and high of Delta_i over all rows."""
    order, reference = target.proxy.proxy.order, reference_of(target.proxy.whitening)
    return gap_range(bound, reference, order, pair.theta, pair.other, pair.white, pair.other_white)


@row_range.register(Oracle)
def _oracle_row_range(bound: Oracle, target: Any, pair: Any) -> Any:
    return oracle_range(target, pair.theta, pair.other)


@decide.register(Uniform)
def _decide_uniform(rng: np.random.Generator, target: Any, rule: Uniform, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    n, asked = row_total(target), target.counters[ORACLE]
    low, high = row_range(target.proxy.bound, target, pair)
    if rule.symmetric:
        high = max(abs(low), abs(high))
        low = -high
    limit = max(abs(low), abs(high))
    info[AT.half_range] = 0.5 * (high - low) * n
    info[AT.oracle_evals] = target.counters[ORACLE] - asked
    threshold = (pair.level - pair.known) / n
    if not limit < np.inf:
        gap = total_residual_gap(target, pair.theta, pair.other, pair.white, pair.other_white, pair.seen)
        return pair.level < pair.known + gap, n
    evidence = np.empty(EVIDENCE)
    if rule.free or low >= high:
        verdict = open_test(rule.test, evidence, threshold, low, high, n, False)
    else:
        verdict = begin_test(evidence, threshold, low, high, n, False)
    drawn, slack = 0, 1e-9 * limit + rule.slack
    while verdict == UNDECIDED:
        if stopped(target):
            return False, drawn
        stop = drawn + next_draws(rule.test, evidence)
        draw_distinct_rows(rng, pair.order, drawn, stop)
        gaps = np.empty(stop - drawn)
        subsample_gaps(target, pair.order[drawn:stop].astype(np.int64), pair.theta, pair.other, pair.seen, gaps)
        for k in range(gaps.size):
            if not low - slack <= gaps[k] <= high + slack:  # not a number is outside too
                stop_run(target, BOUND_EXCEEDED, pair.order[drawn + k])
            info[AT.largest_ratio] = max(info[AT.largest_ratio], abs(gaps[k]) / limit)
        verdict = feed(rule.test, evidence, gaps)
        drawn = stop
    info[AT.draws] = drawn
    return verdict == ACCEPT, drawn


@decide.register(Weighted)
def _decide_weighted(rng: np.random.Generator, target: Any, rule: Weighted, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    n, bound = row_total(target), target.proxy.bound
    rates = np.zeros(rate_count(bound))
    total = total_rate(bound, pair.white, pair.other_white, rates)
    info[AT.half_range] = total
    if total <= 0.0:
        return pair.level < pair.known, 0
    verdict, drawn = EXHAUSTED, 0
    if total < np.inf:
        evidence = np.empty(EVIDENCE)
        threshold = (pair.level - pair.known) / total
        if rule.free:
            verdict = open_test(rule.test, evidence, threshold, -1.0, 1.0, n, True)
        else:
            verdict = begin_test(evidence, threshold, -1.0, 1.0, n, True)
    while verdict == UNDECIDED:
        if stopped(target):
            return False, drawn
        count = next_draws(rule.test, evidence)
        index, limits, gaps = np.empty(count, np.int64), np.empty(count), np.empty(count)
        draw_candidates(rng, bound, rates, total, index, limits)
        subsample_gaps(target, index, pair.theta, pair.other, pair.seen, gaps)
        for k in range(count):
            if not abs(gaps[k]) <= limits[k] * (1.0 + 1e-9) + rule.slack:
                stop_run(target, BOUND_EXCEEDED, index[k])
            gaps[k] = min(1.0, max(-1.0, gaps[k] / limits[k]))
            info[AT.largest_ratio] = max(info[AT.largest_ratio], abs(gaps[k]))
        verdict = feed(rule.test, evidence, gaps)
        drawn += count
    info[AT.draws] = drawn
    if verdict == EXHAUSTED:
        gap = total_residual_gap(target, pair.theta, pair.other, pair.white, pair.other_white, pair.seen)
        return pair.level < pair.known + gap, n
    return verdict == ACCEPT, min(drawn, n - 1)


def check_test(test: str, delta: float, growth: float, first: int, power: float) -> None:
    """Validate the options of a test."""
    if test not in sequential_tests.NAMES:
        raise unknown("test", test, sequential_tests.NAMES)
    if not 0.0 < delta < 1.0:
        raise OptionError(f"delta is the probability of a wrong decision and must be between 0 and 1; got {delta}.")
    if not 1.0 < growth < np.inf:
        raise OptionError(f"growth multiplies the number of rows at each look and must exceed 1; got {growth}.")
    if not isinstance(first, int) or first < 1:
        raise OptionError(f"first is the number of rows of the first look and must be at least 1; got {first!r}.")
    if power != 0.0 and not 1.0 < power < np.inf:
        raise OptionError(f"power must exceed 1, or be 0 for levels delta / (j (j + 1)); got {power}.")


def summarise(outcome: Outcome, order: int) -> Diagnosis:
    """Median half-range of the sum (C n), shares of iterations without a draw and with a full read."""
    n, stats = outcome.setup.model.data.n, outcome.stats
    half = float(np.median(stats["half_range"]))
    full = float(np.mean(stats["full_read"]))
    notes = {
        "median C n": half,
        "iterations without a draw": float(np.mean((stats["draws"] == 0) & (stats["full_read"] == 0))),
        "iterations that read all rows": full,
        "mean draws / n": float(np.mean(stats["draws"])) / n,
        "largest residual / bound": float(np.max(stats["largest_ratio"], initial=0.0)),
    }
    if stats["oracle_evals"].any():
        notes["evaluations by the oracle, counted separately"] = float(stats["oracle_evals"].sum())
    if full <= 0.5:
        return Diagnosis(notes)
    remedy = "use sampler='exact-minibatch' or 'mh'" if order == 2 else "use a proxy, order=2"
    warning = f"{100 * full:.0f} % of the iterations read all rows: the range (median C n = {half:.3g}) is too wide; {remedy}."
    return Diagnosis(notes, (warning,))


def beside_delta(found: tuple[dict[str, Any], list[str]], delta: float) -> tuple[dict[str, Any], list[str]]:
    """Add delta to the facts of replayed decisions, and a problem if the flip rate is above it beyond chance (1e-6)."""
    from scipy.stats import binom

    facts, problems = dict(found[0]), list(found[1])
    trials, rate = facts["decisions replayed"], facts["flip rate"]
    facts["delta"] = delta
    if binom.sf(round(rate * trials) - 1, trials, delta) < 1e-6:
        problems.append(f"{100 * rate:.2f} % of the decisions are wrong, more than delta = {100 * delta:g} % allows")
    return facts, problems

"""Averages over all rows of functions of the linear predictor, at many draws, without a matrix of rows by draws.

With t = eta - eta* at the mean of the draws, f(eta) = f(eta*) + f'(eta*) t + r. The first two terms are linear in theta, so that
one pass over the rows sums them for every draw. The average of r is estimated from m rows at random, with its standard error:
r is of order t², and vanishes as the posterior contracts. The result is unbiased for any m, and exact if m is all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tallbayes.streams import Stream, generator

FEWEST, MOST = 1000, 20_000  # rows of each group at which remainders are evaluated: at first, and in the end
NEGLIGIBLE = 0.02  # of the posterior standard deviation: what a standard error from sampled rows may be before more are taken
NUMBERS = 4_000_000  # of an array at a time: 32 MB

Function = Callable[[np.ndarray], np.ndarray]


class Variant(NamedTuple):
    """Rows with some columns of the design replaced: which ones, and their values."""

    where: np.ndarray
    values: np.ndarray  # (rows, columns), or (1, columns) for the same in all rows


class LevelTerm(NamedTuple):
    """Effects of one term of a grouping factor at every draw, (draws, levels), and the column of the design it goes with, or -1."""

    draws: np.ndarray
    column: int
    center: np.ndarray

    def changed(self, where: np.ndarray) -> int | None:
        """The place of its column among those that a variant replaces."""
        found = np.flatnonzero(where == self.column)
        return int(found[0]) if found.size else None


class Contrast(NamedTuple):
    """What is made of one or two averages: `value(high, low)`, with derivatives in both."""

    high: int
    low: int | None
    kind: str = "difference"
    divisor: float = 1.0


def combine(contrast: Contrast, high: np.ndarray, low: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A contrast of averages, and its derivatives in `high` and `low`.

    >>> combine(Contrast(0, 1, "ratio"), np.array([0.6]), np.array([0.2]))[0].round(6)
    array([3.])
    >>> combine(Contrast(0, 1, "odds"), np.array([0.6]), np.array([0.2]))[0].round(6)
    array([6.])
    """
    ones = np.ones_like(high)
    zero = np.zeros_like(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        if contrast.kind == "odds":
            value, slope = high / (1.0 - high), 1.0 / (1.0 - high) ** 2
            if low is None:
                return value, slope, zero
            below = low / (1.0 - low)
            return value / below, slope / below, -value / below**2 / (1.0 - low) ** 2
        if contrast.kind == "ratio" and low is not None:
            return high / low, ones / low, -high / low**2
        if contrast.kind == "log":
            if low is None:
                return np.log(high), ones / high, zero
            return (
                (np.log(high) - np.log(low)) / contrast.divisor,
                ones / high / contrast.divisor,
                -ones / low / contrast.divisor,
            )
    if low is None:
        return high, ones, zero
    return (high - low) / contrast.divisor, ones / contrast.divisor, -ones / contrast.divisor


@dataclass
class Averages:
    """Contrasts of averages: (draws, groups, contrasts), their standard errors from sampling rows, and rows of each group."""

    values: np.ndarray
    errors: np.ndarray
    rows: np.ndarray
    sampled: np.ndarray


class AverageBlock(NamedTuple):
    """Rows that go into averages: design, offsets, weights, group of each row, and variants."""

    x: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    groups: np.ndarray | None
    variants: list[Variant]
    levels: np.ndarray | None = None  # (rows, 2 x terms): level of the row and value of the column of each term


class _Kept:
    """The rows of smallest random key of every group, as columns of one matrix."""

    def __init__(self, groups: int, most: int, seed: int) -> None:
        self.rng = generator(seed, Stream.EFFECT_ROWS)
        self.most, self.bounds = most, np.full(groups, np.inf)
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.count = 0

    def add(self, groups: np.ndarray, whole: Callable[[np.ndarray], np.ndarray]) -> None:
        keys = self.rng.random(groups.size)
        chosen = np.flatnonzero(keys < self.bounds[groups])
        if chosen.size:
            self.parts.append((keys[chosen], groups[chosen], whole(chosen)))
            self.count += chosen.size
            if self.count > 2 * self.most * self.bounds.size:
                self.thin()

    def thin(self) -> None:
        keys, groups, rows = (np.concatenate([p[k] for p in self.parts]) for k in range(3))
        order = np.lexsort((keys, groups))
        starts = np.searchsorted(groups[order], np.arange(self.bounds.size))
        rank = np.arange(order.size) - starts[groups[order]]
        for g in range(self.bounds.size):
            if starts[g] + self.most < order.size and groups[order[starts[g] + self.most]] == g:
                self.bounds[g] = keys[order[starts[g] + self.most]]
        order = order[rank < self.most]
        self.parts, self.count = [(keys[order], groups[order], rows[order])], order.size


def average(
    blocks: Iterable[AverageBlock],
    theta: np.ndarray,
    weights: np.ndarray,
    function: Function,
    derivative: Function,
    contrasts: list[Contrast],
    groups: int = 1,
    rows: int | None = None,
    seed: int = 0,
    levels: Sequence[LevelTerm] = (),
) -> Averages:
    """Contrasts of averages of `function(eta)` over the rows of each group and variant, at every theta (draws, columns).

    `levels` are effects of levels that eta has besides: the blocks tell the level of each row.

    A wrong `derivative` costs accuracy, which the standard errors show, but no bias: both parts use the same.
    """
    center = weights @ theta / weights.sum()
    delta = theta - center
    sums: np.ndarray | None = None
    for block in blocks:
        m, d, variants = *block.x.shape, block.variants
        if sums is None:
            width = d + 3 + 2 * len(levels) + sum(v.where.size for v in variants)
            tangents = [np.zeros((groups, len(variants), term.center.size)) for term in levels]
            most = min(MOST, max(FEWEST, NUMBERS // (groups * width))) if rows is None else int(rows)
            sums, slopes = np.zeros((groups, len(variants))), np.zeros((groups, len(variants), d))
            total, count = np.zeros(groups), np.zeros(groups, int)
            kept = _Kept(groups, most, seed)
            places = [v.where for v in variants]
        codes = np.zeros(m, int) if block.groups is None else block.groups
        w = np.ones(m) if block.weights is None else block.weights
        shift = np.zeros(m) if block.offset is None else block.offset
        eta = block.x @ center + shift
        own = (
            []
            if block.levels is None
            else [(block.levels[:, 2 * t].astype(int), block.levels[:, 2 * t + 1]) for t in range(len(levels))]
        )
        for term, (level, z) in zip(levels, own, strict=True):
            eta += z * term.center[level]
        values, steep = np.empty((m, len(variants))), np.empty((m, len(variants)))
        for k, v in enumerate(variants):
            moved = eta + (v.values - block.x[:, v.where]) @ center[v.where] if v.where.size else eta
            for term, (level, z) in zip(levels, own, strict=True):
                if (place := term.changed(v.where)) is not None:
                    moved = moved + (v.values[:, place] - z) * term.center[level]
            values[:, k], steep[:, k] = function(moved), derivative(moved)
        values *= w[:, None]
        steep *= w[:, None]
        for g, part in _parts(codes, groups):
            total[g] += w[part].sum()
            count[g] += w[part].size
            sums[g] += values[part].sum(0)
            step = steep[part].T @ block.x[part]
            for k, v in enumerate(variants):
                if v.where.size:
                    step[k, v.where] = steep[part, k] @ np.broadcast_to(v.values, (m, v.where.size))[part]
                for term, (level, z), tangent in zip(levels, own, tangents, strict=True):
                    place = term.changed(v.where)
                    z = z if place is None else np.broadcast_to(v.values[:, place], m)
                    tangent[g, k] += np.bincount(level[part], (steep[:, k] * z)[part], term.center.size)
            slopes[g] += step

        def whole(chosen: np.ndarray, block: AverageBlock = block, shift: np.ndarray = shift, w: np.ndarray = w) -> np.ndarray:
            parts = [block.x[chosen], shift[chosen, None], w[chosen, None]]
            for v in block.variants:
                parts.append(np.broadcast_to(v.values, (block.x.shape[0], v.where.size))[chosen])
            if block.levels is not None:
                parts.append(block.levels[chosen])
            return np.hstack(parts)

        kept.add(codes, whole)
    assert sums is not None
    kept.thin()
    _, owner, table = kept.parts[0]
    moves = np.einsum("gkd,sd->sgk", slopes, delta)
    for term, tangent in zip(levels, tangents, strict=True):
        moves += np.einsum("gkl,sl->sgk", tangent, term.draws - term.center, optimize=True)
    linear = (sums + moves) / np.where(total > 0, total, np.nan)[:, None]
    out = np.full((theta.shape[0], groups, len(contrasts)), np.nan)
    errors, sampled = np.zeros_like(out), np.zeros(groups, int)
    for g in range(groups):
        if count[g] == 0:
            continue
        own = table[owner == g]
        out[:, g], errors[:, g], sampled[g] = _corrected(
            own,
            linear[:, g],
            theta,
            center,
            levels,
            (function, derivative),
            places,
            contrasts,
            int(count[g]),
            float(total[g]),
            rows is not None,
        )
    return Averages(out, errors, count, sampled)


def _parts(codes: np.ndarray, groups: int) -> Iterable[tuple[int, np.ndarray | slice]]:
    if groups == 1:
        yield 0, slice(None)
        return
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(groups + 1))
    for g in range(groups):
        if ends[g] < ends[g + 1]:
            yield g, order[ends[g] : ends[g + 1]]


def _corrected(
    table: np.ndarray,
    linear: np.ndarray,
    theta: np.ndarray,
    center: np.ndarray,
    levels: Sequence[LevelTerm],
    functions: tuple[Function, Function],
    places: list[np.ndarray],
    contrasts: list[Contrast],
    count: int,
    total: float,
    all_kept: bool,
) -> tuple[np.ndarray, np.ndarray, int]:
    """The averages of a group: linear parts plus remainders of kept rows, as many as needed."""
    draws, variants = theta.shape[0], len(places)
    size = max(16, NUMBERS // (draws * variants))
    first = np.zeros((variants, draws))
    second = np.zeros((variants, draws))
    gaps = {(c.high, c.low): np.zeros((2, draws)) for c in contrasts if c.low is not None}  # squares, and products with high
    target, done = table.shape[0] if all_kept else min(FEWEST, table.shape[0]), 0
    while True:
        while done < target:
            part = table[done : min(done + size, target)]
            remainders = _remainders(part, theta, center, levels, functions, places, count / total)
            first += remainders.sum(1)
            second += np.einsum("kis,kis->ks", remainders, remainders)
            for (high, low), squares in gaps.items():
                gap = remainders[high] - remainders[low]
                squares[0] += np.einsum("is,is->s", gap, gap)
                squares[1] += np.einsum("is,is->s", gap, remainders[high])
            done += part.shape[0]
        averages = linear.T + first / done
        share = max(0.0, 1.0 - done / count) / max(1, done - 1)
        values, errors = np.empty((draws, len(contrasts))), np.empty((draws, len(contrasts)))
        for k, c in enumerate(contrasts):
            value, up, down = combine(c, averages[c.high], None if c.low is None else averages[c.low])
            mean = first[c.high] / done
            spread = (up + down) ** 2 * (second[c.high] / done - mean**2)
            if c.low is not None:  # up a + down b = (up + down) a - down (a - b): no cancellation if a and b are close
                square, product = gaps[c.high, c.low] / done
                gap = mean - first[c.low] / done
                spread += down**2 * (square - gap**2) - 2.0 * (up + down) * down * (product - gap * mean)
            values[:, k], errors[:, k] = value, np.sqrt(np.maximum(0.0, spread) * share)
        if done == table.shape[0] or (np.sqrt((errors**2).mean(0)) <= NEGLIGIBLE * values.std(0)).all():
            return values, errors, done
        target = min(4 * done, table.shape[0])


def _remainders(
    part: np.ndarray,
    theta: np.ndarray,
    center: np.ndarray,
    levels: Sequence[LevelTerm],
    functions: tuple[Function, Function],
    places: list[np.ndarray],
    scale: float,
) -> np.ndarray:
    """f(eta) less its tangent at the centre, (variants, rows, draws), times the weight of the row relative to their mean."""
    function, derivative = functions
    d = theta.shape[1]
    x, shift, w = part[:, :d], part[:, d], part[:, d + 1] * scale
    base, middle = x @ theta.T + shift[:, None], x @ center + shift
    own, first = [], d + 2 + sum(where.size for where in places)
    for t, term in enumerate(levels):
        level, z = part[:, first + 2 * t].astype(int), part[:, first + 2 * t + 1]
        own.append((term.draws[:, level].T, term.center[level], z))
        base, middle = base + z[:, None] * own[-1][0], middle + z * own[-1][1]
    out = np.empty((len(places), part.shape[0], theta.shape[0]))
    at = d + 2
    for k, where in enumerate(places):
        eta, start = base, middle
        if where.size:
            change = part[:, at : at + where.size] - x[:, where]
            eta, start = base + change @ theta[:, where].T, middle + change @ center[where]
            for term, (draws, mean, z) in zip(levels, own, strict=True):
                if (place := term.changed(where)) is not None:
                    step = part[:, at + place] - z
                    eta, start = eta + step[:, None] * draws, start + step * mean
        at += where.size
        tangent = function(start)[:, None] + derivative(start)[:, None] * (eta - start[:, None])
        out[k] = w[:, None] * (function(eta) - tangent)
    return out

"""Which rows are bright: the O(1) structure of Maclaurin and Adams (2014, section 3.3), and the moves of z given theta.

`order` holds every row once, the bright ones first; `place` is its inverse. Brightening or darkening a row is one swap. The
gaps log L - log B at the present theta are kept for bright rows, by their position.

Every resampling here leaves p(z | theta) = prod_i (1 - e^(-gap_i))^z_i (e^(-gap_i))^(1 - z_i) invariant.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, declared, generic, inlinable
from tallbayes.engine.random_rows import draw_distinct_rows, draw_number
from tallbayes.proxies.capabilities import HasLowerBound
from tallbayes.proxies.lower_bounds import gaps, log_odds_gradient
from tallbayes.target import BOUND_EXCEEDED, Target, count, count_again, row_total, stop_run, stopped

BLOCK = 4096  # rows evaluated at a time by the first draw of z
WITH, WITHOUT, SWEEP = 0, 1, 2  # how explicit resampling picks its rows


class Lights(NamedTuple):
    """State of z. `tally` holds the number of bright rows, the place of the sweep, and the number of rows ever looked at."""

    order: np.ndarray
    place: np.ndarray
    gap: np.ndarray  # of bright rows, in their order; longer than their number
    seen: np.ndarray  # whether a row was ever bright or looked at
    shuffle: np.ndarray  # a permutation of the rows, for explicit resampling without replacement
    tally: np.ndarray


class Changes(NamedTuple):
    """Rows that changed, with sign +1 for a row now bright and their gaps; and how many rows were looked at."""

    row: np.ndarray
    sign: np.ndarray
    gap: np.ndarray
    looked: int


class Implicit(NamedTuple):
    """Metropolis-Hastings on each z: dark to bright proposed at a rate of the row, bright to dark always.

    `rate` has one number for all rows, or one for each with `member` the rows sorted into classes whose largest rate is `top`;
    `decay` is log(1 - top).
    """

    rate: np.ndarray
    member: np.ndarray
    start: np.ndarray
    top: np.ndarray
    decay: np.ndarray


class Explicit(NamedTuple):
    """Gibbs draws of `size` of the z at a time: drawn with or without replacement, or the next ones in order."""

    size: int
    scheme: int


@inlinable(options=SCALAR)
def lower_gaps(target: Target[HasLowerBound], index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Gaps log L - log B of the indexed rows to their lower bounds: one evaluation per row. A negative one ends the run."""
    count(target, index.size, 0, index.size)
    known_gaps(target, index, theta, out)


@inlinable(options=SCALAR)
def known_gaps(target: Target[HasLowerBound], index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """The same for rows that were already evaluated at theta and not kept: the pair counts once."""
    gaps(target.rows, target.proxy, index, theta, out)
    _require_bounds(target, index, out)


@inlinable(options=SCALAR)
def _require_bounds(target: Target, index: np.ndarray, gap: np.ndarray) -> None:
    for j in range(index.size):
        if gap[j] < 0.0:
            stop_run(target, BOUND_EXCEEDED, index[j])


@inlinable(options=SCALAR)
def bright_gradient(
    target: Target[HasLowerBound], index: np.ndarray, theta: np.ndarray, out: np.ndarray, gradient: np.ndarray
) -> None:
    """Gaps of the indexed rows; the gradient of sum_j log(L/B - 1) is added to `gradient`: one evaluation per row."""
    count(target, index.size, index.size, index.size)
    log_odds_gradient(target.rows, target.proxy, index, np.ones(index.size), theta, out, gradient)
    _require_bounds(target, index, out)


@inlinable(options=SCALAR)
def changed_gradient(
    target: Target[HasLowerBound], index: np.ndarray, sign: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> None:
    """Add sign[j] times the gradient of log(L/B - 1) of rows already evaluated at theta: counted as gradients alone."""
    count_again(target, index.size)
    log_odds_gradient(target.rows, target.proxy, index, sign, theta, np.empty(index.size), gradient)


def no_lights() -> Lights:
    """Before the first draw of z: the right types."""
    index, flags = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    return Lights(index, index.copy(), np.zeros(1), flags, index.copy(), np.zeros(3, np.int64))


@inlinable(options=SCALAR)
def log_odds(gap: float) -> float:
    """log(L/B - 1) = log(e^gap - 1)."""
    return gap + math.log(-math.expm1(-gap)) if gap > 0.0 else -np.inf


@inlinable(options=SCALAR)
def brighten(lights: Lights, row: int, gap: float) -> None:
    """Make a dark row bright. `gap` must have room."""
    bright = lights.tally[0]
    at, other = lights.place[row], lights.order[bright]
    lights.order[at], lights.order[bright] = other, row
    lights.place[other], lights.place[row] = at, bright
    lights.gap[bright] = gap
    lights.tally[0] = bright + 1


@inlinable(options=SCALAR)
def darken(lights: Lights, at: int) -> None:
    """Make the bright row at a position dark; the last bright row takes its place."""
    last = lights.tally[0] - 1
    row, other = lights.order[at], lights.order[last]
    lights.order[at], lights.order[last] = other, row
    lights.place[other], lights.place[row] = at, last
    lights.gap[at] = lights.gap[last]
    lights.tally[0] = last


@inlinable(options=SCALAR)
def with_room(lights: Lights, extra: int) -> Lights:
    """The same with room for the gaps of `extra` more bright rows."""
    need = lights.tally[0] + extra
    if need <= lights.gap.size:
        return lights
    gap = np.zeros(max(need, min(2 * lights.gap.size, lights.order.size)))
    gap[: lights.gap.size] = lights.gap
    return Lights(lights.order, lights.place, gap, lights.seen, lights.shuffle, lights.tally)


@inlinable(options=SCALAR)
def _look(lights: Lights, row: int) -> None:
    if lights.seen[row] == 0:
        lights.seen[row] = 1
        lights.tally[2] += 1


@inlinable
def first_lights(rng: np.random.Generator, target: Target[HasLowerBound], theta: np.ndarray, shuffled: bool) -> Lights:
    """z drawn from its law given theta: n evaluations."""
    n = row_total(target)
    order = np.arange(n).astype(np.int32)
    shuffle = np.arange(n if shuffled else 0).astype(np.int32)
    lights = Lights(order, order.copy(), np.zeros(64), np.zeros(n, np.uint8), shuffle, np.zeros(3, np.int64))
    out = np.empty(BLOCK)
    for start in range(0, n, BLOCK):
        if stopped(target):
            break
        size = min(BLOCK, n - start)
        lower_gaps(target, np.arange(start, start + size), theta, out[:size])
        lights = with_room(lights, size)
        for j in range(size):
            if rng.random() < -math.expm1(-out[j]):
                brighten(lights, start + j, out[j])
                _look(lights, start + j)
    return lights


@inlinable(options=SCALAR)
def skip(rng: np.random.Generator, decay: float) -> int:
    """A geometric number of at least 1: how far to the next success of trials that fail with probability e^decay.

    Large where it would overflow.
    """
    if decay == -np.inf:
        return 1
    return 1 + int(min(rng.standard_exponential() / -decay, 4e18))


@inlinable
def marked_rows(rng: np.random.Generator, rates: Implicit) -> np.ndarray:
    """Rows each marked independently at its own rate, in time proportional to their number: skips, then thinning."""
    rows, total = np.empty(64, np.int32), 0
    several = rates.rate.size > 1
    for k in range(rates.top.size):
        first = rates.start[k]
        size = rates.start[k + 1] - first
        at = skip(rng, rates.decay[k]) - 1
        while at < size:
            row = rates.member[first + at] if several else first + at
            if not several or rng.random() * rates.top[k] < rates.rate[row]:
                if total == rows.size:
                    larger = np.empty(2 * total, np.int32)
                    larger[:total] = rows
                    rows = larger
                rows[total] = row
                total += 1
            at += skip(rng, rates.decay[k])
    return rows[:total]


@generic
def shuffles(scheme: Any) -> bool:
    """Whether a scheme keeps a permutation of the rows."""
    return False


@shuffles.register(Explicit)
def _shuffles(scheme: Explicit) -> bool:
    return scheme.scheme == WITHOUT


@generic(argument=2, options=SCALAR)
@declared
def resample(rng: np.random.Generator, target: Any, scheme: Any, theta: np.ndarray, lights: Lights) -> tuple[Lights, Changes]:
    """One resampling of z given theta."""
    raise TypeError


@resample.register(Implicit)
def _implicit(
    rng: np.random.Generator, target: Target, scheme: Implicit, theta: np.ndarray, lights: Lights
) -> tuple[Lights, Changes]:
    """Dark rows are proposed before any bright one is darkened: a row just darkened must not be tried again.

    e^gap - 1 >= gap, so most bright rows stay bright, and most proposed ones become so, before an exponential is taken.
    """
    bright = lights.tally[0]
    marked = marked_rows(rng, scheme)
    dark, tried = np.empty(marked.size, np.int32), 0
    for k in range(marked.size):
        if lights.place[marked[k]] >= bright:
            dark[tried] = marked[k]
            tried += 1
    dark, gap = dark[:tried], np.empty(tried)
    lower_gaps(target, dark, theta, gap)
    row, sign, change = np.empty(tried + bright, np.int32), np.empty(tried + bright), np.empty(tried + bright)
    several, changes = scheme.rate.size > 1, 0
    for k in range(tried):
        _look(lights, dark[k])
        rate = scheme.rate[dark[k]] if several else scheme.rate[0]
        level = rng.random() * rate
        if level < gap[k] or level < math.expm1(gap[k]):
            row[changes], sign[changes], change[changes] = dark[k], 1.0, gap[k]
            changes += 1
    brightened = changes
    for at in range(bright - 1, -1, -1):
        rate = scheme.rate[lights.order[at]] if several else scheme.rate[0]
        u = rng.random()
        if u * lights.gap[at] < rate and u * math.expm1(lights.gap[at]) < rate:
            row[changes], sign[changes], change[changes] = lights.order[at], -1.0, lights.gap[at]
            changes += 1
            darken(lights, at)
    lights = with_room(lights, brightened)
    for k in range(brightened):
        brighten(lights, row[k], change[k])
    return lights, Changes(row[:changes], sign[:changes], change[:changes], tried)


@inlinable
def _rows_to_redraw(rng: np.random.Generator, scheme: Explicit, lights: Lights) -> np.ndarray:
    n, size = lights.order.size, scheme.size
    rows = np.empty(size, np.int32)
    if scheme.scheme == WITHOUT:
        draw_distinct_rows(rng, lights.shuffle, 0, size)
        rows[:] = lights.shuffle[:size]
        return rows
    for k in range(size):
        rows[k] = draw_number(rng, n) if scheme.scheme == WITH else (lights.tally[1] + k) % n
    if scheme.scheme == SWEEP:
        lights.tally[1] = (lights.tally[1] + size) % n
    return rows


@resample.register(Explicit)
def _explicit(
    rng: np.random.Generator, target: Target, scheme: Explicit, theta: np.ndarray, lights: Lights
) -> tuple[Lights, Changes]:
    rows = _rows_to_redraw(rng, scheme, lights)
    gap = np.empty(rows.size)
    lower_gaps(target, rows, theta, gap)
    row, sign, change, changes = np.empty(rows.size, np.int32), np.empty(rows.size), np.empty(rows.size), 0
    lights = with_room(lights, rows.size)
    for k in range(rows.size):
        _look(lights, rows[k])
        at = lights.place[rows[k]]
        bright = at < lights.tally[0]
        shines = rng.random() < -math.expm1(-gap[k])
        if shines == bright:
            continue
        row[changes], sign[changes], change[changes] = rows[k], 1.0 if shines else -1.0, gap[k]
        changes += 1
        if shines:
            brighten(lights, rows[k], gap[k])
        else:
            darken(lights, at)
    return lights, Changes(row[:changes], sign[:changes], change[:changes], rows.size)


@inlinable(options=SCALAR)
def renew_gaps(target: Target[HasLowerBound], theta: np.ndarray, lights: Lights, buffer: np.ndarray, computed: bool) -> None:
    """Keep the gaps of bright rows at a new theta: from `buffer` if they were computed there, else anew."""
    bright = lights.tally[0]
    if not computed:
        known_gaps(target, lights.order[:bright], theta, buffer)
    lights.gap[:bright] = buffer


def classes_of(rate: np.ndarray, most: int = 8) -> Implicit:
    """Rows sorted into dyadic classes of their rate, at most `most`; the last takes all smaller ones."""
    largest = float(rate.max())
    octave = np.minimum(np.floor(np.log2(largest / rate)), most - 1).astype(np.int64)
    member = np.argsort(octave, kind="stable").astype(np.int32)
    counts = np.bincount(octave, minlength=most)
    used = np.flatnonzero(counts)
    start = np.concatenate([[0], np.cumsum(counts[used])]).astype(np.int64)
    top = np.array([rate[member[a:b]].max() for a, b in itertools.pairwise(start)])
    return Implicit(rate, member, start, top, _decay(top))


def single_rate(rate: float, n: int) -> Implicit:
    """The paper's one rate for all rows."""
    top = np.array([rate])
    return Implicit(top.copy(), np.zeros(0, np.int32), np.array([0, n]), top, _decay(top))


def _decay(top: np.ndarray) -> np.ndarray:
    """log(1 - top) of every class."""
    return np.array([math.log1p(-t) if t < 1.0 else -np.inf for t in top])

"""Certified bounds over rows that live elsewhere: totals are known here, rows come from streams that were drawn there.

Under bounds T6 and T9 a row of a table (and class) is drawn with probabilities that do not depend on theta; only the number of
candidates does. So candidates can be drawn before they are needed: a stream for each table and class, i.i.d. in proportion to the
fixed weights c_i, of which each chain uses every row at most once, in order. Using the next row of a stream is the same draw as
`draw_row` of the bound over all rows. A stream that has run dry says so by row -1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.pair_functions import OVERFLOW, angular, norm, psi
from tallbayes.bounds.tables import draw_row, pair_size, rate_count, total_rate
from tallbayes.compile import declared, generic, inlinable
from tallbayes.engine.random_rows import draw_rows


class Reservoir(NamedTuple):
    """The rows of a chain's streams that are here: of stream s those numbered first[s] to last[s] - 1."""

    weight: np.ndarray  # c_i that each record was drawn with
    base: np.ndarray  # record of row first[s]
    first: np.ndarray
    last: np.ndarray
    position: np.ndarray  # number of the next row of each stream; rows before it are spent


@inlinable
def next_row(reservoir: Reservoir, stream: int) -> tuple[int, float]:
    """The next row of a stream, which is spent, and its weight; row -1 if it is not here."""
    number = reservoir.position[stream]
    if number < reservoir.first[stream] or number >= reservoir.last[stream]:
        return -1, 0.0
    reservoir.position[stream] = number + 1
    row = reservoir.base[stream] + number - reservoir.first[stream]
    return row, reservoir.weight[row]


@generic
@declared
def stream_rates(bound: Any, rates: np.ndarray, total: float, out: np.ndarray) -> None:
    """Add to out[s] the expected candidates from stream s, given what `total_rate` left in `rates`."""
    raise TypeError


class StreamedSeparable(NamedTuple):
    """T6 and T8: lambda_i = c_i M(theta, theta'), one stream."""

    total: float
    pair: Any
    reservoir: Reservoir


@total_rate.register(StreamedSeparable)
def _separable_total(bound: StreamedSeparable, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    rates[0] = pair_size(bound.pair, white, other)
    return bound.total * rates[0]


@draw_row.register(StreamedSeparable)
def _separable_draw(rng: np.random.Generator, bound: StreamedSeparable, rates: np.ndarray, total: float) -> tuple[int, float]:
    row, weight = next_row(bound.reservoir, 0)
    return row, weight * rates[0]


@stream_rates.register(StreamedSeparable)
def _separable_rates(bound: StreamedSeparable, rates: np.ndarray, total: float, out: np.ndarray) -> None:
    out[0] += total


class StreamedClasses(NamedTuple):
    """T9: classes of whitened norm, stream 2 k of class k by local weights and 2 k + 1 by global ones."""

    radius: np.ndarray
    local: np.ndarray  # totals of each class
    globally: np.ndarray
    bounded: bool
    reservoir: Reservoir


@rate_count.register(StreamedClasses)
def _classes_count(bound: StreamedClasses) -> int:
    return 2 * bound.radius.size


@total_rate.register(StreamedClasses)
def _classes_total(bound: StreamedClasses, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    g = angular(white, other)
    reach = max(norm(white), norm(other))
    total = 0.0
    for k in range(bound.radius.size):
        steps = bound.radius[k] * reach
        growth = psi(steps) if steps <= OVERFLOW else np.inf
        rate, factor = np.inf, -1.0
        if growth < np.inf:
            rate, factor = bound.local[k] * growth * g, growth * g
        if bound.bounded:
            everywhere = bound.globally[k] * g
            if everywhere < rate:
                rate, factor = everywhere, -g
        if g == 0.0:
            rate, factor = 0.0, 0.0
        rates[2 * k], rates[2 * k + 1] = rate, factor
        total += rate
    return total


@draw_row.register(StreamedClasses)
def _classes_draw(rng: np.random.Generator, bound: StreamedClasses, rates: np.ndarray, total: float) -> tuple[int, float]:
    goal, k = rng.random() * total, 0
    while k < bound.radius.size - 1 and goal >= rates[2 * k]:
        goal -= rates[2 * k]
        k += 1
    while rates[2 * k] <= 0.0 and k > 0:  # rounding of the sum can end on an empty class
        k -= 1
    factor = rates[2 * k + 1]
    row, weight = next_row(bound.reservoir, 2 * k if factor > 0.0 else 2 * k + 1)
    return row, weight * abs(factor)


@stream_rates.register(StreamedClasses)
def _classes_rates(bound: StreamedClasses, rates: np.ndarray, total: float, out: np.ndarray) -> None:
    for k in range(bound.radius.size):
        out[2 * k if rates[2 * k + 1] > 0.0 else 2 * k + 1] += rates[2 * k]


class StreamedScheme(NamedTuple):
    """Every row with probability 1/n, from one stream: for minibatch gradients."""

    n: int
    reservoir: Reservoir


@draw_rows.register(StreamedScheme)
def _streamed_rows(rng: np.random.Generator, scheme: StreamedScheme, size: int, index: np.ndarray, factors: np.ndarray) -> None:
    for k in range(index.size):
        row = next_row(scheme.reservoir, 0)[0]
        if row < 0:  # a position beyond the end says that everything since is void
            scheme.reservoir.position[0] += 1
            row = 0
        index[k], factors[k] = row, scheme.n / size


class StreamedNumbers(NamedTuple):
    """The same for a sampler that keeps rows from one iteration to the next: a row is known by its number in the stream.

    Records move when the next block comes; `Rows.numbers` says where a row is. A number beyond the end says that everything
    since is void.
    """

    n: int
    reservoir: Reservoir


@draw_rows.register(StreamedNumbers)
def _streamed_numbers(
    rng: np.random.Generator, scheme: StreamedNumbers, size: int, index: np.ndarray, factors: np.ndarray
) -> None:
    for k in range(index.size):
        index[k], factors[k] = scheme.reservoir.position[0], scheme.n / size
        scheme.reservoir.position[0] += 1

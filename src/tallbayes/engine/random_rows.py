"""Random rows: the one module that draws them.

* With replacement: a scheme (`UniformRows`, `WeightedRows`, `ProportionalRows`) and `draw_rows`, which also gives 1 / p.
* Without replacement: `draw_distinct_rows`, a partial Fisher-Yates shuffle of a permutation that is kept, and `draw_subset`, for a
  subset at once.
* In proportion to weights, in constant time: alias tables (Walker 1977; Vose 1991) in chunks of 65,536 rows.

Each chunk of a table has its own, built on its own thread; bisection of the cumulative chunk totals leads to a chunk. Tables take
18 bytes per row, in memory or in a file when the rows are memory-mapped. Rows of zero weight are never drawn.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.compile import STRICT, declared, generic, inlinable, jit
from tallbayes.engine.passes import over_ranges
from tallbayes.pointers import GENERATOR, Kind, calls, kind_of, member_maker, member_of, member_pointer, numbers_of

CHUNK = 1 << 16


class AliasTable(NamedTuple):
    """Weights of items, and what is needed to draw one in proportion to its weight."""

    weight: np.ndarray
    threshold: np.ndarray
    alias: np.ndarray  # uint16: position within the chunk
    start: np.ndarray  # first item of each chunk, and the number of items
    cumulative: np.ndarray  # sums of weights before each chunk, and the total


class UniformRows(NamedTuple):
    """Every row with probability 1/n."""

    n: int


class WeightedRows(NamedTuple):
    """Row i with probability (1 - share) weight_i / total + share / n."""

    n: int
    table: AliasTable
    share: float


class ProportionalRows(NamedTuple):
    """Row i with probability weight_i / total."""

    table: AliasTable


@inlinable
def draw_number(rng: np.random.Generator, count: int) -> int:
    """A uniform whole number below `count`: the product may round up to it."""
    return min(int(rng.random() * count), count - 1)


@generic(argument=1)
@declared
def draw_rows(rng: np.random.Generator, scheme: Any, size: int, index: np.ndarray, factors: np.ndarray) -> None:
    """Fill `index` with rows drawn with replacement, `factors` with 1 / (size p_i): that of a row in an estimate from `size` rows."""
    raise TypeError


@draw_rows.register(UniformRows)
def _draw_uniform(rng: np.random.Generator, scheme: UniformRows, size: int, index: np.ndarray, factors: np.ndarray) -> None:
    factor = scheme.n / size
    for k in range(index.size):
        index[k] = draw_number(rng, scheme.n)
        factors[k] = factor


@draw_rows.register(WeightedRows)
def _draw_weighted(rng: np.random.Generator, scheme: WeightedRows, size: int, index: np.ndarray, factors: np.ndarray) -> None:
    table = scheme.table
    chunks = table.start.size - 1
    total = table.cumulative[chunks]
    for k in range(index.size):
        if rng.random() < scheme.share:
            row = draw_number(rng, scheme.n)
        else:
            row = draw_item(rng, table, 0, chunks)
        index[k] = row
        factors[k] = 1.0 / (((1.0 - scheme.share) * table.weight[row] / total + scheme.share / scheme.n) * size)


@draw_rows.register(ProportionalRows)
def _draw_proportional(
    rng: np.random.Generator, scheme: ProportionalRows, size: int, index: np.ndarray, factors: np.ndarray
) -> None:
    table = scheme.table
    total = table.cumulative[-1]
    for k in range(index.size):
        row = draw_item(rng, table, 0, table.start.size - 1)
        index[k] = row
        factors[k] = total / (table.weight[row] * size)


@generic
@declared
def row_scale(scheme: Any, row: int) -> float:
    """1/p of a row."""
    raise TypeError


@row_scale.register(UniformRows)
def _uniform_scale(scheme: UniformRows, row: int) -> float:
    return float(scheme.n)


@row_scale.register(WeightedRows)
def _weighted_scale(scheme: WeightedRows, row: int) -> float:
    total = scheme.table.cumulative[scheme.table.start.size - 1]
    return 1.0 / ((1.0 - scheme.share) * scheme.table.weight[row] / total + scheme.share / scheme.n)


_numbers, _index = types.Array(types.float64, 1, "C"), types.Array(types.int64, 1, "C")
_DRAW = types.int64(_numbers, GENERATOR, types.int64, _index, _numbers)
_SCALE = types.float64(_numbers, types.int64)
_call_draw, _call_scale = calls(_DRAW), calls(_SCALE)


class Scheme(NamedTuple):
    """Any of the schemes as samplers are compiled for it: addresses of `draw_rows` and `row_scale`, 0 if it has none, and numbers."""

    draw: int
    scale: int
    numbers: np.ndarray

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        return scheme_of, (original_scheme(self),)


def scheme_of(scheme: Any) -> Scheme:
    """A scheme as one type.

    >>> index, factors = np.empty(3, np.int64), np.empty(3)
    >>> draw_rows(np.random.default_rng(0), scheme_of(UniformRows(10)), 3, index, factors)
    >>> factors
    array([3.33333333, 3.33333333, 3.33333333])
    """
    return Scheme(*_addresses(kind_of(scheme)), numbers_of(scheme))


def original_scheme(scheme: Any) -> Any:
    """What a scheme was made of."""
    return member_of(scheme.numbers, _KINDS[scheme.draw]) if isinstance(scheme, Scheme) else scheme


_KINDS: dict[int, Kind] = {}  # of schemes, by the address of `draw_rows`


@functools.cache
def _addresses(kind: Kind) -> tuple[int, int]:
    member = member_maker(kind)

    def draw(p: np.ndarray, rng: np.random.Generator, size: int, index: np.ndarray, factors: np.ndarray) -> int:
        draw_rows(rng, member(p), size, index, factors)
        return 0

    def scale(p: np.ndarray, row: int) -> float:
        return float(row_scale(member(p), row))

    known = kind.type in row_scale.registry
    address = member_pointer(draw, "draw rows", kind, _DRAW, options=STRICT)
    _KINDS[address] = kind
    return address, member_pointer(scale, "row scale", kind, _SCALE, options=STRICT) if known else 0


@draw_rows.register(Scheme)
def _draw_scheme(rng: np.random.Generator, scheme: Scheme, size: int, index: np.ndarray, factors: np.ndarray) -> None:
    _call_draw(scheme.draw, scheme.numbers, rng, size, index, factors)


@row_scale.register(Scheme)
def _scheme_scale(scheme: Scheme, row: int) -> float:
    return _call_scale(scheme.scale, scheme.numbers, row) if scheme.scale != 0 else np.nan


def probabilities(scheme: UniformRows | WeightedRows, index: np.ndarray) -> np.ndarray:
    """p_i of the indexed rows."""
    if isinstance(scheme, UniformRows):
        return np.full(index.size, 1.0 / scheme.n)
    return (1.0 - scheme.share) * scheme.table.weight[index] / scheme.table.cumulative[-1] + scheme.share / scheme.n


@inlinable
def draw_distinct_rows(rng: np.random.Generator, order: np.ndarray, start: int, stop: int) -> None:
    """Make order[start:stop] a uniform draw without replacement of the rows that are not in order[:start].

    `order` holds every row once, in whatever order earlier draws left it.
    """
    n = order.size
    for k in range(start, stop):
        j = k + draw_number(rng, n - k)
        order[k], order[j] = order[j], order[k]


@inlinable
def contains(index: np.ndarray, size: int, row: int) -> bool:
    """Whether a row is among the first `size` of an index."""
    known = False
    for j in range(size):
        known |= index[j] == row
    return known


@inlinable
def draw_subset(rng: np.random.Generator, n: int, index: np.ndarray) -> None:
    """Fill `index` with distinct rows of n: Floyd's method for small subsets, selection in order for large ones."""
    m = index.size
    if m * m <= 32 * n:
        for j in range(m):
            row = draw_number(rng, n - m + j + 1)
            index[j] = n - m + j if contains(index, j, row) else row
    else:
        taken = 0
        for row in range(n):
            if rng.random() * (n - row) < m - taken:
                index[taken] = row
                taken += 1


@inlinable
def draw_item(rng: np.random.Generator, table: AliasTable, first_chunk: int, last_chunk: int) -> int:
    """An item of chunks first_chunk <= k < last_chunk, in proportion to its weight."""
    low, high = first_chunk, last_chunk
    base = table.cumulative[first_chunk]
    goal = base + rng.random() * (table.cumulative[last_chunk] - base)
    while high - low > 1:
        middle = (low + high) // 2
        if table.cumulative[middle] <= goal:
            low = middle
        else:
            high = middle
    while low > first_chunk and table.cumulative[low + 1] <= table.cumulative[low]:  # the goal may round up to an empty end
        low -= 1
    begin = table.start[low]
    size = table.start[low + 1] - begin
    cell = begin + min(int(rng.random() * size), size - 1)
    if rng.random() < table.threshold[cell]:
        return cell
    return begin + np.int64(table.alias[cell])


@jit
def _build_chunk(weight: np.ndarray, threshold: np.ndarray, alias: np.ndarray) -> float:
    """Vose's algorithm on one chunk; returns the total weight."""
    size = weight.size
    total = 0.0
    for i in range(size):
        total += weight[i]
    if total <= 0.0:
        for i in range(size):
            threshold[i], alias[i] = 1.0, i
        return 0.0
    small, large = np.empty(size, np.int32), np.empty(size, np.int32)
    smalls, larges = 0, 0
    for i in range(size):
        threshold[i] = weight[i] * size / total
        if threshold[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    heaviest = 0
    for i in range(size):
        if weight[i] > weight[heaviest]:
            heaviest = i
    while smalls > 0 and larges > 0:
        smalls -= 1
        less = small[smalls]
        more = large[larges - 1]
        alias[less] = more
        threshold[more] -= 1.0 - threshold[less]
        if threshold[more] < 1.0:
            larges -= 1
            small[smalls] = more
            smalls += 1
    for k in range(larges):
        threshold[large[k]], alias[large[k]] = 1.0, large[k]
    for k in range(smalls):  # left by rounding: whole cells, except that a row of zero weight must never be drawn
        i = small[k]
        threshold[i] = 1.0 if weight[i] > 0.0 else 0.0
        alias[i] = i if weight[i] > 0.0 else heaviest
    return total


def build(
    weight: np.ndarray, start: np.ndarray | None = None, folder: Path | None = None, cores: int | None = None
) -> AliasTable:
    """Tables of all chunks, on all cores. `start` gives chunk boundaries (at most 65,536 items each).

    >>> table = build(np.array([1.0, 0.0, 3.0]))
    >>> rng = np.random.default_rng(0)
    >>> counts = np.bincount([draw_item(rng, table, 0, 1) for _ in range(4000)], minlength=3)
    >>> counts[1], bool(abs(counts[2] - 3000) < 150)
    (np.int64(0), True)
    """
    n = weight.size
    if start is None:
        start = np.append(np.arange(0, n, CHUNK), n)
    threshold, alias = allocate((n,), np.float64, folder), allocate((n,), np.uint16, folder)

    def work(first: int, last: int) -> list[float]:
        bounds = [(start[k], start[k + 1]) for k in range(first, last)]
        return [_build_chunk(weight[a:b], threshold[a:b], alias[a:b]) for a, b in bounds]

    chunks = start.size - 1
    totals = [t for part in over_ranges(chunks, 1 + chunks // 64, work, cores) for t in part]
    cumulative = np.concatenate([[0.0], np.cumsum(totals)])
    return AliasTable(weight, threshold, alias, start.astype(np.int64), cumulative)


def allocate(shape: tuple[int, ...], dtype: type, folder: Path | None) -> np.ndarray:
    """An array in memory, or in an unnamed file in `folder` that disappears with the process."""
    if folder is None:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.asarray(np.memmap(file, dtype=dtype, mode="w+", shape=shape))

"""Third-order terms of rows with one linear predictor: f'''(eta*) s^3 / 6, s the shift of the predictor from the reference.

The sum over rows is a symmetric tensor in whitened coordinates, kept as its d (d + 1) (d + 2) / 6 different entries j <= k <= l, each
with its multiplicity and the factor 1 / 6: the sum at w is that of entry * w_j w_k w_l. Entries are in the order of l, then k, then j. With
the products w_j w_k in the order of k, then j, those of l are the first (l + 1) (l + 2) / 2 of them: value and sum are long dot products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, inlinable, jit
from tallbayes.engine import passes
from tallbayes.engine.indexed_rows import indexed, three_dots, tiles_at
from tallbayes.engine.random_rows import CHUNK
from tallbayes.engine.rows import Rows
from tallbayes.engine.tiles import call_third


@inlinable(options=SUMS)
def tensor_value(entries: np.ndarray, white: np.ndarray) -> float:
    """The cubic form of the entries at a point."""
    d, place, pairs, total = white.size, 0, 0, 0.0
    products = np.empty(d * (d + 1) // 2)
    for l in range(d):
        for j in range(l + 1):
            products[pairs + j] = white[l] * white[j]
        pairs += l + 1
        inner = 0.0
        for p in range(pairs):
            inner += entries[place + p] * products[p]
        place += pairs
        total += inner * white[l]
    return total


@inlinable(options=SUMS)
def add_tensor_gradient(entries: np.ndarray, white: np.ndarray, gradient: np.ndarray) -> float:
    """The cubic form of the entries at a point, its gradient added to `gradient`."""
    d, place, pairs, total = white.size, 0, 0, 0.0
    products, slopes = np.empty(d * (d + 1) // 2), np.zeros(d * (d + 1) // 2)
    for l in range(d):
        for j in range(l + 1):
            products[pairs + j] = white[l] * white[j]
        pairs += l + 1
        inner = 0.0
        for p in range(pairs):
            inner += entries[place + p] * products[p]
            slopes[p] += entries[place + p] * white[l]
        place += pairs
        gradient[l] += inner
        total += inner * white[l]
    pairs = 0
    for l in range(d):
        for j in range(l + 1):
            gradient[l] += slopes[pairs + j] * white[j]
            gradient[j] += slopes[pairs + j] * white[l]
        pairs += l + 1
    return total


@inlinable(options=SUMS)
def subtract_third(
    rows: Rows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    """Take the third-order terms, those at `other` less those at `theta`, from second-order residuals of the indexed rows."""
    of = indexed(rows.records, rows.layout, rows.p)
    records, d, m = of.records, of.columns, index.size
    here, there = theta[:d] - reference[:d], other[:d] - reference[:d]
    base, y, size, change = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        x = records[index[j]]
        at, first, second = three_dots(x, reference, here, there, d)
        base[j], y[j] = at + x[d + 1], x[d]
        change[j] = x[d + 2] / 6.0 * ((second - first) * (second * second + second * first + first * first))
    call_third(of.tiles.third, base, y, of.p, 1, m, size)
    for j in range(m):
        out[j] -= size[j] * change[j]


@jit(options=SUMS)
def _subtract(
    rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    subtract_third(rows, index, theta, other, reference, out)


def third_order_residuals(
    rows: Rows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Differences of third-order residuals of the indexed rows: two evaluations per row."""
    out = passes.residuals_at(rows, index, theta, other, reference)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, other, reference)]
    _subtract(rows, np.ascontiguousarray(index, np.int64), *points, out)
    return out


@jit
def _thirds(address: int, eta: np.ndarray, y: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    call_third(address, eta, y, p, 1, eta.size, out)


def thirds_of(rows: Rows, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Third derivatives of some rows of one index, of weight one."""
    out = np.empty(eta.size)
    _thirds(int(tiles_at(rows.layout).third), np.ascontiguousarray(eta), np.ascontiguousarray(y), rows.p, out)
    return out


def third_order_sum(rows: Rows, factor: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The entries of the tensor of all rows, in one pass."""
    d, n = reference.size, passes.row_count(rows)
    count = d * (d + 1) * (d + 2) // 6

    def work(start: int, stop: int) -> np.ndarray:
        x, y, offset, weight = passes.block(rows, start, stop)
        size = weight * thirds_of(rows, x @ reference + offset, y)
        total = np.zeros(count)
        _add_rows(np.ascontiguousarray(x @ factor), size, total)
        return total

    total = np.sum(passes.over_chunks(n, CHUNK, work), axis=0)
    return total * multiplicities(d) / 6.0


@jit(options=SUMS)
def _add_rows(white: np.ndarray, size: np.ndarray, total: np.ndarray) -> None:
    """Add the sums over some rows, four at a time: with many columns the entries do not fit into the fast caches."""
    n, d = white.shape
    products, weight = np.zeros((4, d * (d + 1) // 2)), np.zeros(4)
    for first in range(0, n, 4):
        count, pairs, place = min(4, n - first), 0, 0
        weight[:] = 0.0
        for l in range(d):
            for r in range(count):
                value = white[first + r, l]
                weight[r] = value * size[first + r]
                for j in range(l + 1):
                    products[r, pairs + j] = value * white[first + r, j]
            pairs += l + 1
            a, b, c, e = weight[0], weight[1], weight[2], weight[3]
            for p in range(pairs):
                total[place + p] += a * products[0, p] + b * products[1, p] + c * products[2, p] + e * products[3, p]
            place += pairs


def multiplicities(d: int) -> np.ndarray:
    """How many entries of the whole tensor each entry j <= k <= l stands for: 1, 3 or 6.

    >>> multiplicities(2)
    array([1., 3., 3., 1.])
    """
    l = np.repeat(np.arange(d), [(l + 1) * (l + 2) // 2 for l in range(d)])
    k = np.concatenate([np.repeat(np.arange(m + 1), np.arange(1, m + 2)) for m in range(d)])
    j = np.concatenate([np.arange(m + 1) for n in range(d) for m in range(n + 1)])
    equal = (j == k).astype(np.int64) + (k == l)
    return np.array([6.0, 3.0, 1.0])[equal]

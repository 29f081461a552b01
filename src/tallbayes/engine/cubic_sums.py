"""Third-order terms of rows with one linear predictor: f'''(eta*) s^3 / 6, s the shift of the predictor from the reference.

The sum over rows is a symmetric tensor in whitened coordinates, kept as its d (d + 1) (d + 2) / 6 different entries j <= k <= l, each
with its multiplicity and the factor 1 / 6: the sum at w is that of entry * w_j w_k w_l.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, inlinable, jit, leaf
from tallbayes.engine import passes
from tallbayes.engine.family_functions import third
from tallbayes.engine.random_rows import CHUNK
from tallbayes.engine.rows import SingleIndex, three_dots


@leaf(options=SUMS)
def tensor_value(entries: np.ndarray, white: np.ndarray) -> float:
    """The cubic form of the entries at a point."""
    d, place, total = white.size, 0, 0.0
    for j in range(d):
        outer = 0.0
        for k in range(j, d):
            inner = 0.0
            for l in range(k, d):
                inner += entries[place + l - k] * white[l]
            place += d - k
            outer += inner * white[k]
        total += outer * white[j]
    return total


@inlinable(options=SUMS)
def subtract_third(
    rows: SingleIndex, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    """Take the third-order terms, those at `other` less those at `theta`, from second-order residuals of the indexed rows."""
    records, d = rows.records, rows.columns
    here, there = theta[:d] - reference[:d], other[:d] - reference[:d]
    for j in range(index.size):
        x = records[index[j]]
        base, first, second = three_dots(x, reference, here, there, d)
        size = third(rows.family, base + x[d + 1], x[d])
        out[j] -= x[d + 2] * size / 6.0 * ((second - first) * (second * second + second * first + first * first))


@jit(options=SUMS)
def _subtract(
    rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    subtract_third(rows, index, theta, other, reference, out)


def third_order_residuals(
    rows: SingleIndex, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Differences of third-order residuals of the indexed rows: two evaluations per row."""
    out = passes.residuals_at(rows, index, theta, other, reference)
    points = [np.ascontiguousarray(p, np.float64) for p in (theta, other, reference)]
    _subtract(rows, np.ascontiguousarray(index, np.int64), *points, out)
    return out


@jit
def _thirds(family: Any, eta: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    for i in range(eta.size):
        out[i] = third(family, eta[i], y[i])


def third_order_sum(rows: SingleIndex, factor: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The entries of the tensor of all rows, in one pass."""
    d, n = reference.size, passes.row_count(rows)

    def work(start: int, stop: int) -> np.ndarray:
        x, y, offset, weight = passes.block(rows, start, stop)
        size = np.empty(stop - start)
        _thirds(rows.family, x @ reference + offset, np.ascontiguousarray(y), size)
        size *= weight
        white = np.ascontiguousarray(x @ factor)
        return np.concatenate(
            [(((white[:, j] * size)[:, None] * white[:, j:]).T @ white[:, j:])[np.triu_indices(d - j)] for j in range(d)]
        )

    total = np.sum(passes.over_chunks(n, CHUNK, work), axis=0)
    return total * multiplicities(d) / 6.0


def multiplicities(d: int) -> np.ndarray:
    """How many entries of the whole tensor each entry j <= k <= l stands for: 1, 3 or 6.

    >>> multiplicities(2)
    array([1., 3., 3., 1.])
    """
    return np.array([{1: 1.0, 2: 3.0, 3: 6.0}[len({j, k, l})] for j in range(d) for k in range(j, d) for l in range(k, d)])

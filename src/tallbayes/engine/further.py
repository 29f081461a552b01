"""Indices of rows after the first, and what their slopes add to a gradient: behind addresses.

Most models have one index, and their loops are the hottest of all. Code for further indices in the same function would cost them
registers and every caller time to compile, so it is compiled once for each type of records and called a tile at a time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.pointers import calls, pointer

COLUMN, COUNT, START, OFFSET, FIELDS = 0, 1, 2, 3, 4
"""Of an index in `Indexed.blocks`: its first column and number of columns, its first coordinate, whether the offset is added. Without
columns it is the coordinate itself."""

_numbers, _wholes = types.Array(types.float64, 1, "C"), types.Array(types.int64, 1, "C")


def _signatures(*others: Any) -> list[Any]:
    return [types.int64(types.Array(kind, 2, "C"), *others) for kind in (types.float64, types.float32)]


_INDICES = _signatures(_wholes, types.int64, _wholes, types.int64, _numbers, types.boolean, _numbers)
_GRADIENTS = _signatures(_wholes, _wholes, types.int64, _numbers, _numbers)

call_indices = calls(*_INDICES)  # (address, records, blocks, columns, at, size, theta, shifted, u)
call_gradients = calls(*_GRADIENTS)  # (address, records, blocks, at, size, g, gradient)


class Further(NamedTuple):
    """Addresses of both functions; zeros where the first index is all there is."""

    indices: int
    gradients: int

    def __reduce__(self) -> Any:
        """Addresses are those of a process."""
        single = self.indices == further_of("float32").indices if self.indices else False
        return (further_of, ("float32" if single else "float64",)) if self.indices else (Further, (0, 0))


@functools.cache
def further_of(kind: str) -> Further:
    """Both functions for records of a type of numbers."""
    which = 1 if kind == "float32" else 0
    return Further(
        pointer(further_indices, _INDICES[which], f"further indices {kind}"),
        pointer(further_gradients, _GRADIENTS[which], f"further gradients {kind}"),
    )


def further_indices(
    records: np.ndarray,
    blocks: np.ndarray,
    columns: int,
    at: np.ndarray,
    size: int,
    theta: np.ndarray,
    shifted: bool,
    u: np.ndarray,
) -> int:
    """Index k of row at[j] in u[k size + j]; the first one only if it is a coordinate. `shifted` adds the offsets."""
    for k in range(blocks.size // FIELDS):
        column, count = blocks[FIELDS * k + COLUMN], blocks[FIELDS * k + COUNT]
        begin, own = blocks[FIELDS * k + START], blocks[FIELDS * k + OFFSET]
        out = u[k * size : k * size + size]
        if count == 0:
            for j in range(size):
                out[j] = theta[begin]
            continue
        if k == 0:
            continue
        part = theta[begin : begin + count]
        if column == 0:
            for j in range(size):
                x = records[at[j]]
                total = 0.0
                for c in range(count):
                    total += x[c] * part[c]
                out[j] = total
        else:
            for j in range(size):
                x = records[at[j]][column : column + count]
                total = 0.0
                for c in range(count):
                    total += x[c] * part[c]
                out[j] = total
        if own != 0 and shifted:
            for j in range(size):
                out[j] += records[at[j], columns + 1]
    return 0


def further_gradients(
    records: np.ndarray, blocks: np.ndarray, at: np.ndarray, size: int, g: np.ndarray, gradient: np.ndarray
) -> int:
    """Add what the slopes g[k size + j] of these indices give, to the gradient in theta."""
    for k in range(blocks.size // FIELDS):
        column, count, begin = blocks[FIELDS * k + COLUMN], blocks[FIELDS * k + COUNT], blocks[FIELDS * k + START]
        slope = g[k * size : k * size + size]
        if count == 0:
            total = 0.0
            for j in range(size):
                total += slope[j]
            gradient[begin] += total
            continue
        if k == 0:
            continue
        out = gradient[begin : begin + count]
        if column > 0:
            for j in range(size):
                x, s = records[at[j]][column : column + count], slope[j]
                for c in range(count):
                    out[c] += s * x[c]
            continue
        fours = size // 4 * 4
        for j in range(0, fours, 4):
            x0, x1, x2, x3 = records[at[j]], records[at[j + 1]], records[at[j + 2]], records[at[j + 3]]
            s0, s1, s2, s3 = slope[j], slope[j + 1], slope[j + 2], slope[j + 3]
            for c in range(count):
                out[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c])
        for j in range(fours, size):
            x, s = records[at[j]], slope[j]
            for c in range(count):
                out[c] += s * x[c]
    return 0

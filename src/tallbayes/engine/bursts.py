"""Bursts: asking the memory for many random records at once.

The first-level cache has room for about twenty lines under way, and a loop that asks for one row ahead of each that it reads stands
still when they are taken. The second-level cache waits for several times more, if they are asked for together;
`benchmarks.stochastic_gradient` shows what that gains.
"""

from __future__ import annotations

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.arithmetic import elements_per_line, prefetch_second

BURST = 64  # rows asked for at once; a record of up to 256 bytes is still in the first-level cache when its burst is read again
LINES = 1024  # in a burst at most: two bursts of wide rows stay in the second-level cache


@inlinable
def burst_rows(records: np.ndarray) -> int:
    """Rows of a burst: a multiple of 4, fewer if they are wide.

    >>> burst_rows(np.empty((1, 32))), burst_rows(np.empty((1, 1000)))
    (64, 8)
    """
    return max(4, min(BURST, LINES * elements_per_line(records) // records.shape[1] // 4 * 4))


@inlinable
def request_rows(records: np.ndarray, index: np.ndarray, start: int, stop: int) -> None:
    """Ask for the records of index[start:stop], as far as it goes, and go on before they are there."""
    for j in range(start, min(stop, index.size)):
        first = index[j] * records.shape[1]
        last = first + records.shape[1]
        while first < last:
            prefetch_second(records, first)
            first += elements_per_line(records)

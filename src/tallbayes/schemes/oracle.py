"""An oracle for studies: the true range of what a subsampled decision draws from, by a pass that is counted apart."""

from __future__ import annotations

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.proxies.capabilities import HasProxy
from tallbayes.target import EVALS, ORACLE, SIZE, Cache, Target, row_total, stopped, subsample_gaps

CHUNK = 4096  # rows read at a time


@inlinable
def oracle_range(target: Target[HasProxy], theta: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Smallest and largest of what `subsample_gaps` gives over all rows: 2 n evaluations, in a counter of their own."""
    n, low, high = row_total(target), np.inf, -np.inf
    asked = Target(target.rows, target.prior, target.proxy, np.zeros(SIZE, np.int64))
    out = np.empty(CHUNK)
    for start in range(0, n, CHUNK):
        if stopped(target):
            break
        index = np.arange(start, min(n, start + CHUNK))
        subsample_gaps(asked, index, theta, other, Cache(False, False), out[: index.size])
        low, high = min(low, out[: index.size].min()), max(high, out[: index.size].max())
    target.counters[ORACLE] += asked.counters[EVALS]
    return low, high

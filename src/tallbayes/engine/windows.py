"""Contiguous rows: windows of rows that are no independent ones, such as a time series, and scores of a range.

`Rows.lead` says how many rows start the recursion of a window, -1 where rows are independent. A window [start, stop) begins its recursion
so many rows before it, and those rows add nothing; the first `conditioned` rows have no likelihood. A pass over all rows is one window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, generic
from tallbayes.engine.outside import RANGE_SCORES
from tallbayes.engine.rows import Rows, range_gradient
from tallbayes.engine.verb_calls import on_range


@generic
def lead_rows(rows: Any, start: int) -> int:
    """Rows read before a window that begins at `start`."""
    return 0


@lead_rows.register(Rows)
def _lead_rows(rows: Rows, start: int) -> int:
    return max(0, min(rows.lead, start - rows.conditioned))


@generic
def undivided(rows: Any) -> bool:
    """Whether a pass over all rows must be one window."""
    return False


@undivided.register(Rows)
def _undivided(rows: Rows) -> bool:
    return rows.lead >= 0


@generic(options=SUMS)
def range_scores(rows: Any, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    """out[i - start] = gradient of the log-likelihood of row i."""
    out[:] = 0.0
    for i in range(start, stop):
        range_gradient(rows, i, i + 1, theta, out[i - start])


@range_scores.register(Rows)
def _range_scores(rows: Rows, start: int, stop: int, theta: np.ndarray, out: np.ndarray) -> None:
    on_range(rows, RANGE_SCORES, start, stop, theta, theta, out)

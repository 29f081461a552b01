"""Columns that tell the responses apart by themselves, and classes without rows: their coefficients are what the prior makes of them.

Ranges of columns are looked at, as moments are when rows are packed; no likelihood is evaluated.
"""

from __future__ import annotations

import numpy as np

from tallbayes.data.dataset import CHUNK
from tallbayes.model import Model

_FIRST = 2000  # rows that rule out most columns: ranges that overlap in a part overlap in the whole


def sentences_on_responses(model: Model) -> tuple[str, ...]:
    """What to say of a column that separates the classes of a response, and of classes that have no row."""
    if (
        model.family.response not in ("binary", "class")
        or not model.linear
        or model.row_limitation
        or not model.family.log_concave
        or model.data.n <= model.dim
    ):
        return ()
    classes = max(2, model.predictors)
    said = []
    if model.predictors > 1:
        rows = sum(
            np.bincount(model.data.y[a : a + CHUNK].astype(int), minlength=classes) for a in range(0, model.data.n, CHUNK)
        )
        empty = [str(k) for k in np.flatnonzero(np.asarray(rows) == 0)]
        if empty:
            said.append(
                f"no row has the response {', '.join(empty)}: only the prior determines the coefficients of such a class. "
                "Recode the response without it unless this is intentional."
            )
    column = separating_column(model, classes)
    if column is not None:
        said.append(
            f"column {column!r} separates the response: all its values for one class are above those for another, so only the "
            "prior limits its coefficient. Drop the column if it is a copy or a consequence of the response; otherwise choose "
            "the prior of its coefficient with care."
        )
    return tuple(said)


def separating_column(model: Model, classes: int) -> str | None:
    """The first column whose ranges within the classes of the response are disjoint; None if there is none.

    >>> import tallbayes as tb
    >>> X = np.column_stack([np.ones(4), [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]])
    >>> separating_column(tb.models.logistic(tb.Dataset.from_arrays(X, [0, 0, 1, 1])), 2)
    'x1'
    """
    data = model.data
    left = np.array([j for j in range(data.d) if data.moments.low[j] < data.moments.high[j]], int)
    if data.n > _FIRST:
        part = data.records[np.linspace(0, data.n - 1, _FIRST).astype(int)]
        left = left[_disjoint(*_extended(part, left, data.d, None, classes))]
    ranges = None
    for start in range(0, data.n if left.size else 0, CHUNK):
        chunk = data.records[start : start + CHUNK]
        ranges = _extended(chunk, left, data.d, ranges, classes)
        keep = _disjoint(*ranges)
        left, ranges = left[keep], (ranges[0][:, keep], ranges[1][:, keep])
        if not left.size:
            break
    if ranges is None or not left.size or np.isfinite(ranges[0]).all(1).sum() < 2:
        return None
    return data.columns[left[0]]


def _extended(
    chunk: np.ndarray, columns: np.ndarray, d: int, ranges: tuple[np.ndarray, np.ndarray] | None, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of the columns for each class, with those of further rows."""
    if ranges is None:
        ranges = np.full((classes, columns.size), np.inf), np.full((classes, columns.size), -np.inf)
    low, high = ranges
    for k in range(classes):
        part = chunk[(chunk[:, d] == k) & (chunk[:, d + 2] > 0.0)][:, columns]
        if part.shape[0]:
            low[k], high[k] = np.minimum(low[k], part.min(0)), np.maximum(high[k], part.max(0))
    return low, high


def _disjoint(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether the ranges of the classes with rows do not overlap, of each column."""
    present = np.isfinite(low).all(1)
    if present.sum() < 2:
        return np.full(low.shape[1], not present.all())  # not known yet, unless there is but one class
    order = np.argsort(low[present], axis=0)
    first, last = np.take_along_axis(low[present], order, 0), np.take_along_axis(high[present], order, 0)
    return np.asarray((last[:-1] < first[1:]).all(0))

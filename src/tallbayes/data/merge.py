"""Identical rows merged into one: rows with the same columns, response and offset have the likelihood of one with their weights added.

Exact, and a factor of tens to thousands where columns are factors and counts. Rows are read chunk by chunk; the distinct ones are kept in
memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.data.moments import Moments
from tallbayes.errors import DataError


def merge_rows(data: Dataset) -> Dataset:
    """The distinct rows of a Dataset, weights added, in the order in which they first appear.

    Ranges, means and spreads of columns stay those of all rows, and with them the default prior. Predictive checks and leave-one-out see
    merged rows as one. Proportions that were read with weights are merged if their numbers of trials are the same, too.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays([[1.0], [2.0], [1.0], [1.0]], [0, 1, 0, 1])
    >>> merged = tb.data.merge_rows(data)
    >>> merged.n, merged.records[:, 3].tolist(), merged.recipe["merged_from"]
    (3, [2.0, 1.0, 1.0], 4)
    """
    if data.groups:
        raise DataError("rows with groups cannot be merged; leave out groups=, or merge=.")
    d = data.d
    further = [] if data.trials_place is None else [data.trials_place]
    place: dict[bytes, int] = {}
    kept: list[np.ndarray] = []
    weights: list[float] = []
    for start in range(0, data.n, CHUNK):
        chunk = np.ascontiguousarray(data.records[start : start + CHUNK, [*range(d + 3), *further]]) + 0.0  # -0 is 0
        key = np.ascontiguousarray(np.delete(chunk, d + 2, axis=1))
        keys = key.view(np.dtype((np.void, key.shape[1] * key.itemsize)))[:, 0]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        total = np.bincount(inverse.reshape(-1), weights=chunk[:, d + 2].astype(float), minlength=first.size)
        for k in np.argsort(first):
            row = int(first[k])
            at = place.setdefault(keys[row].tobytes(), len(kept))
            if at == len(kept):
                kept.append(chunk[row].copy())
                weights.append(0.0)
            weights[at] += float(total[k])
    rows = np.stack(kept).astype(float)
    offset = rows[:, d + 1] if data.has_offset else None
    merged = Dataset.from_arrays(rows[:, :d], rows[:, d], offset, np.array(weights), data.columns, data.records.dtype)
    if further:
        records = packed.empty(merged.n, d + 1, merged.records.dtype)
        records[:, : d + 3] = merged.records[:, : d + 3]
        records[:, d + 3] = rows[:, d + 3]
        merged = replace(merged, records=records, trials_place=d + 3)
    moments = Moments.from_dict(data.moments.names, data.moments.n, data.moments.as_dict())
    for part in ("mean", "scatter", "low", "high", "two_valued"):
        getattr(moments, part)[d + 2] = getattr(merged.moments, part)[d + 2]  # of the weights
    moments.n = merged.n
    moments.scatter[: d + 2] *= merged.n / data.n
    recipe = {**data.recipe, "merged_from": data.n}
    if "plan" in recipe:
        recipe["plan"] = {**recipe["plan"], "merged_from": data.n}
    return replace(merged, response=data.response, moments=moments, recipe=recipe)

"""Parts of a data set: chosen rows with their own moments, the likelihood to a power, and whether parts are exchangeable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from tallbayes.data import records as packed
from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.data.moments import Moments
from tallbayes.errors import DataError

FALSE_ALARM = 1e-6  # probability that a random split is called not exchangeable


def take(data: Dataset, index: np.ndarray) -> Dataset:
    """The rows of an index array, copied, in its order.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.arange(5.0)[:, None], np.arange(5.0))
    >>> take(data, np.array([3, 1])).y
    array([3., 1.])
    """
    index = np.asarray(index, np.int64)
    if index.size == 0:
        raise DataError("a part of the rows is empty; use fewer shards.")
    out = packed.empty(index.size, data.records.shape[1] - 3, data.records.dtype)
    moments, used = Moments(data.moments.names), data.d + 3
    for start in range(0, index.size, CHUNK):
        part = slice(start, start + CHUNK)
        out[part] = data.records[index[part]]
        moments.add(out[part, :used].astype(float))
    recipe = {"plan": data.recipe["plan"]} if data.recipe.get("plan") else {}
    return replace(data, records=out, moments=moments, store=None, recipe=recipe, _fingerprint=None)


def to_power(data: Dataset, power: float) -> Dataset:
    """The same rows with their likelihood to a power: weights are multiplied by it. Rows in memory are changed in place.

    >>> import numpy as np, tallbayes as tb
    >>> data = to_power(tb.Dataset.from_arrays(np.ones((2, 1)), [0.0, 1.0]), 3.0)
    >>> data.total_weight
    6.0
    """
    if power == 1.0:
        return data
    weight, d = data.d + 2, data.d
    records = np.array(data.records) if data.store is not None else data.records
    records[:, weight] *= power
    moments = Moments.from_dict(data.moments.names, data.moments.n, data.moments.as_dict())
    for name, factor in (("mean", power), ("low", power), ("high", power), ("scatter", power**2)):
        getattr(moments, name)[d + 2] *= factor
    return replace(data, records=records, moments=moments, has_weights=True, store=None, _fingerprint=None)


def merge_moments(parts: list[Moments]) -> Moments:
    """Moments of all parts together."""
    out = Moments.from_dict(parts[0].names, parts[0].n, parts[0].as_dict())
    for part in parts[1:]:
        total, gap = out.n + part.n, part.mean - out.mean
        out.scatter = out.scatter + part.scatter + gap * (gap * (out.n * part.n / total))
        out.mean = out.mean + gap * (part.n / total)
        low, high = np.minimum(out.low, part.low), np.maximum(out.high, part.high)
        inside = [((m.low == low) | (m.low == high)) & ((m.high == low) | (m.high == high)) for m in (out, part)]
        out.two_valued = out.two_valued & part.two_valued & inside[0] & inside[1]
        out.low, out.high, out.n = low, high, total
    return out


def exchangeability_doubts(parts: list[Moments]) -> list[str]:
    """What speaks against the parts being random parts of the rows, a sentence each: means that differ by more than chance.

    A random part of m of n rows has a column mean of variance sd^2 (1/m - 1/n) around that of all rows. The bound is that of
    a normal law for all columns and parts together, at a false-alarm rate of 1e-6.
    """
    whole = merge_moments(parts)
    usable = (whole.sd > 0) & np.isfinite(whole.sd)
    if len(parts) < 2 or not usable.any():
        return []
    bound = -ndtri(FALSE_ALARM / (2.0 * len(parts) * int(usable.sum())))
    worst, where = 0.0, (0, 0)
    for k, part in enumerate(parts):
        spread = whole.sd * np.sqrt(1.0 / part.n - 1.0 / whole.n)
        gap = np.where(usable, np.abs(part.mean - whole.mean) / np.where(usable, spread, 1.0), 0.0)
        if gap.max() > worst:
            worst, where = float(gap.max()), (k, int(np.argmax(gap)))
    if worst <= bound:
        return []
    k, j = where
    return [
        f"the partitions are not random parts of the rows: the mean of {whole.names[j]!r} in partition {k} is {parts[k].mean[j]:.4g}, in "
        f"all rows {whole.mean[j]:.4g}, {worst:.0f} standard errors apart. Spread the rows at random with tallbayes.shards.repartition, "
        "or do not trust the combination."
    ]

"""Internals of `tallbayes.data.split`; what users see of it is tested in test_shards.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.data.moments import Moments
from tallbayes.data.split import exchangeability_doubts, merge_moments, take, to_power
from tallbayes.errors import DataError

ROWS, SHARDS = 3000, 4
TIGHT = 0.05  # prior sd of the linear model, whose posterior sd is 0.017: a prior counted B times, or 1/B times, shows


def linear_model(rows=ROWS, dtype="float64", weights=None):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(rows), rng.standard_normal((rows, 2))])
    y = X @ [0.5, -1.0, 2.0] + rng.standard_normal(rows)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, dtype=dtype, weights=weights), tb.priors.normal(TIGHT), sigma=1.0)


def test_parts_of_a_data_set():
    data = linear_model(weights=np.random.default_rng(0).uniform(0.5, 2.0, ROWS)).data
    parts = np.array_split(np.random.default_rng(1).permutation(ROWS), 3)
    pieces = [take(data, p) for p in parts]
    whole = merge_moments([p.moments for p in pieces])
    for name in ("mean", "scatter", "low", "high", "two_valued"):
        np.testing.assert_allclose(getattr(whole, name), getattr(data.moments, name), rtol=1e-10)
    powered = to_power(take(data, parts[0]), 3.0)
    again = Moments(data.moments.names)
    again.add(powered.records[:, : data.d + 3])
    for name in ("mean", "scatter", "low", "high"):
        np.testing.assert_allclose(getattr(powered.moments, name), getattr(again, name), rtol=1e-10)
    with pytest.raises(DataError, match="empty"):
        take(data, np.empty(0, int))


def test_sorted_partitions_are_told_from_random_ones():
    data = linear_model().data
    random = np.array_split(np.random.default_rng(2).permutation(ROWS), 8)
    by_value = np.array_split(np.argsort(data.records[:, 1]), 8)
    assert exchangeability_doubts([take(data, p).moments for p in random]) == []
    said = exchangeability_doubts([take(data, p).moments for p in by_value])
    assert "'x1'" in said[0] and "repartition" in said[0]

"""Internals of `tallbayes.data.response_functions`; what users see of it is tested in test_response_functions.py."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from tallbayes.data.read import from_recipe


def table(n=200):
    rng = np.random.default_rng(1)
    trials = rng.integers(1, 6, n)
    times, event = rng.exponential(2.0, n), rng.random(n) < 0.7
    x = rng.standard_normal(n)
    return pa.table(
        {"x": x, "time of": times, "event": event, "k": rng.binomial(trials, 0.4), "m": trials, "e": np.full(n, 2.0)}
    )


def test_successes_among_trials(tmp_path):
    rows = table()
    data = tb.read(rows, "p(k, m) ~ x", progress=False)
    assert (data.y * data.records[:, 4]).round(9).tolist() == rows["k"].to_pylist() and data.total_weight == sum(
        rows["m"].to_pylist()
    )
    assert tb.models.binomial(data).dim == 2
    pq.write_table(rows, tmp_path / "rows.parquet")
    first = tb.read(tmp_path / "rows.parquet", "p(k, m) ~ x", merge=True, progress=False)
    assert from_recipe(first.recipe, None, progress=False).fingerprint == first.fingerprint

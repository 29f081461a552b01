"""Internals of `tallbayes.data.level_index`; what users see of it is tested in test_group_formula.py."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tallbayes.data import level_index
from tallbayes.data.level_index import LevelCounter


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("stores")
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


def frame_of(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    g, h = rng.choice(["ash", "birch", "cedar", "oak"], n), rng.integers(0, 30, n)
    frame = pd.DataFrame({"x": rng.standard_normal(n), "z": rng.random(n), "g": g, "h": h, "c": rng.choice(["u", "v"], n)})
    eta = 0.3 * frame.x + rng.standard_normal(30)[h]
    frame.insert(0, "y", (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int))
    return frame


FRAME = frame_of()


# Levels and rows


@pytest.mark.parametrize("waiting", [1, 1 << 18])
def test_levels_do_not_depend_on_batches(waiting, monkeypatch):
    monkeypatch.setattr(level_index, "_WAITING", waiting)
    table = pa.Table.from_pandas(FRAME)
    for columns in (("g",), ("h", "g")):
        made = []
        for size in (2000, 7):
            counter = LevelCounter(columns)
            for batch in table.to_batches(max_chunksize=size):
                counter.add(batch)
            made.append(counter.index())
        whole, parts = made
        assert whole.labels.tolist() == parts.labels.tolist()
        np.testing.assert_array_equal(whole.counts, parts.counts)
        codes = np.concatenate([parts.codes(batch, 0) for batch in table.to_batches(max_chunksize=100)])
        names = FRAME[list(columns)].astype(str).agg(":".join, axis=1)
        assert parts.labels[codes].astype(str).tolist() == names.tolist()

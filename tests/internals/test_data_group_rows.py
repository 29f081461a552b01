"""Internals of `tallbayes.data.group_rows`; what users see of it is tested in test_group_formula.py."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes.data.group_rows import with_group_columns
from tallbayes.data.sources import open_source


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


def chunked(frame, size=301):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


def read(formula, frame=FRAME, **options):
    return tb.read(chunked(frame), formula, progress=False, **options)


# New rows


def test_new_rows_have_a_column_for_each_factor_and_effect():
    data = read("y ~ x + (scale(x) + c | g:h) + (0 + z || g)")
    source = with_group_columns(open_source(chunked(FRAME)), data.recipe["plan"])
    wanted = ["g:h", "scale(x)", "c[T.v]", "z", "g"]
    table = pa.Table.from_batches(source.batches(wanted)).to_pandas().iloc[data.order]
    factor = data.groups[0]
    assert table["g:h"].tolist() == factor.labels[factor.codes].tolist()
    np.testing.assert_allclose(table[["scale(x)", "c[T.v]"]], data.records[:, factor.first + 1 : factor.first + 3], atol=1e-12)
    assert "g:h" not in with_group_columns(open_source(FRAME), read("y ~ x").recipe["plan"]).names

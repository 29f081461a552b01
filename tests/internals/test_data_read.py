"""Internals of `tallbayes.data.read`; what users see of it is tested in test_formula.py and test_merge.py."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tallbayes as tb
from tallbayes.data import read
from tallbayes.data.read import from_recipe
from tallbayes.errors import DataError


@pytest.fixture(autouse=True)
def stores(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TALLBAYES_STORE", str(tmp_path_factory.mktemp("stores")))


def frame_of(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "x": 1000.0 + rng.random(n),
            "z": rng.exponential(size=n) + 0.1,
            "g": rng.choice(["ash", "birch", "cedar"], n),
            "h": rng.integers(3, 7, n),
            "flag": rng.random(n) < 0.5,
        }
    )


FRAME = frame_of()


def chunked(frame, size=301):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


def planned(formula, frame=FRAME, size=301):
    return read(chunked(frame, size), formula, memory="ram", progress=False)


# Reference levels, categories, dates, offsets, natural splines


def test_dates_are_kept_by_stores_files_and_refused_without_a_function(tmp_path):
    frame = FRAME.assign(when=pd.date_range("2020-01-01", periods=2000, freq="D"))
    frame.to_parquet(tmp_path / "rows.parquet")
    data = read(tmp_path / "rows.parquet", "y ~ month(when)", memory="disk", store=tmp_path, progress=False)
    assert read(data.store, "y ~ month(when)").columns == ("Intercept", "month(when)")
    assert from_recipe(data.recipe, None, progress=False).fingerprint == data.fingerprint
    with pytest.raises(DataError, match=r"'when' has type .*not a number.*days_since\(when\)"):
        planned("y ~ when", frame)
    for right, message in (
        ("month(when, 'a')", "a column and nothing else"),
        ("days_since(when, 'May')", "counts from a day such as"),
    ):
        with pytest.raises(DataError, match=message):
            planned(f"y ~ {right}", frame)
    dates = frame.assign(when=frame.when.dt.date)
    with pytest.raises(DataError, match="has dates without times"):
        planned("y ~ hour(when)", dates)
    assert planned("y ~ weekday(when)", dates).columns == ("Intercept", "weekday(when)")


# Missing values and doubtful cells


def holes(n=3000):
    frame = frame_of(n)
    frame.loc[[5, 2500], "x"] = np.nan
    frame.loc[[5, 6, 7], "g"] = None
    return frame


@pytest.mark.parametrize("right", ["x", "x + g", "log(z) + x:g", "z + x + (1 | g)"])
@pytest.mark.parametrize("memory", ["ram", "disk"])
def test_rows_with_missing_values_are_dropped_and_counted(right, memory, tmp_path):
    used = ["y", "x", "z"] + ["g"] * ("g" in right)
    expected = read(holes().dropna(subset=used), f"y ~ {right}", memory="ram", progress=False)
    holes().to_parquet(tmp_path / "rows.parquet")
    for source in (holes(), chunked(holes()), tmp_path / "rows.parquet"):
        data = read(source, f"y ~ {right}", na="drop", memory=memory, progress=False)
        assert data.fingerprint == expected.fingerprint
        assert data.dropped == (4 if "g" in right else 2) and expected.dropped == 0
    assert read(tmp_path / "rows.parquet", f"y ~ {right}", na="drop", memory=memory, progress=False).dropped == data.dropped
    assert from_recipe(json.loads(json.dumps(data.recipe)), None, progress=False).fingerprint == expected.fingerprint
    with pytest.raises(tb.OptionError, match="unknown na 'omit'"):
        read(holes(), "y ~ x", na="omit")


def table(n=3000):
    import pyarrow as pa

    rng = np.random.default_rng(1)
    g, x, w = rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(1, 4, n).astype(float)
    return pa.table(
        {
            "g": np.array(["a", "b", "c"])[g],
            "x": x.astype(float),
            "t": 1.0 + rng.integers(0, 2, n),
            "w": w,
            "y": rng.poisson(np.exp(0.2 * x)),
        }
    )


def test_a_file_is_read_and_merged_again(tmp_path):
    import pyarrow.parquet as pq

    from tallbayes.data.read import from_recipe

    pq.write_table(table(), tmp_path / "rows.parquet")
    data = tb.read(tmp_path / "rows.parquet", "y ~ x + C(g)", merge=True, memory="ram", progress=False)
    again = from_recipe({**data.recipe}, None, progress=False)
    assert again.fingerprint == data.fingerprint and again.n == data.n

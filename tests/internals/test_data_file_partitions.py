"""Internals of `tallbayes.data.file_partitions`."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallbayes.data.file_partitions import packed_again, packed_source, plan_of_source
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError


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


# Bad input


def test_partitions_have_no_group_terms(tmp_path):
    from tallbayes.data.file_partitions import plan_of

    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="cannot be divided among partitions"):
        plan_of([str(tmp_path / "a.parquet")], "y ~ x + (1 | g)")


pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


# A cluster.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "formula, offset", [("y ~ a + b + c", "e"), ("y ~ 0 + a + b + e", "log(e)"), ("y ~ a + C(g) + log(e)", None)]
)
def test_rows_that_are_read_again_have_the_same_bits(formula, offset, dtype):
    rng = np.random.default_rng(0)
    columns = {"a": rng.integers(0, 1 << 40, 300), "b": rng.random(300) < 0.5, "c": rng.standard_normal(300).astype(np.float32)}
    columns |= {
        "e": rng.random(300) + 1.0,
        "g": rng.choice(["u", "v"], 300),
        "w": rng.integers(0, 3, 300),
        "y": rng.random(300),
    }
    table, other = pa.table(columns), pa.table({**columns, "c": columns["c"] + 1, "e": columns["e"] + 1})
    plan, _ = plan_of_source(open_source(table), formula, offset=offset, weights="w")
    first = packed_source(open_source(table), plan, dtype)
    again = packed_again(open_source(table), plan, dtype, first.moments)
    np.testing.assert_array_equal(again.records, first.records)
    assert again.fingerprint == first.fingerprint != packed_again(open_source(other), plan, dtype, first.moments).fingerprint
    for rows in (table.slice(0, 299), pa.concat_tables([table, table.slice(0, 1)])):
        with pytest.raises(DataError, match="it changed"):
            packed_again(open_source(rows), plan, dtype, first.moments)

"""Internals of `tallbayes.data.sources`; what users see of it is tested in test_sources.py."""

import contextlib
import json
import sqlite3
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tallbayes.data import read
from tallbayes.data.packed_store import open_store
from tallbayes.data.read import from_recipe
from tallbayes.data.sources import FILES, open_source
from tallbayes.errors import DataError
from tallbayes.testing import BATCH_ROWS

READ = sys.modules[read.__module__]
SQLITE = sys.modules["tallbayes.data.sources.sqlite"]


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    folder = tmp_path / "stores"
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "y": rng.integers(0, 2, n),
            "x": rng.normal(size=n),
            "group": pa.array(np.array(["north", "south", "west"])[rng.integers(0, 3, n)]),
            "t": rng.uniform(0.5, 2.0, n),
        }
    )


def write_csv(path, table):
    pa.csv.write_csv(table, path)


def write_stream(path, table):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=777)


def write_sqlite(path, table):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table visits (y integer, x real, 'group' text, t real)")
        connection.executemany("insert into visits values (?, ?, ?, ?)", list(zip(*table.to_pydict().values(), strict=True)))
        connection.commit()


OBJECTS = ("duckdb", "polars", "pandas", "pyarrow", "reader")


def in_duckdb(table):
    connection = duckdb.connect()
    connection.register("source", table)
    return connection


def make(kind, tmp_path, table):
    """The table as a source of a kind."""
    half = table.num_rows // 2
    if kind in OBJECTS:
        return {
            "duckdb": lambda: duckdb.sql("SELECT * FROM source", alias="rows", connection=in_duckdb(table)),
            "polars": lambda: pl.from_arrow(table),
            "pandas": table.to_pandas,
            "pyarrow": lambda: table,
            "reader": lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=333)),
        }[kind]()
    if kind in ("table", "query"):
        write_sqlite(tmp_path / "rows.db", table)
        what = "visits" if kind == "table" else 'SELECT x, t, y, "group" FROM visits WHERE t > 0'
        return f"sqlite:{tmp_path / 'rows.db'}::{what}"
    if kind in ("folder", "pattern"):
        (tmp_path / "parts").mkdir()
        pq.write_table(table.slice(half), tmp_path / "parts" / "b.parquet")
        pq.write_table(table.slice(0, half), tmp_path / "parts" / "a.parquet")
        (tmp_path / "parts" / "_SUCCESS").write_text("")
        return tmp_path / "parts" if kind == "folder" else str(tmp_path / "parts" / "*.parquet")
    writers = {
        ".parquet": lambda p: pq.write_table(table, p),
        ".csv": lambda p: write_csv(p, table),
        ".feather": lambda p: pa.feather.write_feather(table, p, chunksize=501),
        ".arrows": lambda p: write_stream(p, table),
        ".arrow": lambda p: write_stream(p, table),
    }
    path = tmp_path / f"rows{kind}"
    writers[kind](path)
    return path


KINDS = [
    ".parquet",
    ".csv",
    ".feather",
    ".arrow",
    ".arrows",
    "folder",
    "pattern",
    "table",
    "query",
    *OBJECTS,
]


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in OBJECTS])
def test_files_are_read_again_from_a_recipe(kind, tmp_path):
    source = make(kind, tmp_path, rows_of(300))
    for formula in ("y ~ x", "y ~ group + bs(x, df=5) + poly(t, 2)"):
        data = read(source, formula, weights="t", progress=False)
        recipe = json.loads(json.dumps(data.recipe))
        assert from_recipe(recipe, None, progress=False).fingerprint == data.fingerprint
        kept = read(source, formula, weights="t", memory="disk", progress=False)
        assert kept.fingerprint == data.fingerprint
        assert read(source, formula, weights="t", memory="disk").store == kept.store
        assert open_store(kept.store).recipe == kept.recipe


@pytest.mark.parametrize("kind", [".csv", ".arrow", "query", "reader"])
def test_sources_of_unknown_length_go_to_a_store_when_they_outgrow_memory(kind, tmp_path, monkeypatch, stores):
    table = rows_of(3000)
    expected = read(table, "y ~ x")
    monkeypatch.setattr(READ, "available_memory", lambda: 4 * 64 * 2000)
    if kind == "query":
        monkeypatch.setattr(SQLITE, "BATCH", 500)
    source = make(kind, tmp_path, table)
    assert open_source(source).n is None if kind != "reader" else True
    data = read(source, "y ~ x", progress=False)
    assert data.store is not None and data.store.parent == stores
    np.testing.assert_allclose(data.records, expected.records, rtol=1e-14)
    assert read(make("reader", tmp_path, table), "y ~ x", memory="ram").store is None


def write_text(path, text):
    path.write_text(text)
    return path


def test_unknown_formats_list_what_is_understood(tmp_path):
    with pytest.raises(DataError) as caught:
        read(write_text(tmp_path / "rows.xlsx", ""), "y ~ x")
    for suffix in (*FILES, "sqlite:", "__arrow_c_stream__", "folders"):
        assert suffix in str(caught.value)


@pytest.mark.parametrize("suffix", sorted(FILES))
def test_missing_empty_and_foreign_files_are_named(tmp_path, suffix):
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / f"nowhere{suffix}", "y ~ x")
    with pytest.raises(DataError, match="nowhere does not exist"):
        read(tmp_path / "nowhere", "y ~ x")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(DataError, match=r"there is no file in"):
        read(tmp_path / f"folder{suffix}", "y ~ x")
    for content in (b"", b"\x00\xff\xfe junk", b"ARROW1", b"FEA1 and more"):
        (tmp_path / f"rows{suffix}").write_bytes(content)
        with pytest.raises(DataError):
            read(tmp_path / f"rows{suffix}", "y ~ x")


def test_batches_are_no_longer_than_promised(tmp_path):
    table = rows_of(BATCH_ROWS + 10)
    for kind in (".csv", ".feather", "table", "pandas"):
        sizes = [batch.num_rows for batch in open_source(make(kind, tmp_path, table)).batches(["y"])]
        assert sum(sizes) == BATCH_ROWS + 10 and max(sizes) <= BATCH_ROWS

"""Internals of `tallbayes.data.packed_store`."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.data import read
from tallbayes.data.packed_store import StoreWriter, open_store
from tallbayes.errors import DataError, StoreError
from tallbayes.testing import BATCH_ROWS


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    folder = tmp_path / "stores"
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


def columns_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.integers(0, 2, n),
        "age": rng.normal(40.0, 10.0, n),
        "income": rng.exponential(3.0, n),
        "exposure": rng.uniform(0.5, 2.0, n),
        "count": rng.integers(1, 5, n),
    }


def write_parquet(path, columns, **changes):
    pq.write_table(pa.table({**columns, **changes}), path)
    return path


def test_the_store_cannot_be_changed_through_the_rows(tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", columns_of(50))
    data = read(path, "y ~ .", memory="disk")
    data.records[0, 1] = 1e6
    assert open_store(data.store).records[0, 1] != 1e6


@pytest.fixture
def store(tmp_path):
    return read(write_parquet(tmp_path / "rows.parquet", columns_of(50)), "y ~ .", memory="disk").store


def test_missing_records_are_refused(store):
    (store / "records.bin").unlink()
    with pytest.raises(StoreError, match="truncated"):
        open_store(store)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1, 2]", b"null", b'{"format": "parquet"}', b"{}"])
def test_a_foreign_description_is_refused(store, content):
    (store / "store.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"(damaged|another format).*delete it and read the source again"):
        open_store(store)


@pytest.mark.parametrize(
    "key", ["n", "width", "dtype", "columns", "response", "moments", "recipe", "fingerprint", "has_offset"]
)
def test_an_incomplete_description_is_refused(store, key):
    description = json.loads((store / "store.json").read_text())
    del description[key]
    (store / "store.json").write_text(json.dumps(description))
    with pytest.raises(StoreError, match=f"damaged.*{key}"):
        open_store(store)


@pytest.mark.parametrize("key, wrong", [("dtype", "junk"), ("n", "many"), ("n", 0), ("columns", ["a"] * 20), ("moments", [])])
def test_a_nonsensical_description_is_refused(store, key, wrong):
    description = json.loads((store / "store.json").read_text())
    description[key] = wrong
    (store / "store.json").write_text(json.dumps(description))
    with pytest.raises(StoreError, match=r"damaged|truncated"):
        open_store(store)


def test_a_folder_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"not a packed store \(no store.json in it\)"):
        open_store(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_nothing(tmp_path, stores, monkeypatch, error):
    path = write_parquet(tmp_path / "rows.parquet", columns_of(3 * BATCH_ROWS))
    write, calls = StoreWriter.write, []

    def interrupted(self, chunk):
        calls.append(len(list(stores.iterdir())))
        if len(calls) == 3:
            raise error
        write(self, chunk)

    monkeypatch.setattr(StoreWriter, "write", interrupted)
    with pytest.raises(error):
        read(path, "y ~ .", memory="disk", progress=False)
    assert calls == [1, 1, 1]
    assert list(stores.iterdir()) == []


def test_an_interrupted_rewrite_leaves_the_old_store(stores, monkeypatch):
    table = pa.table(columns_of(50, seed=1))
    first = read(table, "y ~ age", memory="disk")
    monkeypatch.setattr("tallbayes.data.packed_store.write_synced", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        read(pa.table(columns_of(50, seed=2)), "y ~ age", memory="disk")
    assert list(stores.iterdir()) == [first.store]
    assert open_store(first.store).fingerprint == first.fingerprint


PACK = """
import sys
from tallbayes.data import read
from tallbayes.data.packed_store import StoreWriter

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

seen = []
write = StoreWriter.write

def watched(self, chunk):
    seen.append(anonymous())
    write(self, chunk)

StoreWriter.write = watched
read(sys.argv[1], "y ~ x0", memory="disk", store=sys.argv[2], progress=False)
before, seen = anonymous(), []
data = read(sys.argv[1], "y ~ .", memory="disk", store=sys.argv[2], progress=False)
print(data.n, data.d, max(*seen, anonymous()) - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the memory of the process from /proc")
def test_packing_two_million_rows_to_disk_takes_little_memory(tmp_path):
    rng = np.random.default_rng(6)
    names = [f"x{j}" for j in range(10)]
    schema = pa.schema([(name, pa.float32()) for name in names] + [("y", pa.int8())])
    with pq.ParquetWriter(tmp_path / "tall.parquet", schema, compression="none", use_dictionary=False) as writer:
        block = [pa.array(rng.random(500_000, np.float32)) for _ in names] + [pa.array(np.zeros(500_000, np.int8))]
        for _ in range(4):
            writer.write_batch(pa.record_batch(block, schema=schema))
    del block
    command = [sys.executable, "-c", PACK, str(tmp_path / "tall.parquet"), str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert output[:2] == ["2000000", "11"]
    assert float(output[2]) < 200.0


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


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["write", "describe", "spool"])
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch, stores, where):
    table = rows_of(100)
    source, formula = table, "y ~ x"
    if where == "write":
        monkeypatch.setattr(StoreWriter, "write", lambda self, chunk, write=StoreWriter.write: write(self, _Full(self)))
    elif where == "describe":
        monkeypatch.setattr("tallbayes.data.packed_store.write_synced", full)
    else:
        source, formula = make("reader", tmp_path, table), "y ~ group"
        monkeypatch.setattr(pa.ipc, "new_stream", full)
    with pytest.raises(StoreError, match=r"No space left on device.*Free space there or choose another"):
        read(source, formula, memory="disk", progress=False)
    assert list(stores.iterdir()) == []


def _Full(writer):
    class File:
        close = staticmethod(writer.file.close)
        fileno = staticmethod(writer.file.fileno)
        write = staticmethod(full)

    writer.file = File()
    return np.zeros((1, writer.width))


RUN = {"draws": 300, "warmup": 100, "chains": 2, "seed": 3, "progress": False}


def write(path, rows, seed, levels="ab"):
    X, y = logistic_arrays(rows, seed=seed)
    g = np.random.default_rng(seed).choice(list(levels), rows)
    pq.write_table(pa.table({"y": y, "x": X[:, 1], "g": g}), path)
    return path


def test_updates_from_files_keep_the_formula_and_survive_saving(tmp_path):
    formula = "y ~ x + C(g)"
    fit = tb.fit(formula, write(tmp_path / "0.parquet", 3000, 1), sampler="exact-minibatch", store=tmp_path / "stores", **RUN)
    shutil.copytree(tmp_path / "stores", tmp_path / "copy")
    again = fit.update(write(tmp_path / "1.parquet", 100, 2), seed=4, progress=False)
    saved = tb.load(again.save(tmp_path / "fit.nc"))
    final = saved.update(write(tmp_path / "2.parquet", 100, 3), seed=5, progress=False)
    straight = again.update  # in this process the tables of the first update are still there
    assert final.meta["rows"] == 3200 and [e["rows"] for e in final.meta["history"]] == [3000, 100, 100]
    assert final.meta["prior_terms"] == again.meta["prior_terms"] and callable(straight)
    page = final.report(tmp_path / "report.html", plots=False).read_text()
    assert "1.parquet" in page and "2.parquet" in page and "Reference searched for again" in page
    with pytest.raises(DataError, match="'c'"):
        final.update(write(tmp_path / "3.parquet", 50, 4, levels="abc"), progress=False)
    assert open_store(final.meta["store"]).n == 3200  # rows that are refused do not get into the store

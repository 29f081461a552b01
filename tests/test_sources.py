"""Every source gives the same rows; what cannot be read is refused with file, row, column and remedy."""

import contextlib
import json
import os
import sqlite3
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import tallbayes as tb
from tallbayes.cli import app
from tallbayes.data import read
from tallbayes.errors import DataError, StoreError, TallbayesError

READ = sys.modules[read.__module__]


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_rows(kind, tmp_path):
    table = rows_of(2000)
    expected = read(table, "y ~ x*group + C(group):log(t)", offset="log(t)", progress=False)
    data = read(make(kind, tmp_path, table), "y ~ x*group + C(group):log(t)", offset="log(t)", progress=False)
    assert data.columns == expected.columns
    np.testing.assert_allclose(data.records, expected.records, rtol=1e-14)
    assert data.recipe["plan"]["design"]["levels"] == {"group": ["north", "south", "west"]}


def test_a_stream_leaves_nothing_behind(tmp_path, stores):
    read(make("reader", tmp_path, rows_of(100)), "y ~ C(group)")
    assert list(stores.iterdir()) == []


def test_whole_numbers_of_a_csv_may_become_fractions_and_levels_stay_whole(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("y,x,h\n" + "0,1,4\n" * 400_000 + "1,2.5,5\n" * 400_000)
    data = read(path, "y ~ x + C(h)", progress=False)
    assert data.columns == ("Intercept", "x", "C(h)[T.5]")
    assert data.records[-1, 1] == 2.5 and data.n == 800_000


def test_a_cell_of_another_type_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("y,x\n" + "0,1.5\n" * 900_000 + "1,many\n")
    with pytest.raises(DataError, match=r"rows.csv: row 900000, column 'x' is 'many', but the column begins with .* double"):
        read(path, "y ~ x", progress=False)


@pytest.mark.parametrize("mark", ["", "NA", "nan", "null"])
def test_missing_cells_are_named(tmp_path, mark):
    path = tmp_path / "rows.csv"
    path.write_text(f"y,x,g\n0,1,a\n1,{mark},b\n0,2,{mark}\n")
    with pytest.raises(DataError, match="row 1, column 'x' is missing"):
        read(path, "y ~ x")
    with pytest.raises(DataError, match="row 2, column 'g' is missing"):
        read(path, "y ~ g")


def test_compressed_csv_is_read(tmp_path):
    import gzip

    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"y,x\n0,1\n1,2\n"))
    assert read(tmp_path / "rows.csv.gz", "y ~ x").n == 2


def write_text(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not a readable CSV file.*header line"),
        ("y,x\n", "no rows"),
        ("y,x\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("y,y\n1,2\n", "2 columns called 'y'"),
        ("a,b\n1,2\n", "unknown response column 'y'"),
    ],
)
def test_bad_csv_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(write_text(tmp_path / "rows.csv", text), "y ~ .")


def test_a_truncated_arrow_file_is_named(tmp_path):
    path = make(".arrow", tmp_path, rows_of(5000))
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(DataError, match=r"rows\.arrow is damaged"):
        read(path, "y ~ x")


def test_folders_of_several_formats_or_columns_are_refused(tmp_path):
    write_text(tmp_path / "a.csv", "y,x\n0,1\n")
    write_text(tmp_path / "b.csv", "y,z\n0,1\n")
    with pytest.raises(DataError, match=r"different columns: x, z is not in both"):
        read(tmp_path, "y ~ x")
    write_text(tmp_path / "b.csv", "y,x\n0,red\n")
    with pytest.raises(DataError, match=r"column 'x' is string in .*b.csv, but double in .*a.csv"):
        read(tmp_path, "y ~ x")
    pq.write_table(rows_of(3), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"several formats \(.csv, .parquet\)"):
        read(tmp_path, "y ~ x")
    with pytest.raises(DataError, match="no file in"):
        read(str(tmp_path / "*.arrow"), "y ~ x")


def test_files_of_a_folder_come_in_sorted_order_and_columns_by_name(tmp_path):
    write_text(tmp_path / "b.csv", "x,y\n3,0\n")
    write_text(tmp_path / "a.csv", "y,x\n1,2\n")
    np.testing.assert_array_equal(read(tmp_path, "y ~ x").records[:, 1:3], [[2, 1], [3, 0]])


def test_a_changed_folder_is_packed_again(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    write_text(folder / "a.csv", "y,x\n1,2\n")
    first = read(folder, "y ~ x", memory="disk")
    write_text(folder / "b.csv", "y,x\n0,3\n")
    assert (first.n, read(folder, "y ~ x", memory="disk").n) == (1, 2)


@pytest.mark.parametrize(
    "what, message",
    [
        ("nothing", "unknown table 'nothing'.*visits"),
        ("SELECT nonsense FROM visits", "no such column"),
        ("SELECT y FROM visits; DROP TABLE visits", "cannot be read"),
        ("WITH a AS (SELECT 1) DELETE FROM visits", "not authorized|prohibited"),
        ("SELECT load_extension('x')", "not authorized|cannot be read"),
        ("SELECT y, x FROM visits WHERE y > 5", "no rows"),
        ("", "write sqlite:path.db::table"),
    ],
)
def test_databases_are_only_read(tmp_path, what, message):
    write_sqlite(tmp_path / "rows.db", rows_of(10))
    before = (tmp_path / "rows.db").read_bytes()
    with pytest.raises(DataError, match=message):
        read(f"sqlite:{tmp_path / 'rows.db'}::{what}", "y ~ x")
    assert (tmp_path / "rows.db").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.db"]


def test_a_query_cannot_attach_a_file(tmp_path):
    write_sqlite(tmp_path / "rows.db", rows_of(10))
    for text in ("ATTACH 'new.db' AS other", "VACUUM INTO 'new.db'", "PRAGMA journal_mode=delete"):
        with pytest.raises(DataError, match="unknown table"):
            read(f"sqlite:{tmp_path / 'rows.db'}::{text}", "y ~ x")


def test_foreign_and_missing_databases_are_named(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read(f"sqlite:{tmp_path / 'no.db'}::visits", "y ~ x")
    write_text(tmp_path / "rows.db", "this is not a database, whatever its name says" * 20)
    with pytest.raises(DataError, match="not a database"):
        read(f"sqlite:{tmp_path / 'rows.db'}::visits", "y ~ x")
    assert not (tmp_path / "no.db").exists()


def test_a_source_that_grows_between_the_passes_is_refused(tmp_path, monkeypatch):
    path = write_text(tmp_path / "rows.csv", "y,x\n0,1\n1,2\n")
    surveyed = READ.learn

    def growing(*arguments):
        out = surveyed(*arguments)
        with open(path, "a") as file:
            file.write("1,1.5\n")
        return out

    monkeypatch.setattr(READ, "learn", growing)
    with pytest.raises(DataError, match="had 2 rows and now has more"):
        read(path, "y ~ center(x)")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(alphabet='yx,\n"\r10.ae-ß;\x00', max_size=120).map(lambda text: ("y,x\n" + text).encode()),
    )
)
def test_any_bytes_are_read_or_refused(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    for formula in ("y ~ .", "y ~ C(x)"):
        with contextlib.suppress(TallbayesError):
            data = read(path, formula, memory="ram", progress=False)
            assert np.isfinite(data.records).all() and data.n > 0


def test_stores_are_listed_and_deleted(tmp_path, stores):
    assert tb.store.folder() == stores and tb.store.list() == [] and tb.store.clear() == []
    path = tmp_path / "visits.parquet"
    pq.write_table(rows_of(100), path)
    first = read(path, "y ~ x", memory="disk")
    second = read(path, "y ~ group", memory="disk")
    stream = read(rows_of(50), "y ~ x", memory="disk")
    (stores / "unrelated").mkdir()
    found = {entry.name: entry for entry in tb.store.list()}
    assert set(found) == {first.store.name, second.store.name, stream.store.name}
    entry = found[first.store.name]
    assert (entry.rows, entry.source, entry.path) == (100, str(path), first.store)
    assert entry.bytes == sum(f.stat().st_size for f in first.store.iterdir())
    assert found[stream.store.name].source is None
    (second.store / "store.json").write_text("{")
    assert {e.name: e.rows for e in tb.store.list()}[second.store.name] is None
    with pytest.raises(DataError, match="unknown store"):
        tb.store.clear("../" + stores.name)
    assert tb.store.clear(first.store.name) == [first.store.name]
    assert len(tb.store.list()) == 2
    old = stores / "dead.part-1"
    old.mkdir()
    os.utime(old, (0, 0))
    (stores / "live.part-2").mkdir()
    tb.store.clear()
    assert sorted(p.name for p in stores.iterdir()) == ["live.part-2", "unrelated"]


def test_a_truncated_store_of_a_general_formula_is_refused(tmp_path):
    path = tmp_path / "visits.parquet"
    pq.write_table(rows_of(100), path)
    data = read(path, "y ~ group", memory="disk")
    with open(data.store / "records.bin", "r+b") as file:
        file.truncate(100)
    for source in (data.store, path):
        with pytest.raises(StoreError, match="truncated"):
            read(source, "y ~ group", memory="disk")
    (data.store / "store.json").write_text('{"format": "parquet"}')
    with pytest.raises(StoreError, match="another format"):
        read(data.store)


@pytest.mark.parametrize("kind", [".csv", "table", "pattern"])
def test_the_command_line_takes_every_source(kind, tmp_path):
    source = make(kind, tmp_path, rows_of(400))
    options = ["--sampler", "mh", "--draws", "20", "--warmup", "20", "--chains", "2", "--seed", "1", "--json", "--quiet"]
    result = CliRunner().invoke(app, ["fit", str(source), "-f", "y ~ x + C(group)", *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert list(json.loads(result.output)["summary"]) == ["Intercept", "x", "C(group)[T.south]", "C(group)[T.west]"]


def test_the_command_line_lists_and_clears_stores(tmp_path, stores):
    data = read(rows_of(40), "y ~ x", memory="disk")
    run = CliRunner()
    listed = run.invoke(app, ["store", "list"], catch_exceptions=False).output
    assert data.store.name in listed and "40 rows" in listed and f"1 stores in {stores}" in listed
    entry = json.loads(run.invoke(app, ["store", "list", "--json"], catch_exceptions=False).output)[0]
    assert (entry["name"], entry["rows"]) == (data.store.name, 40)
    assert isinstance(run.invoke(app, ["store", "clear", "other"]).exception, DataError)
    assert "deleted 1 stores" in run.invoke(app, ["store", "clear", data.store.name], catch_exceptions=False).output
    assert "0 stores" in run.invoke(app, ["store", "list"], catch_exceptions=False).output


def test_a_fit_from_a_pandas_frame_with_text_matches_indicator_columns():
    frame = rows_of(500).to_pandas()
    fit = tb.fit("y ~ x + group", frame, draws=30, warmup=30, chains=2, seed=1, sampler="mh", progress=False)
    dummies = pd.get_dummies(frame["group"], dtype=float)[["south", "west"]].to_numpy()
    X = np.column_stack([np.ones(500), frame["x"], dummies])
    data = tb.Dataset.from_arrays(X, frame["y"].to_numpy(), columns=fit.names)
    again = tb.sample(tb.models.logistic(data), "mh", draws=30, warmup=30, chains=2, seed=1, progress=False)
    np.testing.assert_array_equal(fit.theta, again.theta)

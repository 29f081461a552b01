"""Rows behind addresses: fsspec's memory, an S3-compatible server if there is one, and connections that fail or are slow."""

import contextlib
import os
import pickle
import socket
import sqlite3
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import DataError, OptionError
from tallbayes.shards import Partitions
from tallbayes.testing import log_likelihood


def table(rows, seed):
    X, y = logistic_arrays(rows, seed=seed)
    return pa.table({"y": y, "x": X[:, 1]})


@pytest.fixture
def bucket():
    """Three files in fsspec's memory."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for k in range(3):
        with memory.open(f"/bucket/part-{k}.parquet", "wb") as file:
            pq.write_table(table(300 + k, k), file, row_group_size=100)
    with memory.open("/bucket/_SUCCESS", "wb") as file:
        file.write(b"")
    yield "memory://bucket"
    memory.rm("/bucket", recursive=True)


def test_partitions_behind_addresses_equal_local_ones(bucket, tmp_path):
    for k in range(3):
        pq.write_table(table(300 + k, k), tmp_path / f"{k}.parquet")
    there, here = (Partitions.open(p, "y ~ x") for p in (bucket, str(tmp_path)))
    assert there.n == here.n and there.fingerprints == here.fingerprints
    assert there.total_value(np.array([0.1, 0.2])) == here.total_value(np.array([0.1, 0.2]))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """moto's server on loopback, with a bucket of two files; skipped where moto is not installed."""
    pytest.importorskip("moto")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    given = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true"}
    before = {k: os.environ.get(k) for k in given}
    os.environ.update(given)
    try:
        address = f"127.0.0.1:{port}"
        system = fs.S3FileSystem(endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True)
        for _ in range(100):
            try:
                system.create_dir("rows")
                break
            except OSError:
                time.sleep(0.2)
        for k in range(2):
            with system.open_output_stream(f"rows/day/{k}.parquet") as file:
                pq.write_table(table(400 + k, k), file)
        yield f"?endpoint_override={address}&scheme=http&region=us-east-1"
    finally:
        server.terminate()
        server.wait()
        for k, v in before.items():
            os.environ.pop(k, None) if v is None else os.environ.__setitem__(k, v)


def test_an_s3_server_is_read(s3, tmp_path):
    data = tb.read(f"s3://rows/day/1.parquet{s3}", "y ~ x", progress=False)
    np.testing.assert_array_equal(data.y, table(401, 1)["y"].to_numpy())
    parts = Partitions.open(f"s3://rows/day/*.parquet{s3}", "y ~ x")
    for k in range(2):
        pq.write_table(table(400 + k, k), tmp_path / f"{k}.parquet")
    assert parts.n == 801 and parts.fingerprints == Partitions.open(str(tmp_path), "y ~ x").fingerprints
    with pytest.raises(DataError, match="does not exist"):
        tb.read(f"s3://rows/day/7.parquet{s3}", "y ~ x", progress=False)


def connect_sqlite(path):
    return sqlite3.connect(path)


def connect_adbc(path):
    from adbc_driver_sqlite import dbapi

    return dbapi.connect(str(path))


def connect_duckdb(path):
    import duckdb

    return duckdb.connect(str(path), read_only=True)


@pytest.fixture
def databases(tmp_path):
    """The same table in a database that is read row by row, and in those that stream Arrow batches."""
    duckdb = pytest.importorskip("duckdb")
    rows = table(500, 3).append_column("id", pa.array(np.arange(500)))
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.sqlite")) as connection, connection:
        connection.execute("create table visits (y real, x real, id integer)")
        connection.executemany("insert into visits values (?, ?, ?)", list(zip(*rows.to_pydict().values(), strict=True)))
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.register("given", rows)
        connection.execute("create table visits as select * from given")
    adbc = [partial(connect_adbc, tmp_path / "rows.sqlite")] if find_spec("adbc_driver_sqlite") else []
    return [partial(connect_sqlite, tmp_path / "rows.sqlite"), partial(connect_duckdb, tmp_path / "rows.duckdb"), *adbc]


def test_queries_of_databases_are_rows_and_partitions(databases):
    expected = table(500, 3).to_pandas()
    for connect in databases:
        query = tb.Query(connect, "select y, x, id from visits")
        data = tb.read(query, "y ~ x", progress=False)
        np.testing.assert_array_equal(data.y, expected["y"])
        part = tb.read(tb.Query(connect, "select y, x from visits where x > 0;"), "y ~ x", progress=False)
        assert part.n == (expected["x"] > 0).sum()
        rows = Partitions.open(query.parts("id", 3), "y ~ x")
        assert [p.n for p in rows.parts] == [167, 166, 167] and pickle.loads(pickle.dumps(query)).num_rows == 500
        theta = np.array([0.1, -0.2])
        assert rows.total_value(theta) == pytest.approx(log_likelihood(tb.models.logistic(data), theta), rel=1e-12)


def test_queries_that_fail_say_what_was_asked(databases):
    for connect in databases:
        with pytest.raises(DataError, match=r"the query .*nowhere.* failed"):
            tb.read(tb.Query(connect, "select y, x from nowhere"), "y ~ x", progress=False)
        with pytest.raises(OptionError, match="name of a column"):
            tb.Query(connect, "select * from visits").parts("id; drop table visits", 2)
        with pytest.raises(OptionError, match="at least 1"):
            tb.Query(connect, "select * from visits").parts("id", 0)
        with pytest.raises(DataError, match="missing values, or no rows"):
            tb.Query(connect, "select * from visits where id < 0").parts("id", 2)


def test_relations_of_duckdb_are_streams(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("rows", table(500, 3))
        data = tb.read(connection.sql("select y, x from rows where x > 0"), "y ~ x", progress=False)
    np.testing.assert_array_equal(data.y, table(500, 3).to_pandas().query("x > 0")["y"].to_numpy())

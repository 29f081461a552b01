"""Internals of `tallbayes.data.sources.remote_files`; what users see of it is tested in test_remote_files.py."""

import contextlib
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support import logistic_arrays

import tallbayes as tb
from tallbayes.data.file_partitions import files_of
from tallbayes.data.sources import database, open_source, remote_files
from tallbayes.errors import DataError
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


def test_addresses_are_folders_patterns_and_files(bucket):
    assert len(files_of(bucket)) == 3 and files_of(f"{bucket}/part-[01].parquet")[1].endswith("part-1.parquet")
    data = tb.read(f"{bucket}/part-*.parquet", "y ~ x", progress=False)
    whole = pa.concat_tables([table(300 + k, k) for k in range(3)])
    np.testing.assert_array_equal(data.y, whole["y"].to_numpy())
    assert tb.read(f"{bucket}/part-2.parquet", "y ~ x", progress=False).n == 302
    with pytest.raises(DataError, match="does not exist"):
        tb.read(f"{bucket}/part-9.parquet", "y ~ x", progress=False)
    with pytest.raises(DataError, match="there is no file at"):
        tb.read("memory://empty/*.parquet", "y ~ x", progress=False)
    with pytest.raises(DataError, match=r"nosuch://.*no filesystem|needs fsspec"):
        open_source("nosuch://bucket/rows.parquet")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Unreliable:
    """A filesystem of which every second opening fails, after a pause."""

    def __init__(self, inner, pause):
        self.inner, self.pause, self.opened, self.failed = inner, pause, 0, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def open_input_file(self, path):
        self.opened += 1
        time.sleep(self.pause)
        if self.opened % 2:
            self.failed += 1
            raise OSError("connection reset by peer")
        return self.inner.open_input_file(path)


def test_a_failing_and_slow_connection_is_tried_again(bucket, monkeypatch):
    system, path = remote_files.open_filesystem(f"{bucket}/part-0.parquet")
    bad = Unreliable(system, 0.01)
    monkeypatch.setattr(remote_files, "open_filesystem", lambda address: (bad, path))
    monkeypatch.setattr(remote_files, "PAUSE", 0.001)
    data = tb.read(f"{bucket}/part-0.parquet", "y ~ x", progress=False)
    np.testing.assert_array_equal(data.y, table(300, 0)["y"].to_numpy())  # no row twice, none lost
    assert bad.failed >= 4  # the description and each of three row groups
    monkeypatch.setattr(remote_files, "TRIES", 1)
    with pytest.raises(DataError, match="could not be read in 1 tries: connection reset by peer"):
        tb.read(f"{bucket}/part-0.parquet", "y ~ x", progress=False)


class Pages(SimpleHTTPRequestHandler):
    """Files with ranges, as web servers have them; every fifth request for rows is refused."""

    asked = refused = 0

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if not wanted or not path.is_file():
            return super().do_GET()
        Pages.asked += 1
        if Pages.asked % 5 == 3:
            Pages.refused += 1
            return self.send_error(503)
        content, first, last = path.read_bytes(), int(wanted[1]), int(wanted[2])
        part = content[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *arguments):
        """Nothing."""


def encrypted(folder, server, monkeypatch):
    """Serve https with a certificate of this host, which aiohttp is made to trust."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run([*made.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(pytest.importorskip("aiohttp.connector"), "_SSL_CONTEXT_VERIFIED", trusting)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of aiohttp's sessions
@pytest.mark.parametrize("protocol", ["http", "https"])
def test_a_web_server_is_read(protocol, tmp_path, tmp_path_factory, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote_files, "PAUSE", 0.001)
    monkeypatch.setattr(Pages, "refused", 0)
    fsspec.get_filesystem_class(protocol).clear_instance_cache()  # a session has its connections
    for k in range(2):
        pq.write_table(table(400 + k, k), tmp_path / f"{k}.parquet", row_group_size=100)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=str(tmp_path))) as server:
        if protocol == "https":
            encrypted(tmp_path_factory.mktemp("keys"), server, monkeypatch)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            base = f"{protocol}://127.0.0.1:{server.server_port}"
            data = tb.read(f"{base}/1.parquet", "y ~ x", progress=False)
            np.testing.assert_array_equal(data.y, table(401, 1)["y"].to_numpy())
            parts = Partitions.open([f"{base}/{k}.parquet" for k in range(2)], "y ~ x")
            assert parts.n == 801 and parts.fingerprints == Partitions.open(str(tmp_path), "y ~ x").fingerprints
            assert [Path(f).name for f in files_of(f"{base}/")] == ["0.parquet", "1.parquet"]
            with pytest.raises(DataError, match="does not exist"):
                tb.read(f"{base}/7.parquet", "y ~ x", progress=False)
            assert Pages.refused > 0
        finally:
            server.shutdown()
            thread.join()


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


class BadLine:
    """A connection to a server: every piece is late, and every third time it is reset after the first bytes."""

    def __init__(self, port, pause):
        self.server, self.pause, self.made, self.broken = ("127.0.0.1", port), pause, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                client, _ = self.listener.accept()
                self.made += 1
                far = socket.create_connection(self.server)
                breaks = self.made % 3 == 2
                self.broken += breaks
                threading.Thread(target=self.forward, args=(client, far, None), daemon=True).start()
                threading.Thread(target=self.forward, args=(far, client, 100 if breaks else None), daemon=True).start()

    def forward(self, source, sink, most):
        with contextlib.suppress(OSError), source, sink:
            while piece := source.recv(1 << 14):
                time.sleep(self.pause)
                sink.sendall(piece[:most])
                if most is not None:
                    sink.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sink.shutdown(socket.SHUT_RD)
                    source.shutdown(socket.SHUT_RDWR)
                    return


def test_an_s3_server_behind_a_slow_and_failing_connection_is_read(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_files, "PAUSE", 0.01)
    port = int(re.search(r"127\.0\.0\.1:(\d+)", s3)[1])
    line = BadLine(port, 0.005)
    try:
        there = Partitions.open(f"s3://rows/day/*.parquet{s3.replace(str(port), str(line.port))}", "y ~ x")
        fit = tb.sample(there, "exact-minibatch", draws=100, warmup=50, chains=2, seed=1, progress=False)
    finally:
        line.listener.close()
    for k in range(2):
        pq.write_table(table(400 + k, k), tmp_path / f"{k}.parquet")
    here = tb.sample(
        Partitions.open(str(tmp_path), "y ~ x"), "exact-minibatch", draws=100, warmup=50, chains=2, seed=1, progress=False
    )
    assert line.broken > 0
    np.testing.assert_array_equal(fit.theta, here.theta)


def connect_postgres_adbc(port):
    from adbc_driver_postgresql import dbapi

    return dbapi.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")


def connect_postgres(port):
    import psycopg

    return psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres")


@pytest.fixture
def postgres():
    """A PostgreSQL server of its own on loopback, with a table of rows; skipped where server or driver are not installed."""
    psycopg = pytest.importorskip("psycopg")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin")) + [Path(p).parent for p in [shutil.which("initdb")] if p]
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    folder, port = Path(tempfile.mkdtemp(prefix="postgres-")), free_port()
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    data, program = folder / "data", programs[-1]
    subprocess.run([*user, program / "initdb", "-D", data, "-A", "trust", "-U", "postgres"], check=True, **quiet)
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    subprocess.run(
        [*user, program / "pg_ctl", "-D", data, "-w", "-o", options, "-l", folder / "log", "start"], check=True, **quiet
    )
    try:
        with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres") as connection:
            connection.execute("create table visits (y double precision, x double precision, id integer)")
            with connection.cursor() as cursor:
                rows = table(500, 3).append_column("id", pa.array(np.arange(500))).to_pydict()
                cursor.executemany("insert into visits values (%s, %s, %s)", list(zip(*rows.values(), strict=True)))
        adbc = [partial(connect_postgres_adbc, port)] if find_spec("adbc_driver_postgresql") else []
        yield [partial(connect_postgres, port), *adbc]
    finally:
        subprocess.run([*user, program / "pg_ctl", "-D", data, "-m", "immediate", "stop"], check=True, **quiet)
        shutil.rmtree(folder)


def test_postgres_is_read_and_partitioned(postgres, monkeypatch):
    monkeypatch.setattr(database, "BATCH", 64)  # several fetches
    for connect in postgres:
        query = tb.Query(connect, "select y, x, id from visits order by id")
        data = tb.read(query, "y ~ x", progress=False)
        np.testing.assert_array_equal(data.y, table(500, 3)["y"].to_numpy())
        rows = Partitions.open(query.parts("id", 4), "y ~ x")
        assert rows.n == 500 and len(rows.parts) == 4
        theta = np.array([0.1, -0.2])
        assert rows.total_value(theta) == pytest.approx(log_likelihood(tb.models.logistic(data), theta), rel=1e-12)

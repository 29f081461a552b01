"""Internals of `tallbayes.data.append`; what users see of it is tested in test_update.py."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.data import append as appending
from tallbayes.data import records as packed
from tallbayes.data.append import append
from tallbayes.data.packed_store import open_store
from tallbayes.errors import DataError, StoreError


def batch(rows, seed):
    X, y = logistic_arrays(rows, seed=seed)
    return tb.Dataset.from_arrays(X, y)


def both(first, second):
    X, y = (
        np.concatenate(v)
        for v in zip(logistic_arrays(first[0], seed=first[1]), logistic_arrays(second[0], seed=second[1]), strict=True)
    )
    return tb.Dataset.from_arrays(X, y)


def test_rows_are_appended_in_memory_without_touching_others():
    old = batch(100, 1)
    one = append(old, batch(40, 2))
    other = append(one, batch(30, 3))
    again = append(one, batch(30, 4))  # the room after `one` is taken
    longer = append(other, batch(5, 5))
    assert other.room is one.room and again.room is not one.room and longer.n == 175
    for data, parts in ((one, (1, 2)), (other, (1, 2, 3)), (again, (1, 2, 4))):
        X, y = (
            np.concatenate(v) for v in zip(*(logistic_arrays({1: 100, 2: 40}.get(s, 30), seed=s) for s in parts), strict=True)
        )
        whole = tb.Dataset.from_arrays(X, y)
        np.testing.assert_array_equal(data.records, whole.records)
        assert data.fingerprint == whole.fingerprint and data.moments.mean == pytest.approx(whole.moments.mean)
    with pytest.raises(DataError, match="read them with the same formula"):
        append(old, tb.Dataset.from_arrays(np.ones((3, 1)), [0.0, 1.0, 1.0]))


def test_fingerprints_go_on_from_complete_chunks(monkeypatch):
    monkeypatch.setattr(packed, "_chunk_rows", lambda records: 16)
    old, hashed, plain = batch(100, 1), [], packed._chunk_hash
    old.fingerprint  # noqa: B018 - computed before the append
    monkeypatch.setattr(packed, "_chunk_hash", lambda chunk, number: hashed.append(number) or plain(chunk, number))
    one = append(old, batch(40, 2))
    hashed.clear()
    whole = both((100, 1), (40, 2))
    assert one.fingerprint == packed.fingerprint(whole.records, whole.columns, whole.response)
    assert [k for k in hashed if k < 6] == list(range(6))  # by the whole alone: the grown one knew its first six


def write(path, rows, seed, levels="ab"):
    X, y = logistic_arrays(rows, seed=seed)
    g = np.random.default_rng(seed).choice(list(levels), rows)
    pq.write_table(pa.table({"y": y, "x": X[:, 1], "g": g}), path)
    return path


def test_a_store_grows_atomically(tmp_path, monkeypatch):
    data = tb.read(write(tmp_path / "old.parquet", 200, 1), "y ~ x", store=tmp_path / "stores", memory="disk", progress=False)
    part = tb.read(write(tmp_path / "new.parquet", 50, 2), "y ~ x", progress=False)
    before = data.records.copy()

    def crash(path, content, original=appending.write_synced):
        if path.name == "store.json":
            raise OSError("no space left on device")
        original(path, content)

    monkeypatch.setattr(appending, "write_synced", crash)
    with pytest.raises(StoreError, match=r"appending to the store .* failed: no space left on device\. The store is as it was"):
        append(data, part)
    monkeypatch.undo()
    np.testing.assert_array_equal(open_store(data.store).records, before)  # with the remains of the append behind its rows
    grown = append(data, part)
    assert grown.n == 250 and open_store(grown.store).fingerprint == grown.fingerprint
    np.testing.assert_array_equal(grown.records, np.vstack([before, part.records]))
    np.testing.assert_array_equal(data.records, before)
    assert grown.fingerprint == packed.fingerprint(grown.records, grown.columns, grown.response)
    with pytest.raises(StoreError, match="has grown or changed since it was opened"):
        append(data, part)
    with pytest.raises(StoreError, match="has grown by further rows"):
        tb.read(tmp_path / "old.parquet", "y ~ x", store=tmp_path / "stores", memory="disk", progress=False)
    assert json.loads((grown.store / "store.json").read_text())["recipe"]["appended"][0]["rows"] == 50

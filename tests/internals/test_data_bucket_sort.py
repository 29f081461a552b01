"""Internals of `tallbayes.data.bucket_sort`; what users see of it is tested in test_group_formula.py."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallbayes as tb
from tallbayes.data import bucket_sort
from tallbayes.data.bucket_sort import BucketSort
from tallbayes.errors import StoreError


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


# Stores


@pytest.mark.parametrize("bucket", [1, 1 << 12, 1 << 28])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_store_holds_what_memory_holds(bucket, dtype, monkeypatch, stores):
    monkeypatch.setattr(bucket_sort, "BUCKET", bucket)
    formula = "y ~ x + z + (1 | g) + (z || h) + (1 | g:h)"
    memory, disk = (read(formula, memory=where, dtype=dtype) for where in ("ram", "disk"))
    assert disk.store is not None and not list(disk.store.glob("*.part"))
    again = tb.read(disk.store, formula)
    for other in (disk, again):
        assert memory.fingerprint == other.fingerprint and repr(memory.groups[0].terms) == repr(other.groups[0].terms)
        np.testing.assert_array_equal(memory.records, other.records)
        np.testing.assert_array_equal(memory.order, other.order)
        for mine, its in zip(memory.groups, other.groups, strict=True):
            assert (mine.name, mine.terms, mine.first) == (its.name, its.terms, its.first)
            for part in ("labels", "codes", "offsets", "members"):
                np.testing.assert_array_equal(getattr(mine, part), getattr(its, part))
    recomputed = tb.Dataset(again.records, again.columns, again.response, again.moments, groups=again.groups)
    assert recomputed.fingerprint == again.fingerprint


@given(st.lists(st.integers(0, 8), min_size=1, max_size=80), st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_the_bucket_sort_is_stable(tmp_path_factory, codes, size):
    folder = tmp_path_factory.mktemp("buckets")
    codes = np.array(codes, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_sort, "BUCKET", size)
        patch.setattr(bucket_sort, "MOST_BUCKETS", 5)
        sort = BucketSort(folder, 2, np.dtype("f8"), np.bincount(codes, minlength=9), 1, 0)
        assert len(sort.paths) <= 6
        for start in range(0, codes.size, 7):
            part = codes[start : start + 7]
            sort.add(np.repeat(part[:, None], 2, axis=1).astype(float), part[:, None])
        rows = np.concatenate(list(sort.chunks()))
    order = np.argsort(codes, kind="stable")
    np.testing.assert_array_equal(rows["row"], order)
    np.testing.assert_array_equal(rows["record"][:, 1], codes[order])
    assert not list(folder.iterdir())


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_sort_leaves_nothing(error, stores, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(BucketSort, "chunks", fail)
    with pytest.raises((StoreError, KeyboardInterrupt)) as caught:
        read("y ~ x + (1 | g)", memory="disk")
    assert caught.type is KeyboardInterrupt or "choose another folder with store=" in str(caught.value)
    assert not list(stores.iterdir())

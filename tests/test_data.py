"""From arrays, tables and files to packed rows: content, moments, stores, and what bad input gets."""

import os
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallbayes.data import Dataset, read
from tallbayes.data import read as read_function
from tallbayes.errors import DataError, OptionError, StoreError
from tallbayes.testing import BATCH_ROWS

MANY = BATCH_ROWS + 4464
LATE = BATCH_ROWS + 3210


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


def expected_records(columns):
    """Intercept, age, income, y, log exposure, count."""
    ones = np.ones(len(columns["y"]))
    parts = [ones, columns["age"], columns["income"], columns["y"], np.log(columns["exposure"]), columns["count"]]
    return np.column_stack(parts)


def write_parquet(path, columns, **changes):
    pq.write_table(pa.table({**columns, **changes}), path)
    return path


def reader_of(columns):
    table = pa.table(columns)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1000))


SOURCES = {
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "arrow": pa.table,
    "batch": pa.record_batch,
    "chunked": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 70), pa.table(columns).slice(70)]),
    "reader": reader_of,
}


@pytest.mark.parametrize("kind", [*SOURCES, "parquet"])
@pytest.mark.parametrize("memory", ["auto", "ram", "disk"])
def test_every_source_gives_the_same_rows(kind, memory, tmp_path):
    columns = columns_of(5000)
    source = write_parquet(tmp_path / "rows.parquet", columns) if kind == "parquet" else SOURCES[kind](columns)
    data = read(source, "y ~ age + income", offset="log(exposure)", weights="count", memory=memory, progress=False)
    assert data.columns == ("Intercept", "age", "income")
    assert (data.n, data.d, data.response) == (5000, 3, "y")
    assert (data.has_offset, data.has_weights, data.intercept) == (True, True, 0)
    assert (data.store is not None) == (memory == "disk")
    np.testing.assert_array_equal(data.records[:, :6], expected_records(columns))
    np.testing.assert_array_equal(data.records[:, 6:], 0.0)
    np.testing.assert_array_equal(data.y, columns["y"])
    assert data.total_weight == pytest.approx(columns["count"].sum())


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_longer_than_a_chunk_are_packed_in_order(kind):
    columns = columns_of(2 * BATCH_ROWS + 17)
    data = read(SOURCES[kind](columns), "y ~ age + income", offset="log(exposure)", weights="count")
    np.testing.assert_array_equal(data.records[:, :6], expected_records(columns))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_records_are_whole_cache_lines_in_memory_and_from_a_store(dtype):
    columns = columns_of(100)
    for memory in ("ram", "disk"):
        data = read(pa.table(columns), "y ~ .", dtype=dtype, memory=memory)
        assert data.records.dtype == dtype
        assert data.records.strides[0] % 64 == 0
        assert data.records.ctypes.data % 64 == 0
        np.testing.assert_array_equal(data.records[:, 1], columns["age"].astype(dtype))


def test_numbers_of_other_types_are_converted():
    table = pa.table(
        {
            "y": [True, False],
            "half": np.array([0.5, 2.0], np.float16),
            "price": pa.array([1, 2], pa.decimal128(5, 2)),
            "small": pa.array([1, 255], pa.uint8()),
        }
    )
    np.testing.assert_array_equal(read(table, "y ~ .").records[:, :5], [[1, 0.5, 1, 1, 1], [1, 2, 2, 255, 0]])


def test_from_arrays_packs_without_intercept():
    rng = np.random.default_rng(1)
    X, y, offset, weights = rng.normal(size=(MANY, 2)), rng.normal(size=MANY), rng.normal(size=MANY), rng.random(MANY)
    data = Dataset.from_arrays(X, y, offset, weights, columns=["a", "b"])
    np.testing.assert_array_equal(data.records[:, :5], np.column_stack([X, y, offset, weights]))
    assert (data.columns, data.intercept, data.has_offset, data.has_weights) == (("a", "b"), None, True, True)


def test_from_arrays_fills_in_offset_and_weight():
    data = Dataset.from_arrays([1, 2, 3], [[0], [1], [1]])
    np.testing.assert_array_equal(data.records[:, :4], [[1, 0, 0, 1], [2, 1, 0, 1], [3, 1, 0, 1]])
    assert (data.columns, data.has_offset, data.has_weights, data.total_weight) == (("x0",), False, False, 3.0)


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "chunked"])
def test_from_arrays_takes_tables(kind):
    columns = columns_of(100)
    data = Dataset.from_arrays(SOURCES[kind](columns), "y", columns=["income", "age"])
    np.testing.assert_array_equal(data.records[:, :3], np.column_stack([columns["income"], columns["age"], columns["y"]]))
    assert data.columns == ("income", "age")


def test_from_arrow_adds_an_intercept():
    assert Dataset.from_arrow(pa.table(columns_of(10)), response="y", columns=["age"]).columns == ("Intercept", "age")


def test_the_index_of_a_pandas_frame_is_no_column(tmp_path):
    frame = pd.DataFrame(columns_of(9))[["y", "age"]]
    some = frame[[True, True, False] * 3]
    some.to_parquet(tmp_path / "some.parquet")
    assert read(some, "y ~ .").columns == ("Intercept", "age")
    assert read(frame.set_index("age"), "y ~ .").columns == ("Intercept",)
    assert read(tmp_path / "some.parquet", "y ~ .").columns == ("Intercept", "age")
    assert Dataset.from_arrays(some, "y").columns == ("age",)


def test_offset_and_weights_are_left_out_of_the_dot_and_may_be_named():
    columns = columns_of(20)
    options = {"offset": "exposure", "weights": "count"}
    assert read(pa.table(columns), "y ~ .", **options).columns == ("Intercept", "age", "income")
    assert read(pa.table(columns), response="y", **options).columns == ("Intercept", "age", "income")
    assert read(pa.table(columns), "y ~ . + count - income", **options).columns == ("Intercept", "age", "count")


def test_an_offset_is_taken_as_it_is_unless_it_says_log():
    columns = columns_of(20)
    table = pa.table({**columns, "log(exposure)": columns["count"]})
    np.testing.assert_array_equal(read(table, "y ~ age", offset="log(exposure)").records[:, 3], columns["count"])
    np.testing.assert_array_equal(read(pa.table(columns), "y ~ age", offset="exposure").records[:, 3], columns["exposure"])
    logs = np.log(columns["exposure"])
    np.testing.assert_array_equal(read(pa.table(columns), "y ~ age", offset=" log( `exposure` ) ").records[:, 3], logs)


def test_the_store_holds_the_same_bits_and_fingerprint(tmp_path, stores):
    path = write_parquet(tmp_path / "rows.parquet", columns_of(MANY))
    for dtype in ("float64", "float32"):
        options = {"offset": "log(exposure)", "weights": "count", "dtype": dtype, "progress": False}
        memory = read(path, "y ~ age + income", memory="ram", **options)
        disk = read(path, "y ~ age + income", memory="disk", **options)
        again = read(disk.store)
        assert disk.store.parent == stores
        for data in (disk, again):
            assert data.records.tobytes() == memory.records.tobytes()
            assert data.fingerprint == memory.fingerprint
            assert data._fingerprint is not None
            assert (data.columns, data.response, data.has_offset, data.has_weights) == (memory.columns, "y", True, True)
            for name in ("mean", "sd", "low", "high", "two_valued"):
                np.testing.assert_array_equal(getattr(data.moments, name), getattr(memory.moments, name))
            assert data.moments.n == MANY


def test_a_store_is_reused_until_its_source_changes(tmp_path, stores):
    path = write_parquet(tmp_path / "rows.parquet", columns_of(50, seed=1))
    first = read(path, "y ~ .", memory="disk")
    written = (first.store / "records.bin").stat().st_mtime_ns
    assert read(path, "y ~ .", memory="disk").store == first.store
    assert read(path, "y ~ .", store=stores).store == first.store
    assert (first.store / "records.bin").stat().st_mtime_ns == written

    assert read(path, "y ~ age", memory="disk").store != first.store
    assert read(path, "y ~ .", memory="disk", dtype="float32").store != first.store

    columns = columns_of(50, seed=2)
    write_parquet(path, columns)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))
    second = read(path, "y ~ age + income", memory="disk")
    np.testing.assert_array_equal(second.records[:, 1], columns["age"])
    assert read(path, "y ~ .", memory="disk").fingerprint != first.fingerprint


def test_a_stream_always_replaces_its_store():
    first = read(pa.table(columns_of(50, seed=1)), "y ~ age", memory="disk")
    kept = first.records.tobytes()
    second = read(pa.table(columns_of(50, seed=2)), "y ~ age", memory="disk")
    assert first.fingerprint != second.fingerprint
    assert first.records.tobytes() == kept


def test_store_option_puts_rows_on_disk_unless_memory_says_ram(tmp_path):
    table = pa.table(columns_of(10))
    assert read(table, "y ~ .", store=tmp_path / "here").store.parent == tmp_path / "here"
    assert read(table, "y ~ .", store=tmp_path / "there", memory="ram").store is None
    assert not (tmp_path / "there").exists()


def test_auto_memory_goes_to_disk_when_rows_do_not_fit(monkeypatch):
    module = sys.modules[read_function.__module__]
    table = pa.table(columns_of(1000))
    monkeypatch.setattr(module, "available_memory", lambda: 1000 * 64 * 4)
    assert read(table, "y ~ age").store is None
    monkeypatch.setattr(module, "available_memory", lambda: 1000 * 64 * 4 - 4)
    assert read(table, "y ~ age").store is not None


@pytest.fixture
def store(tmp_path):
    return read(write_parquet(tmp_path / "rows.parquet", columns_of(50)), "y ~ .", memory="disk").store


@pytest.mark.parametrize("size", [0, 1, 50 * 64 - 1, 50 * 64 + 64])
def test_truncated_records_are_refused(store, tmp_path, size):
    with open(store / "records.bin", "r+b") as file:
        file.truncate(size)
    for source in (store, tmp_path / "rows.parquet"):
        with pytest.raises(StoreError, match=r"truncated: .* of 3,200 bytes\. Delete it and read the source again"):
            read(source, "y ~ .", memory="disk")


def test_bad_rows_leave_no_store(stores):
    columns = columns_of(MANY)
    columns["age"][LATE] = np.nan
    with pytest.raises(DataError, match=f"row {LATE}, column 'age' is nan"):
        read(pa.table(columns), "y ~ .", memory="disk")
    assert list(stores.iterdir()) == []


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write a store in .*Choose another folder with store="):
        read(pa.table(columns_of(5)), "y ~ .", store=tmp_path / "file")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["age", "y", "exposure", "count"])
@pytest.mark.parametrize("row", [0, BATCH_ROWS - 1, BATCH_ROWS, LATE])
def test_values_that_are_no_numbers_are_named(bad, column, row):
    columns = {name: values.astype(float) for name, values in columns_of(MANY).items()}
    columns[column][row] = bad
    message = rf"row {row}, column '{column}' is {bad}\. Drop or impute such rows"
    with pytest.raises(DataError, match=message):
        read(pa.table(columns), "y ~ age", offset="exposure", weights="count")
    with pytest.raises(DataError, match=message.replace("exposure", "offset").replace("count", "weights")):
        Dataset.from_arrays(columns["age"], columns["y"], offset=columns["exposure"], weights=columns["count"], columns=["age"])


@pytest.mark.parametrize("row", [0, LATE])
def test_missing_values_are_named(row, tmp_path):
    columns = columns_of(MANY)
    ages = pa.array(columns["age"], mask=np.arange(MANY) == row)
    path = write_parquet(tmp_path / "rows.parquet", columns, age=ages)
    for source in (path, pa.table({**columns, "age": ages}), pl.from_arrow(pa.table({**columns, "age": ages}))):
        with pytest.raises(DataError, match=f"row {row}, column 'age' is missing"):
            read(source, "y ~ .")
    with pytest.raises(DataError, match=f"row {row}, column 'age' is missing"):
        Dataset.from_arrays(pa.table({**columns, "age": ages}), "y")


def test_masked_elements_are_refused():
    X = np.ma.masked_array(np.ones((4, 2)), mask=[[False, False], [False, True], [False, False], [False, False]])
    with pytest.raises(DataError, match="row 1, column 'x1' is nan"):
        Dataset.from_arrays(X, np.ones(4))
    with pytest.raises(DataError, match="row 2, column 'y' is nan"):
        Dataset.from_arrays(np.ones((4, 2)), np.ma.masked_array([1, 2, 3, 4], mask=[0, 0, 1, 0]))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 1], pa.timestamp("s")),
        pa.array([b"a", b"b"]),
        pa.array([None, None]),
        pa.array([[1.0], [2.0]]),
    ],
    ids=lambda values: str(values.type),
)
def test_columns_that_are_not_numbers_are_named(values):
    table = pa.table({"y": [0, 1], "region": values})
    for action in (lambda: read(table, "y ~ ."), lambda: Dataset.from_arrays(table, "y")):
        with pytest.raises(DataError, match=r"column 'region' has type .*, not a number. Leave it out"):
            action()
    assert read(table, "y ~ 1").columns == ("Intercept",)


@pytest.mark.parametrize("values", [pa.array(["a", "b"]), pa.array(["a", "b"]).dictionary_encode()], ids=["text", "dictionary"])
def test_text_is_refused_without_a_formula(values):
    table = pa.table({"y": [0, 1], "region": values})
    for action in (lambda: read(table, response="y"), lambda: Dataset.from_arrays(table, "y")):
        with pytest.raises(DataError, match=r"column 'region' has type .*, not a number. Leave it out"):
            action()
    assert read(table, "y ~ .").columns == ("Intercept", "region[T.b]")


@pytest.mark.parametrize("row", [1, LATE])
def test_negative_weights_and_exposures_are_named(row):
    columns = columns_of(MANY)
    columns["count"][row] = -2
    with pytest.raises(DataError, match=rf"row {row}, column 'count': the weight is -2; weights are powers"):
        read(pa.table(columns), "y ~ age", weights="count")
    with pytest.raises(DataError, match=rf"row {row}, column 'weights': the weight is -2"):
        Dataset.from_arrays(columns["age"], columns["y"], weights=columns["count"])
    for exposure in (0.0, -1.5):
        columns["exposure"][row] = exposure
        with pytest.raises(DataError, match=rf"row {row}: log\(exposure\) of {exposure:g}; an exposure must be positive"):
            read(pa.table(columns), "y ~ age", offset="log(exposure)")


def test_weights_may_be_zero():
    assert Dataset.from_arrays([1.0, 2.0], [0, 1], weights=[0.0, 2.0]).total_weight == 2.0


def test_numbers_too_large_for_float32_are_named():
    with pytest.raises(DataError, match=r"row 1, column 'x0 \(too large for float32\)' is inf"):
        Dataset.from_arrays([[1.0], [1e39]], [0, 1], dtype="float32")


DOUBLE = pa.table([[1.0, 2.0], [3.0, 4.0], [0, 1]], names=["a", "a", "y"])


@pytest.mark.parametrize(
    "action, error, message",
    [
        (lambda: read(DOUBLE, "y ~ ."), DataError, "2 columns called 'a'"),
        (lambda: Dataset.from_arrays(DOUBLE, "y"), DataError, "2 columns called 'a'"),
        (
            lambda: read(pa.table({"y": [0], "a": [1]}), response="y", columns=["a", "a"]),
            DataError,
            "predictors are called 'a'",
        ),
        (lambda: read(pa.table({"y": [0], "Intercept": [1]}), "y ~ ."), DataError, "called 'Intercept'.*leaves out with \\+ 0"),
        (lambda: Dataset.from_arrays(np.ones((2, 2)), [0, 1], columns=["a", "a"]), DataError, "2 different names"),
        (lambda: Dataset.from_arrays(np.ones((2, 2)), [0, 1], columns=["a"]), DataError, "2 different names.*got 1"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), response="y", columns=["y"]), DataError, "response 'y' is also among"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), response="y", columns=["b"]), DataError, "unknown column 'b'"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), response="z"), DataError, "unknown response column 'z'"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), "y ~ a", offset="log(t)"), DataError, "unknown offset column 't'"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), "y ~ a", weights="w"), DataError, "unknown weights column 'w'"),
        (lambda: read(pa.table({"y": [0], "a": [1]})), OptionError, "say what to model"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), "y ~ a", response="y"), OptionError, "not both"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), "y ~ a", memory="disc"), OptionError, "did you mean 'disk'"),
        (lambda: read(pa.table({"y": [0], "a": [1]}), "y ~ a", dtype="float16"), DataError, "float64 or float32"),
        (lambda: Dataset.from_arrays(np.ones((2, 2)), [0, 1], dtype="fast"), DataError, "float64 or float32, not 'fast'"),
        (lambda: read(pa.table({"y": [0], "a": [1]}).slice(0, 0), "y ~ a"), DataError, "no rows"),
        (lambda: read(reader_of({"y": np.zeros(0), "a": np.zeros(0)}), "y ~ a"), DataError, "no rows"),
        (lambda: read(reader_of({"y": np.zeros(0), "a": np.zeros(0)}), "y ~ a", memory="disk"), DataError, "no rows"),
        (lambda: read("rows.xls", "y ~ a"), DataError, "rows.xls: cannot tell the format. Understood are .parquet"),
        (lambda: read("nowhere.parquet", "y ~ a"), DataError, "nowhere.parquet does not exist"),
        (lambda: read(np.ones((2, 2)), "y ~ a"), DataError, "cannot read a ndarray.*Dataset.from_arrays"),
        (lambda: Dataset.from_arrays(np.ones((3, 2)), [0, 1]), DataError, "y must have one number for each of the 3 rows"),
        (lambda: Dataset.from_arrays(np.ones((3, 2)), np.ones(3), offset=[1, 2]), DataError, "offset must have one number"),
        (lambda: Dataset.from_arrays(np.ones((3, 2)), np.ones(3), weights=1.0), DataError, "weights must have one number"),
        (lambda: Dataset.from_arrays(np.ones((3, 2)), ["a", "b", "c"]), DataError, "y has type <U1"),
        (lambda: Dataset.from_arrays(np.array([["a"], ["b"]]), [0, 1]), DataError, "X has type <U1"),
        (lambda: Dataset.from_arrays(np.ones((2, 2, 2)), [0, 1]), DataError, r"its shape is \(2, 2, 2\)"),
        (lambda: Dataset.from_arrays(np.ones((0, 2)), []), DataError, r"its shape is \(0, 2\)"),
        (lambda: Dataset.from_arrays(pa.table({"y": [0], "a": [1]}), "z"), DataError, "no column 'z'; the columns are y, a"),
        (lambda: Dataset.from_arrays(pa.table({"y": [0]}), "y"), DataError, "no column left"),
        (lambda: Dataset.from_arrays(pa.table({"y": [0], "a": [1]}), "y", columns=["b"]), DataError, "no column 'b'"),
    ],
)
def test_what_cannot_be_read_is_refused(action, error, message):
    with pytest.raises(error, match=message):
        action()


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = write_parquet(tmp_path / "rows.parquet", columns_of(5000))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"rows.parquet is not a readable Parquet file"):
        read(path, "y ~ .")
    path.write_bytes(whole[:4] + bytes(20_000) + whole[20_004:])
    with pytest.raises(DataError, match=r"rows.parquet is damaged"):
        read(path, "y ~ .")


def test_moments_of_a_dataset_agree_with_numpy_over_batches():
    columns = columns_of(2 * BATCH_ROWS + 99)
    data = read(pa.table(columns), "y ~ age + income", offset="log(exposure)", weights="count")
    expected = expected_records(columns)
    np.testing.assert_allclose(data.moments.mean, expected.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.moments.sd, expected.std(0), rtol=1e-12)
    np.testing.assert_array_equal(data.moments.low, expected.min(0))
    np.testing.assert_array_equal(data.moments.high, expected.max(0))
    np.testing.assert_array_equal(data.moments.two_valued, [True, False, False, True, False, False])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_fingerprint_changes_with_any_bit(dtype):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    fingerprints = {Dataset.from_arrays(X, y, dtype=dtype).fingerprint}
    assert fingerprints == {Dataset.from_arrays(X.copy(), y.copy(), dtype=dtype).fingerprint}
    word = np.uint64 if dtype == "float64" else np.uint32
    positions = [(int(row), int(column)) for row in [0, 39, *rng.integers(1, 39, 10)] for column in (0, 2, 3, 4, 5)]
    for number, (row, column) in enumerate(positions):
        data = Dataset.from_arrays(X, y, dtype=dtype)
        data.records.view(word)[row, column] ^= word(1) << word(number % (8 * data.records.itemsize))
        fingerprints.add(data.fingerprint)
    assert len(fingerprints) == 1 + len({(p, n % (64 if dtype == "float64" else 32)) for n, p in enumerate(positions)})


def test_the_fingerprint_knows_names_order_and_type():
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    variants = [
        Dataset.from_arrays(X, y),
        Dataset.from_arrays(X, y, columns=["a", "b"]),
        Dataset.from_arrays(X[::-1], y[::-1]),
        Dataset.from_arrays(X, y, dtype="float32"),
        Dataset.from_arrays(X, y, weights=np.full(4, 2.0)),
        Dataset.from_arrays(X[:3], y[:3]),
    ]
    assert len({data.fingerprint for data in variants}) == len(variants)

"""Group terms of formulas: how they are read, levels of streamed rows, sorted stores, and the same model as from arrays."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, StoreError, TallbayesWarning


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


# Levels and rows


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", "a", "c", "a", "b", "b"]),
        pa.array(["b", "a", "c", "a", "b", "b"], pa.large_string()),
        pa.array(["b", "a", "c", "a", "b", "b"]).dictionary_encode(),
        pa.array([3, -1, 7, -1, 3, 3], pa.int16()),
        pa.array([3.0, -1.0, 7.0, -1.0, 3.0, 3.0]),
        pa.array([2**60 + 1, 2**60, 2**62, 2**60, 2**60 + 1, 2**60 + 1]),
        pa.array([True, False, True, False, True, True]),
    ],
)
def test_columns_of_every_type_are_levels(values):
    table = pa.table({"y": [0.0, 1.0, 0.0, 1.0, 0.0, 0.0], "g": values})
    factor = tb.read(table, "y ~ (1 | g)", progress=False).groups[0]
    plain = values.to_pylist()
    expected = sorted(set(plain))
    assert [str(v) for v in factor.labels] == [str(int(v)) if isinstance(v, float) else str(v) for v in expected]
    np.testing.assert_array_equal(np.bincount(factor.codes), [plain.count(v) for v in expected])


def test_interactions_are_the_combinations_that_occur_in_the_order_of_their_parts():
    frame = pd.DataFrame({"y": np.zeros(6), "a": ["b", "a", "b", "a", "a", "b"], "k": [10, 9, 9, 9, 9, 10]})
    factor = read("y ~ (1 | a:k)", frame).groups[0]
    assert (factor.name, factor.labels.tolist(), np.diff(factor.offsets).tolist()) == ("a:k", ["a:9", "b:9", "b:10"], [3, 1, 2])


def test_names_of_combinations_that_coincide_are_refused():
    frame = pd.DataFrame({"y": np.zeros(4), "a": ["u:v", "u:v", "u", "u"], "b": ["w", "w", "v:w", "v:w"]})
    with pytest.raises(DataError, match=r"the same name.*replace the colons"):
        read("y ~ (1 | a:b)", frame)


def test_records_are_those_of_arrays():
    X = np.column_stack([np.ones(len(FRAME)), FRAME.x])
    groups = {"g": FRAME.g, "h": (FRAME.h, ["1", "x"])}
    arrays = tb.Dataset.from_arrays(X, FRAME.y, columns=["Intercept", "x"], groups=groups)
    rows = read("y ~ x + (1 | g) + (x | h)")
    np.testing.assert_array_equal(rows.records, arrays.records)
    np.testing.assert_array_equal(rows.order, arrays.order)
    assert rows.response == arrays.response and rows.fingerprint == arrays.fingerprint
    for own, other in zip(rows.groups, arrays.groups, strict=True):
        assert (own.name, own.terms, own.first, own.labels.tolist()) == (
            other.name,
            other.terms,
            other.first,
            other.labels.tolist(),
        )
        for part in ("codes", "offsets", "members"):
            np.testing.assert_array_equal(getattr(own, part), getattr(other, part))
            assert getattr(own, part).dtype == getattr(other, part).dtype
    assert tb.models.logistic(rows).describe() == tb.models.logistic(arrays).describe()


def test_effects_may_be_transforms_and_levels():
    rows = read("y ~ x + (scale(x) + c | h) + (0 + c || g)")
    assert [f.terms for f in rows.groups] == [("1", "scale(x)", "c[T.v]"), ("c[u]", "c[v]")]
    sorted_frame = FRAME.iloc[rows.order]
    first = rows.groups[0].first
    np.testing.assert_array_equal(rows.records[:, first], 1.0)
    scaled = (sorted_frame.x - FRAME.x.mean()) / FRAME.x.std()
    np.testing.assert_allclose(rows.records[:, first + 1], scaled, atol=1e-12)
    np.testing.assert_array_equal(rows.records[:, first + 2], sorted_frame.c == "v")
    np.testing.assert_array_equal(rows.records[:, rows.groups[1].first], sorted_frame.c == "u")


def test_nested_factors_share_the_order_of_records():
    rows = read("y ~ (1 | g/h)")
    assert [f.name for f in rows.groups] == ["g", "g:h"]
    assert all(f.sorted for f in rows.groups)
    assert rows.groups[0].labels[rows.groups[0].codes].tolist() == FRAME.g.iloc[rows.order].tolist()


def test_a_level_seen_only_in_the_last_batch():
    frame = FRAME.assign(g=["ash"] * (len(FRAME) - 2) + ["aaa", "zzz"])
    for memory in ("ram", "disk"):
        factor = read("y ~ x + (1 | g)", frame, memory=memory).groups[0]
        assert factor.labels.tolist() == ["aaa", "ash", "zzz"]
        assert np.diff(factor.offsets).tolist() == [1, len(FRAME) - 2, 1]


# Stores


def test_a_store_of_group_terms_refuses_other_ones():
    store = read("y ~ x + (1 | g)", memory="disk").store
    assert tb.read(store, "y ~ x + (1|g)").groups[0].levels == 4
    for formula in ("y ~ x", "y ~ x + (1 + x | g)"):
        with pytest.raises(DataError, match="was packed with group terms"):
            tb.read(store, formula)


@pytest.mark.parametrize("name", ["codes-0.bin", "offsets-0.bin", "members-0.bin", "levels-0.arrow", "order.bin"])
def test_truncated_and_lost_files_of_a_store_are_refused(name):
    store = read("y ~ x + (1 | g) + (1 | h)", memory="disk").store
    path = store / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(StoreError, match=r"Delete it|delete the store"):
        tb.read(store)
    path.unlink()
    with pytest.raises(StoreError, match=r"[Dd]elete"):
        tb.read(store)


def test_stores_are_reused_and_described_without_levels(tmp_path):
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "rows.parquet")
    first, again = (
        tb.read(tmp_path / "rows.parquet", "y ~ x + (1 | g) + (scale(z) | h)", memory="disk", progress=False) for _ in range(2)
    )
    assert first.store == again.store
    text = json.dumps(again.recipe["plan"]["groups"])
    assert "birch" not in text and "scale(z)" in text


# Bad input


@pytest.mark.parametrize(
    "column, message",
    [
        (np.arange(400), r"as many levels as rows \(400\).*coarser factor"),
        (np.linspace(0, 1, 400), "row 1, column 'k' is 0.00250627: a measurement, not a level.*cut it into classes"),
        (np.r_[np.ones(399), np.inf], "row 399, column 'k' is inf"),
        (["a"] * 399 + [None], "column 'k'.*missing|missing.*'k'"),
        (pa.array([2**64 - 1] * 400, pa.uint64()), "beyond 64 bits; convert them to text"),
        (pa.array([b"a"] * 400), "neither numbers nor text"),
    ],
)
def test_columns_that_are_no_factors_are_refused(column, message):
    table = pa.table({"y": np.zeros(400), "x": np.arange(400.0), "k": column})
    with pytest.raises(DataError, match=message):
        tb.read(table, "y ~ x + (1 | k)", progress=False)


def test_a_factor_with_hardly_more_rows_than_levels_is_worth_a_warning():
    k = np.arange(400) // 2
    k[:2] = [1000, 1001]
    table = pa.table({"y": np.zeros(400), "k": k})
    with pytest.warns(TallbayesWarning, match="201 levels in 400 rows, fewer than two rows per level"):
        tb.read(table, "y ~ (1 | k)", progress=False)
    with pytest.warns(TallbayesWarning, match="fewer than two rows per level"):
        tb.Dataset.from_arrays(np.ones((400, 1)), np.zeros(400), groups={"k": k})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tb.read(pa.table({"y": np.zeros(400), "k": np.arange(400) // 2}), "y ~ (1 | k)", progress=False)


def test_two_correlated_terms_of_one_factor_are_refused():
    with pytest.raises(DataError, match=r"two group terms of g.*or with \|\|"):
        read("y ~ (1 + x | g) + (0 + c | g)")


# Models and results


def test_draws_are_those_of_arrays_in_memory_and_from_a_store(tmp_path):
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "rows.parquet")
    X = np.column_stack([np.ones(len(FRAME)), FRAME.x])
    arrays = tb.Dataset.from_arrays(X, FRAME.y, columns=["Intercept", "x"], groups={"h": FRAME.h})
    run = {"draws": 30, "warmup": 40, "chains": 2, "seed": 3, "progress": False}
    expected = tb.sample(tb.models.logistic(arrays), "minibatch-gibbs", **run)
    for memory in ("ram", "disk"):
        fit = tb.fit("y ~ x + (1 | h)", tmp_path / "rows.parquet", sampler="minibatch-gibbs", memory=memory, **run)
        np.testing.assert_array_equal(fit.theta, expected.theta)
        np.testing.assert_array_equal(fit.draws("1|h"), expected.draws("1|h"))
    assert fit.names == ("Intercept", "x", "1|h_sigma")
    assert list(fit.idata.posterior["1|h"].coords["h__factor_dim"].values) == [str(k) for k in range(30)]


def test_several_factors_have_a_model_and_a_mode_and_a_plain_refusal():
    rows = read("y ~ x + (1 | g) + (x || h)")
    model = tb.models.logistic(rows)
    assert model.names == ("Intercept", "x", "1|g_sigma", "1|h_sigma", "x|h_sigma")
    mode = tb.find_mode(model, progress=False)
    assert [e.shape for e in mode.effects] == [(4, 1), (30, 1), (30, 1)]
    fit = tb.sample(model, "nuts", draws=5, warmup=5, chains=1, seed=1, mode=mode, progress=False, init="laplace")
    assert fit.draws("x|h").shape == (1, 5, 30)


def test_a_run_is_resumed_from_its_file_with_its_priors(tmp_path):
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "rows.parquet")
    prior = {
        "x": tb.priors.normal(0.5),
        "default": tb.priors.normal(3.0),
        "1|h_sigma": tb.priors.exponential(0.7),
        "h_corr": tb.priors.lkj(3.0),
    }
    run = {"warmup": 20, "chains": 2, "seed": 3, "progress": False, "prior": prior, "sampler": "minibatch-gibbs"}
    whole = tb.fit("y ~ x + (x | h)", tmp_path / "rows.parquet", draws=20, **run)
    tb.fit("y ~ x + (x | h)", tmp_path / "rows.parquet", draws=10, checkpoint=tmp_path / "run", **run)
    longer = tb.resume(tmp_path / "run", draws=20, progress=False)
    np.testing.assert_array_equal(longer.theta, whole.theta)
    np.testing.assert_array_equal(longer.draws("x|h"), whole.draws("x|h"))


def test_families_without_group_effects_refuse_them():
    with pytest.raises(ModelError, match="softmax has no hierarchical form"):
        tb.models.softmax(read("y ~ x + (1 | g)"), classes=2)


@pytest.mark.slow
def test_a_million_levels_from_a_store_in_little_memory(tmp_path):
    import subprocess
    import sys

    program = """
import resource, sys, numpy as np, pyarrow as pa, tallbayes as tb
def batches():
    for k in range(60):
        rng = np.random.default_rng(k)
        ids = rng.integers(0, 1_000_000, 50_000)
        yield pa.record_batch({"y": rng.random(50_000), "x": rng.random(50_000), "id": np.char.add("c", ids.astype(str))})
first = next(batches())
stream = pa.RecordBatchReader.from_batches(first.schema, batches())
rows = tb.read(stream, "y ~ x + (1 | id)", memory="disk", store=sys.argv[1], progress=False)
factor = rows.groups[0]
assert factor.sorted and factor.offsets[-1] == 3_000_000 and rows.n == 3_000_000
assert (np.diff(factor.codes) >= 0).all() and factor.labels[0] == "c0"
print(factor.levels, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    levels, peak = map(int, done.stdout.split())
    assert levels > 940_000
    assert peak < 2000

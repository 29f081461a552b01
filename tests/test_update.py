"""Rows that arrive later: updated fits against fits of all rows, and stores that grow."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import growth
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.joined_tables import join_bounds
from tallbayes.bounds.tables import draw_row, rate_count, row_rate, total_rate
from tallbayes.data import append as appending
from tallbayes.data import records as packed
from tallbayes.data.append import append
from tallbayes.data.packed_store import open_store
from tallbayes.engine import passes
from tallbayes.errors import DataError, ModelError, OptionError, StoreError
from tallbayes.testing import THRESHOLD, mode_at

RUN = {"draws": 300, "warmup": 100, "chains": 2, "seed": 3, "progress": False}


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


@pytest.mark.parametrize("name", ["T6", "T9", "T10"])
def test_joined_bounds_are_those_of_all_rows_at_the_reference(name):
    old, new = tb.models.logistic(batch(300, 1)), tb.models.logistic(batch(90, 2))
    whole = tb.models.logistic(both((300, 1), (90, 2)))
    mode, here, there = tb.find_mode(old, progress=False), mode_at(new, np.zeros(2)), mode_at(whole, np.zeros(2))
    for other in (here, there):
        other.reference = mode.reference
        other.__dict__["factor"] = mode.factor
    joined = join_bounds(certify(mode, name)[0], certify(here, name)[0], None)
    bound, rng = certify(there, name, indexed=True)[0], np.random.default_rng(0)
    for scale in (0.3, 1.0, 3.0):
        pair = scale * rng.standard_normal((2, 2))
        rates, expected = np.zeros(rate_count(joined)), np.zeros(rate_count(bound))
        total, one = total_rate(joined, *pair, rates), total_rate(bound, *pair, expected)
        assert total == pytest.approx(one, rel=1e-9) or name == "T9"  # classes of parts have other radii
        residual = np.abs(passes.residuals_at(whole.rows, np.arange(390), *_positions(mode, pair), mode.reference))
        counts, limit = np.zeros(390), np.zeros(390)
        for _ in range(4000):
            row, rate = draw_row(rng, joined, rates, total)
            counts[row] += 1
            limit[row] = rate
        seen = counts > 0
        assert (residual[seen] <= limit[seen] * (1 + 1e-9) + 1e-14).all() and seen[300:].any() and seen[:300].any()
        z = (counts[seen] - 4000 * limit[seen] / total) / np.sqrt(np.maximum(4000 * limit[seen] / total, 1.0))
        assert np.abs(z).max() < 8.0
        assert name == "T9" or np.allclose(limit[seen], [row_rate(bound, expected, r) for r in np.flatnonzero(seen)], rtol=1e-9)


def _positions(mode, pair):
    return [mode.reference + mode.factor @ w for w in pair]


def test_an_updated_fit_has_the_posterior_of_all_rows(monkeypatch):
    options = {**RUN, "draws": 3000}
    fit = tb.sample(tb.models.logistic(batch(5000, 1)), "exact-minibatch", **options)
    again = fit.update(batch(150, 2), seed=4, progress=False)
    final = again.update(batch(200, 3), seed=5, progress=False)
    assert [e.get("recentred") for e in final.meta["history"]] == [None, False, False]
    assert [e["rows"] for e in final.meta["history"]] == [5000, 150, 200] and final.meta["rows"] == 5350
    assert final.meta["history"][2]["evals"] == 2 * 200  # a pass for sums and one for tables, over the new rows alone
    assert final.guarantee.kind == "EXACT" and final.theta.shape == (2, 3000, 2)
    X, y = (
        np.concatenate(v) for v in zip(*(logistic_arrays(m, seed=s) for m, s in ((5000, 1), (150, 2), (200, 3))), strict=True)
    )
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    model.prior_terms = tb.models.logistic(batch(5000, 1)).prior_terms  # scales stay those of the first rows
    whole = tb.sample(model, "exact-minibatch", **options)
    error = np.sqrt(sum(f.theta.var((0, 1)) / f.ess for f in (final, whole)))
    assert np.abs((final.theta.mean((0, 1)) - whole.theta.mean((0, 1))) / error).max() < THRESHOLD
    assert final.theta.std((0, 1)) == pytest.approx(whole.theta.std((0, 1)), rel=0.1)
    old = np.abs((fit.theta.mean((0, 1)) - whole.theta.mean((0, 1))) / error).max()
    assert old > THRESHOLD  # the test would notice new rows that are left out


def test_the_reference_is_searched_for_again_when_the_mode_has_moved():
    fit = tb.sample(tb.models.logistic(batch(2000, 1)), "exact-minibatch", **RUN)
    other = tb.Dataset.from_arrays(*logistic_arrays(400, (0.5, 0.2), seed=2))
    moved = fit.update(other, progress=False, seed=1)
    assert moved.meta["history"][-1]["recentred"] and moved.meta["history"][-1]["moved"] > growth.MOVED
    grown = fit.update(batch(600, 3), progress=False, seed=1)
    assert grown.meta["history"][-1]["recentred"]  # by a quarter
    mode = tb.find_mode(tb.update(tb.models.logistic(batch(2000, 1)), other, progress=False), progress=False)
    assert moved.laplace_mean == pytest.approx(mode.reference, abs=1e-4)


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


def test_what_update_refuses(small, tmp_path):
    fit = tb.sample(small.model, "exact-minibatch", **RUN)
    with pytest.raises(DataError, match="given as arrays"):
        fit.update(pa.table({"y": [0.0], "x": [1.0]}), progress=False)
    with pytest.raises(DataError, match="0 or 1"):
        fit.update(tb.Dataset.from_arrays(np.ones((2, 2)), [0.0, 7.0], columns=small.model.data.columns), progress=False)
    with pytest.raises(OptionError, match="update takes draws"):
        fit.update(batch(10, 1), checkpoint=tmp_path / "run", progress=False)
    series = tb.models.arma(np.random.default_rng(0).standard_normal(50))
    with pytest.raises(ModelError, match="fit all rows anew"):
        tb.update(series, batch(5, 1), progress=False)


def test_other_samplers_search_for_the_mode_again(small):
    fit = tb.sample(small.model, "nuts", **RUN)
    updated = fit.update(batch(30, 9), progress=False)
    assert updated.meta["rows"] == 90 and updated.meta["sampler_name"] == "nuts" and updated.meta["history"][-1]["recentred"]

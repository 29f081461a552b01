"""Rows that arrive later: updated fits against fits of all rows, and stores that grow."""

import numpy as np
import pyarrow as pa
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.testing import THRESHOLD

RUN = {"draws": 300, "warmup": 100, "chains": 2, "seed": 3, "progress": False}


def batch(rows, seed):
    X, y = logistic_arrays(rows, seed=seed)
    return tb.Dataset.from_arrays(X, y)


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

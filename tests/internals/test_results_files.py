"""Internals of `tallbayes.results.files`; what users see of it is tested in test_results.py."""

import os

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.results import files

CHAINS, DRAWS, WARMUP, ROWS = 3, 200, 50, 60


@pytest.fixture(scope="module")
def model():
    X, y = logistic_arrays(ROWS)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, columns=["one", "x"]))


@pytest.fixture(scope="module")
def fit(model):
    return tb.sample(model, "mh", draws=DRAWS, warmup=WARMUP, chains=CHAINS, seed=2, thin=2, progress=False)


@pytest.fixture(scope="module")
def scale_fit():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(80), rng.standard_normal(80)])
    data = tb.Dataset.from_arrays(X, X @ [1.0, 2.0] + 0.5 * rng.standard_normal(80))
    return tb.sample(tb.models.gaussian(data, tb.priors.normal(10.0)), "mh", draws=400, warmup=200, seed=2, progress=False)


def test_a_save_that_fails_keeps_the_old_file(fit, scale_fit, tmp_path, monkeypatch):
    path = fit.save(tmp_path / "fit.nc")

    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(tb.StoreError, match="no space left"):
        scale_fit.save(path)
    assert os.listdir(tmp_path) == ["fit.nc"]
    np.testing.assert_array_equal(tb.load(path).theta, fit.theta)

"""Internals of `tallbayes.results.levels`; what users see of it is tested in test_running_levels.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results.levels import BUDGET, level_plan, read_keep
from tallbayes.results.running_levels import FIRST

# What a run keeps


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 300)
    X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    y = X @ [1.0, 0.5] + rng.standard_normal(6)[codes] + rng.standard_normal(300)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, groups={"g": codes}))


def test_keep_is_read(model):
    assert read_keep(model, None, 1000, 4) == {"terms": ["1|g"], "thinned": 100}
    assert read_keep(model, "summary", 1000, 4) == {"terms": [], "thinned": 100}
    assert read_keep(model, ["1|g"], 1000, 4)["terms"] == ["1|g"]
    each = 8 * 6 * 4
    assert read_keep(model, each * 1000, 1000, 4)["terms"] == ["1|g"]
    assert read_keep(model, each * 999, 1000, 4) == {"terms": [], "thinned": 998}
    assert read_keep(model, 0, 1000, 4) == {"terms": [], "thinned": FIRST}
    assert read_keep(model, None, BUDGET // each + 1, 4)["terms"] == []
    assert level_plan(model, read_keep(model, "all", 10, 4)) is None
    np.testing.assert_array_equal(level_plan(model, read_keep(model, [], 10, 4)).described, model.dim + np.arange(6))


def test_keep_that_does_not_suit_the_model_is_refused(model, monkeypatch):
    with pytest.raises(tb.OptionError, match=r"unknown term in keep= '1\|h'"):
        tb.sample(model, "minibatch-gibbs", keep=["1|h"], progress=False)
    plain = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0)))
    with pytest.raises(tb.OptionError, match="the model has no groups"):
        tb.sample(plain, "nuts", keep="all", progress=False)
    monkeypatch.setattr("tallbayes.results.levels.available_memory", lambda: 1000)
    with pytest.raises(tb.OptionError, match="keep='summary'"):
        tb.sample(model, "minibatch-gibbs", keep="all", progress=False)

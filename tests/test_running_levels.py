"""Running statistics of levels, and what a run keeps of their draws."""

import numpy as np
import pytest

import tallbayes as tb

# What a run keeps


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 300)
    X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    y = X @ [1.0, 0.5] + rng.standard_normal(6)[codes] + rng.standard_normal(300)
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, groups={"g": codes}))


@pytest.mark.parametrize("keep", [-1, True, {"a": 1}, [1], np.zeros(2)])
def test_a_keep_that_cannot_be_meant_is_refused(model, keep):
    with pytest.raises(tb.OptionError, match="keep is 'all', 'summary'"):
        tb.sample(model, "minibatch-gibbs", keep=keep, progress=False)


def test_a_run_that_keeps_a_summary(model, tmp_path):
    options = {"warmup": 50, "chains": 2, "seed": 1, "progress": False}
    whole = tb.sample(model, "minibatch-gibbs", draws=400, **options)
    fit = tb.sample(model, "minibatch-gibbs", draws=400, keep="summary", **options)
    np.testing.assert_array_equal(fit.theta, whole.theta)
    own, draws = fit.levels["1|g"], whole.draws("1|g")
    np.testing.assert_array_equal(own.values, draws[:, own.positions])
    np.testing.assert_allclose(own.statistics.mean, draws.mean((0, 1)), rtol=1e-4)
    tree = fit.idata
    assert "1|g" not in tree.posterior and "1|g" in tree["thinned_posterior"] and "1|g_sigma" in tree.posterior
    np.testing.assert_allclose(tree["level_statistics"]["1|g"].sel(statistic="sd"), draws.std((0, 1)), rtol=1e-3)
    again = tb.load(fit.save(tmp_path / "fit.nc"))
    for a, b in zip(again.levels["1|g"].statistics, own.statistics, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(again.draws("1|g"), fit.draws("1|g"))
    np.testing.assert_array_equal(again.levels["1|g"].positions, own.positions)
    short = tb.sample(model, "minibatch-gibbs", draws=40, keep="summary", **options)
    assert short.levels["1|g"].positions is None and short.draws("1|g").shape == (2, 40, 6)


def test_a_run_that_keeps_a_summary_resumes_bit_for_bit(model, tmp_path):
    options = {"warmup": 50, "chains": 2, "seed": 1, "progress": False, "keep": "summary"}
    tb.sample(model, "minibatch-gibbs", draws=130, checkpoint=tmp_path / "run", **options)
    longer = tb.resume(tmp_path / "run", model, draws=300, progress=False)
    straight = tb.sample(model, "minibatch-gibbs", draws=300, **options)
    np.testing.assert_array_equal(longer.theta, straight.theta)
    np.testing.assert_array_equal(longer.draws("1|g"), straight.draws("1|g"))
    for a, b in zip(longer.levels["1|g"].statistics, straight.levels["1|g"].statistics, strict=True):
        np.testing.assert_array_equal(a, b)

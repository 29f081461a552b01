"""Internals of `tallbayes.results.level_summaries`; what users see of it is tested in test_group_results.py."""

import types
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.results import level_summaries
from tallbayes.results.leave_one_out import evaluated_draws, pointwise
from tallbayes.testing import fit_from_draws

CHAINS, DRAWS, LEVELS = 2, 60, 7
EXPIT = lambda eta: 1.0 / (1.0 + np.exp(-eta))  # noqa: E731


def data_of(terms=None, n=90, response="binary", labels="abcdefg", seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, LEVELS - 1, n)  # the last level has no rows
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = rng.integers(0, 2, n) if response == "binary" else rng.standard_normal(n)
    shop = pd.Categorical.from_codes(codes, list(labels))
    groups = {"shop": shop if terms is None else (shop, terms)}
    return X, np.asarray(shop), tb.Dataset.from_arrays(X, y, columns=["one", "x"], groups=groups)


def fit_of(model, seed=1, spread=1.0):
    """A fit with made-up draws, of which everything but the draws is as after sampling."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(0.3, 0.8, (CHAINS, DRAWS, model.dim))
    values = spread * rng.standard_normal((CHAINS, DRAWS, model.level_count))
    fit = fit_from_draws(model, theta, levels=values)
    fit.meta["sampler_name"] = "minibatch-gibbs"
    fit.setup["seconds"] = fit.warmup["seconds"] = fit.seconds["draws"] = fit.seconds["total"] = 1.0
    fit.warmup["iterations"] = fit.setup["passes"] = 1
    return fit


@pytest.fixture(scope="module")
def rows():
    return data_of()


@pytest.fixture(scope="module")
def fit(rows):
    return fit_of(tb.models.logistic(rows[2]))


@pytest.fixture(scope="module")
def slopes():
    X, shop, data = data_of(["1", "x"], response="real")
    model = tb.models.gaussian(data, sigma=0.5)
    return X, shop, model, fit_of(model)


def linear(fit, X, shop, z=None):
    """eta (rows, draws) of known levels."""
    flat = fit.theta.reshape(CHAINS * DRAWS, -1)
    code = np.array(["abcdefg".index(s) for s in shop])
    eta = X @ flat[:, :2].T
    for k, own in enumerate(fit.levels.values()):
        eta += (1.0 if k == 0 else X[:, [1]]) * own.values.reshape(CHAINS * DRAWS, -1)[:, code].T
    return eta


def test_groups_of_a_model_without_any_are_refused(rows):
    plain = tb.models.logistic(tb.Dataset.from_arrays(rows[0], np.tile([0, 1], 45)))
    fit = types.SimpleNamespace(meta={"model": plain.describe()})
    from tallbayes.results.group_predictions import grouped

    with pytest.raises(tb.OptionError, match="the model has none"):
        grouped(fit, {"shop": []}, "sample", 0)
    assert grouped(fit, True, "sample", 0) is None


def test_thinned_levels_are_predicted_jointly(fit, rows):
    X, shop, _ = rows
    positions = np.arange(0, DRAWS, 4)
    own = fit.levels["1|shop"]
    thin = replace(fit, levels={"1|shop": replace(own, values=own.values[:, positions], positions=positions)})
    index = (np.arange(CHAINS)[:, None] * DRAWS + positions).reshape(-1)
    expected = EXPIT(linear(fit, X, shop))[:, index].mean(1)
    np.testing.assert_allclose(thin.predict(X, draws=1000, groups={"shop": shop})["mean"], expected, rtol=1e-12)
    assert evaluated_draws(thin).shape == (index.size, 3 + LEVELS)


def test_log_likelihoods_are_given_the_levels(slopes):
    X, shop, model, fit = slopes
    whole = evaluated_draws(fit)
    order = model.data.order
    eta = linear(fit, X, shop)[order]
    for s in (0, 50):
        expected = stats.norm(eta[:, s], 0.5).logpdf(model.data.y)
        np.testing.assert_allclose(pointwise(model, np.arange(90), whole[s]), expected, rtol=1e-10)
    elpd = fit.loo(rows=30)
    assert elpd.n_data_points == 90 and np.isfinite(elpd.elpd)


def test_many_levels_are_summarised_from_batches(fit, monkeypatch):
    rng = np.random.default_rng(0)
    own = replace(fit.levels["1|shop"], values=rng.standard_normal((CHAINS, 400, LEVELS)))
    exact = level_summaries.level_table(own, 0.89)
    monkeypatch.setattr(level_summaries, "MANY", 3)
    quick = level_summaries.level_table(own, 0.89)
    np.testing.assert_allclose(quick["mean"], exact["mean"], atol=1e-5)
    np.testing.assert_allclose(quick.iloc[:, 2], exact.iloc[:, 2], atol=0.05)
    assert not np.array_equal(quick["ess_bulk"], exact["ess_bulk"]) and (quick["r_hat"] < 1.05).all()

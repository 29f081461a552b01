"""Simulated responses against their laws, and models compared on the same rows."""

import arviz_stats
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import special
from support import known_fit

import tallbayes as tb

RUN = {"sampler": "hmc", "draws": 300, "warmup": 200, "chains": 2, "seed": 1, "progress": False}


def rows(n=2000, seed=0):
    x = np.random.default_rng(seed).standard_normal(n)
    return np.column_stack([np.ones(n), x])


@pytest.mark.parametrize(
    "family", ["logistic", "probit", "poisson", "negbin", "gamma", "gaussian", "student_t", "softmax", "normal"]
)
def test_simulated_responses_have_the_mean_of_the_model(family):
    X = rows()[:, :1] if family == "normal" else rows()
    data = tb.Dataset.from_arrays(X, np.ones(2000), offset=None if family == "softmax" else np.full(2000, 0.1))
    if family == "softmax":
        data = tb.Dataset.from_arrays(X, np.tile([0, 1], 1000))
    fit = known_fit(data, family, draws=200, spread=0.02)
    check = fit.ppc(rows=2000, draws=100, seed=3)
    assert check.simulated.shape == (100, 2000) and (check.observed == data.y[check.rows]).all()
    expected = fit.predict(data, draws=200)
    mean = expected["mean[1]"] if family == "softmax" else expected["mean"]
    sd = check.simulated.std() / np.sqrt(check.simulated.size)
    assert abs(check.simulated.mean() - mean.mean()) < 8 * sd + 0.01 * check.simulated.std()
    assert len({tuple(s) for s in check.simulated[:, :50]}) > 90  # every simulation has its own noise


NEW = {
    "beta": (0.4, {}),
    "inverse_gaussian": (1.0, {}),
    "weibull": (1.0, {}),
    "loglogistic": (1.0, {}),
    "lognormal": (1.0, {}),
    "ordinal": (None, {}),
    "binomial": (0.5, {}),
    "zero_inflated_poisson": (1.0, {}),
    "zero_inflated_negbin": (1.0, {}),
    "hurdle_poisson": (1.0, {}),
    "hurdle_negbin": (1.0, {}),
}


@pytest.mark.parametrize("family", NEW)
def test_simulated_responses_of_families_with_unknown_parameters(family):
    X, second = rows(), family.startswith(("zero", "hurdle"))
    y = np.tile([0.0, 1.0, 2.0, 1.0], 500) if second else np.full(2000, NEW[family][0])
    columns = ["Intercept", "x", *(["zi_Intercept"] if second else [])]
    X = np.column_stack([X, np.ones(2000)]) if second else X
    if family == "ordinal":
        X, y, columns = X[:, 1:], np.tile([0, 1, 2, 1], 500), ["x"]
    weights = np.tile([2.0, 4.0], 1000) if family == "binomial" else None
    data = tb.Dataset.from_arrays(X, y, weights=weights, columns=columns)
    model = tb.models.build(family, data)
    center = np.array([0.2, 0.3, -0.5, -1.0][: model.dim])
    if family == "ordinal":
        center = np.array([0.3, -0.6, 0.8])
    theta = center + 0.02 * np.random.default_rng(1).standard_normal((2, 100, model.dim))
    fit = known_fit(data, family, theta)
    check = fit.ppc(rows=2000, draws=100, seed=3)
    expected = fit.predict(data, draws=200)
    mean = expected["mean[1]"] + 2.0 * expected["mean[2]"] if family == "ordinal" else expected["mean"]
    sd = check.simulated.std() / np.sqrt(check.simulated.size)
    assert abs(check.simulated.mean() - mean.mean()) < 8 * sd + 0.01 * check.simulated.std()
    if family == "beta":
        assert len(np.unique(check.simulated)) > 1000  # shares, not counts of ones
    if family == "binomial":
        assert ((check.simulated * weights) % 1.0 == 0.0).all() and len(np.unique(check.simulated[:, ::2])) == 3


def test_p_values_are_uniform_under_the_model_and_small_otherwise():
    rng = np.random.default_rng(1)
    X = rows(500)
    good, bad = [], []
    for k in range(30):
        mean = np.exp(X @ [0.3, 0.5])
        for found, y in ((good, rng.poisson(mean)), (bad, rng.poisson(mean * rng.standard_gamma(0.5, 500) / 0.5))):
            theta = np.tile([0.3, 0.5], (2, 50, 1))
            fit = known_fit(tb.Dataset.from_arrays(X, y), "poisson", theta)
            found.append(fit.ppc(rows=500, draws=60, seed=k).statistics.loc["sd", "p"])
    assert 0.25 < np.mean(good) < 0.75 and np.mean(bad) < 0.05


def test_offsets_and_rows_from_files(tmp_path):
    X = rows(300)
    table = pa.table({"y": np.random.default_rng(2).poisson(2.0, 300), "x": X[:, 1], "t": np.full(300, 5.0)})
    pq.write_table(table, tmp_path / "rows.parquet")
    theta = np.tile([0.0, 0.0], (2, 50, 1))
    data = tb.read(tmp_path / "rows.parquet", "y ~ x", offset="log(t)", progress=False)
    kept = known_fit(data, "poisson", theta)
    found = known_fit(data, "poisson", theta, keep=False)
    assert (kept.ppc(seed=4).simulated == found.ppc(seed=4).simulated).all()
    assert abs(kept.ppc().simulated.mean() - 5.0) < 0.1
    lost = known_fit(tb.read(table, "y ~ x", progress=False), "poisson", theta, keep=False)
    with pytest.raises(tb.DataError, match="only in memory"):
        lost.ppc()
    with pytest.raises(tb.StoreError, match="not the rows of the fit"):
        lost.ppc(data=data)
    assert lost.ppc(data=tb.read(table, "y ~ x", progress=False)).observed.size == 300


def test_prior_predictive_spreads_with_the_prior():
    data = tb.Dataset.from_arrays(rows(300), np.tile([0.0, 1.0], 150))
    share = []
    for scale in (0.01, 20.0):
        check = tb.prior_predictive(tb.models.logistic(data, tb.priors.normal(scale)), draws=60, seed=1)
        share.append(check.simulated.mean(1).std())
        assert check.kind == "prior" and "prior predictive" in repr(check)
    assert share[0] < 0.05 and share[1] > 0.15
    check = tb.prior_predictive(tb.models.gaussian(data, tb.priors.normal(0.001)), draws=20)
    assert 0.4 < check.simulated.std() < 0.6  # log sigma, whose prior is flat, is that of y
    with pytest.raises(tb.OptionError, match="flat prior"):
        tb.prior_predictive(tb.models.logistic(data, tb.priors.flat()))
    with pytest.raises(tb.OptionError, match="needs a model"):
        tb.prior_predictive(data)
    with pytest.raises(tb.ModelError, match="narrower prior"):
        tb.prior_predictive(tb.models.poisson(data, tb.priors.normal(1e4)))


def test_refused_checks():
    fit = known_fit(tb.Dataset.from_arrays(rows(30), np.ones(30)))
    with pytest.raises(tb.OptionError, match="rows must be"):
        fit.ppc(rows=0)
    fit.stats["weight"] = np.ones(fit.theta.shape[:2])
    with pytest.raises(tb.OptionError, match="weights"):
        fit.ppc()


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(5)
    x, noise = rng.standard_normal((2, 3000))
    y = (rng.random(3000) < special.expit(0.2 + 0.5 * x)).astype(int)
    table = pa.table({"y": y, "x": x, "noise": noise})
    formulas = {"x": "y ~ x", "both": "y ~ x + noise", "none": "y ~ 1"}
    return {name: tb.fit(formula, table, **RUN) for name, formula in formulas.items()}


def test_differences_are_those_of_all_rows_within_their_standard_errors(fits):
    whole = tb.compare_models(fits, rows=3000)
    some = tb.compare_models(fits, rows=300, seed=2)
    assert whole.index[-1] == "none" and whole["elpd_diff"].iloc[0] == 0.0
    assert (whole["subsampling_dse"] < 1e-6).all() and whole["dse"]["none"] > 5
    for name in some.index[1:]:
        first = some.index[0]
        exact = (whole.elpd[first].elpd_i - whole.elpd[name].elpd_i).values.sum()
        assert abs(some["elpd_diff"][name] - exact) < 4.9 * some["subsampling_dse"][name] + 1e-9
        assert some["subsampling_dse"][name] < 0.2 * some["dse"][name]  # the rows are paired
    assert np.isclose(whole["weight"].sum(), 1.0) and whole["weight"]["none"] < 0.2
    again = arviz_stats.compare(some.elpd, method="pseudo-BMA")
    assert np.allclose(again["elpd_diff"], some["elpd_diff"])


def test_models_are_built_again_or_given(fits):
    data = fits["x"].data
    model = tb.models.logistic(data)
    given = tb.compare_models(fits, rows=50, models={"x": model})
    assert np.allclose(given["elpd"].sort_index(), tb.compare_models(fits, rows=50)["elpd"].sort_index())
    with pytest.raises(tb.OptionError, match="at least two"):
        tb.compare_models({"a": fits["x"]})
    with pytest.raises(tb.OptionError, match="not among the fits"):
        tb.compare_models(fits, models={"q": model})
    with pytest.raises(tb.StoreError, match="not the model"):
        tb.compare_models(fits, models={"none": model})
    other = tb.Dataset.from_arrays(np.ones((3000, 1)), 1 - data.y)
    with pytest.raises(tb.DataError, match="differ in the response"):
        tb.compare_models({"a": fits["x"], "b": known_fit(other)}, rows=50)
    with pytest.raises(tb.DataError, match="only models of the same rows"):
        tb.compare_models({"a": fits["x"], "b": known_fit(tb.Dataset.from_arrays(np.ones((9, 1)), np.ones(9)))}, rows=50)

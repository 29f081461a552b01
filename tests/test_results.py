"""Fit: shapes, cost, summary, diagnostics, files and plots."""

import json
import os
from dataclasses import replace

import arviz_stats
import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb

CHAINS, DRAWS, WARMUP, ROWS = 3, 200, 50, 60
PLOTS = ("trace", "marginals", "cost")


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


@pytest.fixture(scope="module")
def weighted(fit):
    weight = np.where(fit.theta[:, :, 1] > np.median(fit.theta[:, :, 1]), 3.0, 1.0)
    return replace(fit, stats={**fit.stats, "weight": weight})


def test_shapes(fit):
    assert fit.theta.shape == (CHAINS, DRAWS, 2)
    assert fit.evals.shape == fit.weights.shape == (CHAINS, DRAWS)
    assert fit.evals.dtype == np.int64 and (fit.evals == 2 * ROWS).all()
    assert (fit.weights == 1.0).all()
    assert fit.names == ("one", "x")
    assert fit.guarantee.kind == "EXACT" and fit.status == "complete" and "mh" in fit.why
    assert repr(fit) == f"Fit(logistic, {CHAINS} chains x {DRAWS} draws x 2 parameters, EXACT, complete)"
    assert set(fit.stats) >= {"evals", "evals_value", "evals_gradient", "evals_paper", "lp", "acceptance_rate"}


def test_cost_adds_up(fit, model):
    cost = fit.cost()
    assert set(cost) >= {"setup", "warmup", "draws", "seconds", "ess_min", "evals_per_ess", "IF", "CT"}
    assert cost["setup"]["evals"] == cost["setup"]["passes"] * ROWS > 0
    start = CHAINS * ROWS
    assert cost["warmup"]["evals"] == CHAINS * WARMUP * ROWS + start
    assert cost["warmup"]["iterations"] == CHAINS * WARMUP
    draws = cost["draws"]
    assert draws["iterations"] == 2 * CHAINS * DRAWS
    assert draws["evals"] == fit.evals.sum() and draws["evals_per_iteration"] == ROWS
    assert cost["ess_min"] == fit.ess.min()
    assert cost["IF"] == pytest.approx(draws["iterations"] / fit.ess.min())
    assert cost["evals_per_ess"] == pytest.approx(fit.evals.sum() / fit.ess.min())
    assert cost["CT"] == pytest.approx(cost["IF"] * ROWS) == pytest.approx(cost["evals_per_ess"])
    assert cost["ess_per_second"] == pytest.approx(fit.ess.min() / draws["seconds"])
    assert cost["seconds"] > cost["setup"]["seconds"] > 0.0
    json.dumps(cost)


def test_summary_describes_the_draws(fit):
    table, flat = fit.summary(), fit.theta.reshape(-1, 2)
    assert list(table.index) == ["one", "x"]
    assert list(table.columns) == ["mean", "sd", "5.5%", "94.5%", "ess_bulk", "ess_tail", "r_hat", "mcse_mean"]
    np.testing.assert_allclose(table["mean"], flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(table["sd"], flat.std(0), rtol=1e-12)
    np.testing.assert_allclose(table[["5.5%", "94.5%"]].T, np.quantile(flat, [0.055, 0.945], axis=0), rtol=1e-12)
    np.testing.assert_allclose(table["mcse_mean"], flat.std(0) / np.sqrt(fit.ess), rtol=1e-12)
    wider = fit.summary(prob=0.98)
    np.testing.assert_allclose(wider["1%"], np.quantile(flat, 0.01, axis=0), rtol=1e-12)


@pytest.mark.parametrize("prob", [0.0, 1.0, 95, -0.1])
def test_summary_refuses_what_is_no_probability(fit, prob):
    with pytest.raises(tb.OptionError, match="between 0 and 1"):
        fit.summary(prob=prob)
    with pytest.raises(tb.OptionError, match="give the probability as prob="):
        fit.summary(0.9)


def test_the_header_states_prior_guarantee_and_cost(fit, scale_fit):
    text = repr(fit.summary())
    assert f"logistic model of {ROWS} rows, prior weakly_informative (the default)" in text
    assert f"mh: {fit.guarantee}" in text and "EXACT: targets the full-data posterior exactly" in text
    assert f"{CHAINS} chains x {DRAWS} draws, complete; {ROWS} evaluations per iteration" in text
    assert text in str(fit.summary()) and "weakly_informative (the default)" in fit.summary()._repr_html_()
    other = repr(scale_fit.summary())
    assert "prior normal(location=0, scale=10)" in other and "default" not in other


def test_the_header_warns_of_divergence_and_disagreement(fit):
    assert "diverging" not in repr(fit.summary())
    diverging = np.zeros((CHAINS, DRAWS))
    diverging[0, :7] = 1.0
    apart = replace(fit, theta=fit.theta + np.arange(CHAINS)[:, None, None], stats={**fit.stats, "diverging": diverging})
    text = repr(apart.summary())
    assert f"7 of {2 * CHAINS * DRAWS:,} iterations diverged" in text and "acceptance=" in text
    assert f"(R-hat {apart.r_hat.max():.4g})" in text and "the chains disagree about" in text and "Run longer" in text


def test_diagnostics_are_those_of_arviz(fit, scale_fit):
    for each in (fit, scale_fit):
        sampled = {"group": "parameters"}
        np.testing.assert_allclose(each.ess, arviz_stats.ess(each.idata, **sampled)["theta"].values, rtol=1e-12)
        np.testing.assert_allclose(each.r_hat, arviz_stats.rhat(each.idata, **sampled)["theta"].values, rtol=1e-12)
        tail = arviz_stats.ess(each.idata, method="tail", prob=(0.05, 0.95), **sampled)["theta"].values
        np.testing.assert_allclose(each.summary()["ess_tail"][: len(each.names)], tail, rtol=1e-12)
        table = arviz_stats.summary(each.idata, round_to=None)
        own = each.summary().loc[list(table.index)]
        np.testing.assert_allclose(table["mean"], own["mean"], rtol=1e-12)
        np.testing.assert_allclose(table["ess_bulk"], own["ess_bulk"], rtol=1e-12)


def test_a_chain_that_never_moved_has_no_effective_draws(fit):
    stuck = replace(fit, theta=np.broadcast_to(fit.theta[:, :1], fit.theta.shape).copy())
    assert (stuck.ess == 0.0).all() and stuck.cost()["ess_min"] == 0.0
    assert np.isnan(stuck.cost()["evals_per_ess"])
    half = stuck.theta.copy()
    half[:, :, 1] = fit.theta[:, :, 1]
    assert replace(fit, theta=half).ess[0] == 0.0 < replace(fit, theta=half).ess[1]


@pytest.mark.parametrize("chains, draws", [(1, 1), (1, 3), (3, 3)])
def test_few_draws_have_no_diagnostics_but_a_summary(fit, chains, draws):
    few = replace(fit, theta=fit.theta[:chains, :draws], stats={k: v[:chains, :draws] for k, v in fit.stats.items()})
    table = few.summary()
    assert np.isnan(table["r_hat"]).all() and np.isnan(table["ess_bulk"]).all() == (draws < 4)
    assert np.isfinite(table["mean"]).all() and "R-hat" not in repr(table)


def test_sigma_is_reported_beside_its_logarithm(scale_fit):
    assert scale_fit.names == ("x0", "x1", "log_sigma")
    np.testing.assert_array_equal(scale_fit.idata["posterior"]["sigma"], np.exp(scale_fit.theta[:, :, 2]))
    table = scale_fit.summary()
    assert list(table.index) == ["x0", "x1", "log_sigma", "sigma"]
    assert table.loc["sigma", "mean"] == pytest.approx(np.exp(scale_fit.theta[:, :, 2]).mean())
    assert abs(table.loc["sigma", "mean"] - 0.5) < 0.3


def test_idata_holds_everything(fit):
    tree = fit.idata
    assert list(tree["posterior"].data_vars) == ["one", "x"]
    np.testing.assert_array_equal(tree["posterior"]["x"], fit.theta[:, :, 1])
    np.testing.assert_array_equal(tree["parameters"]["theta"], fit.theta)
    assert list(tree["parameters"]["parameter"].values) == ["one", "x"]
    np.testing.assert_array_equal(tree["sample_stats"]["evals"], fit.evals)
    np.testing.assert_array_equal(tree["laplace"]["mean"], fit.laplace_mean)
    assert json.loads(tree.attrs["guarantee"])["kind"] == "EXACT"
    assert json.loads(tree.attrs["meta"])["fingerprint"] == fit.meta["fingerprint"]
    assert tree.attrs["format"] == "tallbayes-fit-3" and tree.attrs["weighted"] == 0


def test_expect_averages_a_function_of_theta(fit, weighted):
    flat, weight = fit.theta.reshape(-1, 2), weighted.weights.reshape(-1)
    assert fit.expect(lambda theta: theta[0] * theta[1]) == pytest.approx((flat[:, 0] * flat[:, 1]).mean())
    np.testing.assert_allclose(fit.expect(lambda theta: np.outer(theta, theta)), flat.T @ flat / len(flat))
    assert weighted.expect(lambda theta: theta[1]) == pytest.approx(np.average(flat[:, 1], weights=weight))
    assert weighted.expect(lambda theta: 1.0) == pytest.approx(1.0)


def test_weights_enter_the_summary_and_mark_the_fit(fit, weighted):
    flat, weight = fit.theta[:, :, 1].reshape(-1), weighted.weights.reshape(-1)
    row = weighted.summary(prob=0.5).loc["x"]
    mean = np.average(flat, weights=weight)
    assert row["mean"] == pytest.approx(mean) and row["mean"] > fit.summary().loc["x", "mean"]
    assert row["sd"] == pytest.approx(np.sqrt(np.average((flat - mean) ** 2, weights=weight)))
    for level in (0.25, 0.75):
        assert weight[flat <= row[f"{100 * level:g}%"]].sum() / weight.sum() == pytest.approx(level, abs=0.01)
    assert weighted.idata.attrs["weighted"] == 1
    with pytest.raises(tb.OptionError, match="weights"):
        weighted.plot("trace")
    weighted.plot("marginals")


@pytest.mark.parametrize("which", ["fit", "scale_fit", "weighted"])
def test_a_saved_fit_comes_back_bit_for_bit(which, request, tmp_path):
    fit = request.getfixturevalue(which)
    path = fit.save(tmp_path / "new" / "fit")
    assert path == tmp_path / "new" / "fit.nc" and os.listdir(path.parent) == ["fit.nc"]
    again = tb.load(path)
    for name in ("theta", "laplace_mean", "laplace_factor", "evals", "weights", "ess", "r_hat"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fit, name))
    assert again.stats.keys() == fit.stats.keys()
    for name, values in fit.stats.items():
        np.testing.assert_array_equal(again.stats[name], values)
    for name in ("names", "guarantee", "why", "status", "setup", "warmup", "seconds", "thin"):
        assert getattr(again, name) == getattr(fit, name)
    assert again.meta == json.loads(json.dumps(fit.meta))
    assert repr(again.summary()) == repr(fit.summary()) and again.cost() == fit.cost()
    np.testing.assert_array_equal(tb.load(again.save(path)).theta, fit.theta)


@pytest.mark.parametrize("size", [0, 7, 1000, -1])
def test_truncated_files_are_refused(fit, tmp_path, size):
    path = fit.save(tmp_path / "fit.nc")
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    with pytest.raises(tb.StoreError, match="truncated, damaged or not one"):
        tb.load(path)


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path / "fit.nc", tmp_path):
        with pytest.raises(tb.StoreError, match=f"{path} does not exist"):
            tb.load(path)


@pytest.mark.parametrize("kind", PLOTS)
def test_plots_show_something(fit, scale_fit, tmp_path, kind):
    from matplotlib.image import imread

    sizes = []
    for number, (each, most) in enumerate([(fit, 12), (scale_fit, 12), (scale_fit, 1)]):
        path = tmp_path / f"{number}.png"
        each.plot(kind, path, most=most)
        image = imread(path)
        assert image[:, :, :3].std() > 0.02
        sizes.append(image.shape)
    assert (sizes[1] != sizes[2]) == (kind != "cost")
    assert sum(axis.axison for axis in fit.plot(kind).axes) == (4 if kind == "trace" else 2)  # densities beside the traces


def test_an_unknown_plot_names_the_nearest(fit):
    with pytest.raises(tb.OptionError, match="unknown plot 'traces'; did you mean 'trace'"):
        fit.plot("traces")


def test_plots_without_matplotlib_name_the_remedy(fit, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(tb.TallbayesError, match=r"pip install 'tallbayes\[plot\]'"):
        fit.plot("cost")


def test_audit_recomputes_the_log_density(fit, model):
    assert fit.audit(model, pairs=5).passed
    false = replace(fit, stats={**fit.stats, "lp": fit.stats["lp"] + 1e-3})
    assert not false.audit(model, pairs=5).passed
    X, y = logistic_arrays(ROWS, seed=8)
    with pytest.raises(tb.StoreError, match="not the rows of the fit"):
        fit.audit(tb.models.logistic(tb.Dataset.from_arrays(X, y)))


def test_flipped_bits_in_a_saved_fit_are_refused(fit, tmp_path, capfd):
    """Wherever it is: none reaches the HDF5 library, which could hang, nor shows an exception that is ignored."""
    path, rng = fit.save(tmp_path / "fit.nc"), np.random.default_rng(4)
    content = path.read_bytes()
    places = [*rng.integers(len(content), size=60), content.find(fit.theta.tobytes()[:64]) + 5, len(content) - 1]
    for place in places:
        copy = bytearray(content)
        copy[place] ^= 1 << rng.integers(8)
        path.write_bytes(copy)
        with pytest.raises(tb.StoreError, match="damaged"):
            tb.load(path)
    path.write_bytes(content)
    np.testing.assert_array_equal(tb.load(path).theta, fit.theta)
    assert capfd.readouterr() == ("", "")


def test_a_damaged_fit_is_refused_before_it_is_parsed(fit, tmp_path, monkeypatch):
    import xarray

    path = fit.save(tmp_path / "fit.nc")
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(xarray, "open_datatree", lambda *arguments, **options: pytest.fail("parsed"))
    with pytest.raises(tb.StoreError, match="its content has changed since it was written"):
        tb.load(path)


def test_a_saved_fit_is_a_netcdf_file_for_others(fit, tmp_path):
    import h5py
    import xarray

    path = fit.save(tmp_path / "fit.nc")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["posterior/x"][:], fit.theta[:, :, 1])
    with xarray.open_datatree(path, engine="h5netcdf", phony_dims="access") as tree:
        np.testing.assert_array_equal(tree["posterior"]["x"].values, fit.theta[:, :, 1])

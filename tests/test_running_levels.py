"""Running statistics of levels, and what a run keeps of their draws."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results import running_levels
from tallbayes.results.cost import r_hats
from tallbayes.results.levels import BUDGET, level_plan, read_keep
from tallbayes.results.running_levels import FIRST, LevelStatistics, absorb, running, statistics
from tallbayes.testing import effective_sizes


def chain_draws(n, levels, rho, seed, chains=4):
    """Stationary autoregressions with different scales, skewed in the last level."""
    rng = np.random.default_rng(seed)
    z = np.empty((chains, n, levels))
    z[:, 0] = rng.standard_normal((chains, levels))
    for t in range(1, n):
        z[:, t] = rho * z[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((chains, levels))
    out = 5.0 + np.geomspace(0.01, 100.0, levels) * z
    out[..., -1] = np.exp(0.5 * z[..., -1])
    return out


def absorbed(draws, thinned=50, chunks=None):
    where = np.arange(1, draws.shape[2] + 1)
    wide = np.concatenate([np.zeros((*draws.shape[:2], 1)), draws], axis=2)
    out = []
    for own in wide:
        r = running(where.size, thinned)
        for part in np.split(own, [] if chunks is None else chunks):
            absorb(r, np.ascontiguousarray(part), where)
        out.append(r)
    return out


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_statistics_are_those_of_all_draws(rho):
    draws = chain_draws(3000, 6, rho, 1)
    found = statistics(absorbed(draws))
    flat = draws.reshape(-1, 6)
    np.testing.assert_allclose(found.mean, flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.sd, flat.std(0), rtol=1e-4)
    for probability in (0.025, 0.055, 0.3, 0.5, 0.945, 0.975):
        gap = np.abs(found.quantiles(probability) - np.quantile(flat, probability, axis=0)) / flat.std(0)
        assert gap.max() < 0.05
    assert np.abs(found.r_hat - 1.0).max() < 0.02
    ratio = found.ess[:-1] / effective_sizes(draws)[:-1]
    assert (ratio > 0.5).all() and (ratio < 2.0).all()


def test_chains_that_disagree_and_levels_that_never_move_are_seen():
    draws = chain_draws(1000, 3, 0.0, 2)
    draws[0, :, 0] += 2.0 * draws[..., 0].std()
    draws[:, :, 1] = 7.0
    found = statistics(absorbed(draws))
    assert abs(found.r_hat[0] - r_hats(draws)[0]) < 0.15 and found.r_hat[0] > 1.2
    assert found.ess[0] < 400 and found.ess[1] == 0.0 and found.sd[1] == 0.0
    assert abs(found.quantiles(0.5)[1] - 7.0) < 1e-6


def test_a_narrow_start_widens_the_grid():
    draws = chain_draws(4000, 2, 0.0, 3)
    draws[:, :FIRST] = draws.mean((0, 1)) + 1e-4 * (draws[:, :FIRST] - draws.mean((0, 1)))
    chains = absorbed(draws)
    assert all((r.bins.sum(1) == 4000).all() for r in chains)
    flat, found = draws.reshape(-1, 2), statistics(chains)
    assert (np.abs(found.quantiles(0.1) - np.quantile(flat, 0.1, axis=0)) < 0.05 * flat.std(0)).all()
    np.testing.assert_allclose(found.sd, flat.std(0), rtol=1e-3)


def test_chunks_do_not_matter_and_the_compiled_code_is_the_source():
    draws = chain_draws(333, 3, 0.5, 4, chains=1)
    whole, parts = absorbed(draws)[0], absorbed(draws, chunks=[1, 31, 32, 33, 40, 200])[0]
    plain = running(3, 50)
    running_levels.absorb.py_func(plain, draws[0], np.arange(3))
    for a, b, c in zip(whole, parts, plain, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-6)


@pytest.mark.parametrize("n", [10, 50, 51, 100, 101, 333, 1000])
def test_the_thinned_set_is_evenly_spaced(n):
    draws = np.arange(n, dtype=float)[None, :, None]
    counts, thinned = absorbed(draws)[0][:2]
    stride = int(counts[2])
    np.testing.assert_array_equal(thinned[: counts[1], 0], np.arange(0, n, stride))
    assert counts[1] <= 50 and (stride == 1 or counts[1] >= 25)


def test_quantiles_between_scores_are_interpolated():
    scores = running_levels.SCORES[:, None] * 2.0 + 1.0
    own = LevelStatistics(np.ones(1), 2.0 * np.ones(1), np.ones(1), np.ones(1), scores)
    np.testing.assert_allclose(own.quantiles(0.975), 1.0 + 2.0 * 1.959964, rtol=1e-6)
    np.testing.assert_allclose(own.quantiles(0.5), 1.0)


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


@pytest.mark.parametrize("keep", [-1, True, {"a": 1}, [1], np.zeros(2)])
def test_a_keep_that_cannot_be_meant_is_refused(model, keep):
    with pytest.raises(tb.OptionError, match="keep is 'all', 'summary'"):
        tb.sample(model, "minibatch-gibbs", keep=keep, progress=False)


def test_keep_that_does_not_suit_the_model_is_refused(model, monkeypatch):
    with pytest.raises(tb.OptionError, match=r"unknown term in keep= '1\|h'"):
        tb.sample(model, "minibatch-gibbs", keep=["1|h"], progress=False)
    plain = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0)))
    with pytest.raises(tb.OptionError, match="the model has no groups"):
        tb.sample(plain, "nuts", keep="all", progress=False)
    monkeypatch.setattr("tallbayes.results.levels.available_memory", lambda: 1000)
    with pytest.raises(tb.OptionError, match="keep='summary'"):
        tb.sample(model, "minibatch-gibbs", keep="all", progress=False)


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

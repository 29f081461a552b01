"""Informed subsampling: the law of subsets, statistics of windows, variances on a Gaussian mean, and what is counted."""

import json

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError
from tallbayes.samplers import Informed, Outcome, from_dict
from tallbayes.testing import THRESHOLD, counting_rows, run_chunks


def gaussian_mean(n=2000):
    """Normal quantiles as data, known sigma: the posterior of the mean is N(0, 1/n)."""
    y = np.random.default_rng(0).permutation(norm.ppf((np.arange(n) + 0.5) / n))
    y /= y.std()
    return tb.models.gaussian(tb.Dataset.from_arrays(np.ones((n, 1)), y), tb.priors.flat(), sigma=1.0)


def variance_score(sampler, expected, draws=8_000, chains=4):
    """z-score of the variance of the draws, with standard error from batch means of squares."""
    fit = tb.sample(gaussian_mean(), sampler, draws=draws, warmup=500, chains=chains, seed=2, progress=False)
    squares = (fit.theta[:, :, 0] ** 2).reshape(chains * 20, -1).mean(1)
    return (squares.mean() - expected) / (squares.std(ddof=1) / np.sqrt(squares.size)), fit


N, M = 2000, 100
HMC = tb.moves.hmc(time=1.5)
filter_wide = pytest.mark.filterwarnings(
    "ignore:the draws have up to", "ignore:the subset was refreshed", "ignore:the chains disagree"
)


@filter_wide
@pytest.mark.parametrize("inverse", [0.0, 5.0])
def test_the_variance_on_a_gaussian_mean_is_the_formula(inverse):
    """Section J: 1/N + [1/(1/m - 1/N) + 2 eps N]^-1, eps in posterior standard deviations."""
    expected = 1 / N + 1 / (1 / (1 / M - 1 / N) + 2 * inverse * N)
    sampler = Informed(M, inverse_temperature=inverse, swaps=1, repeats=6, move=HMC)
    score, fit = variance_score(sampler, expected)
    assert abs(score) < THRESHOLD
    assert fit.meta["notes"]["predicted_variance_ratio"] == pytest.approx(expected * N, rel=1e-9)
    unscaled = 1 / M + expected - 1 / N  # what a density without the power N/m gives: LWA
    assert abs(variance_score(sampler, unscaled)[0]) > THRESHOLD


@filter_wide
def test_without_the_power_the_spread_is_that_of_the_subset():
    mutant = Informed(M, inverse_temperature=5.0, repeats=6, move=HMC, scaled=False)
    score, _ = variance_score(mutant, 1 / M + 1 / (1 / (1 / M - 1 / N) + 2 * 5.0 * N))
    assert abs(score) < THRESHOLD
    right = 1 / N + 1 / (1 / (1 / M - 1 / N) + 2 * 5.0 * N)
    assert abs(variance_score(mutant, right)[0]) > THRESHOLD


def arma_model(n=600):
    y = lfilter([1.0, 0.7], [1.0, -0.5], np.random.default_rng(7).standard_normal(n)) + 0.2
    return tb.models.arma(y, sigma=1.0, lead=20)


@pytest.mark.parametrize("subset, rates", [("fixed", (0.0, 0.0)), ("free", (1.0, 1.0)), ("informed", (0.05, 0.99))])
def test_subsets_are_fixed_free_or_informed(subset, rates, small):
    _, info, _ = run_chunks(Informed(20, subset=subset), small.model, small.mode, [200])
    refreshed = info[:, -2]
    assert rates[0] <= refreshed.mean() <= rates[1]
    assert (np.diff(info[:, -1])[refreshed[1:] == 0] == 0.0).all()
    np.testing.assert_array_equal(info[:, 0], 20 * (1 + refreshed))


def test_windows_of_independent_rows_and_statistics_of_the_user(small):
    ones = Informed(20, statistics=lambda x, y: y, bandwidth=0.05)
    with counting_rows() as account:
        setup = ones.setup(small.model, small.mode, 0, False)
    y = small.model.data.y
    np.testing.assert_allclose(setup.proxy.values[:, 0], y - y.mean())
    assert account.rows == small.model.data.n  # the statistics are computed from every row
    assert setup.policy.fixed.penalty == pytest.approx(200.0)
    theta, info, _ = run_chunks(Informed(20, rows="window", inverse_temperature=0.1), small.model, small.mode, [100])
    assert np.isfinite(theta).all() and 0.0 < info[:, -2].mean() < 1.0


def test_unscaled_moves_start_from_the_spread_of_the_subset(small):
    full = Informed(20).setup(small.model, small.mode, 0, False).policy
    light = Informed(20, scaled=False).setup(small.model, small.mode, 0, False).policy
    np.testing.assert_allclose(full.covariance, small.mode.covariance)
    prior = small.mode.precision + small.mode.hessian
    np.testing.assert_allclose(np.linalg.inv(light.covariance), prior - small.mode.hessian / 3.0, rtol=1e-9)


def test_a_window_run_resumes_bit_for_bit_and_reports(tmp_path):
    model = arma_model()
    sampler = Informed(50, statistics="quantiles-autocorrelations", bandwidth=0.5)
    options = {"warmup": 50, "chains": 2, "seed": 3, "progress": False}
    with pytest.warns(tb.TallbayesWarning, match="times the variance of the Laplace fit"):
        whole = tb.sample(model, sampler, draws=80, **options)
        tb.sample(model, sampler, draws=30, checkpoint=tmp_path / "run", **options)
        again = tb.resume(tmp_path / "run", model, draws=80, progress=False)
    np.testing.assert_array_equal(whole.theta, again.theta)
    notes = whole.meta["notes"]
    assert notes["windows"] == 550 and 1.0 < notes["effective_windows"] < 550
    assert notes["refresh_rate"] == whole.stats["refreshed"].mean() and notes["variance_ratio"] > 2.0
    audit = whole.audit(model)
    assert not audit.passed and "wider than the posterior" in audit.problems[0]


def test_a_short_lead_is_warned_of():
    y = lfilter([1.0, 0.9], [1.0], np.random.default_rng(8).standard_normal(600))
    model = tb.models.arma(y, 0, 1, sigma=1.0, lead=10)
    sampler = Informed(50, statistics="extremes", bandwidth=1e3, scaled=False)
    mode = tb.find_mode(model, progress=False)
    setup = sampler.setup(model, mode, 0, False)
    assert setup.notes["startup"] == pytest.approx(abs(mode.reference[0]) ** 10)
    theta = np.tile(mode.reference, (1, 5, 1))
    stats = {"refreshed": np.ones((1, 5)), "distance": np.ones((1, 5))}
    warnings = sampler.diagnose(Outcome(setup, theta, stats)).warnings
    assert len(warnings) == 1 and "longer lead=" in warnings[0]
    assert tb.models.arma(y, 1, 0, sigma=1.0).startup(np.array([0.5, 0.0])) == 0.0


def test_the_default_for_windows_leaves_some_in_play():
    model = arma_model()
    setup = Informed(50).setup(model, tb.find_mode(model, progress=False), 0, False)
    assert setup.notes["effective_windows"] >= 0.0099 * setup.notes["windows"]
    assert 0.0 < setup.notes["inverse_temperature"] <= 5.0


def test_a_function_cannot_be_read_back():
    def labels(x, y):
        return y

    sampler = Informed(20, statistics=labels, bandwidth=0.1)
    again = from_dict(json.loads(json.dumps(sampler.as_dict())))
    assert again.as_dict() == sampler.as_dict()
    with pytest.raises(ModelError, match="were the function 'labels', which cannot be stored in a file"):
        again.statistics(np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"statistics": "scores"}, "unknown statistics 'scores'; did you mean 'score'"),
        ({"subset": "fre"}, "did you mean 'free'"),
        ({"rows": "windows"}, "did you mean 'window'"),
        ({"swaps": 0}, "swaps must be a whole number of at least 1"),
        ({"repeats": 1.5}, "repeats of Informed must be a whole number"),
        ({"inverse_temperature": -1.0}, "inverse_temperature must be at least 0"),
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"bandwidth": 1.0, "inverse_temperature": 1.0}, "not both"),
        ({"local": 2.0}, "local is a probability"),
        ({"statistics": len}, "need bandwidth="),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        Informed(**options)


@pytest.mark.parametrize(
    "sampler, message",
    [
        (Informed(31), "at most half of the 60 rows"),
        (Informed(statistics="extremes", bandwidth=1.0), "apply only to a series"),
        (Informed(statistics=lambda x, y: y[:3], bandwidth=1.0), "one line for each of the 60 rows"),
        (Informed(statistics=lambda x, y: y * np.nan, bandwidth=1.0), "not finite"),
    ],
)
def test_what_a_model_cannot_use_is_refused(sampler, message, small):
    with pytest.raises(OptionError, match=message):
        sampler.setup(small.model, small.mode, 0, False)


def test_a_series_has_no_swaps():
    model = arma_model()
    with pytest.raises(OptionError, match="rows='swap' needs independent rows"):
        Informed(rows="swap").setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(OptionError, match="windows longer than 15"):
        Informed(10, statistics="autocorrelations", bandwidth=1.0).setup(model, tb.find_mode(model, progress=False), 0, False)


@pytest.mark.parametrize("scaled", [True, False], ids=["informed", "lwa"])
def test_draws_wider_than_the_posterior_are_warned_of(small, scaled):
    """Also where they are by design: sub-posteriors of 20 of 60 rows that are not scaled have three times the variance."""
    sampler = Informed(20, scaled=scaled)
    setup = sampler.setup(small.model, small.mode, 0, False)
    stats = {"refreshed": np.ones((2, 2000)), "distance": np.zeros((2, 2000))}
    white = np.random.default_rng(0).standard_normal((2, 2000, 2))
    for wider, warned in ((1.2, False), (2.0, True)):
        theta = small.mode.reference + wider * white @ small.mode.factor.T
        warnings = sampler.diagnose(Outcome(setup, theta, stats)).warnings
        assert bool(warnings) == warned and all("times the variance of the Laplace fit" in s for s in warnings)

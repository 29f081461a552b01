"""Informed subsampling: the law of subsets, statistics of windows, variances on a Gaussian mean, and what is counted."""

import itertools
import json

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.contract import init
from tallbayes.errors import ModelError, OptionError
from tallbayes.samplers import Informed, Outcome, from_dict
from tallbayes.schemes import subset_statistics
from tallbayes.schemes.subsets import Subset, Swap, Window, Windows, choose, distance, propose_start, refresh
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD, counting_rows, run_chunks


def table_target(table):
    return Target(None, None, table, counters())


def score_of(counts, law):
    """Largest z-score of counts of independent outcomes against their probabilities."""
    total = counts.sum()
    return np.abs((counts - total * law) / np.sqrt(total * law * (1 - law))).max()


FEATURES = np.array([[-1.0], [0.3], [0.1], [1.4], [-0.6], [-0.2]])


def swapped(swaps, penalty, draws=6000, steps=6, wrong=False):
    """Subsets of 2 of 6 rows after some refreshes from exact draws, counted, and the law they should have."""
    rng, target, scheme = np.random.default_rng(1), table_target(subset_statistics.RowFeatures(FEATURES)), Swap(2, swaps)
    pairs = list(itertools.combinations(range(6), 2))
    squared = np.array([FEATURES[list(pair), 0].mean() ** 2 for pair in pairs])
    law = np.exp(-penalty * squared)
    law /= law.sum()
    counts = np.zeros(len(pairs))
    for at in rng.choice(len(pairs), draws, p=law):
        index = np.array(pairs[at])
        subset = Subset(index, FEATURES[index].sum(0))
        square = distance(scheme, target, subset)
        assert square == pytest.approx(squared[at], abs=1e-14)
        for _ in range(steps):
            subset, square, _ = refresh(rng, scheme, target, -penalty if wrong else penalty, subset, square)
        np.testing.assert_allclose(subset.sums, FEATURES[subset.rows].sum(0), atol=1e-12)
        assert square == pytest.approx(distance(scheme, target, subset), abs=1e-12)
        counts[pairs.index(tuple(sorted(subset.rows)))] += 1
    return counts, law


@pytest.mark.parametrize("swaps", [1, 2])
def test_swaps_leave_the_law_of_subsets_invariant(swaps):
    assert score_of(*swapped(swaps, 3.0)) < THRESHOLD
    assert score_of(*swapped(swaps, 3.0, wrong=True)) > THRESHOLD


SQUARED = np.array([0.1, 2.0, 0.5, 0.0, 1.2, 0.9, 0.3])


def test_windows_leave_their_law_invariant():
    rng, penalty = np.random.default_rng(2), 1.5
    target, scheme = table_target(subset_statistics.WindowDistances(SQUARED)), Windows(0, 7, 3, 0.7, 0.5)
    law = np.exp(-penalty * SQUARED)
    law /= law.sum()
    counts = np.zeros(7)
    for at in rng.choice(7, 20_000, p=law):
        subset, squared = Window(int(at)), SQUARED[at]
        for _ in range(4):
            subset, squared, _ = refresh(rng, scheme, target, penalty, subset, squared)
        assert squared == SQUARED[subset.start]
        counts[subset.start] += 1
    assert score_of(counts, law) < THRESHOLD


def test_the_proposal_of_windows_is_symmetric_and_has_its_law():
    rng, scheme, draws = np.random.default_rng(3), Windows(0, 7, 3, 0.7, 0.5), 20_000
    jumps = np.arange(-400, 401)
    laplace = np.exp(-0.5 * np.abs(jumps))
    ring = np.bincount(jumps % 7, laplace / laplace.sum())
    clipped = np.zeros(7)
    for start in range(7):
        counts = np.bincount([propose_start(rng, scheme, start) for _ in range(draws)], minlength=7)
        law = 0.7 * np.roll(ring, start) + 0.3 / 7
        assert score_of(counts, law) < THRESHOLD
        if start == 0:  # as printed in the paper, without wrapping, jumps below the first start pile up elsewhere
            np.add.at(clipped, np.clip(jumps, 0, 6), 0.7 * laplace / laplace.sum())
            assert score_of(counts, clipped + 0.3 / 7) > THRESHOLD
    np.testing.assert_allclose(ring[1:], ring[1:][::-1], rtol=1e-12)


@pytest.mark.parametrize("n, m", [(40, 3), (40, 30)])
def test_chosen_subsets_are_uniform_and_without_repeats(n, m):
    rng, target = np.random.default_rng(4), table_target(subset_statistics.RowFeatures(np.arange(float(n))[:, None]))
    counts = np.zeros(n)
    for _ in range(4000):
        subset = choose(rng, Swap(m, 1), target)
        assert np.unique(subset.rows).size == m and subset.sums[0] == subset.rows.sum()
        counts[subset.rows] += 1
    share = m / n
    assert np.abs((counts - 4000 * share) / np.sqrt(4000 * share * (1 - share))).max() < THRESHOLD


def test_statistics_that_slide_are_those_computed_afresh(monkeypatch):
    y = lfilter([1.0, 0.7], [1.0, -0.5], np.random.default_rng(5).standard_normal(400)) + 3.0
    monkeypatch.setattr(subset_statistics, "_RENEW", 64)
    for name, (levels, lags) in subset_statistics.SUMMARIES.items():

        def summary(w, levels=levels, lags=lags):
            return np.concatenate([np.quantile(w, levels) if levels else [], subset_statistics.autocorrelations(w, lags)])

        whole = summary(y)
        expected = [((summary(y[s : s + 50]) - whole) ** 2).sum() for s in range(1, 351)]
        np.testing.assert_allclose(subset_statistics.summary_windows(y, name, 1, 50).squared, expected, rtol=1e-9)
        user = subset_statistics.function_windows(y, lambda w, f=summary: np.array([f(v) for v in w]), 1, 50)
        np.testing.assert_allclose(user.squared, expected, rtol=1e-9)
    features = np.random.default_rng(6).standard_normal((300, 3))
    means = np.array([(features[s : s + 20].mean(0) ** 2).sum() for s in range(2, 281)])
    np.testing.assert_allclose(subset_statistics.feature_windows(features, 2, 20).squared, means, rtol=1e-9)


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


@pytest.mark.parametrize("series", [False, True])
def test_sub_posteriors_and_their_gradients(series, small):
    model = arma_model() if series else small.model
    mode = tb.find_mode(model, progress=False)
    setup = Informed(20, move=tb.moves.hmc()).setup(model, mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    state = init(np.random.default_rng(0), target, options, mode.reference)
    count, first = (599, 1) if series else (60, 0)
    if series:
        start = first + state.subset.start
        rows = np.arange(start, start + 20)
        read = 20 + min(20, start - first)
    else:
        rows, read = state.subset.rows, 20
    assert target.counters[:4].tolist() == [read, read, read, read]

    def density(theta):
        if series:
            value = targets.range_value(model.rows, int(rows[0]), int(rows[-1]) + 1, theta)
        else:
            value = sum(targets.range_value(model.rows, int(i), int(i) + 1, theta) for i in rows)
        return count / 20 * value + model.log_prior(theta)

    assert state.log_density == pytest.approx(density(mode.reference), rel=1e-12)
    for k in range(model.dim):
        h = 1e-5 * np.eye(model.dim)[k]
        slope = (density(mode.reference + h) - density(mode.reference - h)) / 2e-5
        assert slope == pytest.approx(state.gradient[k], rel=1e-5, abs=1e-4)


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

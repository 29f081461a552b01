"""Internals of semi-automatic statistics and of the tuning of the inverse temperature; users see them in test_semi_automatic.py."""

import itertools

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import spearmanr

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.samplers import Informed
from tallbayes.schemes import refresh_tuning, semi_automatic, subset_statistics
from tallbayes.schemes.subsets import Subset, Swap, distance, refresh
from tallbayes.testing import THRESHOLD

FEATURES = np.array([[-1.0], [0.3], [0.1], [1.4], [-0.6], [-0.2]])
PAIRS = list(itertools.combinations(range(6), 2))
SQUARED = np.array([FEATURES[list(pair), 0].mean() ** 2 for pair in PAIRS])
GOAL = 0.4


def a_subset(at):
    index = np.array(PAIRS[at])
    return Subset(index, FEATURES[index].sum(0))


def windows_of_warmup(rng, target, count):
    """Subsets of 2 of 6 rows under tuning: what is known after windows of 25 refreshes, and the rate in the later half."""
    tuning, scheme = refresh_tuning.begin(0.1), Swap(2, 1)
    subset = a_subset(0)
    squared, rates = distance(scheme, target, subset), []
    for _ in range(count):
        moved = 0
        for _ in range(25):
            subset, squared, changed = refresh(rng, scheme, target, refresh_tuning.penalty(tuning, False), subset, squared)
            moved += changed
        rates.append(moved / 25)
        tuning = refresh_tuning.update(tuning, moved / 25, GOAL)
    return tuning, np.mean(rates[count // 2 :])


def outcomes(rng, target, tuning, frozen, draws=6000, steps=8):
    """Where subsets are that began in their law under the average and were refreshed, frozen or still tuned after each step."""
    penalty, scheme = refresh_tuning.penalty(tuning, True), Swap(2, 1)
    law = np.exp(-penalty * SQUARED)
    law /= law.sum()
    counts = np.zeros(len(PAIRS))
    for at in rng.choice(len(PAIRS), draws, p=law):
        subset, squared, now = a_subset(at), SQUARED[at], penalty
        for _ in range(steps):
            subset, squared, changed = refresh(rng, scheme, target, now, subset, squared)
            if not frozen:
                now *= np.exp(2.0 * (changed - GOAL))
        counts[PAIRS.index(tuple(sorted(subset.rows)))] += 1
    return np.abs((counts - draws * law) / np.sqrt(draws * law * (1 - law))).max()


def test_tuning_reaches_its_rate_and_the_frozen_law_is_that_of_its_temperature():
    rng = np.random.default_rng(0)
    target = targets.Target(None, None, subset_statistics.RowFeatures(FEATURES), targets.counters())
    tuning, rate = windows_of_warmup(rng, target, 60)
    assert tuning.updates == 60 and abs(rate - GOAL) < 0.1
    assert outcomes(rng, target, tuning, frozen=True) < THRESHOLD
    assert outcomes(rng, target, tuning, frozen=False) > THRESHOLD  # a temperature that goes on adapting changes the law


@pytest.mark.parametrize("rate, sign", [(1.0, 1.0), (0.0, -1.0), (0.1, 0.0)])
def test_frequent_refreshes_lower_the_temperature(rate, sign):
    moved = refresh_tuning.update(refresh_tuning.begin(1.0), rate, 0.1).log_penalty
    assert np.sign(moved) == sign and abs(moved) <= 2.0


def test_the_averaged_temperature_is_used_after_warm_up():
    tuning = refresh_tuning.begin(1.0)
    for rate in (1.0, 0.0, 1.0):
        tuning = refresh_tuning.update(tuning, rate, 0.5)
    assert refresh_tuning.penalty(tuning, False) == np.exp(tuning.log_penalty)
    assert refresh_tuning.penalty(tuning, True) == np.exp(tuning.log_average) != np.exp(tuning.log_penalty)


def test_a_regression_finds_its_coefficients_and_what_is_left():
    rng = np.random.default_rng(1)
    differences = rng.standard_normal((2000, 3)) * [1.0, 1e-6, 1e3]
    differences = np.column_stack([differences, np.full(2000, 7.0)])  # one that does not vary
    weights = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 2e6, 1e-3, 0.0]])
    noise = 0.5 * rng.standard_normal((2000, 2))
    fitted = semi_automatic._regress(differences, differences @ weights.T + noise, 2)
    np.testing.assert_allclose(fitted.weights / [1.0, 1e6, 1e-3, 1.0], weights / [1.0, 1e6, 1e-3, 1.0], atol=0.1)
    assert fitted.left == pytest.approx(0.25, rel=0.1)
    assert fitted.explained == pytest.approx(6.0 / 6.5, rel=0.02)
    nothing = semi_automatic._regress(rng.standard_normal((400, 40)), rng.standard_normal((400, 2)), 2)
    assert nothing.explained < 0.05  # what chance explains is not counted


def arma_model(n=600):
    y = lfilter([1.0, 0.7], [1.0, -0.5], np.random.default_rng(7).standard_normal(n)) + 0.2
    return tb.models.arma(y, sigma=1.0, lead=20)


def test_combined_statistics_of_windows_are_those_of_their_summaries():
    y = np.asarray(arma_model().data.y)
    combine = np.random.default_rng(2).standard_normal((3, 8))
    function = semi_automatic.series_summaries(arma_model(), "quantiles-autocorrelations")
    windows = np.lib.stride_tricks.sliding_window_view(y[1:], 50)
    expected = (((function(windows) - function(y[None, :])) @ combine.T) ** 2).sum(1)
    built_in = subset_statistics.summary_windows(y, "quantiles-autocorrelations", 1, 50, combine)
    by_hand = subset_statistics.function_windows(y, function, 1, 50, combine)
    np.testing.assert_allclose(built_in.squared, expected, rtol=1e-8)
    np.testing.assert_allclose(by_hand.squared, expected, rtol=1e-8)


@pytest.mark.parametrize("function", [False, True], ids=["name", "function"])
def test_windows_of_a_series_are_weighted_by_what_predicts_their_modes(function):
    """The semi-automatic distance of a window follows how far the mode of its sub-posterior is; an arbitrary one does not."""
    model = arma_model()
    mode = tb.find_mode(model, progress=False)
    candidates = semi_automatic.series_summaries(model, None) if function else None
    setup = Informed(100, statistics="semi-automatic", candidates=candidates).setup(model, mode, 0, False)
    assert 0.5 < setup.notes["explained"] < 1.0 and setup.notes["candidates"] == 8
    extremes = subset_statistics.summary_windows(model.data.y, "extremes", 1, 100).squared
    gradients = subset_statistics.feature_windows(subset_statistics.score_features(mode, 1), 1, 100).squared
    right = spearmanr(setup.proxy.squared, gradients).statistic
    wrong = spearmanr(extremes, gradients).statistic
    assert right > 0.4 and right > wrong + 0.2

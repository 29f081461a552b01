"""Internals of `tallbayes.schemes.subsets`; what users see of it is tested in test_informed.py."""

import itertools

import numpy as np
import pytest
from scipy.signal import lfilter

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.contract import init
from tallbayes.samplers import Informed
from tallbayes.schemes import subset_statistics
from tallbayes.schemes.subsets import Subset, Swap, Window, Windows, choose, distance, propose_start, refresh
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD


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

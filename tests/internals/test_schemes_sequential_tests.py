"""Tests of a mean against a threshold: wrong at most with probability delta, at the time they choose to stop."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from tallbayes.compile import jit
from tallbayes.schemes import sequential_tests as c
from tallbayes.testing import THRESHOLD

N = 2000
DELTA = 0.1
every_test = pytest.mark.parametrize("name", c.NAMES)


def nasty(name, rng):
    """Values in [-1, 1] whose mean a careless test gets wrong."""
    return {
        "rare": lambda: np.where(rng.random(N) < 0.01, 1.0, -0.02),
        "signs": lambda: np.where(rng.random(N) < 0.5, 1.0, -1.0),
        "heavy": lambda: np.clip(0.02 * rng.standard_t(3, N), -1.0, 1.0),
        "skewed": lambda: np.clip(rng.lognormal(-4.0, 1.5, N), 0.0, 1.0),
        "rare below": lambda: -np.where(rng.random(N) < 0.005, 1.0, -0.01),
    }[name]()


@jit
def wrong(rng, test, values, threshold, replace, repeats):
    """Number of wrong decisions, and draws in all."""
    truth = c.ACCEPT if values.mean() > threshold else c.REJECT
    errors, draws = 0, 0
    evidence, order, batch = np.empty(c.EVIDENCE), np.arange(values.size), np.empty(values.size)
    for _ in range(repeats):
        verdict = c.open_test(test, evidence, threshold, -1.0, 1.0, values.size, replace)
        while verdict == c.UNDECIDED:
            first, count = int(evidence[c.DRAWN]), c.next_draws(test, evidence)
            for k in range(count):
                other = rng.integers(0 if replace else first + k, values.size)
                if replace:
                    batch[k] = values[other]
                else:
                    order[first + k], order[other] = order[other], order[first + k]
                    batch[k] = values[order[first + k]]
            verdict = c.feed(test, evidence, batch[:count])
        draws += int(evidence[c.DRAWN])
        if verdict != c.EXHAUSTED and verdict != truth:
            errors += 1
    return errors, draws


def most_errors(repeats, delta=DELTA):
    """More than this many are a false alarm in one of a million."""
    return delta * repeats + THRESHOLD * math.sqrt(delta * (1.0 - delta) * repeats)


@every_test
@pytest.mark.parametrize("replace", [False, True])
def test_decisions_on_nasty_populations_are_wrong_at_most_with_probability_delta(name, replace):
    rng, repeats, draws = np.random.default_rng(11), 1500, []
    test = c.make_test(name, DELTA, 1.5, 8)
    for population in ("rare", "signs", "heavy", "skewed", "rare below"):
        values = nasty(population, rng)
        for gap in (1e-8, 0.1):
            for side in (-1.0, 1.0):
                errors, drawn = wrong(rng, test, values, values.mean() + side * gap * values.std(), replace, repeats)
                assert errors <= most_errors(repeats), (population, gap, side)
                draws.append(drawn / repeats / N)
    if name == "betting":
        assert min(draws) < 0.6  # it does stop before it has seen everything


class Peeking(NamedTuple):
    """The mutant: a batch is bet upon with a mean that knows it."""

    delta: float
    growth: float
    first: int
    cap: float


@c.feed.register(Peeking)
def _feed_peeking(test, evidence, values):
    count, scatter = values.size, 0.0
    shares = (values - evidence[c.LOW]) / evidence[c.LENGTH]
    evidence[c.MEAN] = (0.5 + evidence[c.TOTAL] + shares.sum()) / (1.0 + evidence[c.DRAWN] + count)
    for k in range(count):
        scatter += (shares[k] - evidence[c.MEAN]) ** 2
    evidence[c.SCATTER] += scatter
    evidence[c.DRAWN] += count
    verdict = c.feed(c.Betting(test.delta, test.growth, test.first, test.cap), evidence, values)
    evidence[c.SCATTER] -= scatter
    evidence[c.DRAWN] -= count
    return c.UNDECIDED if verdict == c.EXHAUSTED and evidence[c.DRAWN] < evidence[c.ROWS] else verdict


def test_a_bet_that_knows_its_batch_is_caught():
    rng, repeats = np.random.default_rng(12), 3000
    values = nasty("signs", rng)
    threshold = values.mean() + 1e-8
    assert wrong(rng, c.Betting(DELTA, 1.5, 8, 0.75), values, threshold, True, repeats)[0] <= most_errors(repeats)
    assert wrong(rng, Peeking(DELTA, 1.5, 8, 0.75), values, threshold, True, repeats)[0] > 1.5 * most_errors(repeats)


def half_widths(values, t, n, delta):
    deviation, look = values[:t].std(), math.ceil(math.log2(t)) + 1
    centre, half = np.empty(t), np.empty(t)
    c.mixture_sequence(values[:t], delta, n, centre, half)
    low, high = c.betting_interval(values[:t], delta, n)
    return (
        c.hoeffding_serfling(1.0, t, n, delta),
        c.empirical_bernstein(deviation, 1.0, t, delta),
        c.empirical_bernstein_serfling(deviation, 1.0, t, n, delta),
        c.empirical_bernstein(deviation, 1.0, t, c.look_level(delta, look, 2.0)),
        half[-1],
        0.5 * (high - low),
    )


@pytest.mark.parametrize(
    "t, expected",
    [
        (100, (0.136, 0.139, 0.223, 0.293, 0.0756, 0.0385)),
        (1000, (0.0428, 0.0182, 0.0268, 0.0379, 0.0091, 0.0070)),
        (10_000, (0.0132, 0.0032, 0.0040, 0.0061, 0.0024, 0.0023)),
        (100_000, (0.0030, 0.00073, 0.00066, 0.0013, 0.00070, 0.00072)),
    ],
)
def test_half_widths_of_the_table(t, expected):
    """Beta(10, 30), n = 200,000, delta = 0.05: Hoeffding-Serfling, empirical Bernstein, with Serfling, with looks, predictable
    mixture, betting. The law is the same, the draws are not: 15 % apart at most."""
    values = np.random.default_rng(3).beta(10.0, 30.0, 200_000)
    found = half_widths(values, t, values.size, 0.05)
    np.testing.assert_allclose(found, expected, rtol=0.15)


@pytest.mark.parametrize("replace", [False, True])
def test_confidence_sequences_cover_at_all_times(replace):
    rng, missed, repeats, delta = np.random.default_rng(5), 0, 400, 0.2
    values = 0.5 * (1.0 + nasty("rare", rng))
    bets = 0
    for _ in range(repeats):
        sample = values[rng.integers(0, N, 500)] if replace else rng.permutation(values)[:500]
        centre, half = np.empty(500), np.empty(500)
        c.mixture_sequence(sample, delta, 0 if replace else N, centre, half)
        missed += bool((np.abs(centre - values.mean()) > half + 1e-12).any())
        bets += bool(c.log_capital(sample, values.mean(), delta, 0 if replace else N) > math.log(1.0 / delta) + 1e-9)
    assert max(missed, bets) <= most_errors(repeats, delta)


@every_test
@pytest.mark.parametrize("threshold, verdict", [(1.0, c.REJECT), (1.5, c.REJECT), (-1.5, c.ACCEPT), (-1.0, c.ACCEPT)])
def test_the_range_alone_decides_at_no_cost(name, threshold, verdict):
    values = np.zeros(50)
    test = c.make_test(name, DELTA, 1.5, 8)
    assert c.decide_values(np.random.default_rng(0), test, values, threshold, -1.0, 1.0, False) == (verdict, 0)
    at_no_range = c.decide_values(np.random.default_rng(0), test, values, 0.01 * threshold, 0.0, 0.0, False)
    assert at_no_range == (verdict, 0)  # an exact proxy: nothing is left to draw


@every_test
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_all_rows_give_the_exact_answer_and_the_test_ends(name, side):
    """The published pseudo-code never ends at t = n, where its stop rule cannot be true."""
    rng = np.random.default_rng(8)
    values = rng.choice([-1.0, 1.0], 101)
    test = c.make_test(name, 1e-6, 2.0, 2)
    threshold = values.mean() + side * 1e-9
    verdict, drawn = c.decide_values(rng, test, values, threshold, -1.0, 1.0, False)
    assert drawn == 101 and verdict == (c.ACCEPT if side < 0 else c.REJECT)
    verdict, drawn = c.decide_values(rng, test, values, threshold, -1.0, 1.0, True)
    assert drawn == 101 and verdict == (c.ACCEPT if side < 0 else c.REJECT)  # the fallback on all rows


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_looks_are_numbered_from_one(power):
    """The published pseudo-code asks for the level of look 0, a division by zero."""
    test = c.Looks(c.HOEFFDING, 0.1, 2.0, 40, power)
    width = c.hoeffding(1.0, 40, 0.05)  # the first look has half of the level for both rules
    for threshold, verdict in ((0.5 - 1.001 * width, c.ACCEPT), (0.5 - 0.999 * width, c.UNDECIDED)):
        evidence = np.empty(c.EVIDENCE)
        assert c.open_test(test, evidence, threshold, 0.0, 1.0, 100, True) == c.UNDECIDED
        assert c.feed(test, evidence, np.full(40, 0.5)) == verdict
        assert evidence[c.LOOK] == 1.0
    assert sum(c.look_level(0.1, j, power) for j in range(1, 100_000)) <= 0.1 + 1e-12


@every_test
def test_batches_in_any_pieces_hold_the_same_sums(name):
    """What has been seen is kept whole, however it was fed."""
    values = np.random.default_rng(4).uniform(0.2, 0.8, 64)
    test = c.make_test(name, 1e-9, 2.0, 8)
    sums = []
    for sizes in ((64,), (8, 8, 16, 32), (1,) * 64):
        evidence, first = np.empty(c.EVIDENCE), 0
        c.open_test(test, evidence, 0.5, 0.0, 1.0, 1000, False)
        for size in sizes:
            c.feed(test, evidence, values[first : first + size])
            first += size
        sums.append(evidence[[c.TOTAL, c.DRAWN, c.MEAN]])
    np.testing.assert_allclose(sums[1], sums[0], rtol=1e-12)
    np.testing.assert_allclose(sums[2], sums[0], rtol=1e-12)
    assert sums[0][0] == pytest.approx(values.sum())


def test_batch_sizes_grow_and_end_at_n():
    test, evidence, sizes = c.make_test("betting", 0.1, 1.5, 8), np.empty(c.EVIDENCE), []
    c.open_test(test, evidence, 0.5, 0.0, 1.0, 50, False)
    while evidence[c.DRAWN] < 50:
        sizes.append(c.next_draws(test, evidence))
        evidence[c.DRAWN] += sizes[-1]
    assert sizes == [8, 4, 6, 9, 14, 9]


@pytest.mark.slow
@every_test
def test_ten_thousand_decisions(name):
    rng = np.random.default_rng(21)
    for replace in (False, True):
        for population in ("rare", "signs", "rare below"):
            values = nasty(population, rng)
            for side in (-1.0, 1.0):
                test = c.make_test(name, DELTA, 1.5, 8)
                errors, _ = wrong(rng, test, values, values.mean() + side * 1e-8, replace, 10_000)
                assert errors <= most_errors(10_000)

"""Alias tables: the law that a table implies, read off the table itself, and the law of its draws."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.engine.random_rows import (
    CHUNK,
    UniformRows,
    WeightedRows,
    build,
    draw_distinct_rows,
    draw_item,
    draw_rows,
    probabilities,
    row_scale,
)
from tallbayes.testing import (
    THRESHOLD,
    ScriptedRandom,
)

RNG = np.random.default_rng(20)
SIZES = np.array([0, 1, 4, 4 + CHUNK, 4 + CHUNK + 900, 5000 + CHUNK + 900])


def with_zeros(weight, share=0.3):
    return np.where(RNG.random(weight.size) < share, 0.0, weight)


WEIGHTS = {
    "uniform": (np.ones(1000), None),
    "random": (RNG.random(1000), None),
    "zeros": (with_zeros(RNG.exponential(size=1000), 0.7), None),
    "one positive": (np.eye(1, 500, 77)[0], None),
    "heavy tails": (10.0 ** RNG.uniform(-300, 300, 1000), None),
    "heavy tails and zeros": (with_zeros(10.0 ** RNG.uniform(-300, 300, 1000)), None),
    "cubes of t": (np.abs(RNG.standard_t(2, 3000)) ** 3, None),
    "tiny": (1e-300 * RNG.random(50), None),
    "huge": (1e300 * RNG.random(50), None),
    "one item": (np.array([3.0]), None),
    "two chunks": (RNG.exponential(size=CHUNK + 7), None),
    "whole chunks": (with_zeros(RNG.exponential(size=2 * CHUNK)), None),
    "uneven chunks": (with_zeros(RNG.exponential(size=SIZES[-1])), SIZES),
    "uneven chunks, heavy tails": (with_zeros(10.0 ** RNG.uniform(-300, 300, SIZES[-1])), SIZES),
    "heavy against light": (np.concatenate([np.full(CHUNK - 1, 1e-3), [1e6]]), None),
    "empty chunks": (np.repeat([0.0, 2.0, 0.0, 1.0, 0.0], 3), np.arange(0, 16, 3)),
}
every_weight = pytest.mark.parametrize("weight, start", WEIGHTS.values(), ids=WEIGHTS.keys())


def implied(table):
    """Probability of every item, from the cells: a cell keeps its item with its threshold, else gives its alias."""
    sizes = np.diff(table.start)
    cell = np.repeat(np.diff(table.cumulative) / table.cumulative[-1] / sizes, sizes)
    law = cell * table.threshold
    np.add.at(law, np.repeat(table.start[:-1], sizes) + table.alias, cell * (1.0 - table.threshold))
    return law


@every_weight
def test_the_table_implies_the_weights(weight, start):
    table = build(weight, start)
    law, wanted = implied(table), weight / weight.sum()
    np.testing.assert_allclose(law, wanted, rtol=0, atol=1e-12)
    seen = wanted > 1e-6
    np.testing.assert_allclose(law[seen], wanted[seen], rtol=1e-9)
    np.testing.assert_allclose(table.cumulative[-1], weight.sum(), rtol=1e-12)
    assert table.weight is weight
    assert (table.threshold >= 0.0).all() and (table.threshold <= 1.0).all()
    assert (table.alias < np.repeat(np.diff(table.start), np.diff(table.start))).all()


@every_weight
def test_no_cell_leads_to_an_item_of_zero_weight(weight, start):
    table = build(weight, start)
    sizes = np.diff(table.start)
    reachable = np.repeat(np.diff(table.cumulative) > 0.0, sizes)
    aliased = np.repeat(table.start[:-1], sizes) + table.alias
    assert (weight[reachable & (table.threshold > 0.0)] > 0.0).all()
    assert (weight[aliased[reachable & (table.threshold < 1.0)]] > 0.0).all()
    assert (weight[~reachable] == 0.0).all()


def test_cells_left_over_by_rounding_are_whole_unless_their_weight_is_zero():
    """Thirds do not sum to one in binary, so that some cells find no partner."""
    for size in (3, 7, 49, 98, 1000):
        for zeros in (0, 1, size // 2):
            weight = np.full(size, 1.0 / 3.0) * RNG.permutation(np.r_[np.zeros(zeros), 1.0 + np.arange(size - zeros) / size])
            table = build(weight)
            np.testing.assert_allclose(implied(table), weight / weight.sum(), rtol=0, atol=1e-14)
            assert (table.threshold[weight == 0.0] == 0.0).all()


class Given:
    """A generator that returns given uniforms."""

    def __init__(self, *values):
        self.values = iter(values)

    def random(self):
        return next(self.values)


LAST = 1.0 - 2.0**-53


@pytest.mark.parametrize("first, last", [(0, 5), (0, 4), (1, 5), (1, 3), (2, 5), (3, 5)])
def test_empty_chunks_are_never_chosen_at_the_ends_of_the_unit_interval(first, last):
    """Nor where rounding carries the goal to the end of the last chunk that is not empty."""
    weight, start = WEIGHTS["empty chunks"]
    for scale in (1.0, 1e-300, 1e300, 1 / 3):
        table = build(scale * weight, start)
        for u in (0.0, 2.0**-53, 0.25, 0.5, 2 / 3 - 2.0**-53, 2 / 3, LAST):
            item = draw_item(Given(u, 0.5, 0.5), table, first, last)
            assert weight[item] > 0.0 and start[first] <= item < start[last]


def test_a_small_class_after_a_large_one_is_drawn_from_its_own_items():
    """The sums before it are so large that the goal has one bit left."""
    weight, start = np.array([1.0, 1.5e-16, 0.0, 0.0]), np.array([0, 1, 2, 4])
    table = build(weight, start)
    for u in (0.0, 0.3, 0.6, LAST):
        assert draw_item(Given(u, 0.9, 0.5), table, 1, 3) == 1


def test_uniforms_at_the_ends_stay_in_the_table():
    table = build(np.array([1.0, 2.0, 5.0]))
    for u in (0.0, LAST):
        for v in (0.0, LAST):
            for w in (0.0, LAST):
                assert 0 <= draw_item(Given(u, v, w), table, 0, 1) < 3


def test_all_weights_zero():
    table = build(np.zeros(10))
    assert (table.cumulative == 0.0).all()
    assert (table.threshold == 1.0).all() and (table.alias == np.arange(10)).all()


def p_value(counts, law):
    """Chi-square probability of counts, cells of fewer than 10 expected pooled."""
    expected = counts.sum() * law
    assert not counts[law == 0.0].any()
    few = expected < 10.0
    observed, wanted = np.append(counts[~few], counts[few].sum()), np.append(expected[~few], expected[few].sum())
    if wanted[-1] < 1.0:
        assert observed[-1] < 30
        observed, wanted = observed[:-1], wanted[:-1]
    return chi2.sf(((observed - wanted) ** 2 / wanted).sum(), wanted.size - 1)


def counted(table, first, last, draws=30_000, seed=5):
    rng = np.random.default_rng(seed)
    items = [draw_item(rng, table, first, last) for _ in range(draws)]
    return np.bincount(items, minlength=table.weight.size)


@pytest.mark.parametrize("name", ["random", "zeros", "cubes of t", "heavy tails", "empty chunks"])
def test_draws_follow_the_weights(name):
    weight, start = WEIGHTS[name]
    table = build(weight, start)
    assert p_value(counted(table, 0, table.start.size - 1), weight / weight.sum()) > 1e-6


def test_draws_of_a_range_of_chunks_follow_their_weights_alone():
    start = np.array([0, 10, 40, 41, 100])
    weight = with_zeros(RNG.exponential(size=100))
    table = build(weight, start)
    for first, last in ((0, 4), (1, 3), (2, 4), (3, 4)):
        inside = np.where((np.arange(100) >= start[first]) & (np.arange(100) < start[last]), weight, 0.0)
        assert p_value(counted(table, first, last), inside / inside.sum()) > 1e-6


def test_draws_of_other_weights_are_told_apart():
    weight = RNG.random(100)
    table = build(weight)
    assert p_value(counted(table, 0, 1), weight**1.2 / (weight**1.2).sum()) < 1e-6


@pytest.mark.parametrize("name", ["uneven chunks", "empty chunks", "one item"])
def test_a_table_in_a_file_is_the_table_in_memory_and_leaves_no_file(name, tmp_path):
    weight, start = WEIGHTS[name]
    there, here = build(weight, start, folder=tmp_path), build(weight, start)
    assert not list(tmp_path.iterdir())
    for ours, theirs in zip(here, there, strict=True):
        assert type(theirs) is np.ndarray and theirs.dtype == ours.dtype
        np.testing.assert_array_equal(theirs, ours)


def test_the_number_of_cores_changes_nothing():
    weight, start = WEIGHTS["uneven chunks"]
    for one, four in zip(build(weight, start, cores=1), build(weight, start, cores=4), strict=True):
        np.testing.assert_array_equal(one, four)


N = 40


def weighted(n=N):
    scores = np.linspace(0.0, 3.0, n) ** 2
    return WeightedRows(n, pilots.build(scores), 0.1)


@pytest.mark.parametrize("scheme", [UniformRows(N), weighted()], ids=["uniform", "weighted"])
def test_rows_are_drawn_with_their_probabilities(scheme):
    rng, draws = np.random.default_rng(0), 40_000
    index, scale = np.empty(draws, np.int64), np.empty(draws)
    draw_rows(rng, scheme, 1, index, scale)
    p = probabilities(scheme, np.arange(N))
    assert abs(p.sum() - 1.0) < 1e-12
    np.testing.assert_allclose(scale, 1.0 / p[index])
    np.testing.assert_allclose([row_scale(scheme, i) for i in range(N)], 1.0 / p)
    counts = np.bincount(index, minlength=N)
    assert np.abs((counts - draws * p) / np.sqrt(draws * p * (1 - p))).max() < THRESHOLD


def test_a_partial_shuffle_is_uniform_whatever_order_was_left():
    for start in itertools.permutations(range(4)):
        seen = []
        for first, second in itertools.product(range(4), range(3)):
            order = np.array(start, np.int32)
            draw_distinct_rows(ScriptedRandom((first + 0.5) / 4, (second + 0.5) / 3), order, 0, 2)
            assert sorted(order) == [0, 1, 2, 3]
            seen.append(tuple(order[:2]))
        assert sorted(seen) == sorted(itertools.permutations(range(4), 2))


def test_a_second_draw_leaves_the_first_alone():
    rng = np.random.default_rng(0)
    order = np.arange(50, dtype=np.int32)
    draw_distinct_rows(rng, order, 0, 10)
    before = order[:10].copy()
    draw_distinct_rows(rng, order, 10, 30)
    np.testing.assert_array_equal(order[:10], before)
    np.testing.assert_array_equal(np.sort(order), np.arange(50))

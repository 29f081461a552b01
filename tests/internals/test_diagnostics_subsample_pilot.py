"""Internals of `tallbayes.diagnostics.subsample_pilot`."""

import math

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.diagnostics.subsample_pilot import Sample
from tallbayes.engine.random_rows import UniformRows
from tallbayes.errors import OptionError
from tallbayes.testing import THRESHOLD


def away(mode, size=0.6, seed=1):
    return mode.reference + size * mode.factor @ np.random.default_rng(seed).standard_normal(mode.reference.size)


def test_formulas_of_sign_and_variance_hold_for_normal_minibatches():
    rng, products, batch, gamma, draws = np.random.default_rng(0), 6, 4, 60.0, 200_000
    s = math.sqrt(gamma / batch) / products
    counts = rng.poisson(products, draws)
    terms = 1.0 + s * rng.standard_normal(counts.sum())
    where = np.repeat(np.arange(draws), counts)
    logs = np.bincount(where, np.log(np.abs(terms)), draws)
    odd = np.bincount(where, terms < 0, draws) % 2
    assert abs((odd == 0).mean() - pilots.sign_probability(products, batch, gamma)) < THRESHOLD * math.sqrt(0.25 / draws)
    predicted = pilots.log_variance(products, batch, gamma)
    spread = ((logs - logs.mean()) ** 2).std() / math.sqrt(draws)
    assert abs(logs.var() - predicted) < THRESHOLD * spread
    assert abs(pilots.log_variance(500, 30, 1e-4) - 1e-4 / (30 * 500)) < 1e-9  # gamma / (m lambda) for small s


def test_the_variance_is_that_of_draws_also_for_skewed_residuals():
    rng, m, draws = np.random.default_rng(0), 40, 60_000
    z = (rng.exponential(size=1000) - 1.0) * 6.0
    sample = Sample(z, np.full(1000, 1e-3))
    u = z[rng.integers(0, 1000, (draws, m))]
    logs = u.mean(1) - 0.5 * u.var(1) / m
    spread = ((logs - logs.mean()) ** 2).std() / math.sqrt(draws)
    assert abs(logs.var() - sample.variance(m)) < THRESHOLD * spread + 0.02 * logs.var()
    second = sample.cumulants()[0]
    assert abs(second / m + second**2 / (2 * m**3) - logs.var()) > 10 * spread  # two terms do not do


def test_the_inefficiency_of_noise_has_the_known_optima():
    grid = np.linspace(0.5, 1.5, 101)
    cost = [pilots.inefficiency(sd, 0.0) / sd**2 for sd in grid]
    assert abs(grid[np.argmin(cost)] ** 2 - 0.846) < 0.03
    grid = np.linspace(10.0, 20.0, 101)
    cost = [pilots.inefficiency(sd, 0.99) / sd**2 for sd in grid]
    assert abs(grid[np.argmin(cost)] * math.sqrt(1 - 0.99**2) - 2.16) < 0.05


def test_products_are_chosen_at_the_least_cost():
    for gamma, expected in ((1e3, 18), (1e4, 65), (1e5, 221)):
        assert abs(math.log(pilots.choose_products(gamma, 30, 0) / expected)) < 0.16  # a step of the grid


def test_a_population_sample_sees_the_tails():
    X, y = logistic_arrays(60_000)
    mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0)), progress=False)
    scores = pilots.row_scores(mode, 2)
    rng = np.random.default_rng(0)
    part = pilots.population(scores, rng)
    whole = pilots.Population(np.arange(60_000), np.ones(60_000), part.steepest)
    assert part.index.size == pilots.TOP + pilots.REST and abs(part.weight.sum() - 60_000) < 1e-6
    assert set(part.steepest.tolist()) == set(np.argsort(scores)[::-1][: pilots.POINTS].tolist())
    theta = away(mode, 2.0)
    few, all_rows = (pilots.SubsamplePilot(mode, 2, UniformRows(60_000), p).at(theta) for p in (part, whole))
    assert abs(few.cumulants()[0] / all_rows.cumulants()[0] - 1.0) < 0.05
    assert abs(few.variance(100) / all_rows.variance(100) - 1.0) < 0.1


def test_weighted_rows_lower_the_variance_where_norms_differ():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(5000), rng.standard_t(3, (5000, 2))])
    y = (rng.random(5000) < 1 / (1 + np.exp(-X @ [0.0, 0.5, 0.5]))).astype(float)
    mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0)), progress=False)
    gammas = {}
    for rows in ("uniform", "weighted"):
        _, _, samples, _ = pilots.prepare(mode, 2, rows, np.random.default_rng(0))
        gammas[rows] = np.mean([s.cumulants()[0] for s in samples])
    assert gammas["weighted"] < 0.5 * gammas["uniform"]


def test_too_few_rows_are_refused_and_bias_at_a_distance_asks_for_more():
    rng = np.random.default_rng(0)
    quiet, loud = (
        Sample(rng.standard_normal(500) * 0.1, np.full(500, 0.002)),
        Sample(rng.standard_normal(500) * 200.0, np.full(500, 0.002)),
    )
    with pytest.raises(OptionError, match="improper"):
        pilots.choose_size([quiet], [quiet], 10, 500, 1.0, 21, 100)
    m, blocks, notes = pilots.choose_size([quiet], [quiet], 10, 500, 1.0, None, 100)
    assert (m, blocks) == (100, 100) and notes["bias_guard"] < 1.0
    more, _, notes = pilots.choose_size([quiet], [loud], 10, 500, 1.0, None, 100)
    assert more >= 200 and (notes["bias_guard"] <= 1.0 or more >= 1000)


def test_an_estimate_of_many_times_the_rows_is_refused():
    from tallbayes.diagnostics.subsample_pilot import require_hope

    require_hope(150_000, 1000)
    with pytest.raises(tb.ModelError, match=r"about 3e\+05 rows, 300 times the 1,000 there are"):
        require_hope(300_000, 1000)

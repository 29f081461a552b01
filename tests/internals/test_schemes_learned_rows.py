"""Internals of `tallbayes.schemes.learned_rows`; what users see of it is tested in test_pseudo_marginal.py."""

import math

import numpy as np
from test_hmc_ecs import plain, quad, scores  # noqa: F401

from tallbayes.schemes.learned_rows import LearnedOptions, estimate, group, needed
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD, log_likelihood


def test_learned_rows_make_an_unbiased_log_likelihood(quad):  # noqa: F811
    groups = group(quad.mode, 10.0, most=8)
    assert groups.start[-1] == 200 and sorted(groups.members) == list(range(200))
    theta = quad.mode.reference + 0.5 * quad.mode.factor @ np.array([1.0, -1.0])
    target, rng = Target(quad.model.rows, quad.model.prior_terms, groups, counters()), np.random.default_rng(0)
    options = LearnedOptions(None, 20_000, 20_000, 1, 1.0)
    value, variance, rows = estimate(target, options, theta, rng.random((2, 20_000)))
    assert rows == 20_000 and target.counters[0] == 20_000 + groups.start.size - 1
    exact = log_likelihood(quad.model, theta)
    assert abs(value + 0.5 * variance - exact) < THRESHOLD * math.sqrt(variance)


def test_learned_rows_are_as_many_as_the_variance_asks_for(quad):  # noqa: F811
    groups = group(quad.mode, 10.0)
    target, rng = Target(quad.model.rows, quad.model.prior_terms, groups, counters()), np.random.default_rng(0)
    used = {}
    for variance in (1e9, 5.0, 1e-9):
        _, reached, used[variance] = estimate(
            target, LearnedOptions(None, 800, 10, 1, variance), quad.mode.reference, rng.random((2, 800))
        )
        assert reached <= variance or used[variance] == 800
    assert used[1e9] == 10 <= used[5.0] <= used[1e-9] == 800
    m, gamma = needed(quad.mode, groups, 1.0, rng)
    assert m == math.ceil(gamma)

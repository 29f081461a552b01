"""Internals of `tallbayes.diagnostics.tail_survey`; what users see of it is tested in test_auto_choice.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.diagnostics.tail_survey import heaviest_tail
from tallbayes.testing import counting_rows


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.r_[0.0, rng.standard_normal(d - 1) / d**0.5]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def leverage_model(size, n=500):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(n), rng.random(n)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y), tb.priors.normal(2.0))


def tail_of(model, seed=0):
    mode = tb.find_mode(model, progress=False)
    setup = tb.samplers.ExactMinibatch().setup(model, mode, 0, False)
    with counting_rows() as account:
        tail = heaviest_tail(setup, np.random.default_rng(seed))
    return tail, account.rows, mode


@pytest.mark.parametrize("n", [500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_heavy_tails_are_foreseen_and_what_is_read_is_counted(n):
    tail, rows, mode = tail_of(leverage_model(1e3, n))
    assert tail is not None and rows > 0
    axes = np.concatenate([mode.factor, -mode.factor]) / np.linalg.norm(np.concatenate([mode.factor] * 2), axis=1)[:, None]
    points = mode.reference + tail.distance * axes @ mode.factor.T
    exact = [mode.model.log_posterior(t) - mode.model.log_posterior(mode.reference) + 0.5 * tail.distance**2 for t in points]
    assert tail.log_ratio > 0.6 * max(exact) and tail.log_ratio > tail.distance**2 / 4 - 0.5


def test_where_the_bound_excludes_heavy_tails_no_row_is_read():
    tail, rows, _ = tail_of(logistic(20_000, 3))
    assert tail is None and rows == 0

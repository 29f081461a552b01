"""What `auto` takes: on every kind of model, where minibatches do not pay, and where tails are heavy."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import auto
from tallbayes.testing import THRESHOLD, exact_posterior


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.r_[0.0, rng.standard_normal(d - 1) / d**0.5]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


@pytest.mark.slow
@pytest.mark.parametrize("n, d", [(2000, 60), (2000, 50), (5000, 100)])
def test_many_columns_for_few_rows_mix(n, d):
    fit = tb.sample(logistic(n, d), seed=1, progress=False)
    assert fit.r_hat.max() < 1.05 and fit.cost()["ess_min"] > 400


@pytest.mark.slow
def test_a_factor_of_many_levels_is_not_left_to_minibatches():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 350, 10_000)
    x = np.zeros((10_000, 350))
    x[np.arange(10_000), level] = 1.0
    x[:, 0] = 1.0
    y = (rng.random(10_000) < 1 / (1 + np.exp(1.0 - 0.7 * rng.standard_normal(350)[level]))).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y))
    assert auto.choose(model, tb.find_mode(model, progress=False), "exact", 0, False).sampler.name == "nuts"


@pytest.mark.slow
@pytest.mark.parametrize("positives", [25, 60])
def test_stays_in_the_tail_of_a_skewed_posterior_are_foreseen(positives):
    """2,000 rows and few positives: proposals from the Laplace fit hold a chain in the tail of the intercept now and then, which a
    pilot of some hundred iterations does not see."""
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(2000), rng.standard_normal((2000, 9))])
    chance = np.exp(0.7 * x[:, 1] - 0.5 * x[:, 2])
    y = (rng.random(2000) < positives * chance / chance.sum()).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y))
    mode = tb.find_mode(model, progress=False)
    choice = auto.choose(model, mode, "exact", 0, False)
    fit = tb.sample(model, choice.sampler, seed=1, mode=mode, progress=False)
    measured = fit.cost()["evals_per_ess"]
    assert 1 / 3 < measured / choice.predictions[0].evals_per_ess < 3


def leverage_model(size, n=500):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(n), rng.random(n)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y), tb.priors.normal(2.0))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_auto_is_right_where_tails_are_heavy(seed):
    model = leverage_model(1e3)
    fit = tb.sample(model, draws=4000, seed=seed, progress=False)
    if fit.meta["sampler_name"] == "exact-minibatch":
        assert "Student-t proposals" in fit.why and not fit.meta["sampler"]["two_stage"]
    truth = exact_posterior(model, points=401)
    draws = fit.theta.reshape(-1, 2)
    error = np.sqrt(np.diag(truth.covariance) / fit.cost()["ess_min"])
    assert (np.abs(draws.mean(0) - truth.mean) < THRESHOLD * error).all()
    assert np.abs(draws.std(0) / np.sqrt(np.diag(truth.covariance)) - 1.0).max() < 0.1
    assert fit.r_hat.max() < 1.02 and not fit.meta["warnings"]

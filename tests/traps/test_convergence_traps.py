"""Chains that have not converged: nothing but the draws shows it, and every place that shows the fit has to say so."""

import warnings

import numpy as np
import pytest
from support import warned_everywhere

import tallbayes as tb


@pytest.fixture(scope="module")
def normal_posterior():
    """Twenty coefficients of a linear model with known noise: the posterior is normal, with moments in closed form."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.standard_normal((200, 19))])
    y = X @ rng.standard_normal(20) + rng.standard_normal(200)
    covariance = np.linalg.inv(X.T @ X)
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, y), tb.priors.flat(), sigma=1.0)
    return model, covariance @ X.T @ y, np.sqrt(np.diag(covariance))


@pytest.mark.parametrize("chains, draws", [(1, 399), (1, 1000), (2, 150), (4, 1000)])
def test_a_walk_that_is_too_slow(normal_posterior, tmp_path, chains, draws):
    """A random walk in twenty dimensions takes about a hundred iterations per effective draw."""
    model, mean, sd = normal_posterior
    with pytest.warns(tb.TallbayesWarning, match="Run longer"):
        fit = tb.sample(model, "mh", draws=draws, warmup=200, chains=chains, seed=1, progress=False)
    error = np.abs(fit.theta.mean((0, 1)) - mean) / sd
    assert error.max() > 0.2, "the trap is none: the answer is right"
    assert warned_everywhere(fit, "disagree about|effective draws", tmp_path)


def test_one_short_chain_with_few_effective_draws(tmp_path):
    """399 correlated draws are worth fewer than 20, and the parts of the one chain agree by chance."""
    X = np.column_stack([np.ones(400), np.random.default_rng(3).standard_normal((400, 4))])
    y = np.random.default_rng(4).random(400) < 1.0 / (1.0 + np.exp(-X @ [0.2, 1.0, -1.0, 0.5, 0.0]))
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        fits = [tb.sample(model, "mh", draws=399, warmup=20, chains=1, seed=seed, progress=False) for seed in range(1, 9)]
    few = [fit for fit in fits if fit.ess.min() < 20]
    assert few, "the trap is none: every chain has 20 effective draws"
    for fit in few:
        assert warned_everywhere(fit, "disagree about|effective draws", tmp_path)


@pytest.mark.parametrize("draws", [60, 399])
def test_chains_in_two_modes(tmp_path, draws):
    """25 rows near -40 and 15 near 40: the mode near -40 has all of the mass (its log-likelihood is 200 higher)."""
    data = tb.Dataset.from_arrays(np.ones((40, 1)), np.repeat([-40.0, 40.0], [25, 15]) + np.linspace(-1.0, 1.0, 40))
    model = tb.models.student_t(data, tb.priors.flat(), nu=4.0, scale=1.0)
    assert model.log_posterior(np.array([-40.0])) > model.log_posterior(np.array([40.0])) + 100.0
    common = {"warmup": 100, "chains": 2, "seed": 1, "init": [[-40.0], [40.0]], "progress": False}
    with pytest.warns(tb.TallbayesWarning, match="the chains disagree about 'x0'"):
        fit = tb.sample(model, "mh", draws=draws, **common)
    assert abs(fit.theta.mean() + 40.0) > 10.0
    assert warned_everywhere(fit, r"the chains disagree about 'x0' \(R-hat \d", tmp_path)


def test_a_chain_that_stays_where_it_is(tmp_path):
    """Steps of a thousand standard deviations: nothing is accepted, and one chain has no other to disagree with."""
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), tb.priors.flat(), sigma=1e-3)
    start = [[24.5 + 3e-3]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        fit = tb.sample(model, tb.samplers.FullData(Leap()), draws=100, warmup=0, chains=1, seed=1, init=start, progress=False)
    assert (fit.theta == start[0][0]).all() and abs(fit.theta.mean() - 24.5) > 10 * 1e-3 / np.sqrt(50)
    assert warned_everywhere(fit, "'x0' never moved in at least one chain of 100 draws", tmp_path)


class Leap(type(tb.moves.random_walk())):
    """A random walk that steps a thousand times too far."""

    def kernel(self, covariance, scale):
        return super().kernel(1e12 * covariance, scale)


def test_divergences(tmp_path):
    """Two rows and an unknown scale: a funnel. Without a prior the location has no mean, and log sigma has the density
    e^(-s) exp(-e^(-2 s)), which quadrature gives: the wide part is where steps are too short, the narrow one where they diverge."""
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((2, 1)), [-1.0, 1.0]), tb.priors.normal(10.0))
    with pytest.warns(tb.TallbayesWarning, match="iterations diverged"):
        fit = tb.sample(model, "nuts", draws=500, warmup=500, seed=1, progress=False)
    s = np.linspace(-6.0, 30.0, 20_001)
    log_density = -s - np.exp(-2.0 * s) - 0.5 * (s / 10.0) ** 2 - 0.5 * np.log(0.5 * np.exp(2.0 * s) + 100.0)
    weight = np.exp(log_density - log_density.max())
    truth = float((weight * s).sum() / weight.sum())
    assert abs(fit.theta[:, :, 1].mean() - truth) < 1.0  # not far off: the warning is of what may be missed
    count = int(fit.stats["diverging"].sum())
    assert warned_everywhere(fit, rf"^{count} of 2,000 iterations diverged.*Raise acceptance=", tmp_path)


def test_a_run_that_is_right_says_nothing(normal_posterior):
    model, mean, sd = normal_posterior
    for chains, draws in ((4, 1000), (1, 300), (2, 50)):
        fit = tb.sample(model, "nuts", draws=draws, warmup=300, chains=chains, seed=1, progress=False)
        assert fit.meta["warnings"] == []
        assert (np.abs(fit.theta.mean((0, 1)) - mean) / sd).max() < 4.9 * np.sqrt(1.0 / fit.ess.min())

"""Naive subsampled HMC has the law that theory gives it on a normal posterior, and this law is not the posterior."""

import warnings

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import NaiveHMC
from tallbayes.testing import THRESHOLD, effective_sizes

ROWS = 200


def normal_mean(spread=1.0):
    """The mean of normal rows, sigma 1, flat prior: the posterior is N(mean, 1 / n), and the gradient's noise does not depend on theta."""
    y = np.random.default_rng(0).gamma(2.0, size=ROWS)
    y = spread * (y - y.mean()) / y.std()
    return tb.models.gaussian(tb.Dataset.from_arrays(np.ones((ROWS, 1)), y), tb.priors.flat(), sigma=1.0)


def squares(sampler, model, draws=10_000, seed=1):
    """Squared whitened draws, (chains, draws), and their effective number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        fit = tb.sample(model, sampler, draws=draws, warmup=100, chains=4, seed=seed, progress=False)
    assert np.abs(fit.theta.mean() * np.sqrt(ROWS)) < 0.5
    values = fit.theta[:, :, 0] ** 2 * ROWS
    return values, float(effective_sizes(values[:, :, None])[0])


def score(values, size, variance):
    return (values.mean() - variance) / (values.std() / np.sqrt(size))


def stationary_variance(noise, step, steps, fresh):
    """By propagating (w, r) and the noise of each gradient through the steps, until the variance of w is at rest."""
    variance = 1.0
    for _ in range(400):
        batches = steps + 1 if fresh else 1
        state = np.zeros((2, 2 + batches))  # w and r as linear functions of the start, the new momentum, and the noises
        state[0, 0] = state[1, 1] = 1.0
        for k in range(steps):
            for batch in (k, k + 1):
                if batch > k:
                    state[0] += step * state[1]
                state[1] -= 0.5 * step * state[0]
                state[1, 2 + (batch if fresh else 0)] += 0.5 * step
        variance = state[0] ** 2 @ np.array([variance, 1.0, *[noise] * batches])
    return float(variance)


@pytest.mark.parametrize("renew", ["trajectory", "step"])
@pytest.mark.parametrize("subsample, step", [(100, 0.4), (400, 0.2), (20, 0.1)])
def test_the_formula_is_that_of_a_linear_chain(renew, subsample, step):
    sampler = NaiveHMC(subsample=subsample, step=step, renew=renew)
    noise = ROWS / subsample
    exact = stationary_variance(noise, step, sampler.steps, renew == "step")
    np.testing.assert_allclose(sampler.variances(np.array([noise])), [exact], rtol=1e-10)


@pytest.mark.parametrize("renew", ["trajectory", "step"])
def test_draws_have_the_inflated_variance_and_not_that_of_the_posterior(renew):
    """n / m = 4: about 2.9 times the variance of the posterior with one minibatch per trajectory, 1.4 times with fresh ones."""
    sampler = NaiveHMC(subsample=50, step=0.4, renew=renew)
    values, size = squares(sampler, normal_mean())
    inflated = stationary_variance(4.0, 0.4, 3, renew == "step")
    other = stationary_variance(4.0, 0.4, 3, renew != "step")
    assert abs(score(values, size, inflated)) < THRESHOLD
    assert score(values, size, 1.0) > THRESHOLD
    assert abs(score(values, size, other)) > THRESHOLD


def test_a_test_on_the_minibatch_does_not_help():
    """It accepts nearly all: the energy is that of the minibatch, whose trajectory it was."""
    sampler = NaiveHMC(subsample=50, step=0.1, test="subsample")
    values, size = squares(sampler, normal_mean())
    assert abs(score(values, size, stationary_variance(4.0, 0.1, 12, False))) < THRESHOLD
    assert score(values, size, 1.0) > THRESHOLD


@pytest.mark.parametrize("renew", ["trajectory", "step"])
def test_without_noise_the_test_makes_it_exact(renew):
    """Equal rows: every minibatch has the posterior of all. A step of 1 leaves a variance of 4/3 without a test."""
    model = normal_mean(spread=0.0)
    values, size = squares(NaiveHMC(subsample=5, step=1.0, renew=renew, test="subsample"), model)
    assert abs(score(values, size, 1.0)) < THRESHOLD
    values, size = squares(NaiveHMC(subsample=5, step=1.0, renew=renew), model)
    assert abs(score(values, size, 4.0 / 3.0)) < THRESHOLD
    assert score(values, size, 1.0) > THRESHOLD


@pytest.mark.parametrize("test", ["none", "subsample"])
@pytest.mark.parametrize("renew", ["trajectory", "step"])
def test_evaluations_are_pairs_of_row_and_position(renew, test):
    """m rows at L + 1 positions; a test on a fresh minibatch reads its rows at the start too."""
    sampler = NaiveHMC(subsample=50, step=0.4, renew=renew, test=test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        fit = tb.sample(normal_mean(), sampler, draws=20, warmup=10, chains=1, seed=1, progress=False)
    extra = 50 if (renew, test) == ("step", "subsample") else 0
    np.testing.assert_array_equal(fit.evals, np.full((1, 20), 200.0 + extra))
    np.testing.assert_array_equal(fit.stats["evals_gradient"], np.full((1, 20), 200.0))
    assert ("energy_error" in fit.stats) == (test == "subsample")


def test_it_says_how_wrong_it_is():
    with pytest.warns(tb.TallbayesWarning, match=r"makes variances up to about 2\.\d+ times those of the posterior"):
        fit = tb.sample(normal_mean(), NaiveHMC(subsample=50), draws=50, warmup=10, chains=1, seed=1, progress=False)
    assert fit.guarantee.kind == "HEURISTIC" and "too wide" in fit.guarantee.statement
    assert fit.meta["notes"]["gradient noise, largest eigenvalue"] == pytest.approx(4.0, rel=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tb.TallbayesWarning)
        tb.sample(normal_mean(), NaiveHMC(subsample=5_000), draws=400, warmup=10, chains=4, seed=1, progress=False)


@pytest.mark.parametrize(
    "options",
    [{"subsample": 0}, {"step": 2.0}, {"step": 0.0}, {"time": 0.0}, {"time": np.inf}, {"renew": "never"}, {"test": "full"}],
)
def test_options_are_checked(options):
    with pytest.raises(tb.OptionError, match=next(iter(options))):
        NaiveHMC(**options)

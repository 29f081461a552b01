"""Unbiased expectations by coupled chains: against quadrature, what they cost, and what is refused."""

import dataclasses

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import THRESHOLD, counting_rows

QUIET = {"progress": False}


def test_expectations_agree_with_quadrature_and_without_the_correction_they_do_not(small):
    def function(theta):
        return np.concatenate([theta, (theta - small.posterior.mean) ** 2])

    done = tb.unbiased(
        small.model, function, replications=2500, lag=1, start=0, stop=1, walk=0.5, mode=small.mode, seed=1, **QUIET
    )
    truth = np.concatenate([small.posterior.mean, np.diag(small.posterior.covariance)])
    assert np.abs((done.mean - truth) / done.error).max() < THRESHOLD
    plain = done.replications - done.corrections
    error = plain.std(axis=0, ddof=1) / np.sqrt(len(plain))
    assert np.abs((plain.mean(axis=0) - truth) / error).max() > THRESHOLD


def test_another_likelihood_has_other_expectations(small):
    """The power to see the likelihood to the power 1.1."""
    spread = np.sqrt(np.diag(small.posterior.covariance))

    def function(theta):
        return ((theta - small.posterior.mean) / spread) ** 2

    done = tb.unbiased(small.tempered, function, replications=300, stop=60, seed=2, **QUIET)
    assert np.abs((done.mean - 1.0) / done.error).max() > THRESHOLD


def test_cost_meeting_times_and_reproducibility(small):
    with counting_rows() as account:
        done = tb.unbiased(small.model, replications=30, lag=5, start=4, stop=20, mode=small.mode, seed=3, **QUIET)
    assert account.rows == done.evals == 60 * done.densities
    assert done.replications.shape == done.corrections.shape == (30, 2) and done.meeting.shape == (30,)
    assert done.meeting.min() >= 5 and (done.corrections[done.meeting <= 9] == 0.0).all()
    again = tb.unbiased(small.model, replications=40, lag=5, start=4, stop=20, mode=small.mode, seed=3, **QUIET)
    np.testing.assert_array_equal(again.replications[:30], done.replications)  # more replications add to them
    bounds = [done.total_variation(t) for t in range(60)]
    assert bounds == sorted(bounds, reverse=True) and 0.0 < bounds[0] <= 1.0 and bounds[-1] == 0.0
    assert "met" in repr(done) and "total variation" in repr(done)


def test_positive_parameters_and_functions_of_them():
    y = np.random.default_rng(5).normal(1.0, 2.0, 300)
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((300, 1)), y))
    done = tb.unbiased(model, lambda theta: theta[0], replications=60, seed=4, **QUIET)
    assert done.mean.shape == (1,) and abs(done.mean[0] - y.mean()) < THRESHOLD * done.error[0] + 0.02


def test_a_posterior_with_several_modes_is_warned_of(small):
    several = dataclasses.replace(small.mode, others=(small.mode,))
    with pytest.warns(tb.TallbayesWarning, match="has 2 separate modes"):
        tb.unbiased(small.model, replications=2, mode=several, **QUIET)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"function": 3}, "function= is a function of theta"),
        ({"function": lambda theta: theta * np.nan}, "a finite number or a vector"),
        ({"function": lambda theta: np.outer(theta, theta)}, "a finite number or a vector"),
        ({"replications": 1}, "replications must be a whole number of at least 2"),
        ({"lag": 0}, "lag must be a whole number of at least 1"),
        ({"start": 30, "stop": 20}, "stop must be a whole number of at least 30"),
        ({"walk": 1.5}, "walk is the share"),
        ({"limit": 0}, "limit must be"),
        ({"mode": 1}, "tallbayes.find_mode"),
    ],
)
def test_bad_options_are_named(options, message, small):
    with pytest.raises(tb.OptionError, match=message):
        tb.unbiased(small.model, **{"mode": small.mode, **QUIET, **options})


def test_models_that_it_cannot_serve_are_refused(small):
    X = np.column_stack([np.ones(40), np.arange(40.0)])
    y = np.arange(40) % 2
    grouped = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"shop": np.arange(40) % 4}))
    with pytest.raises(tb.ModelError, match="group effects"):
        tb.unbiased(grouped)
    with pytest.raises(tb.ModelError, match="unknown scales"):
        tb.unbiased(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.horseshoe()))
    with pytest.raises(tb.OptionError, match="that of another model"):
        tb.unbiased(small.tempered, mode=small.mode)
    with pytest.raises(tb.ModelError, match="have not met in 1 iterations"):
        tb.unbiased(small.model, replications=200, limit=1, mode=small.mode, **QUIET)

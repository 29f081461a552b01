"""Runs that could not be ended: whatever a sampler is doing, a time limit or Ctrl-C ends it, and the draws do not depend on when."""

import warnings

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.testing import mode_at


@pytest.fixture(scope="module")
def model():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(5000)), tb.priors.normal(2.0))


def test_draws_do_not_depend_on_when_a_run_was_stopped(model, tmp_path):
    """Stopped within a draw, resumed, stopped again: the same draws as of a run that was left alone."""
    options = {"warmup": 0, "chains": 2, "seed": 4, "thin": 2000, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        alone = tb.sample(model, "mh", draws=4, **options)
        first = tb.sample(model, "mh", draws=100_000, max_seconds=3.0, checkpoint=tmp_path / "run", **options)
        second = tb.resume(tmp_path / "run", model, max_seconds=3.0, progress=False)
    assert first.status == second.status == "time limit"
    made = min(4, first.theta.shape[1])
    np.testing.assert_array_equal(first.theta[:, :made], alone.theta[:, :made])
    shared = min(first.theta.shape[1], second.theta.shape[1])
    np.testing.assert_array_equal(first.theta[:, :shared], second.theta[:, :shared])


def test_no_draw_says_how_far_it_came(model):
    with pytest.raises(tb.OptionError, match=r"during warm-up .*of 10,000,000 iterations.*Allow more time"):
        tb.sample(model, "mh", warmup=10_000_000, chains=2, seed=1, max_seconds=0.2, progress=False)


def test_zigzag_on_separated_rows_is_refused_with_the_prediction():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 2))
    data = tb.Dataset.from_arrays(np.c_[np.ones(4000), x], (x[:, 0] > 0.3).astype(float))
    with (
        pytest.warns(tb.TallbayesWarning, match="'x1' separates the response"),
        pytest.raises(tb.ModelError, match=r"candidate events per draw.*Use a full-data sampler"),
    ):
        tb.sample(tb.models.logistic(data), "zigzag", seed=1, max_seconds=5.0, progress=False)


def test_noise_exchange_that_would_read_the_rows_many_times_is_refused():
    """Errors twenty times the stated sigma: log ratios vary so much that a decision needs hundreds of passes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(10_000)
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.c_[np.ones(x.size), x], x + rng.standard_normal(x.size)), sigma=0.05)
    with pytest.raises(tb.ModelError, match=r"rows in every decision, \d+ times the 10,000 there are.*sampler='mh'"):
        tb.sample(model, "noise-exchange", seed=1, progress=False)


def test_hmc_ecs_at_a_reference_far_from_the_mode_is_refused(model):
    bad = mode_at(model, np.full(model.dim, 8.0))
    for name in ("hmc-ecs", "hmc-ecs-signed"):
        with pytest.raises(tb.ModelError, match=r"posterior standard deviations from the mode.*recentre=2"):
            tb.sample(model, name, mode=bad, seed=1, progress=False)

"""Internals of `tallbayes.run.starting_points`; what users see of it is tested in test_run.py and test_modes.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.run.chain import Chain
from tallbayes.run.starting_points import allocation

DRAWS, WARMUP = 300, 60


def sample(model, sampler="mh", **options):
    return tb.sample(model, sampler, **{"draws": DRAWS, "warmup": WARMUP, "chains": 2, "seed": 5, "progress": False, **options})


@pytest.fixture
def starts(monkeypatch):
    """Where chains begin, in order."""
    seen = []

    def watched(number, sampler, setup, seed, theta, *rest):
        seen.append(theta)
        return Chain(number, sampler, setup, seed, theta, *rest)

    monkeypatch.setattr("tallbayes.execution.Chain", watched)
    return seen


@pytest.mark.parametrize("init", [[0.1, -0.2], np.array([[0.1, -0.2], [0.3, 0.4]])], ids=["one", "each"])
def test_init_takes_one_or_all_starting_points(medium, starts, init):
    sample(medium, warmup=0, draws=1, init=init)
    np.testing.assert_array_equal(starts, np.broadcast_to(init, (2, 2)))


def test_init_laplace_is_dispersed_around_the_mode(medium, starts):
    sample(medium, warmup=0, draws=1, chains=200)
    white = tb.find_mode(medium, progress=False).laplace().whiten(np.array(starts))
    assert np.abs(white.mean(0)).max() < 4.9 * 2 / 200**0.5
    assert 1.5 < white.std() < 2.5


def test_init_prior_draws_from_the_prior(starts):
    X, y = logistic_arrays(60)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(scale=[0.1, 1.0], location=[5.0, -3.0]))
    sample(model, warmup=0, draws=1, chains=200, init="prior")
    white = (np.array(starts) - [5.0, -3.0]) / [0.1, 1.0]
    assert np.abs(white.mean(0)).max() < 4.9 / 200**0.5
    assert (np.abs(white.std(0) - 1.0) < 0.25).all()


def test_every_mode_has_a_chain():
    assert allocation(np.array([0.999, 0.001]), 4) == [0, 1, 0, 0]
    assert allocation(np.array([0.5, 0.3, 0.2]), 2) == [0, 1]

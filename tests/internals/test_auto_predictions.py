"""Internals of `tallbayes.auto.predictions`; what users see of it is tested in test_auto.py."""

from dataclasses import replace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import auto
from tallbayes.auto import predictions


def logistic(n, d, seed=0, effect=0.3):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.full(d, effect)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def test_subsampled_hmc_is_not_offered_where_it_would_read_most_rows():
    model = logistic(300, 20)
    setup = tb.samplers.HMCECS().setup(model, tb.find_mode(model, progress=False), 0, False)
    assert predictions.subsampled_hmc(tb.samplers.HMCECS(), setup) is None


def prediction(sampler, evals, nanoseconds):
    return auto.Prediction(sampler, evals, 1.0, nanoseconds / evals, 0.0, "", tried=True)


def test_an_approximate_method_must_be_worth_it():
    exact = prediction(tb.samplers.ExactMinibatch(), 10.0, 200.0)
    slightly, much = (prediction(tb.samplers.HMCECS(), 10.0, t) for t in (60.0, 40.0))
    assert predictions.price(exact) < predictions.price(slightly) and predictions.price(much) < predictions.price(exact)


def test_stays_are_the_iterations_for_an_effective_draw():
    rng = np.random.default_rng(0)
    assert abs(predictions.stays(rng.random(100_000) < 0.4) / (1.6 / 0.4) - 1) < 0.1
    mixed = np.r_[np.ones(500, bool), np.zeros(500, bool)]  # one long stay: a quarter of a million over a thousand
    assert predictions.stays(mixed) == pytest.approx((500 + 500**2) / 1000, rel=0.01)


def test_firefly_is_not_tried_where_the_others_are_quick_or_lights_would_hold_theta():
    choice = auto.choose(logistic(2_000, 3), tb.find_mode(logistic(2_000, 3), progress=False), None, 0, False)
    assert "firefly" not in {p.sampler.name for p in choice.predictions}
    model = logistic(400, 3)
    setup = tb.samplers.Firefly(move=tb.moves.hmc()).setup(model, tb.find_mode(model, progress=False), 0, False)
    few, many = (predictions.bright_hmc(None, replace(setup, notes={"expected_bright": bright})) for bright in (2.0, 30.0))
    assert many.iterations_per_ess > 20 * few.iterations_per_ess
    assert predictions.bright_hmc(None, replace(setup, notes={"expected_bright": 41.0})) is None


def test_the_inefficiency_of_a_short_chain_is_that_of_its_correlation():
    rng, white = np.random.default_rng(1), np.zeros((4000, 10))
    for t in range(1, 4000):
        white[t] = 0.5 * white[t - 1] + rng.standard_normal(10)
    assert abs(predictions.inefficiency(white) - 3.0) < 0.3

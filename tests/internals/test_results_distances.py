"""Internals of `tallbayes.results.distances`; what users see of it is tested in test_compare.py."""

import math

import numpy as np
import pytest
from scipy import stats

from tallbayes.results import distances


def test_wasserstein_is_that_of_scipy():
    rng = np.random.default_rng(0)
    a, b, w = rng.standard_normal(300), rng.standard_normal(500) + 0.3, rng.random(300)
    assert distances.wasserstein(a, b) == pytest.approx(stats.wasserstein_distance(a, b))
    assert distances.wasserstein(a, b, w) == pytest.approx(stats.wasserstein_distance(a, b, w))


def test_distance_of_normal_laws():
    """W2^2 of N(m, diag(s^2)) from N(0, I) is |m|^2 + sum (s - 1)^2, whatever the units of the reference."""
    rng = np.random.default_rng(1)
    mix = np.array([[2.0, 0.0], [30.0, 5.0]])
    reference = rng.standard_normal((200_000, 2)) @ mix.T
    mean, sd = mix @ [0.3, 0.0], mix @ np.diag([1.0, 2.0])
    found = distances.from_normal(mean, sd @ sd.T, reference)
    assert found.w2 == pytest.approx(math.hypot(0.3, 1.0), abs=0.01)
    draws = mean + rng.standard_normal((200_000, 2)) @ sd.T
    assert distances.between(draws, reference).w2 == pytest.approx(found.w2, abs=0.02)
    assert distances.between(draws, reference).w1_largest == pytest.approx(found.w1_largest, abs=0.02)
    shifted = distances.from_normal(mix @ [0.3, 0.0], mix @ mix.T, reference)
    assert shifted.w1_largest == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("size", [200, 1000, 5000])
def test_the_noise_floor_is_what_exact_draws_reach(size):
    """Independent draws of the same law stay below the floor most of the time (nine in ten), and are not far below it."""
    rng, below, ratio = np.random.default_rng(size), [], []
    for _ in range(8):
        reference = rng.standard_normal((4, 2000, 3))
        floor = np.array(distances.noise_floor(reference, 8000.0, size))
        found = np.array([distances.between(rng.standard_normal((size, 3)), reference.reshape(-1, 3)) for _ in range(15)])
        below.append((found <= floor).mean(0))
        ratio.append(floor / np.median(found, axis=0))
    assert (np.mean(below, axis=0) > 0.7).all()
    assert (np.mean(ratio, axis=0) < 2.5).all()


def test_the_floor_of_what_cannot_be_known():
    assert np.isnan(distances.noise_floor(np.zeros((1, 10, 1)), 10.0, 10.0)).all()
    assert np.isnan(distances.noise_floor(np.zeros((4, 10, 1)), 10.0, 0.0)).all()

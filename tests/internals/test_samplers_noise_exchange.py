"""Internals of `tallbayes.samplers.noise_exchange`; what users see of it is tested in test_subsampled_acceptance.py."""

import numpy as np
from scipy.special import expit, ndtr

from tallbayes.samplers import noise_exchange

# Decisions replayed on one pair


def test_the_logistic_law_is_within_its_constant_of_the_normal_one():
    x = np.linspace(-8, 8, 100_001)
    assert np.abs(ndtr(x) - expit(noise_exchange.LOGISTIC * x)).max() < 0.0095

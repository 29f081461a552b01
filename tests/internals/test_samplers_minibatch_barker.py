"""Internals of `tallbayes.samplers.minibatch_barker`; what users see of it is tested in test_subsampled_acceptance.py."""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtr

from tallbayes.samplers.minibatch_barker import correction

# Decisions replayed on one pair


def test_the_correction_is_a_law_and_what_the_noise_lacks():
    atoms, probability = correction()
    assert (probability > 0).all() and probability.sum() == pytest.approx(1.0) and atoms.size < 100
    grid = np.linspace(-20, 20, 4001)
    assert np.abs(ndtr(grid[:, None] - atoms) @ probability - expit(grid)).max() < 5e-6
    assert (probability * atoms**2).sum() == pytest.approx(math.pi**2 / 3 - 1.0, abs=1e-3)
    assert (probability * atoms).sum() == pytest.approx(0.0, abs=1e-3)

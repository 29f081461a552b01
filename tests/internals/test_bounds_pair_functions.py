"""Internals of `tallbayes.bounds.pair_functions`; what users see of it is tested in test_third_order.py."""

import math

import numpy as np
import pytest

from tallbayes.bounds.pair_functions import psi4, quartic

pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def test_the_largest_difference_of_fourth_powers_is_found():
    """Against a fine grid of directions; pairs on a line, opposite pairs and near pairs among them."""
    rng = np.random.default_rng(3)
    angles = np.linspace(0.0, math.pi, 40_001)
    unit = np.stack([np.cos(angles), np.sin(angles)])
    pairs = [rng.standard_normal((2, 2)) * rng.exponential(2.0) for _ in range(60)]
    pairs += [np.array([w, -w]) for w in rng.standard_normal((5, 2))] + [
        np.array([w, 1.001 * w]) for w in rng.standard_normal((5, 2))
    ]
    for white, other in pairs:
        u, v = white @ unit, other @ unit
        truth = np.abs(v * np.abs(v) ** 3 - u * np.abs(u) ** 3).max()
        found = quartic(white, other)
        assert truth <= found <= 1.25 * truth + 0.1 * np.abs([white, other]).max() ** 3 * np.linalg.norm(other - white)
        assert found == quartic(other, white)
    for radius in (1e-4, 0.0099, 0.0101, 0.5, 5.0):
        exact = 6.0 * sum(radius ** (k - 3) / math.factorial(k) for k in range(3, 60))
        assert exact * (1.0 - 1e-10) <= psi4(radius) < exact * (1.0 + 1e-6)

"""Internals of `tallbayes.diagnostics.pair_pilot`; what users see of it is tested in test_subsampled_acceptance.py."""

import math

import numpy as np

from tallbayes.diagnostics import pair_pilot
from tallbayes.testing import (
    THRESHOLD,
)

# Austerity


def test_the_anderson_darling_test_has_its_level():
    rng = np.random.default_rng(1)
    p = np.array([pair_pilot.anderson_darling(rng.random(200))[1] for _ in range(4000)])
    for level in (0.5, 0.1, 0.01):
        assert abs((p < level).mean() - level) < THRESHOLD * math.sqrt(level * (1 - level) / p.size) + 0.1 * level
    assert pair_pilot.anderson_darling(rng.random(200) ** 2)[1] < 1e-6
    z = [pair_pilot.anderson_darling(rng.random(200) ** power)[1] for power in np.linspace(1.4, 1.8, 30)]
    assert all(0.0 <= value <= 1.0 for value in z)

"""Lower bounds of Firefly: below the likelihood on wide grids, tight where they should be, and their sums."""

import math

import numpy as np


def test_matching_value_and_gradient_with_the_local_curvature_is_not_a_bound():
    """The paper prints no formula; the obvious reading fails by hundreds."""
    r, nu, xi = np.linspace(-200, 200, 4001), 4.0, 2.0
    slope = -(nu + 1) * xi / (nu + xi * xi)
    wrong = -(nu + 1) / 2 * math.log1p(xi * xi / nu) + slope * (r - xi) - 0.5e-3 * (r - xi) ** 2
    assert (-(nu + 1) / 2 * np.log1p(r * r / nu) - wrong).min() < -100

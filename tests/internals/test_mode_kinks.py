"""Internals of `tallbayes.mode.kinks`; what users see of it is tested in test_mode_search.py."""

import numpy as np
import pytest

from tallbayes.mode import kinks


@pytest.mark.parametrize("seed", range(8))
def test_a_step_satisfies_the_conditions_of_optimality(seed):
    rng = np.random.default_rng(seed)
    for _ in range(25):
        d = int(rng.integers(1, 20))
        root = rng.normal(size=(d + 2, d))
        precision = root.T @ root + 10.0 ** rng.uniform(-6, 0) * np.eye(d)
        where = np.sort(rng.permutation(d)[: rng.integers(0, d + 1)])
        sharp = kinks.Kinks(where, rng.normal(size=where.size), 10.0 ** rng.uniform(-2, 2, where.size))
        theta, gradient = rng.normal(size=d), rng.normal(size=d) * 10.0 ** rng.uniform(-1, 2)
        on = rng.random(where.size) < 0.3
        theta[where[on]] = sharp.location[on]
        goal = kinks.kink_step(precision, gradient, sharp, theta)
        left, rate, sign = gradient - precision @ (goal - theta), np.zeros(d), np.zeros(d)
        rate[where], sign[where] = sharp.slope, sharp.signs(goal)
        flat = (rate > 0) & (sign == 0)
        assert (np.abs(left - rate * sign)[~flat] < 1e-8 * (1.0 + np.abs(gradient).max())).all()
        assert (np.abs(left)[flat] <= rate[flat] * (1 + 1e-8)).all()


@pytest.mark.parametrize(
    "mean, variance, slope",
    [(0.0, 1.0, 1.0), (2.0, 1.0, 0.5), (-3.0, 4.0, 2.0), (0.1, 1.0, 50.0), (0.0, 1e6, 1.0), (5.0, 0.01, 3.0)],
)
def test_moments_of_a_normal_times_a_corner_equal_quadrature(mean, variance, slope):
    sd, narrow = np.sqrt(variance), min(np.sqrt(variance), 1.0 / slope)
    grid = np.unique(np.concatenate([np.linspace(-40, 40, 200_001) * narrow, mean + np.linspace(-12, 12, 200_001) * sd]))
    log = -0.5 * (grid - mean) ** 2 / variance - slope * np.abs(grid)
    weight = np.exp(log - log.max())
    total = np.trapezoid(weight, grid)
    first = np.trapezoid(weight * grid, grid) / total
    second = np.trapezoid(weight * (grid - first) ** 2, grid) / total
    found = kinks._moments(*(np.array([v]) for v in (mean, variance, slope)))
    np.testing.assert_allclose(np.concatenate(found), [first, second], rtol=1e-4, atol=1e-9)

"""Internals of `tallbayes.results.stein`; what users see of it is tested in test_stein.py."""

import numpy as np
import pytest

from tallbayes.results.stein import discrepancy, stein_kernel, thin
from tallbayes.testing import THRESHOLD


def test_the_kernel_is_the_stein_operator_applied_twice():
    """k = div_x div_y c + s_x . grad_y c + s_y . grad_x c + s_x . s_y c for c = (1 + |x - y|^2)^(-1/2), by differences."""
    rng = np.random.default_rng(0)
    x, y, sx, sy = rng.standard_normal((4, 3))
    h = 1e-4

    def base(a, b):
        return (1.0 + ((a - b) ** 2).sum()) ** -0.5

    steps = h * np.eye(3)
    grad_x = np.array([(base(x + e, y) - base(x - e, y)) / (2 * h) for e in steps])
    grad_y = np.array([(base(x, y + e) - base(x, y - e)) / (2 * h) for e in steps])
    mixed = sum(
        (base(x + e, y + e) - base(x + e, y - e) - base(x - e, y + e) + base(x - e, y - e)) / (4 * h * h) for e in steps
    )
    expected = mixed + sx @ grad_y + sy @ grad_x + sx @ sy * base(x, y)
    assert stein_kernel(np.array([x, y]), np.array([sx, sy]))[0, 1] == pytest.approx(expected, rel=1e-5)


def test_its_mean_is_zero_under_the_law_of_the_scores_alone():
    rng = np.random.default_rng(1)
    scores = []
    for spread in (1.0, 1.3):
        values = []
        for _ in range(60):
            x = spread * rng.standard_normal((100, 2))
            kernel = stein_kernel(x, -x)
            values.append((kernel.sum() - np.trace(kernel)) / (100 * 99))
        scores.append(np.mean(values) / (np.std(values, ddof=1) / np.sqrt(60)))
    assert abs(scores[0]) < THRESHOLD < scores[1]


def test_thinning_beats_the_first_draws_and_drops_outliers():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal((150, 2)), 6.0 + rng.standard_normal((50, 2))])
    kernel = stein_kernel(x, -x)
    picked = thin(kernel, 30)
    assert (picked < 150).all()
    assert discrepancy(kernel[np.ix_(picked, picked)]) < 0.5 * discrepancy(kernel[np.ix_(np.arange(30), np.arange(30))])
    best = min(range(200), key=lambda i: kernel[i, i])
    assert picked[0] == best

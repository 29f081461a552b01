"""Internals of `tallbayes.mode.newton`; what users see of it is tested in test_mode_search.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import find_mode
from tallbayes.mode.newton import newton


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])


def robust(prior, scale, n=3000, seed=2, extra=None):
    rng, x = design(n, 5, seed)
    y = x @ [-2.0, 0.5, -0.5, 1.0, 0.0] + scale * rng.standard_t(4, n)
    x = x if extra is None else np.column_stack([x, extra(x)])
    return tb.models.student_t(tb.Dataset.from_arrays(x, y), prior, nu=4.0, scale=scale)


def test_a_search_without_end_says_how_far_it_came(monkeypatch):
    monkeypatch.setattr("tallbayes.mode.newton._MAX_STEPS", 2)
    with pytest.raises(
        tb.errors.ModelError, match=r"did not converge in 2 steps: it is still about .* standard deviations away"
    ):
        find_mode(robust(tb.priors.normal(1.0), 0.01), progress=False)


def test_a_step_that_overflows_is_refused_without_a_word():
    """10 t - e^t from 0: the first step goes to 9, where the sums exceed the largest number; warnings are errors in tests."""
    model = tb.models.logistic(tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 0, 1]), tb.priors.normal(1e3))

    def likelihood(theta):
        t = theta[0]
        if t > 5.0:
            return -1e308, np.full(1, -1e308), np.full((1, 1), -1e308)
        return 10.0 * t - np.exp(t), np.array([10.0 - np.exp(t)]), np.array([[-np.exp(t)]])

    point = newton(model, likelihood, np.zeros(1), 10.0, 1e-6, None)
    np.testing.assert_allclose(point.theta, np.log(10.0), atol=1e-4)

"""Internals of `tallbayes.families.class_gaussian`; what users see of it is tested in test_class_gaussian.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.engine.rows import range_gradient, range_hessian, range_value, row_values, weighted_gradient

V = np.array([1.0, 0.5])


def rows_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = np.array([[-1.0, 0.0], [1.0, 0.0]])[y] + 0.25 * np.sqrt(V) * rng.standard_normal((n, 2))
    return x, y, rng.choice([0.5, 1.0, 2.0], n)


def model_of(sigma=None, mapping=None, prior=None):
    x, y, weights = rows_of()
    data = tb.Dataset.from_arrays(x, y, weights=weights)
    return tb.models.class_gaussian(data, prior, classes=2, sigma=sigma, mapping=mapping, variances=V)


PHI = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
cases = pytest.mark.parametrize("sigma, mapping", [(None, None), (0.3, None), (None, PHI), (0.3, PHI)])


@cases
def test_derivatives_agree_with_finite_differences(sigma, mapping):
    model = model_of(sigma, mapping)
    rows, theta = model.rows, np.random.default_rng(2).normal(0.0, 0.5, model.dim)
    d = model.dim
    gradient, other, hessian = np.zeros(d), np.zeros(d), np.zeros((d, d))
    value = range_value(rows, 0, 60, theta)
    assert range_gradient(rows, 0, 60, theta, gradient) == pytest.approx(value, rel=1e-12)
    assert range_hessian(rows, 0, 60, theta, other, hessian) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient, other)
    for k in range(d):
        h = 1e-6 * np.eye(d)[k]
        assert (range_value(rows, 0, 60, theta + h) - range_value(rows, 0, 60, theta - h)) / 2e-6 == pytest.approx(
            gradient[k], rel=1e-5, abs=1e-4
        )
        above, below = np.zeros(d), np.zeros(d)
        range_gradient(rows, 0, 60, theta + h, above)
        range_gradient(rows, 0, 60, theta - h, below)
        np.testing.assert_allclose(((above - below) / 2e-6)[: k + 1], hessian[k, : k + 1], rtol=1e-5, atol=1e-3)
    index, factors, part = np.array([3, 17, 4]), np.array([1.0, 2.0, 0.5]), np.zeros(d)
    single, expected = np.empty(3), np.zeros(d)
    total = weighted_gradient(rows, index, factors, theta, part)
    row_values(rows, index, theta, single)
    for i, f in zip(index, factors, strict=True):
        one = np.zeros(d)
        range_gradient(rows, i, i + 1, theta, one)
        expected += f * one
    assert total == pytest.approx(factors @ single, rel=1e-12)
    np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-12)

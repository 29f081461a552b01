"""Internals of `tallbayes.engine.series`; what users see of it is tested in test_arma.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

import tallbayes as tb
from tallbayes.engine import passes
from tallbayes.engine.rows import range_gradient, range_hessian, range_value
from tallbayes.engine.series import stable
from tallbayes.engine.windows import lead_rows, range_scores

ORDERS = {
    (1, 1): [0.5, 0.7, 0.1],
    (2, 1): [0.5, -0.3, 0.6, 0.2],
    (0, 2): [0.4, 0.3, -0.1],
    (3, 0): [0.3, 0.2, -0.4, 0.5],
    (1, 3): [-0.6, 0.3, -0.2, 0.1, 0.0],
}
every_order = pytest.mark.parametrize("order", ORDERS, ids=str)


def series(n, seed=0, alpha=0.5, beta=0.7, shift=0.2):
    z = np.random.default_rng(seed).standard_normal(n + 200)
    return lfilter([1.0, beta], [1.0, -alpha], z)[200:] + shift


def innovations(y, theta, p, q, first=None):
    """e_t from `first` on (p if not given), zero before: by scipy's filter."""
    first = p if first is None else first
    u = y[first:] - theta[p + q]
    for i in range(p):
        u = u - theta[i] * y[first - 1 - i : y.size - 1 - i]
    return lfilter([1.0], np.concatenate([[1.0], theta[p : p + q]]), u)


@every_order
@pytest.mark.parametrize("sigma", [None, 1.3])
def test_derivatives_agree_with_finite_differences(order, sigma):
    p, q = order
    rows = tb.models.arma(series(120), p=p, q=q, sigma=sigma, lead=10).rows
    theta = np.array(ORDERS[order] + ([0.2] if sigma is None else []))
    d, h = theta.size, 1e-5
    for start, stop in ((0, 120), (40, 90)):
        gradient, other, hessian = np.zeros(d), np.zeros(d), np.zeros((d, d))
        value = range_value(rows, start, stop, theta)
        assert range_gradient(rows, start, stop, theta, gradient) == pytest.approx(value, rel=1e-12)
        assert range_hessian(rows, start, stop, theta, other, hessian) == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gradient, other, rtol=1e-12, atol=1e-10)
        for k in range(d):
            up, down = theta + h * np.eye(d)[k], theta - h * np.eye(d)[k]
            slope = (range_value(rows, start, stop, up) - range_value(rows, start, stop, down)) / (2 * h)
            assert slope == pytest.approx(gradient[k], rel=1e-6, abs=1e-4)
            above, below = np.zeros(d), np.zeros(d)
            range_gradient(rows, start, stop, up, above)
            range_gradient(rows, start, stop, down, below)
            np.testing.assert_allclose(((above - below) / (2 * h))[: k + 1], hessian[k, : k + 1], rtol=1e-5, atol=1e-3)


@every_order
def test_scores_add_up_to_the_gradient(order):
    p, q = order
    model = tb.models.arma(series(400), p=p, q=q)
    theta = np.array([*ORDERS[order], 0.2])
    scores = passes.scores(model.rows, theta)
    np.testing.assert_allclose(scores.sum(0), passes.total_gradient(model.rows, theta)[1], rtol=1e-10, atol=1e-9)
    assert not scores[:p].any()
    part = np.empty((50, theta.size))
    range_scores(model.rows, 200, 250, theta, part)
    np.testing.assert_allclose(part, scores[200:250], atol=1e-9)


def test_scores_of_independent_rows_add_up_too(small):
    scores = passes.scores(small.model.rows, small.mode.reference)
    np.testing.assert_allclose(scores.sum(0), passes.total_gradient(small.model.rows, small.mode.reference)[1], atol=1e-12)


@pytest.mark.parametrize("start, size", [(0, 30), (1, 30), (2, 30), (5, 30), (12, 30), (13, 30), (170, 30), (199, 1), (0, 200)])
def test_a_window_starts_its_recursion_a_few_rows_before_itself(start, size):
    y, theta, p, q, lead = series(200), np.array(ORDERS[2, 1]), 2, 1, 10
    rows = tb.models.arma(y, p=p, q=q, sigma=1.0, lead=lead).rows
    first = max(start, p)
    begin = max(p, first - lead)
    assert lead_rows(rows, first) == first - begin
    e = innovations(y[: start + size], theta, p, q, begin)[first - begin :]
    assert range_value(rows, start, start + size, theta) == pytest.approx(-0.5 * (e @ e), rel=1e-12)
    whole = innovations(y, theta, p, q)[first - p : start + size - p]
    assert np.abs(whole - e).max() <= 0.6**lead * 10.0


def test_windows_side_by_side_are_the_whole_series():
    rows = tb.models.arma(series(1000), lead=60, sigma=1.0).rows
    theta = np.array([0.5, 0.7, 0.1])
    parts = sum(range_value(rows, start, start + 100, theta) for start in range(0, 1000, 100))
    assert parts == pytest.approx(range_value(rows, 0, 1000, theta), rel=1e-8)
    bare = tb.models.arma(series(1000), lead=0, sigma=1.0).rows
    without = sum(range_value(bare, start, start + 100, theta) for start in range(0, 1000, 100))
    assert abs(without - range_value(rows, 0, 1000, theta)) > 1.0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-2000, 2000), min_size=1, max_size=5))
def test_stability_is_that_of_the_roots(thousandths):
    coefficients = np.array(thousandths) / 1000.0
    roots = np.roots([*-coefficients[::-1], 1.0])
    smallest = np.abs(roots).min() if roots.size else np.inf
    if abs(smallest - 1.0) > 1e-3:
        assert stable(coefficients) == (smallest > 1.0)


@pytest.mark.parametrize("theta", [[1.0, 0.5, 0.0], [-1.2, 0.5, 0.0], [0.5, 1.0, 0.0], [0.5, -1.5, 0.0], [0.5, np.nan, 0.0]])
def test_there_is_no_density_outside_the_region(theta):
    model = tb.models.arma(series(50), sigma=1.0)
    theta, gradient, hessian = np.array(theta), np.zeros(3), np.zeros((3, 3))
    assert range_value(model.rows, 0, 50, theta) == -np.inf
    assert range_gradient(model.rows, 0, 50, theta, gradient) == -np.inf
    assert range_hessian(model.rows, 0, 50, theta, gradient, hessian) == -np.inf
    assert not model.admits(theta)


def test_the_mode_is_found_and_both_speeds_agree():
    model = tb.models.arma(series(30_000))
    mode = tb.find_mode(model, progress=False)
    np.testing.assert_allclose(mode.reference[:2], [0.5, 0.7], atol=0.05)
    assert np.abs(mode.factor.T @ model.gradient(mode.reference)[1]).max() < 1e-5
    assert mode.passes <= 8
    small = tb.models.arma(series(300))
    theta = np.array([0.4, 0.6, 0.1, 0.1])
    compiled = passes.total_hessian(small.rows, theta)
    gradient, hessian = np.zeros(4), np.zeros((4, 4))
    assert range_hessian(small.rows, 0, 300, theta, gradient, hessian) == pytest.approx(compiled[0], rel=1e-12)
    np.testing.assert_allclose(np.tril(compiled[2]), np.tril(hessian), rtol=1e-10)

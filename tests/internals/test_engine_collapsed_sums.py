"""Internals of `tallbayes.engine.collapsed_sums`; what users see of it is tested in test_linear_mixed.py."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import tallbayes as tb
from tallbayes.engine.collapsed_sums import collapsed, linear_sums
from tallbayes.engine.grouped_rows import FactorRows
from tallbayes.families.gaussian import Gaussian
from tallbayes.mode.linear_several import residual_square
from tallbayes.schemes import collapsed_draws

LEVELS = 7


def arrays(n=60, shift=0.0):
    """Rows in six of seven levels, with weights and offsets; the mean of the response may be far from zero."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, LEVELS - 1, n)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    weights, offset = rng.choice([0.5, 1.0, 2.0], n), rng.standard_normal(n)
    y = shift + X @ [0.3, 0.5] + (0.8 * rng.standard_normal(LEVELS))[codes] + offset + rng.standard_normal(n)
    return X, y, offset, weights, codes


def model_of(prior, shift=0.0):
    X, y, offset, weights, codes = arrays(shift=shift)
    grouping = pd.Categorical.from_codes(codes, categories=range(LEVELS))
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, offset, weights, groups={"g": grouping}), prior)


def test_the_collapsed_density_is_that_of_a_dense_normal_law():
    X, y, offset, _, codes = arrays()
    grouping = pd.Categorical.from_codes(codes, categories=range(LEVELS))
    data = tb.Dataset.from_arrays(X, y, offset, groups={"g": grouping})
    factor = data.groups[0]
    rows = FactorRows(Gaussian(1.0), data.records, 2, -1, 1, factor.offsets, factor.members)
    sums = linear_sums(rows, LEVELS)
    precision, location = np.array([[0.5, 0.1], [0.1, 2.0]]), np.array([0.2, -0.3])
    same = codes[:, None] == codes[None, :]
    found, expected = [], []
    for log_sigma, log_tau in ((0.1, -0.4), (-0.3, 0.5), (0.4, -2.0)):
        mean, root = np.zeros(2), np.zeros((2, 2))
        found.append(collapsed(sums, precision, location - sums.centre, log_sigma, log_tau, mean, root))
        V = np.exp(2 * log_sigma) * np.eye(60) + np.exp(2 * log_tau) * same
        whole = V + X @ np.linalg.inv(precision) @ X.T
        expected.append(multivariate_normal.logpdf(y - offset, X @ location, whole))
        inner = X.T @ np.linalg.solve(V, X) + precision
        np.testing.assert_allclose(np.tril(root) @ np.tril(root).T, inner, rtol=1e-10)
        exact = np.linalg.solve(inner, X.T @ np.linalg.solve(V, y - offset) + precision @ location)
        np.testing.assert_allclose(mean + sums.centre, exact, atol=1e-10)
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-9)


def kernel_moments(model, mutate=None):
    """Means of theta after single interpreted steps; the state is kept, as in a chain."""
    mode = tb.find_mode(model, progress=False)
    setup = tb.samplers.MinibatchGibbs().setup(model, mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    if mutate is not None:
        target = target._replace(proxy=mutate(target.proxy))
    rng, info = np.random.default_rng(0), np.zeros(12)
    state = collapsed_draws._init(rng, target, options, setup.policy.blank(mode.reference).theta)
    draws = []
    for _ in range(4000):
        state = collapsed_draws._step(rng, target, options, state, info)
        draws.append(state.theta)
    return np.array(draws)


@pytest.mark.filterwarnings("ignore:the rows carry no information")
def test_a_prior_that_is_not_gaussian_enters_by_its_ratio():
    """A narrow Laplace prior pulls the coefficient; without its ratio it would not."""
    model = model_of({"default": tb.priors.flat(), "x1": tb.priors.laplace(0.02, location=0.0)})
    with_ratio = kernel_moments(model)[:, 1]
    without = kernel_moments(model, lambda t: t._replace(others=t.others._replace(kind=np.zeros_like(t.others.kind))))[:, 1]
    batches = [v.reshape(40, -1).mean(1) for v in (with_ratio, without)]
    assert abs(batches[0].mean()) + 6 * batches[0].std() / np.sqrt(40) < batches[1].mean() - 6 * batches[1].std() / np.sqrt(40)


# Several factors and slopes: blocked Gibbs


def several(kind):
    """Two crossed or nested factors, or a factor with slopes, few levels of each; weights and offsets."""
    rng = np.random.default_rng(8)
    n = 50
    a = rng.integers(0, 3, n)
    X = np.column_stack([np.ones(n), rng.standard_normal(n)])
    weights, offset = rng.choice([0.5, 1.0, 2.0], n), rng.standard_normal(n)
    b = 2 * a + rng.integers(0, 2, n) if kind == "nested" else rng.integers(0, 4, n)
    y = 5.0 + X @ [0.3, 0.5] + np.array([0.8, -0.6, 0.1])[a] + (0.5 * rng.standard_normal(8))[b] + offset
    y += 0.7 * rng.standard_normal(n)
    groups = {"a": (a, ["1", "x1"])} if kind == "slopes" else {"a": a, "b": b}
    prior = {"default": tb.priors.normal(3.0), **({"a_corr": tb.priors.lkj(2.0)} if kind == "slopes" else {})}
    return tb.models.gaussian(tb.Dataset.from_arrays(X, y, offset, weights, groups=groups), prior)


def dense(model):
    """Design of coefficients and all effects, in the order of theta; response less offset, and weights."""
    data, d = model.data, model.data.d
    parts = [data.records[:, :d]]
    for factor in model.factors:
        for t in range(len(factor.terms)):
            z = np.ones(data.n) if factor.first < 0 else data.records[:, factor.first + t]
            parts.append(z[:, None] * np.eye(factor.levels)[factor.codes])
    return np.column_stack(parts), data.records[:, d] - data.records[:, d + 1], data.records[:, d + 2]


def test_sums_of_cells_give_the_sum_of_squares_of_all_rows():
    for kind in ("crossed", "nested", "slopes"):
        model = several(kind)
        D, y, w = dense(model)
        sums = tb.find_mode(model, progress=False).sums
        rng, d = np.random.default_rng(0), model.data.d
        theta = rng.standard_normal(D.shape[1])
        flat, at = [], d
        for factor in model.factors:  # theta goes term by term, sums level by level
            q = len(factor.terms)
            flat.append(theta[at : at + q * factor.levels].reshape(q, -1).T.reshape(-1))
            at += q * factor.levels
        found = residual_square(sums, theta[:d] - sums.centre, np.concatenate(flat))
        np.testing.assert_allclose(found, w @ (y - D @ theta) ** 2, rtol=1e-10)

"""Internals of `tallbayes.proxies.third_order`; what users see of it is tested in test_third_order.py."""

import math
from itertools import takewhile

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.bounds.tables import rate_count, row_rate, row_rates, total_rate
from tallbayes.engine import passes
from tallbayes.engine.cubic_sums import multiplicities, tensor_value, third_order_residuals
from tallbayes.proxies.taylor import proxy_value, unwhiten
from tallbayes.proxies.third_order import pair_near, pair_value, tensor_entries
from tallbayes.samplers import ExactMinibatch
from tallbayes.schemes.poisson_minibatch import MHSS, dominating, thin
from tallbayes.testing import invariance_error, poisson_outcomes

pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")

FAMILIES = {
    "logistic": ({}, lambda rng, mean: (rng.random(mean.size) < mean / (1.0 + mean)).astype(float)),
    "poisson": ({}, lambda rng, mean: rng.poisson(mean).astype(float)),
    "gamma": ({"shape": 2.0}, lambda rng, mean: rng.gamma(2.0, mean / 2.0)),
    "negbin": ({"size": 3.0}, lambda rng, mean: rng.negative_binomial(3.0, 3.0 / (3.0 + mean)).astype(float)),
}


def setup(family="logistic", n=300, d=3, seed=0, **options):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1)) * np.linspace(0.5, 2.0, d - 1)])
    own, simulate = FAMILIES[family]
    y = simulate(rng, np.exp(0.3 * X[:, 1] - 0.4))
    data = tb.Dataset.from_arrays(X, y, 0.2 * rng.standard_normal(n), rng.uniform(0.5, 2.0, n))
    mode = tb.find_mode(tb.models.build(family, data, tb.priors.normal(2.0), **own), progress=False)
    return mode, ExactMinibatch(order=3, **options).setup(mode.model, mode, 0, False)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_tensor_and_residuals_are_the_third_order_of_the_likelihood(family):
    """Third differences of the log-likelihood along random lines, and the residuals of all rows add up to what is left."""
    mode, made = setup(family)
    rng, proxy = np.random.default_rng(1), made.proxy.proxy
    for _ in range(3):
        white = rng.standard_normal(3)
        here = [mode.model.log_posterior(mode.reference + h * (mode.factor @ white)) for h in (-0.02, -0.01, 0.01, 0.02)]
        prior = [mode.model.log_prior(mode.reference + h * (mode.factor @ white)) for h in (-0.02, -0.01, 0.01, 0.02)]
        value = np.subtract(here, prior)
        third = (value[3] - 2.0 * value[2] + 2.0 * value[1] - value[0]) / (2.0 * 0.01**3)
        assert abs(6.0 * tensor_value(tensor_entries(proxy, 3), white) - third) < 1e-3 * (1.0 + abs(third))
        theta = mode.reference + mode.factor @ white
        gaps = third_order_residuals(mode.model.rows, np.arange(300), mode.reference, theta, mode.reference)
        left = mode.model.log_posterior(theta) - mode.model.log_prior(theta) - mode.model.log_posterior(mode.reference)
        left += mode.model.log_prior(mode.reference) - proxy_value(proxy, white) - pair_value(proxy, np.zeros(3), white)
        assert abs(gaps.sum() - left) < 1e-8
    assert multiplicities(3).sum() == 27.0


@pytest.mark.parametrize("family", list(FAMILIES))
def test_residuals_are_within_their_bounds_which_are_symmetric(family):
    mode, made = setup(family)
    bound, _ = ExactMinibatch(order=3).certificate(mode, 0, indexed=True)
    rng, n = np.random.default_rng(2), mode.model.data.n
    smallest = np.inf
    for spread in (0.1, 1.0, 2.5):
        for _ in range(20):
            white, other = spread * rng.standard_normal((2, 3))
            if max(np.linalg.norm(white), np.linalg.norm(other)) > made.proxy.proxy.reach:
                continue
            rates, back = np.zeros(rate_count(bound)), np.zeros(rate_count(bound))
            assert total_rate(bound, white, other, rates) == total_rate(bound, other, white, back) and (rates == back).all()
            limits, points = np.empty(n), np.empty((2, 3))
            row_rates(bound, rates, 0, limits)
            for w, t in zip((white, other), points, strict=True):
                unwhiten(made.proxy.whitening, w, t)
            gaps = third_order_residuals(mode.model.rows, np.arange(n), points[0], points[1], mode.reference)
            assert (np.abs(gaps) <= limits * (1.0 + 1e-9) + 1e-13).all()
            np.testing.assert_allclose(limits.sum(), total_rate(bound, white, other, rates))
            smallest = min(smallest, float((limits / np.maximum(np.abs(gaps), 1e-300)).min()))
    assert smallest < 20.0  # bounds are not idle
    far = np.array([made.proxy.proxy.reach + 1.0, 0.0, 0.0])
    assert pair_value(made.proxy.proxy, far, np.zeros(3)) == 0.0  # order two beyond the reach


def enumerated():
    """Three rows with weights; rows of weight zero raise n, so that no pair reads all rows. Four states, one beyond the reach."""
    rng = np.random.default_rng(46)
    X, y = np.ones((503, 2)), np.zeros(503)
    X[:3], y[0] = rng.standard_normal((3, 2)), 1.0
    offset, weights = np.zeros(503), np.zeros(503)
    offset[:3], weights[:3] = rng.standard_normal(3) - 2.0, rng.uniform(0.5, 1.0, 3) * np.array([2.0, 20.0, 10.0])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, offset, weights), tb.priors.cauchy(2.0))
    mode = tb.find_mode(model, progress=False)
    sampler = ExactMinibatch(order=3)
    proxy = sampler.setup(model, mode, 0, False).proxy._replace(bound=sampler.certificate(mode, 0, indexed=True)[0])
    white = 1.2 * rng.standard_normal((4, 2))
    white[3] *= 6.0 / np.linalg.norm(white[3])
    return mode, proxy, white


def accepted_by_rows(mode, certified, first, second):
    """The probability that the minibatch accepts a pair of positions, with all rows drawn summed out."""
    model, theta = mode.model, [mode.reference + mode.factor @ w for w in (first, second)]
    rates = np.zeros(rate_count(certified.bound))
    total = total_rate(certified.bound, first, second, rates)
    residuals = third_order_residuals if pair_near(certified.proxy, first, second) else passes.residuals_at
    gap = residuals(model.rows, np.arange(3), *theta, mode.reference)
    assert dominating(MHSS(), total) < model.data.n
    outcomes = [(1.0, 0.0)]
    for row in range(3):
        limit = row_rate(certified.bound, rates, row)
        keep, contribution = thin(MHSS(), -gap[row] / limit, total)
        rate = limit * keep
        counts = takewhile(lambda outcome, rate=rate: outcome[1] <= rate or outcome[0] > 1e-16, poisson_outcomes(rate))
        counts = [(q, c) for q, c in counts if q > 1e-16]
        outcomes = [(p * q, r + (c * contribution if c else 0.0)) for p, r in outcomes for q, c in counts]
    return sum(p * math.exp(min(0.0, r)) for p, r in outcomes)


def posterior_on(mode, white):
    law = np.array([mode.model.log_posterior(mode.reference + mode.factor @ w) for w in white])
    return np.exp(law - law.max()) / np.exp(law - law.max()).sum()


def kernel(mode, certified, white):
    """The transition matrix of two stages under uniform proposals, with all rows drawn summed out, and the posterior on the states."""
    model, count, proxy = mode.model, len(white), certified.proxy
    theta = [mode.reference + mode.factor @ w for w in white]
    matrix = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            if i == j:
                continue
            first = proxy_value(proxy, white[j]) - proxy_value(proxy, white[i]) + pair_value(proxy, white[i], white[j])
            first += model.log_prior(theta[j]) - model.log_prior(theta[i])
            matrix[i, j] = math.exp(min(0.0, first)) * accepted_by_rows(mode, certified, white[i], white[j]) / count
        matrix[i, i] = 1.0 - matrix[i].sum()
    return matrix, posterior_on(mode, white)


def test_the_kernel_is_exact_and_a_missing_entry_of_the_tensor_shows():
    mode, certified, white = enumerated()
    matrix, law = kernel(mode, certified, white)
    assert np.abs(law[:, None] * matrix - (law[:, None] * matrix).T).max() < 1e-11
    assert invariance_error(matrix, law) < 1e-11
    for entry in range(4):
        numbers = certified.proxy.numbers.copy()
        tensor_entries(certified.proxy._replace(numbers=numbers), 2)[entry] = 0.0
        broken = certified._replace(proxy=certified.proxy._replace(numbers=numbers))
        assert invariance_error(*kernel(mode, broken, white)) > 1e-6

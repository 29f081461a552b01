"""Internals of `tallbayes.proxies.difference`; what users see of it is tested in test_difference.py and test_mode_search.py."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit
from support import logistic_arrays

import tallbayes as tb
from tallbayes import find_mode
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.diagnostics.subsample_pilot import Sample
from tallbayes.engine import passes
from tallbayes.engine.random_rows import UniformRows, WeightedRows
from tallbayes.engine.residuals import (
    add_curvatures,
    add_slopes,
    control_residuals,
    residual_slopes,
    residual_values,
    slope_count,
)
from tallbayes.moves.move import log_density_gradient
from tallbayes.proxies.difference import (
    BlockPoisson,
    PenaltyEstimator,
    combine,
    difference,
    fresh_rows,
    proxy_sum,
    refreshed_rows,
)
from tallbayes.proxies.taylor import taylor
from tallbayes.schemes.estimates import EstimatedPosterior, first_rows, renewed_rows
from tallbayes.target import Target, counters
from tallbayes.testing import THRESHOLD, log_likelihood_gradient, mode_at

N = 40


def model_of(name, weights=None):
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(N), rng.standard_normal((N, 2))])
    eta = x @ [0.2, 0.5, -0.4]
    y = {
        "logistic": rng.random(N) < 1 / (1 + np.exp(-eta)),
        "poisson": rng.poisson(np.exp(eta)),
        "student_t": eta + rng.standard_t(4, N),
        "gaussian": eta + 0.7 * rng.standard_normal(N),
        "softmax": rng.integers(0, 3, N),
    }[name]
    options = {"softmax": {"classes": 3}, "student_t": {"nu": 4.0, "scale": 1.0}}.get(name, {})
    data = tb.Dataset.from_arrays(x, np.asarray(y, float), weights=weights)
    return tb.models.build(name, data, tb.priors.normal(3.0), **options)


FAMILIES = ("logistic", "poisson", "student_t", "gaussian", "softmax")


def away(mode, size=0.6, seed=1):
    return mode.reference + size * mode.factor @ np.random.default_rng(seed).standard_normal(mode.reference.size)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", FAMILIES)
def test_residuals_are_likelihood_less_proxy_and_slopes_are_their_derivatives(name, order):
    model = model_of(name, weights=np.linspace(0.5, 2.0, N))
    mode = tb.find_mode(model, progress=False)
    theta, index = away(mode), np.array([3, 0, 17, 17, 39])
    rows = model.rows
    expected = passes.values_at(rows, index, theta) - passes.proxies_at(rows, index, theta, mode.reference, order)
    values, slopes = np.empty(5), np.empty((5, slope_count(rows)))
    residual_values(rows, index, theta, mode.reference, order, values)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    residual_slopes(rows, index, theta, mode.reference, order, values, slopes)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    factors, gradient = np.array([1.0, -2.0, 0.5, 3.0, 1.5]), np.zeros(model.dim)
    add_slopes(rows, index, slopes, factors, gradient)

    def total(t):
        residual_values(rows, index, t, mode.reference, order, values)
        return float(factors @ values)

    for j in range(model.dim):
        h = np.zeros(model.dim)
        h[j] = 1e-5
        assert abs((total(theta + h) - total(theta - h)) / 2e-5 - gradient[j]) < 1e-6 * (1.0 + np.abs(gradient).max())


@pytest.mark.parametrize("name", ["logistic", "gaussian", "softmax"])
def test_curvatures_of_all_rows_sum_to_the_hessian(name):
    model = model_of(name)
    mode = tb.find_mode(model, progress=False)
    lower = np.zeros((model.dim, model.dim))
    add_curvatures(model.rows, np.arange(N), np.ones(N), mode.reference, lower)
    np.testing.assert_allclose(lower + np.tril(lower, -1).T, mode.hessian, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_proxy_sum_and_all_residuals_make_the_likelihood(order):
    model = model_of("logistic")
    mode = tb.find_mode(model, progress=False)
    theta = away(mode)
    proxy = difference(mode, order, UniformRows(N), np.inf)
    rest = control_residuals(model.rows, np.arange(N), theta, mode.reference, order).sum()
    assert abs(proxy_sum(proxy, theta) + rest - passes.total_value(model.rows, theta)) < 1e-10


def estimators(rng):
    yield PenaltyEstimator(30, 5)
    yield BlockPoisson(np.sort(rng.choice(N, 10, replace=False)), 4, 3, 2, 0.8)


def weighted(n=N):
    scores = np.linspace(0.0, 3.0, n) ** 2
    return WeightedRows(n, pilots.build(scores), 0.1)


@pytest.mark.parametrize("scheme", [UniformRows(N), weighted()], ids=["uniform", "weighted"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", ["logistic", "gaussian", "softmax"])
def test_the_gradient_of_the_estimated_posterior_is_its_derivative(name, order, scheme):
    model = model_of(name)
    mode, rng = tb.find_mode(model, progress=False), np.random.default_rng(0)
    target = Target(model.rows, model.prior_terms, difference(mode, order, scheme, np.inf), counters())
    theta = away(mode, 0.3)
    for estimator in estimators(rng):
        rows = first_rows(rng, target, estimator, theta)
        density = EstimatedPosterior(target, estimator, rows, np.zeros(model.dim), np.zeros(4))
        gradient, scratch = np.empty(model.dim), np.empty(model.dim)
        log_density_gradient(density, theta, gradient)
        scale = np.abs(gradient).max()
        for j in range(model.dim):
            h = np.zeros(model.dim)
            h[j] = 2e-6
            ends = [log_density_gradient(density, theta + s * h, scratch) for s in (1.0, -1.0)]
            assert abs((ends[0] - ends[1]) / 4e-6 - gradient[j]) < 2e-6 * scale


def test_without_the_variance_term_the_gradient_is_wrong():
    model = model_of("logistic")
    mode, rng = tb.find_mode(model, progress=False), np.random.default_rng(0)
    z = rng.standard_normal(30) * 4.0
    factors = np.empty(30)
    value, _, variance = combine(PenaltyEstimator(30, 5), np.zeros(0, np.int64), z, factors)
    assert abs(value - (z.mean() - 0.5 * z.var() / 30)) < 1e-12 and abs(variance - z.var() / 30) < 1e-12
    h = np.zeros(30)
    h[7] = 1e-6
    slope = (
        combine(PenaltyEstimator(30, 5), None, z + h, np.empty(30))[0]
        - combine(PenaltyEstimator(30, 5), None, z - h, np.empty(30))[0]
    ) / 2e-6
    assert abs(slope - factors[7]) < 1e-8
    assert abs(slope - 1.0 / 30) > 1e-4  # the derivative of the mean alone
    assert mode.reference.size == 3


def test_a_part_of_the_rows_is_drawn_anew_and_the_rest_keeps_its_values():
    model = model_of("logistic")
    mode, rng = tb.find_mode(model, progress=False), np.random.default_rng(0)
    theta = away(mode)
    target = Target(model.rows, model.prior_terms, difference(mode, 2, UniformRows(N), np.inf), counters())
    for estimator in estimators(rng):
        rows = first_rows(rng, target, estimator, theta)
        for _ in range(20):
            before = target.counters[0]
            new = renewed_rows(rng, target, estimator, rows, theta)
            read = target.counters[0] - before
            expected = control_residuals(model.rows, new.indices, theta, mode.reference, 2)
            np.testing.assert_allclose(new.values, expected, atol=1e-13)
            if isinstance(estimator, PenaltyEstimator):
                assert read == estimator.size // estimator.blocks
                assert (new.indices != rows.indices).sum() <= read
            else:
                assert new.indices.size == 10 + 3 * new.counts.sum()
                assert (new.counts != rows.counts).sum() <= estimator.refreshed
                assert (new.indices[:10] == estimator.pilot).all()
            rows = new


def test_counts_of_the_block_poisson_estimator_are_poisson():
    estimator, rng = BlockPoisson(np.arange(2), 50, 1, 50, 1.0), np.random.default_rng(0)
    index, scale, counts = fresh_rows(rng, estimator, UniformRows(N))
    total = []
    for _ in range(400):
        index, scale, counts, _ = refreshed_rows(rng, estimator, UniformRows(N), index, scale, counts)
        total.append(counts.copy())
    drawn = np.concatenate(total)
    error = math.sqrt(1.0 / drawn.size)
    assert abs(drawn.mean() - 1.0) < THRESHOLD * error
    assert abs(drawn.var() - 1.0) < THRESHOLD * error * math.sqrt(3.0)


def block_poisson_draws(shift, draws=30_000):
    """Estimates over the likelihood of five rows, signs included, and the sum and law of Z."""
    d = np.array([0.3, -0.5, 0.4, -0.1, 0.2])
    estimator, rng = BlockPoisson(np.array([0, 2]), 2, 1, 1, shift), np.random.default_rng(3)
    ratio = np.empty(draws)
    for k in range(draws):
        index, scale, counts = fresh_rows(rng, estimator, UniformRows(5))
        total, sign, _ = combine(estimator, counts, d[index] * scale, np.empty(index.size))
        ratio[k] = sign * math.exp(total - d.sum())
    a = 2.5 * (d[0] + d[2]) - 2.0 * shift
    return ratio, (5.0 * d - a) / 2.0


@pytest.mark.parametrize("shift", [1.0, 0.5])
def test_the_block_poisson_estimator_is_unbiased_and_its_absolute_value_is_not(shift):
    ratio, terms = block_poisson_draws(shift)
    error = ratio.std() / math.sqrt(ratio.size)
    assert abs(ratio.mean() - 1.0) < THRESHOLD * error
    absolute = math.exp(2.0 * 2.0 * np.maximum(-terms, 0.0).mean())  # E |L-hat| / L = exp(2 lambda E A^-)
    assert abs(np.abs(ratio).mean() - absolute) < THRESHOLD * np.abs(ratio).std() / math.sqrt(ratio.size)
    assert absolute > 1.05
    positive = 0.5 * (1.0 + math.exp(-2.0 * 2.0 * (terms < 0).mean()))
    assert abs((ratio >= 0).mean() - positive) < THRESHOLD * math.sqrt(0.25 / ratio.size)


def test_the_bias_is_that_of_enumeration():
    rng = np.random.default_rng(0)
    for m in (2, 3, 4):
        z, p = rng.standard_normal(3) * 1.5, np.array([0.2, 0.5, 0.3])
        total = 0.0
        for u in itertools.product(range(3), repeat=m):
            value = combine(PenaltyEstimator(m, 1), np.zeros(0, np.int64), z[list(u)], np.empty(m))[0]
            total += p[list(u)].prod() * math.exp(value)
        assert abs(Sample(z, p).bias(m) - (math.log(total) - p @ z)) < 1e-12


def test_a_reference_that_is_not_the_mode_keeps_the_estimator_unbiased():
    model = model_of("logistic")
    mode = tb.find_mode(model, progress=False)
    other = mode_at(model, away(mode, 1.0))
    theta = away(mode, 0.5, seed=2)
    proxy = difference(other, 2, UniformRows(N), np.inf)
    rest = control_residuals(model.rows, np.arange(N), theta, other.reference, 2).sum()
    assert abs(proxy_sum(proxy, theta) + rest - passes.total_value(model.rows, theta)) < 1e-10


@pytest.mark.parametrize("products", [1, 3])
def test_the_reported_variance_of_the_signed_estimator_is_that_of_its_logarithm(products):
    """Also where most draws have one minibatch or none: at lambda = 1 three in four do."""
    rng, n, draws = np.random.default_rng(2), 200, 20_000
    z = 0.02 * rng.standard_normal(n) * n
    estimator, scheme = BlockPoisson(np.arange(50), products, 30, 1, 1.0), UniformRows(n)
    logs, reported = np.empty(draws), np.empty(draws)
    for k in range(draws):
        index, _, counts = fresh_rows(rng, estimator, scheme)
        logs[k], _, reported[k] = combine(estimator, counts, z[index], np.empty(index.size))
    error = math.hypot(((logs - logs.mean()) ** 2).std(), reported.std()) / math.sqrt(draws)
    assert abs(reported.mean() - logs.var()) < THRESHOLD * error
    assert error < 0.05 * logs.var()


def test_residuals_of_order_0_need_as_many_rows_as_there_are_and_those_of_higher_orders_do_not():
    """gamma = n^2 Var d over the posterior goes like n, 1 and 1/n for orders 0, 1 and 2; m is gamma over the variance wanted."""
    gammas = {}
    for n in (4_000, 64_000):
        X, y = logistic_arrays(n)
        mode = tb.find_mode(tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0)), progress=False)
        points = mode.laplace().draw(np.random.default_rng(1), 20)
        for order in (0, 1, 2):
            gammas[n, order] = np.median([n * n * d.var() for d in pilots.all_residuals(mode, order, points)])
    for order, power in ((0, 1.0), (1, 0.0), (2, -1.0)):
        assert abs(math.log(gammas[64_000, order] / gammas[4_000, order], 16) - power) < 0.2


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])


def sparse_logistic(scale, n=4000, seed=1, copies=False):
    """Six columns of which three have no effect; with `copies` a seventh that is a combination of two others."""
    rng, x = design(n, 6, seed)
    y = (rng.random(n) < expit(x @ [0.3, 0.8, -0.5, 0.0, 0.0, 0.0])).astype(float)
    if copies:
        x = np.column_stack([x, x[:, 1] - x[:, 2]])
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.laplace(scale))


@pytest.mark.parametrize("scale", [0.003, 0.01, 0.05])
def test_proxies_at_a_corner_have_the_gradient_of_the_rows(scale):
    """The sum of first-order terms must be the rows' own, whatever the prior: else no method that uses it is exact."""
    model = sparse_logistic(scale)
    mode = find_mode(model, progress=False)
    assert (mode.reference == 0.0).any()
    for reference in (mode, mode_at(model, mode.reference)):
        rows = log_likelihood_gradient(model, reference.reference)
        found = np.linalg.solve(reference.factor.T, taylor(reference).numbers[: model.dim])
        np.testing.assert_allclose(found, rows, atol=1e-6 * np.abs(rows).max())
        np.testing.assert_allclose(
            difference(reference, 2, UniformRows(50), np.inf).sums[0], rows, atol=1e-6 * np.abs(rows).max()
        )
        np.testing.assert_allclose(reference.precision, mode.precision, rtol=1e-6, atol=1e-6 * np.abs(mode.precision).max())

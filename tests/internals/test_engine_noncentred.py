"""Internals of `tallbayes.engine.noncentred`; what users see of it is tested in test_hierarchical.py."""

import numpy as np
import pandas as pd
import pytest

import tallbayes as tb
from tallbayes.engine.noncentred import natural, unconstrained
from tallbayes.engine.rows import range_gradient, range_value
from tallbayes.priors import prior_gradient, prior_value
from tallbayes.run.chain import Chain
from tallbayes.run.flattening import flatten, unflatten
from tallbayes.samplers import MinibatchGibbs


def arrays(n=400, levels=8, family="logistic", scale=0.8, seed=1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, levels, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    eta = X @ [-0.3, 0.6, 0.2] + (scale * rng.standard_normal(levels))[codes]
    y = {
        "logistic": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "probit": lambda: rng.standard_normal(n) < eta,
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negbin": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(eta))),
        "gamma": lambda: rng.gamma(2.0, np.exp(eta) / 2.0),
        "gaussian": lambda: eta + rng.standard_normal(n),
        "student_t": lambda: eta + rng.standard_t(4, n),
    }[family]()
    return X, y.astype(float), codes


OPTIONS = {"negbin": {"size": 2.0}, "gamma": {"shape": 2.0}, "gaussian": {"sigma": 1.0}, "student_t": {"nu": 4.0, "scale": 1.0}}


def model_of(family="logistic", terms=None, prior=None, more="", **options):
    """`more`: "offsets" (exposures), "weights", "empty" (two levels without rows), "equal" (responses of three levels all ones)."""
    X, y, codes = arrays(family=family, **options)
    rng, offsets, weights = np.random.default_rng(9), None, None
    if more == "offsets":
        offsets = rng.uniform(-1.0, 1.0, y.size)
        y = rng.poisson(np.exp(offsets + X @ [-0.3, 0.6, 0.2] + 0.5 * np.sin(codes))).astype(float)
    if more == "weights":
        weights = rng.choice([0.5, 1.0, 2.0], y.size)
    if more == "equal":
        y[codes < 3] = 1.0
    grouping = pd.Categorical.from_codes(codes, categories=range(codes.max() + 3)) if more == "empty" else codes
    data = tb.Dataset.from_arrays(X, y, offsets, weights, groups={"g": grouping if terms is None else (grouping, terms)})
    return getattr(tb.models, family)(data, tb.priors.normal(3.0) if prior is None else prior, **OPTIONS.get(family, {}))


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def mode(model):
    return tb.find_mode(model, progress=False)


# Models


def test_the_density_of_nuts_has_the_gradient_of_its_value():
    X, y, codes = arrays()
    Z = np.column_stack([np.ones(400), X[:, 1], X[:, 2]])
    priors = {"1|g_sigma": tb.priors.half_normal(1.0), "x1|g_sigma": tb.priors.exponential(2.0), "g_corr": tb.priors.lkj(2.0)}
    data = tb.Dataset.from_arrays(X, y, groups={"g": (codes, Z), "h": np.arange(400) % 5})
    model = tb.models.logistic(data, prior=priors)
    rows, prior, rng = model.rows, model.prior_terms, np.random.default_rng(0)
    theta = 0.4 * rng.standard_normal(model.dim + model.level_count)
    gradient = np.zeros(theta.size)
    value = range_gradient(rows, 0, 400, theta, gradient) + prior_gradient(prior, theta, gradient)

    def density(at):
        return range_value(rows, 0, 400, at) + prior_value(prior, at)

    assert abs(value - density(theta)) < 1e-10
    for j in range(0, theta.size, 3):
        step = 1e-5 * np.eye(theta.size)[j]
        assert abs((density(theta + step) - density(theta - step)) / 2e-5 - gradient[j]) < 1e-6
    out, back = np.empty(theta.size), np.zeros(theta.size)
    natural(rows, theta, out)
    unconstrained(rows, out, back)
    np.testing.assert_allclose(back[: model.dim], theta[: model.dim], atol=1e-12)
    sigma, correlation = model.covariances(out)[0]
    z = theta[model.dim : model.dim + 24].reshape(8, 3)
    factor = np.linalg.cholesky(np.outer(sigma, sigma) * correlation)
    np.testing.assert_allclose(out[model.dim : model.dim + 24].reshape(3, 8).T, z @ factor.T, atol=1e-12)


# Mode


def test_the_joint_mode_is_a_stationary_point(model, mode):
    """At the covariances found, no coefficient and no level gains from a small step."""
    rows, effects, beta = model.factor_rows(0), mode.effects[0], mode.coefficients
    from tallbayes.engine.grouped_rows import level_sums

    sums = level_sums(rows, beta, effects, np.empty(0), False)
    gradient = sums.gradient.copy()
    prior_gradient(model.coefficient_terms, beta, gradient)
    assert np.abs(mode.laplace().sd[:3] * gradient).max() < 0.1
    score = sums.slopes[:, 0] - effects[:, 0] / mode.sigmas[0][0] ** 2
    assert np.abs(score / np.sqrt(sums.curvatures[:, 0, 0] + mode.sigmas[0][0] ** -2)).max() < 0.1


# The contract of a sampler, for the one that needs groups


@pytest.mark.parametrize("terms", [None, ["1", "x1"]], ids=["intercepts", "slopes"])
def test_chunks_never_change_draws_and_options_are_frozen(terms):
    model = model_of(terms=terms)
    mode, sampler = tb.find_mode(model, progress=False), MinibatchGibbs()
    setup = sampler.setup(model, mode, 3, False)
    size = model.dim + model.level_count

    def chain():
        return Chain(0, sampler, setup, np.random.SeedSequence(5), mode.reference, warmup=60, thin=1)

    whole, parts = chain(), chain()
    before = flatten(whole.options)
    while whole.warming or whole.draws < 40:
        whole.per_second = 1e9
        whole.chunk(40)
    while parts.warming or parts.draws < 40:
        parts.per_second = 20.0
        parts.chunk(40)
    for a, b in zip(whole.collected(), parts.collected(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.collected()[0].shape == (40, size) and whole.target.counters[4] == 0
    assert any((before[k] != v).any() for k, v in flatten(whole.options).items())
    for value in (whole.state, whole.tuning):
        again = unflatten(value, flatten(value, "it"), "it")
        for key, array in flatten(value).items():
            np.testing.assert_array_equal(array, flatten(again)[key])
    theta = whole.collected()[0][-1]
    np.testing.assert_allclose(theta[3 : 3 + whole.state.log_sd.size], np.exp(whole.state.log_sd))
    b = theta[model.dim :].reshape(-1, 8).T
    carriers, carried = setup.proxy.prior.carriers, setup.proxy.surrogate.carried
    surrogate, beta = setup.proxy.surrogate, theta[:3].copy()
    beta[0] += surrogate.means @ beta
    assert surrogate.constant == 0 and np.abs(surrogate.means[surrogate.free]).min() > 1e-4
    np.testing.assert_allclose(whole.state.levels, b + carriers @ beta[carried], atol=1e-12)

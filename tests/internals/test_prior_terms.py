"""Internals of `tallbayes.prior_terms`; what users see of it is tested in test_named_priors.py and test_priors.py."""

import json

import numpy as np
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes import priors
from tallbayes.compile import jit
from tallbayes.data import Dataset
from tallbayes.prior_terms import prior_gradient, prior_precision, prior_value
from tallbayes.priors import from_dict

POSITIVE = {
    "half_normal": (tb.priors.half_normal(1.3), stats.halfnorm(scale=1.3)),
    "half_cauchy": (tb.priors.half_cauchy(0.8), stats.halfcauchy(scale=0.8)),
    "exponential": (tb.priors.exponential(2.0), stats.expon(scale=2.0)),
    "gamma": (tb.priors.gamma(2.5, 0.7), stats.gamma(2.5, scale=1 / 0.7)),
    "inverse_gamma": (tb.priors.inverse_gamma(1.4, 0.6), stats.invgamma(1.4, scale=0.6)),
}


def rows(n=60):
    rng = np.random.default_rng(3)
    return {
        "age": rng.normal(40.0, 9.0, n),
        "region": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        "y": rng.normal(size=n),
    }


def data_of():
    import pyarrow as pa

    return tb.read(pa.table(rows()), "y ~ age + C(region) + age:C(region)")


def model_of(**priors):
    return tb.models.gaussian(data_of(), prior=priors)


@pytest.mark.parametrize("name", POSITIVE)
def test_densities_of_positive_parameters_have_their_jacobian(name):
    prior, law = POSITIVE[name]
    terms = model_of(sigma=prior, default=tb.priors.flat()).prior_terms
    theta = np.zeros(terms.kind.size)
    logs = np.linspace(-3.0, 3.0, 31)
    gaps = []
    for log_sigma in logs:
        theta[-1] = log_sigma
        gaps.append(prior_value(terms, theta) - law.logpdf(np.exp(log_sigma)) - log_sigma)
        gradient, step = np.zeros(theta.size), 1e-5
        prior_gradient(terms, theta, gradient)
        ends = []
        for sign in (1, -1):
            moved = theta.copy()
            moved[-1] += sign * step
            inner = np.zeros(theta.size)
            ends.append((prior_gradient(terms, moved, inner), inner[-1]))
        assert gradient[-1] == pytest.approx((ends[0][0] - ends[1][0]) / (2 * step), abs=1e-6)
        assert prior_precision(terms, theta)[-1, -1] == pytest.approx(-(ends[0][1] - ends[1][1]) / (2 * step), abs=1e-6)
    assert np.ptp(gaps) < 1e-9


SCALES, LOCATIONS = np.array([0.5, 2.0, 1.0, 3.0]), np.array([0.3, -1.0, 0.0, 2.0])

PRIORS = {
    "flat": priors.flat(),
    "normal": priors.normal(2.0),
    "normal-each": priors.normal(SCALES, LOCATIONS),
    "laplace": priors.laplace(0.7),
    "laplace-each": priors.laplace(SCALES, LOCATIONS),
    "cauchy": priors.cauchy(1.5, 0.2),
    "student": priors.student_t(df=3.0, scale=1.2),
    "student-each": priors.student_t(np.array([1.0, 4.0, 7.0, 30.0]), SCALES, LOCATIONS),
    "weak": priors.weakly_informative(),
}

DISTRIBUTIONS = {
    "normal": stats.norm(0.0, 2.0),
    "normal-each": stats.norm(LOCATIONS, SCALES),
    "laplace": stats.laplace(0.0, 0.7),
    "laplace-each": stats.laplace(LOCATIONS, SCALES),
    "cauchy": stats.cauchy(0.2, 1.5),
    "student": stats.t(3.0, 0.0, 1.2),
    "student-each": stats.t(np.array([1.0, 4.0, 7.0, 30.0]), LOCATIONS, SCALES),
}


def columns(intercept=True):
    """A column of ones (unless told otherwise), one with two values, one shifted, one ordinary."""
    rng = np.random.default_rng(1)
    first = np.ones(500) if intercept else rng.normal(2.0, 1.0, 500)
    X = np.column_stack([first, rng.choice([2.0, 5.0], 500), rng.normal(30.0, 4.0, 500), rng.normal(size=500)])
    return X, rng.normal(7.0, 3.0, 500)


def dataset(intercept=True):
    return Dataset.from_arrays(*columns(intercept))


def terms_of(name, intercept=True, response_scale=False):
    return PRIORS[name].terms(dataset(intercept), 1, 0, response_scale)


def thetas(count=40, width=4):
    return 2.0 * np.random.default_rng(2).standard_normal((count, width))


def standardised(theta, response_scale):
    """Coordinates in which the weakly informative prior is independent Cauchy, and their scales."""
    X, y = columns()
    unit = 2.0 * y.std() if response_scale else 1.0
    spread = np.array([1.0, 3.0, 2.0 * X[:, 2].std(), 2.0 * X[:, 3].std()])
    coordinates = theta * spread / unit
    centre = theta @ X.mean(0)
    coordinates[..., 0] = (centre - (y.mean() if response_scale else 0.0)) / unit
    return coordinates, np.array([10.0, 2.5, 2.5, 2.5])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_densities_agree_with_scipy_up_to_a_constant(name):
    terms, points = terms_of(name), thetas()
    gaps = [prior_value(terms, theta) - DISTRIBUTIONS[name].logpdf(theta).sum() for theta in points]
    assert np.ptp(gaps) < 1e-10


@pytest.mark.parametrize("response_scale", [False, True])
def test_the_default_prior_is_cauchy_in_standardised_columns(response_scale):
    terms = terms_of("weak", response_scale=response_scale)
    gaps = []
    for theta in thetas():
        coordinates, scales = standardised(theta, response_scale)
        gaps.append(prior_value(terms, theta) - stats.cauchy(0.0, scales).logpdf(coordinates).sum())
    assert np.ptp(gaps) < 1e-10


def test_the_default_prior_without_intercept_judges_every_coefficient_alone():
    X, _ = columns(intercept=False)
    scales = 2.5 / np.array([2.0 * X[:, 0].std(), 3.0, 2.0 * X[:, 2].std(), 2.0 * X[:, 3].std()])
    terms = terms_of("weak", intercept=False)
    gaps = [prior_value(terms, theta) - stats.cauchy(0.0, scales).logpdf(theta).sum() for theta in thetas()]
    assert np.ptp(gaps) < 1e-10


def test_a_flat_prior_is_flat():
    for theta in thetas():
        assert prior_value(terms_of("flat"), theta) == 0.0


def central(function, theta, step=1e-4):
    """Five-point central differences in every coordinate."""
    out = []
    for j in range(theta.size):
        shift = np.zeros(theta.size)
        shift[j] = step
        near = np.asarray(function(theta + shift)) - np.asarray(function(theta - shift))
        far = np.asarray(function(theta + 2 * shift)) - np.asarray(function(theta - 2 * shift))
        out.append((8.0 * near - far) / (12.0 * step))
    return np.array(out)


def gradient_of(terms, theta):
    gradient = np.zeros(theta.size)
    prior_gradient(terms, theta, gradient)
    return gradient


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("response_scale", [True, False])
@pytest.mark.parametrize("name", PRIORS)
def test_derivatives_agree_with_finite_differences(name, response_scale, intercept):
    terms = terms_of(name, intercept, response_scale)
    for theta in thetas():
        gradient = gradient_of(terms, theta)
        found = central(lambda t: prior_value(terms, t), theta)
        np.testing.assert_allclose(found, gradient, rtol=1e-6, atol=1e-8)
        found = central(lambda t: gradient_of(terms, t), theta)
        np.testing.assert_allclose(found, -prior_precision(terms, theta), rtol=1e-6, atol=1e-8)


@jit
def compiled_prior(terms, theta, gradient):
    return prior_value(terms, theta), prior_gradient(terms, theta, gradient)


@pytest.mark.parametrize("name", PRIORS)
def test_both_speeds_agree_and_gradients_are_added(name):
    terms = terms_of(name)
    for theta in thetas(10):
        start = np.arange(4.0)
        compiled, interpreted = start.copy(), start.copy()
        values = compiled_prior(terms, theta, compiled)
        assert values[0] == pytest.approx(values[1], rel=1e-14)
        assert values == pytest.approx(compiled_prior.py_func(terms, theta, interpreted), rel=1e-12)
        np.testing.assert_allclose(compiled, interpreted, rtol=1e-12)
        np.testing.assert_allclose(compiled - start, gradient_of(terms, theta), rtol=1e-9, atol=1e-12)


def test_nuisances_are_flat_and_predictors_repeat_the_prior():
    data = dataset()
    terms = PRIORS["normal-each"].terms(data, 3, 2, False)
    theta = np.arange(14.0)
    one = terms_of("normal-each")
    expected = sum(prior_value(one, theta[4 * k : 4 * k + 4]) for k in range(3))
    assert prior_value(terms, theta) == pytest.approx(expected, rel=1e-14)
    assert prior_value(terms, np.append(theta[:12], [50.0, -50.0])) == pytest.approx(expected, rel=1e-14)
    np.testing.assert_array_equal(prior_precision(terms, theta)[12:], 0.0)


@pytest.mark.parametrize("name", PRIORS)
def test_priors_survive_json(name):
    copy = from_dict(json.loads(json.dumps(PRIORS[name].as_dict())))
    assert copy.describe() == PRIORS[name].describe()
    for found, expected in zip(copy.terms(dataset(), 1, 1, True), PRIORS[name].terms(dataset(), 1, 1, True), strict=True):
        np.testing.assert_array_equal(found, expected)

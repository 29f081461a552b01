"""Labelled Gaussian vectors: likelihood and derivatives, exact modes, and the models of the informed-subsampling paper."""

import json

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.testing import log_likelihood, row_log_likelihoods

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
def test_the_likelihood_is_that_of_normal_vectors(sigma, mapping):
    model = model_of(sigma, mapping)
    theta = np.random.default_rng(1).normal(0.0, 0.5, model.dim)
    phi = np.eye(2) if mapping is None else PHI
    d = phi.shape[1]
    x, y, weights = rows_of()
    values = np.empty(60)
    for k in range(2):
        s = sigma if sigma else np.exp(theta[2 * d + k])
        law = multivariate_normal(phi @ theta[k * d : k * d + d], s**2 * np.diag(V))
        values[y == k] = law.logpdf(x[y == k])
    constant = -np.log(2 * np.pi) - 0.5 * np.log(V).sum() - (2 * np.log(sigma) if sigma else 0.0)
    found = row_log_likelihoods(model, theta, np.arange(60))
    np.testing.assert_allclose(found, weights * (values - constant), rtol=1e-10)
    assert log_likelihood(model, theta) == pytest.approx(found.sum(), rel=1e-12)


def test_the_mode_is_that_of_weighted_means():
    x, y, weights = rows_of()
    mode = tb.find_mode(model_of(prior=tb.priors.flat()), progress=False)
    for k in range(2):
        w, own = weights[y == k], x[y == k]
        mean = np.average(own, axis=0, weights=w)
        variance = np.average(((own - mean) ** 2 / V).mean(1), weights=w)
        np.testing.assert_allclose(mode.reference[2 * k : 2 * k + 2], mean, atol=1e-6)
        assert mode.reference[4 + k] == pytest.approx(0.5 * np.log(variance), abs=1e-6)


def test_a_model_is_described_in_json_and_built_again():
    model = model_of(0.3, PHI)
    spec = json.loads(json.dumps(model.describe()))
    again = tb.models.build(spec["family"], model.data, **spec["options"])
    theta = np.arange(6.0)
    assert again.log_posterior(theta) == model.log_posterior(theta)
    assert model.names == ("t0[0]", "t1[0]", "t2[0]", "t0[1]", "t1[1]", "t2[1]")
    assert model_of().names == ("x0[0]", "x1[0]", "x0[1]", "x1[1]", "log_sigma[0]", "log_sigma[1]")


def test_bad_input_is_named():
    x, y, _ = rows_of()
    data = tb.Dataset.from_arrays(x, y)
    for options, message in (
        ({"classes": 0}, "classes must be a whole number"),
        ({"sigma": -1.0}, "sigma must be a positive number"),
        ({"mapping": np.ones((3, 2))}, "a line for each of the 2 columns"),
        ({"variances": [1.0, 0.0]}, "variances must be 2 positive numbers"),
    ):
        with pytest.raises(OptionError, match=message):
            tb.models.class_gaussian(data, **options)
    with pytest.raises(DataError, match="needs a class 0 to 0"):
        tb.models.class_gaussian(data, classes=1)
    with pytest.raises(ModelError, match="Every class needs rows"):
        tb.find_mode(tb.models.class_gaussian(data, tb.priors.flat(), classes=3), progress=False)
    with pytest.raises(DataError, match="a model needs a Dataset"):
        tb.models.class_gaussian(x)


def test_samplers_of_linear_predictors_refuse_it():
    model = model_of()
    with pytest.raises(ModelError, match="the rows of class_gaussian have no linear predictor"):
        tb.samplers.ExactMinibatch().setup(model, tb.find_mode(model, progress=False), 0, False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have up to")  # half of so few rows: subsets shift the posterior of LWA
@pytest.mark.parametrize("name", ["nuts", "informed", "lwa"])
def test_it_is_sampled(name):
    model = model_of()
    fit = tb.sample(model, name, draws=300, warmup=300, chains=2, seed=1, progress=False)
    assert np.abs(fit.theta.mean((0, 1)) - tb.find_mode(model, progress=False).reference).max() < 0.3
    with pytest.raises(ModelError, match="describes the columns given the class"):
        fit.predict(np.ones((1, 2)))

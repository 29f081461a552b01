"""Internals of `tallbayes.model`; what users see of it is tested in test_model.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.families.arma import SeriesModel
from tallbayes.families.class_gaussian import ClassModel
from tallbayes.partial import _part
from tallbayes.testing import log_likelihood, row_log_likelihoods

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(60), RNG.standard_normal((60, 2))])
LABELS = np.arange(60) % 3
COUNTS = RNG.poisson(1.0, 60).astype(float)
WEIGHTS = RNG.random(60)


def built(name):
    data = tb.Dataset.from_arrays(X, COUNTS, weights=WEIGHTS, columns=["one", "a", "b"])
    classes = tb.Dataset.from_arrays(X, LABELS, weights=WEIGHTS)
    return {
        "poisson": lambda: tb.models.poisson(data),
        "gaussian": lambda: tb.models.gaussian(data),
        "softmax": lambda: tb.models.softmax(classes, tb.priors.normal(2.0)),
        "class_gaussian": lambda: tb.models.class_gaussian(
            classes, classes=3, mapping=np.eye(3)[:, :2], variances=[1.0, 2.0, 3.0]
        ),
        "expression": lambda: tb.models.family("y*eta - exp(eta)", data, support="count"),
        "scaled": lambda: tb.models.family("-log_scale - ((y - eta)*exp(-log_scale))**2", data),
    }[name]()


def check_part(model, part, index):
    """The same posterior as the model with weights zero outside the index."""
    assert type(part) is type(model) and part.names == model.names and part.describe() == model.describe()
    assert part.default_prior == model.default_prior and part.data.n == index.size
    theta = 0.1 * np.arange(1.0, model.dim + 1)
    if model.predictors == 1 and type(model).__name__ != "UserModel":
        np.testing.assert_array_equal(
            row_log_likelihoods(part, theta, np.arange(index.size)), row_log_likelihoods(model, theta, index)
        )
    values = row_log_likelihoods(model, theta, index).sum() + model.log_prior(theta)
    assert part.log_posterior(theta) == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize("name", ["poisson", "gaussian", "softmax", "class_gaussian", "expression", "scaled"])
def test_a_part_of_the_rows_has_the_model_of_all(name):
    model, index = built(name), np.arange(3, 57, 2)
    check_part(model, _part(model, index), index)
    assert isinstance(model, ClassModel) == (name == "class_gaussian")


def test_models_in_jax_and_numpyro_keep_what_the_user_wrote():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    def log_lik(theta, row):
        eta = row["one"] * theta["level"] + row["a"] * theta["slope"]
        return row["y"] * eta - jnp.exp(eta)

    data = tb.Dataset.from_arrays(X, COUNTS, weights=WEIGHTS, columns=["one", "a", "b"])
    parameters, index = {"level": "real", "slope": "positive"}, np.arange(10, 40)
    model = tb.models.from_jax(
        log_lik, data, lambda p: -(p["level"] ** 2) - p["slope"], params=parameters, start=[0.1, 0.2], log_normaliser=0.0
    )
    part = _part(model, index)
    check_part(model, part, index)
    np.testing.assert_array_equal(part.start(), [0.1, 0.2])
    assert part.normaliser == 0.0
    numpyro = pytest.importorskip("numpyro")

    def program(x, y):
        beta = numpyro.sample("beta", numpyro.distributions.Normal(0.0, 1.0).expand([3]))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", numpyro.distributions.Poisson(jnp.exp(x @ beta)), obs=y)

    model = tb.models.from_numpyro(program, data)
    check_part(model, _part(model, index), index)
    np.testing.assert_array_equal(model.log_normaliser(index), np.zeros(30))


def test_a_series_over_other_observations_keeps_its_order():
    y = RNG.standard_normal(80)
    model = tb.models.arma(y, 2, 1)
    again = model.over(tb.models.arma(y[:50], 1, 0).data)
    assert isinstance(again, SeriesModel) and again.names == model.names and again.data.n == 50
    theta = np.array([0.3, 0.1, 0.2, 0.5, 0.1])
    expected = tb.models.arma(y[:50], 2, 1)
    assert log_likelihood(again, theta) == log_likelihood(expected, theta)
    assert again.log_prior(theta) == model.log_prior(theta) != expected.log_prior(theta)

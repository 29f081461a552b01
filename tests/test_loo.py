"""Leave-one-out from a subsample: normalised densities, the full computation as its limit, honest standard errors."""

import dataclasses

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb

X = np.column_stack([np.ones(4), [-1.0, 0.0, 0.5, 2.0]])


def test_a_family_without_normaliser_is_refused_before_any_pass():
    X, y = logistic_arrays(200)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    fit = tb.sample(model, "nuts", draws=60, warmup=60, chains=2, seed=3, progress=False)
    model.family = dataclasses.replace(model.family, log_normaliser=None)
    with pytest.raises(tb.ModelError, match=r"known up to a factor only.*give its Family a log_normaliser"):
        fit.loo(model, rows=50)


def test_models_in_jax_say_what_their_likelihood_leaves_out():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    y = np.array([0.0, 1.0, 5.0, 2.0])
    data = tb.Dataset.from_arrays(X, y)

    def log_lik(theta, row):
        eta = row["x"] @ theta
        return row["y"] * eta - jnp.exp(eta)

    def made(**options):
        return tb.models.from_jax(log_lik, data, tb.priors.normal(1.0), dim=2, **options)

    with pytest.raises(tb.ModelError, match=r"give from_jax log_normaliser=, 0\.0 if log_lik is a normalised log density"):
        made().log_normaliser(np.arange(4))
    model = made(log_normaliser=lambda row: -jnp.log(row["y"] + 1.0))
    np.testing.assert_allclose(model.log_normaliser(np.array([0, 2])), -np.log([1.0, 6.0]))
    np.testing.assert_array_equal(made(log_normaliser=-1).log_normaliser(np.arange(3)), np.full(3, -1.0))
    with pytest.raises(tb.OptionError, match="a finite number, or a function of a row"):
        made(log_normaliser="none")
    with pytest.raises(tb.OptionError, match="one finite number for a row"):
        made(log_normaliser=lambda row: row["x"]).log_normaliser(np.arange(3))


@pytest.fixture(scope="module")
def run():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(1500)), tb.priors.normal(2.0))
    return model, tb.sample(model, "exact-minibatch", draws=250, warmup=100, chains=4, seed=3, progress=False)


def test_errors_name_the_remedy(run):
    model, fit = run
    other = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(1501)), tb.priors.normal(2.0))
    with pytest.raises(tb.StoreError, match="the model it was made from"):
        fit.loo(other)
    with pytest.raises(tb.OptionError, match="rows must be"):
        fit.loo(model, rows=1)

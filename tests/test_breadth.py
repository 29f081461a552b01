"""Families beyond the first three: modes against other tools, certificates on every row, exact draws."""

import numpy as np
import pytest
from scipy.optimize import minimize

import tallbayes as tb
from tallbayes.errors import DataError, ModelError, OptionError
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_scores


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng, np.column_stack([np.ones(n), 0.7 * rng.standard_normal((n, d - 1))])


def responses(name, eta, rng):
    if name == "probit":
        return (rng.standard_normal(eta.size) < eta).astype(float)
    if name == "gamma":
        return rng.gamma(2.0, np.exp(eta) / 2.0)
    if name == "negbin":
        return rng.negative_binomial(3, 3 / (3 + np.exp(eta))).astype(float)
    if name == "poisson":
        return rng.poisson(np.exp(eta)).astype(float)
    return eta + rng.standard_t(4, eta.size)


OPTIONS = {"probit": {}, "gamma": {"shape": 2.0}, "negbin": {"size": 3.0}, "student_t": {"nu": 4.0, "scale": 1.0}}


def model_of(name, n=400, d=3, prior=None, tempered=1.0, seed=0):
    rng, x = design(n, d, seed)
    offset = 0.3 * rng.standard_normal(n)
    y = responses(name, x @ np.linspace(0.4, -0.5, d) + offset, rng)
    weights = tempered * rng.choice([0.5, 1.0, 2.0], n)
    return tb.models.build(name, tb.Dataset.from_arrays(x, y, offset=offset, weights=weights), prior, **OPTIONS[name])


def softmax_model(n=400, d=3, classes=3, scale=3.0, tempered=1.0, seed=0):
    rng, x = design(n, d, seed)
    u = x @ rng.standard_normal((d, classes))
    y = (u + rng.gumbel(size=u.shape)).argmax(1)
    data = tb.Dataset.from_arrays(x, y, weights=np.full(n, tempered))
    return tb.models.softmax(data, tb.priors.normal(scale), classes=classes)


def test_the_student_t_mode_is_that_of_a_general_optimiser():
    model = model_of("student_t", prior=tb.priors.normal(5.0))
    best = minimize(lambda t: -model.log_posterior(t), np.zeros(model.dim), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(tb.find_mode(model, progress=False).reference, best.x, atol=1e-5)


MODELS = {**{name: lambda name=name: model_of(name) for name in OPTIONS}, "softmax": softmax_model}


def test_the_rate_of_softmax_is_far_below_n():
    model = softmax_model(n=50_000, d=10, scale=10.0)
    fit = tb.sample(model, "exact-minibatch", draws=200, warmup=50, chains=2, seed=1, progress=False)
    assert fit.stats["rate"].max() < 0.05 * model.data.n
    assert fit.stats["largest_ratio"].max() <= 1.0


def small(name, tempered=1.0):
    if name == "softmax":
        return softmax_model(n=80, d=1, classes=2, scale=1.0, tempered=tempered)
    return model_of(name, n=60, d=2, prior=tb.priors.normal(10.0), tempered=tempered)


@pytest.mark.parametrize("name", ["student_t", *(pytest.param(k, marks=pytest.mark.slow) for k in MODELS if k != "student_t")])
def test_exact_minibatch_leaves_the_posterior_invariant(name):
    posterior = exact_posterior(small(name), points=201)
    sampler = tb.samplers.ExactMinibatch()
    assert np.abs(invariance_scores(sampler, small(name), posterior, seed=2)).max() < THRESHOLD
    if name != "softmax":  # its prior is as strong as its likelihood, so a tempered one moves little
        assert np.abs(invariance_scores(sampler, small(name, 1.2), posterior, seed=3)).max() > THRESHOLD


def test_a_plain_normal_sample_reads_no_rows():
    values = 3.0 + 2.0 * np.random.default_rng(0).standard_normal(5000)
    fit = tb.sample(tb.models.normal(values), draws=500, chains=2, seed=1, progress=False)
    assert fit.evals.sum() == 0
    assert fit.theta[:, :, 0].mean() == pytest.approx(values.mean(), abs=0.01)
    assert np.exp(fit.theta[:, :, 1]).mean() == pytest.approx(values.std(), abs=0.02)


def test_softmax_refuses_a_flat_prior_and_wrong_classes():
    data = tb.Dataset.from_arrays(np.ones((3, 1)), [0, 1, 2])
    with pytest.raises(ModelError, match="proper prior"):
        tb.models.softmax(data, tb.priors.flat())
    with pytest.raises(DataError, match="reaches class 2"):
        tb.models.softmax(data, classes=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: tb.models.gamma(d, shape=0.0),
        lambda d: tb.models.negbin(d, size=-1.0),
        lambda d: tb.models.student_t(d, nu=0.0, scale=1.0),
    ],
)
def test_known_parameters_must_be_positive(make):
    with pytest.raises(OptionError, match="positive"):
        make(tb.Dataset.from_arrays(np.ones((3, 1)), [1.0, 2.0, 3.0]))


def test_gamma_refuses_zero_responses_by_row():
    with pytest.raises(DataError, match="row 1"):
        tb.models.gamma(tb.Dataset.from_arrays(np.ones((3, 1)), [1.0, 0.0, 3.0]), shape=1.0)


def test_a_start_of_no_density_is_refused():
    model = tb.models.poisson(tb.Dataset.from_arrays(np.ones((3, 1)), [1, 2, 3]))
    with pytest.raises(ModelError, match="not finite at its start"):
        tb.sample(model, "mh", draws=5, warmup=0, init=np.array([np.finfo(float).max]), progress=False)


def test_sparse_coefficients_have_a_reference():
    rng, x = design(5000, 6)
    y = (rng.random(5000) < 1 / (1 + np.exp(-x @ [0.2, 0.6, 0.0, 0.0, 0.0, 0.0]))).astype(float)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.laplace(0.01))
    mode = tb.find_mode(model, progress=False)
    assert np.abs(mode.reference[2:]).max() < 0.05 < mode.reference[1]
    fit = tb.sample(model, "nuts", draws=200, warmup=200, chains=2, seed=1, progress=False)
    assert (np.abs(fit.theta[:, :, 2:].mean((0, 1))) < 4 * fit.theta[:, :, 2:].std((0, 1))).all()

"""Internals of `tallbayes.bounds.catalogue`; what users see of it is tested in test_breadth.py."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.tables import rate_count, row_rates, total_rate
from tallbayes.engine import passes


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


def parts(model):
    return passes.block(model.rows, 0, model.data.n)


@pytest.mark.parametrize("name", ["probit", "gamma", "negbin"])
def test_the_mode_is_that_of_statsmodels(name):
    model = model_of(name, prior=tb.priors.flat())
    x, y, offset, weights = parts(model)
    family = {
        "probit": sm.families.Binomial(sm.families.links.Probit()),
        "gamma": sm.families.Gamma(sm.families.links.Log()),
        "negbin": sm.families.NegativeBinomial(sm.families.links.Log(), alpha=1 / 3),
    }[name]
    other = sm.GLM(y, x, family=family, offset=offset, freq_weights=weights).fit(tol=1e-13, maxiter=200)
    np.testing.assert_allclose(tb.find_mode(model, progress=False).reference, other.params, rtol=1e-6, atol=1e-8)


def test_the_softmax_mode_is_that_of_scikit_learn():
    model = softmax_model()
    x, y, _, _ = parts(model)
    other = LogisticRegression(C=9.0, fit_intercept=False, tol=1e-12, max_iter=5000).fit(x, y)
    np.testing.assert_allclose(tb.find_mode(model, progress=False).reference, other.coef_.ravel(), rtol=1e-4, atol=1e-5)


MODELS = {**{name: lambda name=name: model_of(name) for name in OPTIONS}, "softmax": softmax_model}


@pytest.mark.parametrize("name", MODELS)
def test_no_row_exceeds_its_certificate(name):
    model = MODELS[name]()
    mode = tb.find_mode(model, progress=False)
    bound, _ = certify(mode, indexed=True)
    rates, limits = np.zeros(rate_count(bound)), np.empty(model.data.n)
    rng, index = np.random.default_rng(1), np.arange(model.data.n)
    largest = 0.0
    for spread in (0.1, 1.0, 3.0):
        for _ in range(10):
            white, other = spread * rng.standard_normal((2, model.dim))
            total = total_rate(bound, white, other, rates)
            row_rates(bound, rates, 0, limits)
            gaps = passes.residuals_at(
                model.rows, index, mode.reference + mode.factor @ white, mode.reference + mode.factor @ other, mode.reference
            )
            assert (np.abs(gaps) <= limits * (1.0 + 1e-9) + 1e-14).all()
            assert total == pytest.approx(limits.sum(), rel=1e-10)
            assert total == total_rate(bound, other, white, rates)
            largest = max(largest, float((np.abs(gaps) / np.maximum(limits, 1e-300)).max()))
    assert largest > 0.02, "a bound this loose bounds nothing"

"""Internals of `tallbayes.results.leave_one_out`; what users see of it is tested in test_loo.py."""

import arviz_base
import arviz_stats
import numpy as np
import pytest
from scipy import special, stats
from support import logistic_arrays

import tallbayes as tb
from tallbayes.results.leave_one_out import pointwise

X = np.column_stack([np.ones(4), [-1.0, 0.0, 0.5, 2.0]])
THETA = np.array([0.3, 0.4])
ETA = X @ THETA
CASES = {
    "logistic": ([0, 1, 1, 0], {}, lambda y: stats.bernoulli(special.expit(ETA)).logpmf(y)),
    "probit": ([0, 1, 1, 0], {}, lambda y: stats.bernoulli(special.ndtr(ETA)).logpmf(y)),
    "poisson": ([0, 1, 5, 2], {}, lambda y: stats.poisson(np.exp(ETA)).logpmf(y)),
    "negbin": ([0, 1, 5, 2], {"size": 2.5}, lambda y: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(ETA))).logpmf(y)),
    "gamma": ([0.5, 1, 5, 2], {"shape": 2.5}, lambda y: stats.gamma(2.5, scale=np.exp(ETA) / 2.5).logpdf(y)),
    "gaussian": ([0.5, 1, 5, 2], {"sigma": 0.7}, lambda y: stats.norm(ETA, 0.7).logpdf(y)),
    "student_t": ([0.5, 1, 5, 2], {"nu": 3.0, "scale": 0.7}, lambda y: stats.t(3.0, ETA, 0.7).logpdf(y)),
}


@pytest.mark.parametrize("family", CASES)
def test_pointwise_densities_are_normalised(family):
    y, options, law = CASES[family]
    model = tb.models.build(family, tb.Dataset.from_arrays(X, y), **options)
    np.testing.assert_allclose(pointwise(model, np.arange(4), THETA), law(np.array(y)), rtol=1e-10)
    doubled = tb.models.build(family, tb.Dataset.from_arrays(X, y, weights=np.full(4, 2.0)), **options)
    np.testing.assert_allclose(pointwise(doubled, np.arange(4), THETA), 2 * law(np.array(y)), rtol=1e-10)


def test_unknown_sigma_and_classes_are_normalised():
    y = np.array([0.5, 1, 5, 2])
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, y))
    np.testing.assert_allclose(pointwise(model, np.arange(4), np.append(THETA, np.log(0.7))), stats.norm(ETA, 0.7).logpdf(y))
    model = tb.models.softmax(tb.Dataset.from_arrays(X, [0, 1, 2, 0]), tb.priors.normal(1.0), classes=3)
    theta = np.linspace(-1, 1, 6)
    expected = special.log_softmax(X @ theta.reshape(3, 2).T, axis=1)[np.arange(4), [0, 1, 2, 0]]
    np.testing.assert_allclose(pointwise(model, np.arange(4), theta), expected)


def test_rows_of_their_own_are_normalised():
    x, k = np.array([[0.5, 1.0], [5.0, 2.0], [-1.0, 0.3]]), np.array([0, 1, 1])
    v, means = np.array([1.0, 4.0]), np.array([[0.1, 0.2], [0.3, -0.4]])
    data = tb.Dataset.from_arrays(x, k)
    model = tb.models.class_gaussian(data, tb.priors.normal(1.0), sigma=0.7, variances=v)
    expected = stats.norm(means[k], 0.7 * np.sqrt(v)).logpdf(x).sum(1)
    np.testing.assert_allclose(pointwise(model, np.arange(3), means.ravel()), expected, rtol=1e-12)
    model = tb.models.class_gaussian(data, tb.priors.normal(1.0), variances=v)
    expected = stats.norm(means[k], np.array([0.5, 2.0])[k, None] * np.sqrt(v)).logpdf(x).sum(1)
    theta = np.append(means.ravel(), np.log([0.5, 2.0]))
    np.testing.assert_allclose(pointwise(model, np.arange(3), theta), expected, rtol=1e-12)
    y = np.random.default_rng(0).standard_normal(40)
    for sigma, theta in ((0.7, [0.4, 0.1]), (None, [0.4, 0.1, np.log(0.7)])):
        series = tb.models.arma(y, 1, 0, sigma=sigma, prior=tb.priors.flat())
        total = series.log_posterior(np.array(theta)) + series.log_normaliser(np.arange(1, 40)).sum()
        assert total == pytest.approx(stats.norm(0.4 * y[:-1] + 0.1, 0.7).logpdf(y[1:]).sum(), rel=1e-12)


def test_expressions_are_normalised_by_the_number_they_lack():
    y = np.array([0.5, 1, 5, 2])
    model = tb.models.family("-(y - eta)**2/(2*s**2)", tb.Dataset.from_arrays(X, y), constants={"s": 0.7})
    np.testing.assert_allclose(pointwise(model, np.arange(4), THETA), stats.norm(ETA, 0.7).logpdf(y), rtol=1e-7)
    model = tb.models.family("-log_scale - log(1 + ((y - eta)*exp(-log_scale))**2)", tb.Dataset.from_arrays(X, y))
    expected = stats.cauchy(ETA, 0.7).logpdf(y)
    np.testing.assert_allclose(pointwise(model, np.arange(4), np.append(THETA, np.log(0.7))), expected, rtol=1e-6)
    counts = tb.Dataset.from_arrays(X, [0, 1, 5, 2])
    with pytest.raises(tb.ModelError, match=r"needs a density of y.*Add the terms without eta, such as - lgamma\(y \+ 1\)"):
        tb.models.family("y*eta - exp(eta)", counts, support="count").log_normaliser(np.arange(4))
    whole = tb.models.family("y*eta - exp(eta) - lgamma(y + 1)", counts, support="count")
    expected = stats.poisson(np.exp(ETA)).logpmf([0, 1, 5, 2])
    np.testing.assert_allclose(pointwise(whole, np.arange(4), THETA), expected, rtol=1e-7)


@pytest.fixture(scope="module")
def run():
    model = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(1500)), tb.priors.normal(2.0))
    return model, tb.sample(model, "exact-minibatch", draws=250, warmup=100, chains=4, seed=3, progress=False)


def test_all_rows_give_the_loo_of_arviz(run):
    model, fit = run
    index = np.arange(1500)
    table = np.array([[pointwise(model, index, t) for t in chain] for chain in fit.theta])
    tree = arviz_base.from_dict({"posterior": {"theta": fit.theta}, "log_likelihood": {"y": table}})
    full = arviz_stats.loo(tree)
    ours = fit.loo(model, rows=1500)
    assert ours.elpd == pytest.approx(full.elpd, abs=1e-3) and ours.se == pytest.approx(full.se, rel=1e-3)
    assert ours.p == pytest.approx(full.p, rel=0.02) and ours.subsampling_se == 0.0
    for seed in range(3):
        part = fit.loo(model, rows=200, seed=seed)
        assert abs(part.elpd - full.elpd) < 4.9 * part.subsampling_se and part.subsampling_se < 1.0
        assert part.subsample_size == 200 and part.n_data_points == 1500 and "Estimate" in str(part)

"""Internals of `tallbayes.results.predictive_checks`."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import expit
from scipy.stats import kstest
from scipy.stats import t as student

import tallbayes as tb
from tallbayes.results.predictive_checks import _from_prior

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

    return tb.read(pa.table(rows()), "y ~ age + C(region) + age:C(region)")


def model_of(**priors):
    return tb.models.gaussian(data_of(), prior=priors)


@pytest.mark.parametrize("name", POSITIVE)
def test_draws_from_the_prior_have_its_law(name):
    prior, law = POSITIVE[name]
    model = model_of(sigma=prior, default=tb.priors.normal(1.0))
    draws = np.exp(_from_prior(model, 4000, np.random.default_rng(5))[:, -1])
    assert stats.kstest(draws, law.cdf).pvalue > 1e-6


def small(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)) * [1.0, 2.0]
    return X, (rng.random(n) < expit(X @ [1.0, -0.5])).astype(float)


def test_scales_and_coefficients_are_drawn_from_the_prior():
    X, y = small(200)
    prior = {"x0": tb.priors.normal(3.0), "x1": tb.priors.ridge(tb.priors.half_student_t(6.0, 0.5))}
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), prior)
    drawn = _from_prior(model, 2_000, np.random.default_rng(0))
    assert kstest(drawn[:, 0] / 3.0, "norm").pvalue > 1e-4
    assert kstest(drawn[:, 1] * X[:, 1].std(ddof=1) / drawn[:, 2], "norm").pvalue > 1e-4
    assert kstest(drawn[:, 2] / 0.5, lambda v: 2.0 * student.cdf(v, 6.0) - 1.0).pvalue > 1e-4
    assert tb.prior_predictive(model, draws=20).simulated.shape == (20, 200)

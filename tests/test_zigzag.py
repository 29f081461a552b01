"""The Zig-Zag process: its bounds on every row, its law against quadrature, its path integrals, and its mutants."""

import math

import numpy as np
import pytest
from support import logistic_arrays
from test_stochastic_gradient import made_up

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError
from tallbayes.results import path_moments
from tallbayes.samplers import ZigZag
from tallbayes.testing import THRESHOLD, effective_sizes, exact_posterior, invariance_scores


def skewed(rows=12, prior=None, weights=None):
    """A few rows: the posterior is far from normal, so that residuals of rows matter."""
    X, y = logistic_arrays(rows, (-1.0, 1.5), seed=4)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=weights), prior or tb.priors.normal(2.0))


def test_the_law_of_a_skewed_posterior_is_kept_with_every_kind_of_prior():
    for prior in (tb.priors.cauchy(1.0), tb.priors.weakly_informative()):
        model = skewed(prior=prior)
        posterior = exact_posterior(model, points=301, width=12.0)
        scores = invariance_scores(ZigZag(interval=0.5), model, posterior, starts=6000, steps=8)
        assert np.abs(scores).max() < THRESHOLD
    tempered = skewed(prior=prior, weights=np.full(12, 1.3))
    assert np.abs(invariance_scores(ZigZag(interval=0.5), tempered, posterior, starts=6000, steps=8)).max() > THRESHOLD


def test_path_moments_agree_with_quadrature():
    model = skewed()
    posterior = exact_posterior(model, points=301, width=12.0)
    runs = [path_moments(model, time=1500.0, seed=seed) for seed in range(12)]
    sd = np.sqrt(np.diag(posterior.covariance))
    for values, exact in (
        (np.array([r.mean for r in runs]) / sd, posterior.mean / sd),
        (np.array([np.diag(r.covariance) for r in runs]) / sd**2, np.ones(2)),
    ):
        z = (values.mean(0) - exact) / (values.std(0, ddof=1) / math.sqrt(12))
        assert np.abs(z).max() < 7.5  # Student's t with 11 degrees: 4.9 in normal terms would be 9.2
    assert all(r.evals > 0 for r in runs)
    with pytest.raises(OptionError, match="time must be positive"):
        path_moments(model, time=0.0)


def test_a_fit_counts_its_rows_and_passes_its_audit(medium):
    fit = tb.sample(medium, "zigzag", draws=300, warmup=200, chains=2, seed=1, progress=False)
    np.testing.assert_array_equal(fit.stats["rows"], fit.evals)
    assert 0 < fit.evals.mean() < 50 and fit.stats["largest_ratio"].max() <= 1.0
    assert fit.stats["turns"].sum() > 300
    assert fit.audit(medium, pairs=3, repeats=500).passed


def test_warm_up_aims_at_half_the_correlation(medium):
    fit = tb.sample(medium, "zigzag", draws=2000, warmup=400, chains=2, seed=1, progress=False)
    white = (fit.theta - fit.theta.mean((0, 1))) / fit.theta.std((0, 1))
    assert abs((white[:, 1:] * white[:, :-1]).mean((0, 1)).max() - 0.5) < 0.25


def test_what_it_cannot_do_is_refused():
    X, y = logistic_arrays(60)
    data = tb.Dataset.from_arrays(X, y)
    with pytest.raises(ModelError, match="prior with bounded third derivatives"):
        model = tb.models.logistic(data, tb.priors.laplace(1.0))
        ZigZag().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(ModelError, match="no certified bound"):
        model = tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1] + y))
        ZigZag().setup(model, tb.find_mode(model, progress=False), 0, False)
    with pytest.raises(OptionError, match="interval"):
        ZigZag(interval=0.0)
    with pytest.raises(OptionError, match="bound"):
        ZigZag(bound="T1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ("probit", "poisson", "gamma", "negbin", "student_t"))
def test_exact_draws_stay_exact_in_other_families(name):
    model = made_up(name, rows=12)
    posterior = exact_posterior(model, points=301, width=10.0)
    assert np.abs(invariance_scores(ZigZag(interval=0.5), model, posterior, steps=8)).max() < THRESHOLD


@pytest.mark.slow
def test_softmax_agrees_with_full_data():
    model = made_up("softmax", rows=300)
    exact = tb.sample(model, "nuts", draws=2000, warmup=500, chains=2, seed=1, progress=False)
    fit = tb.sample(model, "zigzag", draws=4000, warmup=500, chains=2, seed=1, progress=False)
    centre = exact.theta.mean((0, 1))
    for power in (1, 2):
        first, second = (exact.theta - centre) ** power, (fit.theta - centre) ** power
        error = np.sqrt(first.var((0, 1)) / effective_sizes(first) + second.var((0, 1)) / effective_sizes(second))
        assert np.abs((first.mean((0, 1)) - second.mean((0, 1))) / error).max() < THRESHOLD

"""Internals of `tallbayes.schemes.unbiased_series`; what users see of it is tested in test_pseudo_marginal.py."""

import math

import numpy as np
import pytest
from support import logistic_arrays
from test_hmc_ecs import plain, quad, scores  # noqa: F401

import tallbayes as tb
from tallbayes.samplers import RheeGlynn
from tallbayes.samplers.rhee_glynn import SeriesOptions
from tallbayes.schemes.unbiased_series import log_likelihood_estimate, log_series, series_terms
from tallbayes.testing import THRESHOLD, log_likelihood


def test_the_number_of_terms_begins_at_zero():
    rng, epsilon, draws = np.random.default_rng(0), 0.4, 20_000
    terms = np.array([series_terms(rng, epsilon) for _ in range(draws)])
    for k in (1, 2, 5):
        p = (1.0 + epsilon) ** -k
        assert abs((terms >= k).mean() - p) < THRESHOLD * math.sqrt(p * (1 - p) / draws)
    assert abs(terms.mean() - 1.0 / epsilon) < THRESHOLD * terms.std() / math.sqrt(draws)


def test_the_series_is_that_of_the_exponential():
    assert abs(log_series(0.0, np.full(80, 3.0)) - 3.0) < 1e-12
    assert log_series(0.3, np.empty(0)) == 0.0
    assert abs(log_series(0.5, np.array([2.0, 1.0])) - math.log(1.0 + 1.5 * 2.0 + 1.5**2 * 2.0 / 2.0)) < 1e-12


@pytest.mark.parametrize("proxies", [True, False])
def test_rhee_and_glynn_estimate_without_bias(proxies):
    X, y = logistic_arrays(4)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    theta = mode.reference + 0.5
    setup = RheeGlynn().setup(model, mode, 0, False)
    options = SeriesOptions(None, 3, 0.2, proxies, np.arange(4))
    rng, target = np.random.default_rng(1), setup.target()
    logs = np.array([log_likelihood_estimate(rng, target, options, theta)[0] for _ in range(8000)])
    ratio = np.exp(logs - log_likelihood(model, theta))
    assert abs(ratio.mean() - 1.0) < THRESHOLD * ratio.std() / math.sqrt(ratio.size)
    late = np.array([series_terms(rng, 0.2) + 1 for _ in range(8000)])  # the mutant: support from one
    assert abs(late.mean() - 5.0) > THRESHOLD * late.std() / math.sqrt(8000)

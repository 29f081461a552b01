"""Internals of `tallbayes.samplers.naive_subsampling`; what users see of it is tested in test_delayed_acceptance.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.proxies.taylor import whiten
from tallbayes.samplers import advance
from tallbayes.samplers.naive_subsampling import State as NaiveState
from tallbayes.testing import (
    THRESHOLD,
    ExactPosterior,
    moment_scores,
)

SAMPLERS = tb.samplers


# Naive subsampling


def tabulated(model, posterior, share, estimator):
    """The law p(theta) prod [w p_i^a + 1 - w] on the grid of a posterior, and p_i^a there."""
    power = 1.0 / share if estimator == "unbiased" else 1.0
    X, y = model.data.records[:, :2], model.data.y
    grid = np.stack(np.meshgrid(*posterior.axes, indexing="ij"), -1).reshape(-1, 2)
    eta = grid @ X.T
    likelihood = power * (y * eta - np.logaddexp(0.0, eta))
    log_law = np.log(share * np.exp(likelihood) + 1.0 - share).sum(1) + np.array([model.log_prior(t) for t in grid])
    law = np.exp(log_law - log_law.max())
    return ExactPosterior(posterior.axes, (law / law.sum()).reshape(posterior.probability.shape)), power


@pytest.mark.parametrize("estimator, share", [("unbiased", 0.8), ("biased", 0.8)])
def test_naive_subsampling_has_the_law_it_states_and_it_is_not_the_posterior(estimator, share):
    X, y = logistic_arrays(12)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(1.0))
    posterior = tb.testing.exact_posterior(model, points=151)
    law, power = tabulated(model, posterior, share, estimator)
    sampler, starts = SAMPLERS.NaiveSubsampling(share=share, estimator=estimator), 20_000
    setup = sampler.setup(model, tb.find_mode(model, progress=False), 1, False)
    options, target, rng = setup.policy.options(setup.policy.begin(), True), setup.target(), np.random.default_rng(5)
    ends = law.draw(rng, starts)
    eta = ends @ X.T
    values = power * (y * eta - np.logaddexp(0.0, eta))
    chosen = rng.random(values.shape) < share * np.exp(values) / (share * np.exp(values) + 1.0 - share)  # z given theta
    info, order = np.zeros((20, len(sampler.columns))), np.arange(12, dtype=np.int32)
    for row, z, value in zip(ends, chosen, values, strict=True):
        white = whiten(target.proxy.whitening, row)
        state = NaiveState(row.copy(), white, float((z * value).sum()) + model.log_prior(row), order)
        advance(rng, target, options, state, False, row[None, :], info, 20)
    assert np.abs(moment_scores(ends, law)).max() < THRESHOLD
    assert np.abs(moment_scores(ends, posterior)).max() > THRESHOLD

"""Tails that normal proposals rarely reach: seen in the draws, where R-hat and effective sizes see nothing."""

import numpy as np
import pytest

import tallbayes as tb


def leverage_model(size):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(500), rng.random(500)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(500), x]), y), tb.priors.normal(2.0))


@pytest.mark.filterwarnings("ignore:the chains disagree")  # they may: that is what these tails do
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_posterior_with_heavier_tails_than_its_proposals_is_warned_of(seed):
    with pytest.warns(tb.TallbayesWarning, match=r"the sampler explores these tails poorly.*Use 'nuts'"):
        fit = tb.sample(leverage_model(1e3), "exact-minibatch", draws=2000, seed=seed, progress=False)
    (sentence,) = (s for s in fit.meta["warnings"] if "these tails" in s)
    assert fit.r_hat.max() < 1.1 and sentence in repr(fit.summary())
    tb.sample(leverage_model(2.0), "exact-minibatch", draws=2000, seed=seed, progress=False)

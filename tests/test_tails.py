"""Tails that normal proposals rarely reach: seen in the draws, where R-hat and effective sizes see nothing."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.proxies.taylor import Whitening
from tallbayes.samplers.tails import heavy_tails


def leverage_model(size):
    """Four rows far out: with 1,000 standard deviations the posterior of the slope has an exponential tail."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(500), rng.random(500)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1.0, -1.0, 0.7, -0.4]) * size, [1.0, 0.0, 1.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(500), x]), y), tb.priors.normal(2.0))


def test_a_posterior_with_heavier_tails_than_its_proposals_is_warned_of():
    with pytest.warns(tb.TallbayesWarning, match=r"% of the draws are outside the region that holds 99.99 %.*Use 'nuts'"):
        fit = tb.sample(leverage_model(1e3), "exact-minibatch", draws=2000, seed=1, progress=False)
    assert fit.r_hat.max() < 1.1 and len(fit.meta["warnings"]) == 1
    assert fit.meta["warnings"][0] in repr(fit.summary())
    tb.sample(leverage_model(2.0), "exact-minibatch", draws=2000, seed=1, progress=False)


def test_the_share_of_tails_is_that_of_the_normal_law():
    rng = np.random.default_rng(2)
    whitening = Whitening(np.array([1.0, -1.0]), np.array([[2.0, 0.0], [1.0, 0.5]]))
    white = rng.standard_normal((2, 5000, 2))

    def said(part):
        return heavy_tails(whitening, whitening.reference + part @ whitening.factor.T, "Rest.")

    assert said(white) == []
    white[:, :50] *= 30.0
    assert said(white)[0].startswith("1 % of the draws") and said(white)[0].endswith("too optimistic. Rest.")
    assert said(white[:, 45:54]) == []  # too few to say anything

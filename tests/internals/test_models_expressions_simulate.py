"""Internals of `tallbayes.models.expressions.simulate`; what users see of it is tested in test_expressions.py."""

import numpy as np
import pytest
from scipy import stats

import tallbayes as tb
from tallbayes.models.expressions.simulate import simulator
from tallbayes.testing import THRESHOLD

# Sampling, files and the compile cache. All models here share one expression, so that it is compiled once.


NORMAL = "-log_scale - log(2*pi)/2 - ((y - eta)/exp(log_scale))**2/2"
CAUCHY = "-log(pi*s) - log(1 + ((y - eta)/s)**2)"
GAMMA = "k*log(k) - lgamma(k) - k*eta + (k - 1)*log(y) - k*y*exp(-eta)"


@pytest.mark.parametrize(
    "options, law",
    [
        ({"expression": NORMAL}, stats.norm(0.7, np.exp(-1.5))),
        ({"expression": CAUCHY, "constants": {"s": 1e-6}}, stats.cauchy(0.7, 1e-6)),
        ({"expression": CAUCHY, "constants": {"s": 1e5}}, stats.cauchy(0.7, 1e5)),
        ({"expression": GAMMA, "constants": {"k": 0.2}, "support": "positive"}, stats.gamma(0.2, scale=5 * np.exp(0.7))),
        ({"expression": GAMMA, "constants": {"k": 500.0}, "support": "positive"}, stats.gamma(500.0, scale=np.exp(0.7) / 500)),
    ],
    ids=["normal, unknown scale", "narrow Cauchy", "wide Cauchy", "gamma 0.2", "gamma 500"],
)
def test_responses_have_the_law_of_the_expression(options, law):
    drawn = simulator(options)(np.random.default_rng(1), np.full(20_000, 0.7), np.full(20_000, -1.5))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6
    off = law.ppf(0.5) + 1.15 * (drawn - law.ppf(0.5))  # the mutant: 15 % too wide
    assert stats.kstest(off, law.cdf).pvalue < 1e-6


@pytest.mark.parametrize("tau", [-1.0, 0.5])
def test_counts_have_the_law_of_the_expression(tau):
    inflated = "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), log(1 - p) + y*eta - exp(eta) - lgamma(y + 1))"
    eta = np.where(np.arange(40_000) % 2 == 0, tau, 3.0)
    drawn = simulator({"expression": inflated, "constants": {"p": 0.3}, "support": "count"})(
        np.random.default_rng(2), eta, np.zeros(eta.size)
    )[::2]
    expected = 0.7 * stats.poisson(np.exp(tau)).pmf(np.arange(4)) + [0.3, 0, 0, 0]
    found = np.array([(drawn == k).mean() for k in range(4)])
    assert (np.abs(found - expected) < THRESHOLD * np.sqrt(expected * (1 - expected) / drawn.size)).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"expression": "y*eta - exp(eta)", "support": "count"}, r"sum to .* at eta = 0, not to 1. Add .* lgamma\(y \+ 1\)"),
        ({"expression": "-(y - eta)**2"}, "its integral is 1.772, not 1"),
        ({"expression": "y*eta - exp(eta)", "support": "positive"}, "this one is none of these. Give function="),
        ({"expression": "-abs(y)*exp(eta)"}, "this one is none of these"),
    ],
)
def test_responses_of_what_is_no_density_are_refused(options, message):
    with pytest.raises(tb.ModelError, match=message):
        simulator(options)(np.random.default_rng(0), np.zeros(3), np.zeros(3))

"""Expressions that are no densities, and means that are not theirs: the posterior or the predictions are wrong."""

import numpy as np
import pytest
from support import warned_everywhere

import tallbayes as tb

RNG = np.random.default_rng(0)
WAITS = RNG.exponential(2.0, 50)
ONES = np.ones((50, 1))
NORMAL = "-((y - eta)/exp(log_scale))**2/2"


def short(model, seed=1):
    return tb.sample(model, "hmc", draws=200, warmup=200, chains=2, seed=seed, progress=False)


def test_a_density_that_lacks_a_term_with_eta(tmp_path):
    """Exponential waiting times: -y e^-eta - eta. Without the last term the likelihood grows with eta, up to where the prior ends it.

    The posterior of the mean e^eta under a flat prior for eta is inverse gamma, so eta is near log(mean of y).
    """
    data = tb.Dataset.from_arrays(ONES, WAITS)
    with pytest.warns(tb.TallbayesWarning, match="not a log density of y: at eta = -0.7 it grows with eta for every y"):
        model = tb.models.family("-y*exp(-eta)", data, tb.priors.normal(3.0), support="positive")
    fit = short(model)
    truth, sd = np.log(WAITS.mean()), 1.0 / np.sqrt(50.0)
    assert fit.theta.mean() - truth > 5.0 * sd
    assert warned_everywhere(fit, "not a log density of y", tmp_path)
    right = tb.models.family("-y*exp(-eta) - eta", data, tb.priors.normal(3.0), support="positive", mean="exp(eta)")
    fit = short(right)
    assert abs(fit.theta.mean() - truth) < sd and fit.meta["warnings"] == []


def test_a_density_that_lacks_its_scale():
    data = tb.Dataset.from_arrays(ONES, RNG.standard_normal(50))
    with pytest.warns(tb.TallbayesWarning, match="it grows with log_scale for every y.*such as - log_scale"):
        tb.models.family(NORMAL, data)
    assert tb.models.family(f"{NORMAL} - log_scale", data).doubts == ()


def test_an_integral_that_depends_on_eta():
    """A normal density whose variance is its mean lacks -eta/2: the integrals at two levels differ by e^((1.1 + 0.7)/2)."""
    data = tb.Dataset.from_arrays(ONES, WAITS)
    with pytest.warns(tb.TallbayesWarning, match=r"e\^expression sums to 2\.46 times more at eta = 1\.1 than at eta = -0\.7"):
        tb.models.family("-(y - exp(eta))**2/(2*exp(eta))", data)
    assert np.exp(0.9) == pytest.approx(2.46, abs=0.005)
    assert tb.models.family("-(y - exp(eta))**2/(2*exp(eta)) - eta/2", data).doubts == ()


def test_a_mean_that_is_not_the_mean(tmp_path):
    """Counts with log link have the mean e^eta, not eta: predictions would be their logarithms."""
    counts = RNG.poisson(3.0, 50).astype(float)
    data = tb.Dataset.from_arrays(ONES, counts)
    with pytest.warns(
        tb.TallbayesWarning, match="mean='eta' is -0.7 at eta = -0.7, but the expression gives y a mean of 0.4966"
    ):
        model = tb.models.family("y*eta - exp(eta)", data, support="count", mean="eta")
    fit = short(model)
    assert abs(fit.predict(ONES[:1])["mean"][0] - counts.mean()) > 1.0
    assert warned_everywhere(fit, "predictions of the mean would be wrong", tmp_path)

"""Expressions that are no densities, and means that are not theirs: the posterior or the predictions are wrong."""

import numpy as np
import pytest
from support import warned_everywhere

import tallbayes as tb
from tallbayes.models.expressions.normalisation import doubts

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


Z = "where(y == 0, log(0.3 + 0.7*exp(-exp(eta))), log(0.7) + y*eta - exp(eta) - lgamma(y + 1))"
LOGNORMAL = "-log_scale - (log(y) - eta)**2*exp(-2*log_scale)/2"
REAL, COUNT, BINARY, POSITIVE = (np.array(v) for v in ([0.3, -1.7], [0.0, 3.0], [0.0, 1.0], [0.2, 1.7]))


@pytest.mark.parametrize(
    "expression, support, mean, y",
    [
        ("y*eta - log(1 + exp(eta))", "real", None, BINARY),
        ("y*eta - log(1 + exp(eta))", "binary", "expit(eta)", BINARY),
        ("y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)", "binary", "1 - exp(-exp(eta))", BINARY),
        ("y*eta - exp(eta)", "count", "exp(eta)", COUNT),
        ("y*eta - (y + 2.5)*log(2.5 + exp(eta))", "count", "exp(eta)", COUNT),
        (Z, "count", "0.7*exp(eta)", COUNT),
        ("-1.7*y*exp(-eta) - 1.7*eta", "positive", "exp(eta)", POSITIVE),
        (LOGNORMAL, "positive", None, POSITIVE),
        ("-log(1 + (y - eta)**2)", "real", "eta", REAL),
        (f"{NORMAL} - log_scale", "real", "eta", REAL),
    ],
)
def test_densities_up_to_terms_without_parameters_are_left_alone(expression, support, mean, y):
    assert doubts({"expression": expression, "support": support, "mean": mean, "constants": {}}, y) == []


@pytest.mark.parametrize(
    "expression, support, mean, y, told",
    [
        ("y*eta", "count", None, COUNT, "not a log density"),
        ("y*eta - 2*log(1 + exp(eta))", "binary", None, BINARY, "not a log density"),
        ("y*eta - log(1 + exp(eta))", "binary", "exp(eta)", BINARY, "a mean of 0.33"),
        (Z, "count", "exp(eta)", COUNT, "a mean of 0.3476"),
        (
            f"{LOGNORMAL} - log(y)",
            "positive",
            "exp(eta)",
            POSITIVE,
            "a mean of 0.5617",
        ),  # the median; the mean has half a variance more
    ],
)
def test_others_are_not(expression, support, mean, y, told):
    (sentence,) = doubts({"expression": expression, "support": support, "mean": mean, "constants": {}}, y)
    assert told in sentence

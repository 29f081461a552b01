"""Internals of `tallbayes.models.expressions.normalisation`; what users see of it is tested in test_expression_traps.py."""

import numpy as np
import pytest

from tallbayes.models.expressions.normalisation import doubts

NORMAL = "-((y - eta)/exp(log_scale))**2/2"

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

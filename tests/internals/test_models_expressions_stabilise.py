"""Internals of `tallbayes.models.expressions.stabilise`; what users see of it is tested in test_expressions.py."""

import pytest

from tallbayes.models.expressions.grammar import parse
from tallbayes.models.expressions.stabilise import stabilised

CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"


# Stable forms and generated code.


STABLE = {
    "y*eta - log(1 + exp(eta))": "eta*y - softplus(eta)",
    "y*log(exp(eta)/(1 + exp(eta))) + (1 - y)*log(1/(1 + exp(eta)))": "-y*softplus(-eta) - (1 - y)*softplus(eta)",
    CLOGLOG: "y*log1mexp(exp(eta)) - (1 - y)*exp(eta)",
    "y*log(exp(exp(eta)) - 1)": "y*(exp(eta) + log1mexp(exp(eta)))",
    "log(ndtr(y - eta))": "log_ndtr(-eta + y)",
    "log(1 - ndtr(y - eta))": "log_ndtr(eta - y)",
    "-log(cosh(y - eta))": "eta - y - softplus(2*eta - 2*y) + log(2)",
    "log(exp(eta) + exp(y))": "y + softplus(eta - y)",
    "-log(1 + (y - eta)**2)": "-log1p((-eta + y)**2)",
    "y*(1 - expit(eta))": "y*expit(-eta)",
    "y/(1 + exp(-eta))": "y*expit(eta)",
}


@pytest.mark.parametrize("text", STABLE)
def test_the_form_that_does_not_overflow_is_found(text):
    assert str(stabilised(parse(text))) == STABLE[text]

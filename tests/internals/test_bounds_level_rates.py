"""Internals of `tallbayes.bounds.level_rates`; what users see of it is tested in test_group_expressions.py."""

import numpy as np
import pytest
from test_hierarchical import OPTIONS, arrays

import tallbayes as tb
from tallbayes.bounds.level_rates import proven_bounds
from tallbayes.engine.family_functions import jet2, third, third_supremum

LAWS = {
    "logistic": "y*eta - log(1 + exp(eta))",
    "poisson": "y*eta - exp(eta)",
    "gamma": "-2*eta - 2*y*exp(-eta)",
    "student_t": "-5/2*log(1 + (y - eta)**2/4)",
}


def data_of(family, **options):
    X, y, codes = arrays(family=family, **options)
    return tb.Dataset.from_arrays(X, y, groups={"g": codes})


@pytest.mark.parametrize("family", LAWS)
def test_the_fourth_derivative_is_within_what_is_proven(family):
    model = tb.models.family(LAWS[family], data_of(family))
    assert model.grouped
    ratio, exponential = proven_bounds(model)
    built_in = tb.models.build(family, data_of(family), **OPTIONS.get(family, {}))
    known, known_exponential = proven_bounds(built_in)
    assert exponential == known_exponential and (ratio is None) == (known is None)
    largest = 0.0
    for y in np.unique(model.data.y)[::40]:
        for eta in np.linspace(-6.0, 6.0, 241) + (y if family == "student_t" else 0.0):
            fourth = (third(model.member, eta + 1e-4, y) - third(model.member, eta - 1e-4, y)) / 2e-4
            bound = abs(jet2(model.member, eta, y)[2]) if ratio is None else ratio * third_supremum(model.member, y)
            assert abs(fourth) <= bound * (1.0 + 1e-6) + 1e-9
            largest = max(largest, abs(fourth) / max(bound, 1e-300))
    assert largest > 0.95


def test_expressions_without_a_proof_are_left_to_nuts():
    cloglog = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"
    model = tb.models.build("expression", data_of("logistic"), expression=cloglog)
    with pytest.raises(tb.ModelError, match="bound on the fourth derivative"):
        proven_bounds(model)
    with pytest.raises(tb.ModelError, match="log_scale is not learned together with group effects"):
        tb.models.family("-(y - eta)**2*exp(-2*log_scale)/2 - log_scale", data_of("gaussian"))

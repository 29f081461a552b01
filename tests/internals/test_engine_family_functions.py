"""Internals of `tallbayes.engine.family_functions`; what users see of it is tested in test_confidence.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.engine.family_functions import curvature_supremum, jet2, slope_supremum


def families():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    data = lambda y: tb.Dataset.from_arrays(X, y)  # noqa: E731
    eta = X @ [0.2, 0.5, -0.4]
    return {
        "logistic": tb.models.logistic(data(rng.random(300) < 0.4)),
        "probit": tb.models.probit(data(rng.random(300) < 0.4)),
        "gamma": tb.models.gamma(data(rng.gamma(2.0, np.exp(eta) / 2.0)), shape=2.0),
        "poisson": tb.models.poisson(data(rng.poisson(np.exp(eta)))),
        "negbin": tb.models.negbin(data(rng.poisson(np.exp(eta))), size=2.0),
        "student_t": tb.models.student_t(data(eta + rng.standard_t(4, 300)), nu=4.0, scale=1.0),
        "gaussian": tb.models.gaussian(data(eta + rng.standard_normal(300)), sigma=1.0),
        "normal": tb.models.normal(rng.lognormal(0.0, 1.0, 300)),
    }


MODELS = families()


@pytest.mark.parametrize("family", ["logistic", "probit", "negbin", "student_t", "gaussian"])
def test_suprema_of_slopes_and_curvatures(family):
    member, rng, largest = MODELS[family].member, np.random.default_rng(4), np.zeros(2)
    for y in MODELS[family].family.responses:
        for eta in rng.uniform(-8.0, 8.0, 500):
            _, slope, curvature = jet2(member, eta, y)
            limits = slope_supremum(member, y), curvature_supremum(member, y)
            assert abs(slope) <= limits[0] * (1 + 1e-12) and abs(curvature) <= limits[1] * (1 + 1e-12)
            largest = np.maximum(largest, [abs(slope) / limits[0], abs(curvature) / limits[1]])
    assert largest[1] > 0.95 and (largest[0] > 0.95 or family in ("probit", "gaussian"))  # their slopes have no bound

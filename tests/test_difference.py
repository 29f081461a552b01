"""Control variates, the two estimators of the likelihood built on them, and what a pilot predicts of them."""

from typing import NamedTuple

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import ModelError

N = 40


def model_of(name, weights=None):
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(N), rng.standard_normal((N, 2))])
    eta = x @ [0.2, 0.5, -0.4]
    y = {
        "logistic": rng.random(N) < 1 / (1 + np.exp(-eta)),
        "poisson": rng.poisson(np.exp(eta)),
        "student_t": eta + rng.standard_t(4, N),
        "gaussian": eta + 0.7 * rng.standard_normal(N),
        "softmax": rng.integers(0, 3, N),
    }[name]
    options = {"softmax": {"classes": 3}, "student_t": {"nu": 4.0, "scale": 1.0}}.get(name, {})
    data = tb.Dataset.from_arrays(x, np.asarray(y, float), weights=weights)
    return tb.models.build(name, data, tb.priors.normal(3.0), **options)


def test_rows_without_proxies_are_refused():
    class Series(NamedTuple):
        records: np.ndarray

    model = model_of("logistic")
    mode = tb.find_mode(model, progress=False)
    model.__dict__["rows"] = Series(model.data.records)
    for sampler in ("hmc-ecs", "hmc-ecs-signed", "block-pseudo-marginal", "rhee-glynn"):
        with pytest.raises(ModelError, match="no Taylor control variates"):
            tb.samplers.resolve(sampler).setup(model, mode, 0, False)

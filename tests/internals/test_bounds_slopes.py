"""Internals of `tallbayes.bounds.slopes`; what users see of it is tested in test_zigzag.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.bounds.catalogue import certify
from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.tables import rate_count, row_rates
from tallbayes.samplers import ZigZag
from tallbayes.schemes.minibatch_gradient import residual_gradient


@pytest.mark.parametrize("name, bound", [("logistic", "T6"), ("logistic", "T9"), ("poisson", "T9"), ("softmax", "T6")])
def test_bounds_hold_for_the_gradient_of_every_row(name, bound):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(40), rng.standard_normal(40)])
    y = {"logistic": rng.integers(0, 2, 40), "poisson": rng.poisson(2.0, 40), "softmax": np.arange(40) % 3}[name]
    model = tb.models.build(name, tb.Dataset.from_arrays(X, y, weights=rng.uniform(0.5, 2, 40)), tb.priors.normal(2.0))
    mode = tb.find_mode(model, progress=False)
    table, _ = certify(mode, bound, indexed=True)
    setup = ZigZag(bound=bound).setup(model, mode, 0, False)
    target, rates = setup.target(), np.zeros(rate_count(table))
    for size in (0.3, 1.0, 3.0):
        white = size * rng.standard_normal(model.dim)
        total = slope_rate(table, float(np.linalg.norm(white)), rates)
        limits = np.empty(40)
        row_rates(table, rates, 0, limits)
        assert limits.sum() == pytest.approx(total)
        theta = mode.reference + mode.factor @ white
        for i in range(40):
            raw = np.zeros(model.dim)
            residual_gradient(target, np.array([i]), np.ones(1), theta, raw)
            assert np.linalg.norm(mode.factor.T @ raw) <= 3.0 * limits[i] * (white @ white) * (1 + 1e-9) + 1e-14

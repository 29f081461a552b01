"""Internals of `tallbayes.results.model_comparison`; what users see of it is tested in test_predictive_checks.py."""

import numpy as np

from tallbayes.results.model_comparison import stacking_weights


def test_stacking_mixes_models_that_each_explain_some_rows():
    values = np.log(np.repeat([[0.9, 0.1], [0.1, 0.9]], [30, 10], axis=0))
    weights = stacking_weights(values)
    grid = np.linspace(0.001, 0.999, 9999)
    best = grid[np.argmax([np.log(np.exp(values) @ [w, 1 - w]).mean() for w in grid])]
    assert abs(weights[0] - best) < 1e-3

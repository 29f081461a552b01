"""Internals of `tallbayes.results.row_averages`; what users see of it is tested in test_effects.py."""

import numpy as np
from support import known_fit

import tallbayes as tb
from tallbayes.results import row_averages


def test_more_rows_are_taken_until_their_error_is_small():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(50_000), 3 * rng.standard_normal(50_000)])
    data = tb.Dataset.from_arrays(X, rng.integers(0, 2, 50_000))
    wide = known_fit(data, draws=50, spread=0.8).predictions()
    assert (wide["rows_se"] < row_averages.NEGLIGIBLE * wide["sd"]).all()
    assert "remainders of 1,000" in known_fit(data, draws=50, spread=0.01).predictions().header[1]

"""Internals of `tallbayes.families.hurdle_poisson`; what users see of it is tested in test_second_predictor.py."""

import numpy as np
import pytest
from scipy import stats

from tallbayes.families.hurdle_poisson import third_cumulant


def test_the_third_cumulant_of_truncated_counts_grows():
    """By its closed form against sums of the law, and by differences on a grid: its derivative is far from 0 wherever it is large."""
    rates = np.array([1e-3, 0.05, 0.0999, 0.1001, 0.7, 3.0, 12.0, 40.0])
    y = np.arange(1.0, 400.0)
    for rate, found in zip(rates, third_cumulant(rates), strict=True):
        p = stats.poisson.pmf(y, rate) / -np.expm1(-rate)
        assert found == pytest.approx(((y - p @ y) ** 3) @ p, rel=1e-9)
    ends = (np.geomspace(1e-8, 0.9, 20_000), np.linspace(1.0, 60.0, 200_000), np.geomspace(61.0, 1e12, 10_000))
    grid = np.concatenate(ends)
    steps = np.diff(third_cumulant(grid)) / np.diff(grid)
    assert steps.min() > 0.4

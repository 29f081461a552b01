"""Internals of `tallbayes.schemes.bright_posterior`; what users see of it is tested in test_firefly.py."""

import math

import numpy as np
import pytest

from tallbayes.schemes.bright_posterior import FAR, FEW, sum_of_odds
from tallbayes.schemes.lights import (
    log_odds,
)


def test_the_sum_of_odds_is_that_of_its_terms():
    rng = np.random.default_rng(8)
    for size in (0, 1, FEW, FEW + 1, 5 * FEW - 1):
        gap = np.exp(rng.uniform(np.log(1e-10), np.log(3 * FAR), size))
        terms = [log_odds(g) for g in gap]
        assert sum_of_odds(gap) == pytest.approx(math.fsum(terms), rel=1e-13, abs=1e-12 * (1 + size))
    assert sum_of_odds(np.full(5 * FEW, 1e-10)) == pytest.approx(5 * FEW * log_odds(1e-10), rel=1e-14)  # nothing underflows
    assert sum_of_odds(np.full(5 * FEW, 800.0)) == 5 * FEW * 800.0
    assert sum_of_odds(np.array([1.0, 0.0, 2.0])) == -np.inf
    assert not sum_of_odds(np.array([1.0, np.nan])) > -np.inf

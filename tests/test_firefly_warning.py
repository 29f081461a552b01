"""Firefly against the same move on all rows: the inefficiency to expect, and the warning when it is exceeded five times."""

import re

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import TallbayesWarning
from tallbayes.samplers import Firefly


def logistic(n):
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [0.2, 0.5]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y))


def test_a_run_that_waits_for_its_lights_is_warned_of():
    """Explicit resampling of few rows under a loose bound renews the lights slowly, and theta with them."""
    sampler = Firefly(bound="untuned", xi=3.0, resample="explicit", fraction=0.005)
    with pytest.warns(TallbayesWarning) as caught:
        fit = tb.sample(logistic(400), sampler, draws=12_000, warmup=500, chains=1, seed=1, progress=False)
    pattern = r"each effective draw takes \d+ iterations, compared with about .* for the same move on all rows.*Raise fraction"
    assert any(re.search(pattern, str(w.message)) for w in caught)
    notes = fit.meta["notes"]
    assert notes["theta_IF"] > 5.0 * notes["normal_IF"] > 5.0

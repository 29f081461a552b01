"""Internals of `tallbayes.execution`; what users see of it is tested in test_user_sampler.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import effective_sizes


def sample(model, sampler, **options):
    return tb.sample(model, sampler, **{"draws": 30, "warmup": 20, "chains": 2, "seed": 5, "progress": False, **options})


def broken(*arguments):
    raise ZeroDivisionError("a check of ours")


def test_a_failure_of_effective_sizes_keeps_the_draws(small, monkeypatch):
    expected = sample(small.model, "mh")
    monkeypatch.setattr("tallbayes.execution.effective_sizes", broken)
    with pytest.warns(tb.TallbayesWarning, match="until_ess= was not reached"):
        fit = sample(small.model, "mh", until_ess=1e6)
    np.testing.assert_array_equal(fit.theta, expected.theta)
    assert "until_ess= was not reached" in fit.meta["warnings"][0]
    assert effective_sizes(fit.theta).shape == (2,)

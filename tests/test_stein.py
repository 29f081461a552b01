"""Kernel Stein discrepancy and Stein thinning: the kernel by finite differences, its mean under the posterior, its power."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import OptionError, StoreError


def test_a_fit_of_the_posterior_passes_and_one_of_another_law_does_not(small):
    fit = tb.sample(small.model, "nuts", draws=600, warmup=300, chains=2, seed=1, progress=False)
    found = fit.stein(small.model, candidates=150, progress=False)
    assert found.p_value > 1e-3 and found.ksd < 2.0 * found.expected
    assert found.candidates == 150 and found.evals == 150 * 60 and found.kept.shape == (37, 2)
    np.testing.assert_array_equal(found.theta, fit.theta[found.kept[:, 0], found.kept[:, 1]])
    assert found.ksd_kept < found.ksd and "evaluations" in repr(found)
    other = tb.sample(small.tempered, "nuts", draws=600, warmup=300, chains=2, seed=1, progress=False)
    mean = fit.theta.mean((0, 1))
    other.theta, other.meta["fingerprint"] = mean + 2.0 * (fit.theta - mean), fit.meta["fingerprint"]
    wide = other.stein(small.model, candidates=150, progress=False)
    assert wide.p_value < 0.01 and wide.ksd > 2.0 * found.ksd


def test_weights_count(small):
    fit = tb.sample(small.model, "nuts", draws=400, warmup=300, chains=2, seed=1, progress=False)
    before = fit.stein(small.model, progress=False).ksd
    fit.stats["weight"] = np.where(fit.theta[:, :, 1] > fit.theta[:, :, 1].mean(), 1.0, 0.05)
    assert fit.stein(small.model, progress=False).ksd > 1.5 * before


def test_wrong_arguments_are_refused(small, medium):
    fit = tb.sample(small.model, "hmc", draws=10, warmup=10, chains=1, seed=1, progress=False)
    with pytest.raises(OptionError, match="candidates"):
        fit.stein(small.model, candidates=1)
    with pytest.raises(OptionError, match="keep"):
        fit.stein(small.model, keep=0)
    with pytest.raises(StoreError, match="not the rows"):
        fit.stein(medium)

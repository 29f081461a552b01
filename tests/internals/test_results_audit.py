"""Internals of `tallbayes.results.audit`; what users see of it is tested in test_audit.py."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.results import audit as auditing


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(0.2, 0.6, d)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


@pytest.fixture(scope="module")
def minibatch():
    model = logistic(20_000, 3)
    return model, tb.sample(model, "exact-minibatch", draws=400, chains=2, seed=1, progress=False)


def test_a_biased_ratio_is_found(minibatch, monkeypatch):
    model, fit = minibatch
    honest = auditing.replay

    def biased(rng, target, options, white, other, out):
        honest(rng, target, options, white, other, out)
        out += 0.1

    monkeypatch.setattr(auditing, "replay", biased)
    found = fit.audit(model, pairs=3)
    assert not found.passed
    assert "not unbiased" in repr(found)

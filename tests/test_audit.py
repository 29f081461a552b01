"""`fit.audit`: quiet on correct runs, loud on planted faults."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import StoreError


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(0.2, 0.6, d)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


@pytest.fixture(scope="module")
def minibatch():
    model = logistic(20_000, 3)
    return model, tb.sample(model, "exact-minibatch", draws=400, chains=2, seed=1, progress=False)


def test_a_correct_run_passes_with_many_seeds(minibatch):
    model, fit = minibatch
    for seed in range(4):
        found = fit.audit(model, pairs=5, seed=seed)
        assert found.passed, found
        assert found.facts["largest residual / bound over all rows of them"] <= 1.0


def test_a_rate_far_below_one_row_raises_no_alarm():
    model = logistic(200_000, 2)
    fit = tb.sample(model, "exact-minibatch", draws=100, chains=2, seed=1, progress=False)
    assert fit.stats["rate"].mean() < 0.1
    assert fit.audit(model, pairs=4).passed


def test_a_bound_that_is_too_small_is_found(minibatch, monkeypatch):
    model, fit = minibatch
    honest = tb.samplers.ExactMinibatch.certificate

    def shrunk(self, mode, seed, indexed=False):
        bound, name = honest(self, mode, seed, indexed)
        return (bound._replace(table=bound.table._replace(weight=0.01 * bound.table.weight)) if indexed else bound), name

    monkeypatch.setattr(tb.samplers.ExactMinibatch, "certificate", shrunk)
    found = fit.audit(model, pairs=3)
    assert any("exceeds its bound" in p for p in found.problems)


def test_a_stored_density_that_is_wrong_is_found():
    model = logistic(500, 2)
    fit = tb.sample(model, "mh", draws=50, warmup=50, chains=2, seed=1, progress=False)
    assert fit.audit(model, pairs=5).passed
    fit.stats["lp"] = fit.stats["lp"] + 0.5
    assert not fit.audit(model, pairs=5).passed


def test_other_rows_are_refused(minibatch):
    _, fit = minibatch
    with pytest.raises(StoreError, match="not the rows"):
        fit.audit(logistic(20_000, 3, seed=9))


@pytest.mark.parametrize("rate", ["tuna", "smh"])
def test_the_other_rates_pass(rate):
    model = logistic(5000, 2)
    fit = tb.sample(model, tb.samplers.ExactMinibatch(rate=rate, bound="T6"), draws=100, chains=2, seed=1, progress=False)
    assert fit.audit(model, pairs=4).passed


def test_sufficient_statistics_have_nothing_to_replay():
    rng = np.random.default_rng(0)
    model = tb.models.normal(rng.standard_normal(1000))
    fit = tb.sample(model, "exact-minibatch", draws=100, chains=2, seed=1, progress=False)
    found = fit.audit(model)
    assert found.passed
    assert "none" in str(found.facts["rows read"])

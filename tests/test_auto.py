"""`sampler="auto"`: the cheapest method that meets the guarantee, and the reason."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import auto
from tallbayes.errors import OptionError


def logistic(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.full(d, 0.3)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def chosen(model, guarantee=None):
    return auto.choose(model, tb.find_mode(model, progress=False), guarantee, 0, False)


def test_many_rows_and_few_columns_are_sampled_by_minibatches():
    sampler, setup, why = chosen(logistic(100_000, 4))
    assert sampler.name == "exact-minibatch"
    assert setup is not None
    assert "evaluations per effective draw" in why
    assert "nuts would take" in why


def test_few_rows_and_many_columns_are_read_in_full():
    sampler, _, why = chosen(logistic(300, 40))
    assert sampler.name == "nuts"
    assert "exact-minibatch would take" in why


def test_predictions_are_near_what_a_run_measures():
    model = logistic(50_000, 5)
    sampler, _, _ = chosen(model)
    predicted = auto._exact_minibatch(model, tb.find_mode(model, progress=False), 0, False)[0].evals_per_ess
    fit = tb.sample(model, sampler, draws=5000, chains=2, seed=1, progress=False)
    assert 1 / 3 < predicted / fit.cost()["evals_per_ess"] < 3


def test_the_choice_and_its_reason_are_in_the_fit_and_survive_a_resume(tmp_path):
    model = logistic(30_000, 3)
    fit = tb.sample(model, draws=50, chains=2, seed=1, checkpoint=tmp_path / "run", progress=False)
    assert fit.meta["sampler_name"] == "exact-minibatch"
    assert fit.why.startswith("auto chose exact-minibatch")
    longer = tb.resume(tmp_path / "run", model, draws=80, progress=False)
    assert longer.why == fit.why
    assert (longer.theta[:, :50] == fit.theta).all()


def test_auto_and_the_named_sampler_give_the_same_draws():
    model = logistic(30_000, 3)
    mode = tb.find_mode(model, progress=False)
    by_auto = tb.sample(model, draws=50, chains=2, seed=1, mode=mode, progress=False)
    by_name = tb.sample(model, "exact-minibatch", draws=50, chains=2, seed=1, mode=mode, progress=False)
    assert (by_auto.theta == by_name.theta).all()


def test_a_guarantee_is_honoured():
    assert chosen(logistic(5000, 3), "exact")[0].guarantee.kind == "EXACT"
    with pytest.raises(OptionError, match="unknown guarantee"):
        tb.sample(logistic(500, 2), guarantee="exakt", progress=False)


def test_gaussian_models_read_no_rows():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(5000), rng.standard_normal((5000, 2))])
    model = tb.models.gaussian(tb.Dataset.from_arrays(x, x @ [1.0, 2.0, 3.0] + rng.standard_normal(5000)))
    fit = tb.sample(model, draws=300, chains=2, seed=1, progress=False)
    assert fit.evals.sum() == 0
    assert np.abs(fit.theta.mean((0, 1))[:3] - [1.0, 2.0, 3.0]).max() < 0.1


def test_subsampled_hmc_is_taken_where_bounds_are_loose_unless_exactness_is_asked_for(monkeypatch):
    model = logistic(30_000, 20)
    mode = tb.find_mode(model, progress=False)
    loose = auto.Prediction(auto.ExactMinibatch(), 5e4, 5e7, "a rate of half of n")
    monkeypatch.setattr(auto, "_exact_minibatch", lambda *_: [loose])
    sampler, setup, why = auto.choose(model, mode, None, 0, False)
    assert sampler.name == "hmc-ecs" and setup is not None
    assert "ASYMPTOTIC, not exact" in why and "pass guarantee='exact' for" in why
    assert auto.choose(model, mode, "asymptotic", 0, False)[0].name == "hmc-ecs"
    exact, _, why = auto.choose(model, mode, "exact", 0, False)
    assert exact.guarantee.kind == "EXACT" and "hmc-ecs" not in why
    monkeypatch.setattr(auto, "_CHEAP", 1e9)  # an exact method that cheap is not compared with anything
    assert "hmc-ecs" not in auto.choose(model, mode, None, 0, False)[2]


def test_subsampled_hmc_is_not_offered_where_it_would_read_most_rows():
    model = logistic(300, 20)
    assert auto._subsampled_hmc(model, tb.find_mode(model, progress=False), 0, False) == []


def test_an_approximate_method_must_be_worth_it():
    exact = auto.Prediction(auto.ExactMinibatch(), 10.0, 200.0, "")
    slightly, much = (auto.Prediction(auto.HMCECS(), 10.0, t, "") for t in (150.0, 50.0))
    assert auto._price(exact) < auto._price(slightly) and auto._price(much) < auto._price(exact)

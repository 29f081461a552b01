"""`sampler="auto"`: the cheapest method that meets the guarantee, and the reason."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes import auto
from tallbayes.errors import ModelError, OptionError


def logistic(n, d, seed=0, effect=0.3):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.full(d, effect)))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def chosen(model, guarantee=None):
    return auto.choose(model, tb.find_mode(model, progress=False), guarantee, 0, False)


def test_many_rows_and_few_columns_are_sampled_by_minibatches():
    sampler, setup, why, _ = chosen(logistic(100_000, 4))
    assert sampler.name == "exact-minibatch"
    assert setup is not None
    assert "evaluations per effective draw" in why
    assert "nuts would be" in why


def test_few_rows_and_many_columns_are_read_in_full():
    sampler, _, why, _ = chosen(logistic(300, 40))
    assert sampler.name == "nuts"
    assert "exact-minibatch was skipped: exact-minibatch hardly moved in a pilot run of 3,000 iterations" in why


def test_predictions_are_near_what_a_run_measures():
    model = logistic(50_000, 5)
    sampler, _, _, predictions = chosen(model)
    predicted = predictions[0].evals_per_ess
    assert predictions[0].sampler is sampler and predictions[0].tried
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


def prediction(sampler, evals, nanoseconds):
    return auto.Prediction(sampler, evals, 1.0, nanoseconds / evals, 0.0, "", tried=True)


def test_a_prediction_survives_a_file():
    heavy = tb.samplers.ExactMinibatch(rate="tuna", chi=2.0, move=tb.moves.independence(df=4), two_stage=False)
    for sampler in (tb.samplers.FullData(), tb.samplers.HMCECS(), heavy):
        one = prediction(sampler, 10.0, 200.0)
        again = auto.Prediction.from_dict(json.loads(json.dumps(one.as_dict())))
        assert again == replace(one, tried=False) and again.sampler == sampler


def test_what_is_cheapest_at_best_is_tried_before_it_is_chosen(monkeypatch):
    model = logistic(400, 3)
    mode, tried = tb.find_mode(model, progress=False), []

    def pilot(self, candidate):
        tried.append(candidate.sampler.name)
        return replace(candidate, evals_per_ess=1e9 if candidate.sampler.name == "exact-minibatch" else 10.0, tried=True)

    monkeypatch.setattr(auto.Weighing, "_pilot", pilot)
    assert auto.choose(model, mode, "exact", 0, False).sampler.name == "nuts"
    assert tried == ["exact-minibatch", "nuts"]


def test_a_method_that_fails_in_its_pilot_is_skipped_with_the_reason(monkeypatch):
    model = logistic(400, 3)

    def trial(self, sampler, setup, warmup, draws):
        if sampler.name == "exact-minibatch":
            raise ModelError("no luck.")
        return own(self, sampler, setup, warmup, draws)

    own = auto.Weighing._trial
    monkeypatch.setattr(auto.Weighing, "_trial", trial)
    choice = chosen(model, "exact")
    assert choice.sampler.name == "nuts" and "exact-minibatch was skipped: no luck;" in choice.why


def test_firefly_is_chosen_where_many_columns_cost_the_others_their_speed():
    model = logistic(5_000, 80, effect=0.05)
    mode = tb.find_mode(model, progress=False)
    choice = auto.choose(model, mode, None, 0, False)
    assert choice.sampler.name == "firefly" and choice.predictions[0].tried
    assert "rows expected bright" in choice.why and "nuts would be" in choice.why and "exact-minibatch would be" in choice.why
    assert 10 * choice.predictions[0].evals_per_ess < min(p.evals_per_ess for p in choice.predictions[1:])


@pytest.fixture
def mistaken(monkeypatch):
    """Pilots that predict a thousandth of what exact minibatch costs, where proposals of a random walk mix slowly."""
    own = auto.Weighing._pilot

    def pilot(self, candidate):
        candidate = own(self, candidate)
        if candidate.sampler.name != "exact-minibatch":
            return candidate
        return replace(candidate, **{k: 1e-3 * getattr(candidate, k) for k in ("evals_per_ess", "iterations_per_ess")})

    monkeypatch.setattr(auto.Weighing, "_pilot", pilot)
    return logistic(400, 40)


def test_warm_up_that_contradicts_the_prediction_makes_auto_choose_again(mistaken, tmp_path):
    mode = tb.find_mode(mistaken, progress=False)
    fit = tb.sample(mistaken, draws=50, warmup=300, chains=2, seed=1, mode=mode, checkpoint=tmp_path / "run", progress=False)
    assert fit.why.startswith("auto chose exact-minibatch") and "so auto chose again and took nuts" in fit.why
    assert fit.meta["sampler_name"] == "nuts" and fit.meta["sampler"]["class"] == "FullData"
    by_name = tb.sample(mistaken, "nuts", draws=50, warmup=300, chains=2, seed=1, mode=mode, progress=False)
    assert (by_name.theta == fit.theta).all()
    assert fit.setup["evals"] > by_name.setup["evals"] + 300  # the warm-up that was given up is counted
    longer = tb.resume(tmp_path / "run", mistaken, draws=80, progress=False)
    assert longer.why == fit.why and (longer.theta[:, :50] == fit.theta).all()


def test_the_verdict_keeps_what_is_still_the_best():
    quick, slow = prediction(tb.samplers.ExactMinibatch(), 1.0, 1.0), prediction(tb.samplers.FullData(), 1e6, 1e9)
    walk = np.cumsum(np.random.default_rng(0).standard_normal((4, 500, 1)), axis=1)
    verdict = auto.reconsider([quick, slow], walk, np.full((4, 500), 5.0))
    assert not verdict.again and verdict.said.endswith("still less than the alternatives")

"""Surrogate transitions as a move of exact minibatch: enumerated with their mutants, gradients, invariance from exact draws."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.moves import from_dict, hmc, independence, nuts, pcn, surrogate
from tallbayes.samplers import ExactMinibatch
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_scores

pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def skewed():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(400), rng.standard_normal(400)])
    y = (rng.random(400) < 0.02).astype(float)
    tempered = tb.Dataset.from_arrays(X, y, weights=np.full(400, 0.9))
    return (tb.models.logistic(data, tb.priors.laplace(1.0)) for data in (tb.Dataset.from_arrays(X, y), tempered))


@pytest.mark.slow
@pytest.mark.parametrize("order, inner", [(2, None), (3, None), (2, nuts()), (3, nuts()), (3, hmc())])
def test_the_posterior_stays_invariant(order, inner):
    model, tempered = skewed()
    sampler, posterior = ExactMinibatch(order=order, move=surrogate(inner, steps=3)), exact_posterior(model)
    assert np.abs(invariance_scores(sampler, model, posterior)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, tempered, posterior)).max() > THRESHOLD


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # tails are heavier than those of the Laplace fit: that is the case in question
def test_more_proposals_are_accepted_where_the_posterior_is_skewed():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 9))])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, (rng.random(20_000) < 0.002).astype(float)), tb.priors.normal(5.0))
    options = {"draws": 3000, "warmup": 300, "chains": 2, "seed": 1, "progress": False}
    plain, several = (tb.sample(model, ExactMinibatch(order=3, move=m), **options) for m in (independence(), surrogate()))
    assert several.stats["accepted"].mean() > plain.stats["accepted"].mean() + 0.05
    assert several.ess.min() > 1.3 * plain.ess.min()
    error = np.sqrt(plain.theta.var((0, 1)) / plain.ess + several.theta.var((0, 1)) / several.ess)
    assert np.abs((plain.theta.mean((0, 1)) - several.theta.mean((0, 1))) / error).max() < 5.0


def test_options_survive_json_and_what_is_no_surrogate_move_is_refused():
    for move in (surrogate(), surrogate(nuts(max_depth=5), steps=2, share=0.5), surrogate(pcn(0.3))):
        assert from_dict(move.as_dict()) == move
    sampler = ExactMinibatch(move=surrogate(nuts()))
    assert tb.samplers.from_dict(sampler.as_dict()) == sampler
    with pytest.raises(tb.OptionError, match="known proposal ratio"):
        surrogate(tb.moves.slice())
    with pytest.raises(tb.OptionError, match="steps must be at least 1"):
        surrogate(steps=0)
    with pytest.raises(tb.OptionError, match="probability below 1"):
        surrogate(share=1.0)
    data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
    with pytest.raises(tb.ModelError, match=r"surrogate\(independence\(\)\)"):
        tb.sample(tb.models.gaussian(data), sampler, draws=5, progress=False)
    with pytest.raises(tb.OptionError, match="known proposal ratio"):
        tb.sample(
            tb.models.logistic(tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 0])),
            tb.samplers.DelayedAcceptance(move=surrogate()),
        )


def test_a_run_tunes_and_uses_the_move():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(2_000), rng.standard_normal(2_000)])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.random(2_000) < 0.4), tb.priors.normal(5.0))
    fit = tb.sample(model, ExactMinibatch(move=surrogate()), draws=400, warmup=100, chains=2, seed=1, progress=False)
    assert fit.stats["accepted"].mean() > 0.6 and fit.r_hat.max() < 1.1


@pytest.mark.parametrize("sampler", [tb.samplers.FullData(surrogate()), tb.samplers.Firefly(move=surrogate())])
def test_samplers_without_a_surrogate_refuse_the_move(sampler):
    x = np.random.default_rng(0).standard_normal(60)
    model = tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(60), x]), np.arange(60) % 2))
    with pytest.raises(tb.OptionError, match="which this sampler does not have"):
        tb.sample(model, sampler, draws=5, warmup=5, chains=1, progress=False)

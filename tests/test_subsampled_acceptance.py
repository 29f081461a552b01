"""Samplers with a subsampled decision: the law each of them has, and the faults that tests must find."""

import math

import numpy as np
import pytest
from support import named

import tallbayes as tb
from tallbayes.errors import OptionError
from tallbayes.samplers import Outcome
from tallbayes.testing import (
    THRESHOLD,
    counting_rows,
    invariance_scores,
    run_chunks,
)

SAMPLERS = tb.samplers


# Draws without replacement and the count of evaluations


def test_values_at_a_state_that_was_read_in_full_count_once(small):
    n = small.model.data.n
    sampler = SAMPLERS.Austerity(epsilon=1e-300, batch=30)  # never decides before all rows are read
    found = named(sampler, run_chunks(sampler, small.model, small.mode, [40])[1])
    assert found["full_read"].all() and found["acceptance_rate"].any() and not found["acceptance_rate"].all()
    np.testing.assert_array_equal(found["evals"], [2 * n] + [n] * 39)
    np.testing.assert_array_equal(found["evals_paper"], [2 * n, n] * 20)  # an iteration charged n is forgotten by the papers


# Decisions replayed on one pair


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_warm_up_chooses_the_subsample_that_makes_beta_one(small):
    fit = tb.sample(small.model, "noise-exchange", draws=500, warmup=500, chains=2, seed=1, progress=False)
    assert 0.8 < np.median(fit.stats["beta"]) < 1.25
    np.testing.assert_array_equal(fit.evals, 2 * fit.stats["rows"])
    assert not fit.stats["full_read"].any()
    assert any("more than the n of plain Metropolis" in w for w in fit.meta["warnings"])


# Austerity


def test_a_small_epsilon_makes_austerity_exact(small):
    sampler = SAMPLERS.Austerity(epsilon=1e-300, batch=30, move=tb.moves.independence())
    assert np.abs(invariance_scores(sampler, small.model, small.posterior, starts=5000)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, small.tempered, small.posterior)).max() > THRESHOLD


def test_the_first_look_must_have_thirty_rows():
    with pytest.raises(OptionError, match="at least 30"):
        SAMPLERS.Austerity(batch=29)
    assert SAMPLERS.Austerity(batch=30).batch == 30


@pytest.mark.parametrize("seed", range(3))
def test_lognormal_data_make_austerity_warn_and_normal_data_do_not(seed):
    noise = np.random.default_rng(seed).standard_normal(20_000)
    sampler, stats = SAMPLERS.Austerity(batch=300), {"evals": np.ones((1, 1))}
    for values, warned in ((noise, False), (np.exp(noise), True)):
        model = tb.models.normal(values)
        mode = tb.find_mode(model, progress=False)
        with counting_rows() as account:
            setup = sampler.setup(model, mode, seed, False)
        assert setup.notes["normal"] is not warned
        warnings = sampler.diagnose(Outcome(setup, np.zeros((1, 1, 2)), stats)).warnings
        assert [("not normal" in w and "skewness" in w) for w in warnings] == [True] * warned
    assert account.rows == 8 * 20_000 and setup.notes["skewness"] > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_austerity_underestimates_sigma_of_lognormal_data():
    model = tb.models.normal(np.exp(np.random.default_rng(0).standard_normal(100_000)))
    fit = tb.sample(model, SAMPLERS.Austerity(batch=100), draws=2000, warmup=500, chains=2, seed=1, progress=False)
    sd = math.sqrt(tb.find_mode(model, progress=False).covariance[1, 1])
    assert fit.theta[:, :, 1].mean() < fit.laplace_mean[1] - 2.0 * sd
    assert any("not normal" in w for w in fit.meta["warnings"])


# Audits, diagnostics, options


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
@pytest.mark.parametrize("name", ["austerity", "penalty-mh", "minibatch-barker", "noise-exchange", "delayed-acceptance"])
def test_audits_replay_decisions(name, medium):
    fit = tb.sample(medium, name, draws=50, warmup=50, chains=1, seed=1, progress=False)
    found = fit.audit(medium, pairs=4, repeats=200)
    assert found.passed
    if name == "austerity":
        assert 0.0 <= found.facts["flip rate"] < 0.25 and " to " in found.facts["flip rate, 95 % interval"]
    if name in ("penalty-mh", "minibatch-barker"):
        assert abs(found.facts["acceptance rate less that on all rows"]) < THRESHOLD * 0.5 / math.sqrt(800)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SAMPLERS.Austerity(epsilon=0.5), "between 0 and 0.5"),
        (lambda: SAMPLERS.Austerity(growth=1.0), "above 1"),
        (lambda: SAMPLERS.Austerity(order=3), "0 .none., 1 or 2"),
        (lambda: SAMPLERS.Austerity(move=tb.moves.nuts()), "known proposal ratio"),
        (lambda: SAMPLERS.PenaltyMH(variance=0.0), "positive"),
        (lambda: SAMPLERS.NoiseExchange(subsample=1), "at least 2"),
        (lambda: SAMPLERS.NaiveSubsampling(estimator="unbiassed"), "did you mean 'unbiased'"),
        (lambda: SAMPLERS.NaiveSubsampling(share=0.0), "above 0"),
        (lambda: SAMPLERS.DelayedAcceptance(form="products"), "did you mean 'product'"),
        (lambda: SAMPLERS.DelayedAcceptance(form="product", subsample=5), "applies only to form='surrogate'"),
        (lambda: SAMPLERS.DelayedAcceptance(order=0), "needs a proxy or rows"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.filterwarnings("ignore::tallbayes.TallbayesWarning")
def test_comparisons_take_them(small):
    names = ["penalty-mh", "naive-subsampling"]
    found = tb.compare(small.model, names, draws=50, warmup=50, chains=2, reference_draws=100, progress=False)
    assert list(found.table.index) == [*names, "laplace"]

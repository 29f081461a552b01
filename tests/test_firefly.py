"""Firefly Monte Carlo: enumerated, started from exact draws with every move, and made to fail by the papers' errors."""

import re

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError, TallbayesWarning
from tallbayes.samplers import Firefly, PseudoMarginalFirefly, from_dict
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_error, invariance_scores


def implicit_chance(gap, rate):
    odds = np.expm1(gap)
    return [(q * min(1.0, o / q), 1.0 - min(1.0, q / o)) for q, o in zip(rate, odds, strict=True)]


def typo_chance(gap, rate):
    """Line 10 of the paper's Algorithm 2 as printed: brighten if L~/q < u."""
    odds = np.expm1(gap)
    return [(q * max(0.0, 1.0 - o / q), 1.0 - min(1.0, q / o)) for q, o in zip(rate, odds, strict=True)]


def sequential_chance(gap, rate):
    """Rows that were just darkened are tried again."""
    dark = [c[0] for c in implicit_chance(gap, rate)]
    return [(d, c[1] + (1.0 - c[1]) * d) for d, c in zip(dark, implicit_chance(gap, rate), strict=True)]


def test_two_state_errors_are_the_known_ones():
    """Odds and rates for which the size of the errors is on record."""
    errors = {"typo": [], "sequential": []}
    for odds, q in ((0.05, 0.1), (0.5, 0.1), (0.02, 0.01)):
        gap, law = np.log1p([odds]), np.array([1.0, odds]) / (1.0 + odds)
        for name, chance in (("typo", typo_chance), ("sequential", sequential_chance)):
            ((dark, lit),) = chance(gap, [q])
            errors[name].append(invariance_error(np.array([[1 - dark, dark], [1 - lit, lit]]), law))
        ((dark, lit),) = implicit_chance(gap, [q])
        assert invariance_error(np.array([[1 - dark, dark], [1 - lit, lit]]), law) < 1e-16
    assert max(errors["typo"]) == pytest.approx(0.0667, abs=1e-3)
    assert max(errors["sequential"]) == pytest.approx(0.0067, abs=1e-3)


# Whole chains from exact draws, with a bound so loose that z matters.


@pytest.mark.parametrize(
    "move",
    [
        tb.moves.random_walk(),
        tb.moves.mala(),
        pytest.param(tb.moves.hmc(), marks=pytest.mark.slow),
        pytest.param(tb.moves.nuts(), marks=pytest.mark.slow),
        pytest.param(tb.moves.slice(), marks=pytest.mark.slow),
    ],
    ids=lambda move: move.name,
)
def test_every_move_keeps_exact_draws(move, small):
    sampler = Firefly(move=move, bound="untuned", xi=0.1, rate=0.1)
    scores = invariance_scores(sampler, small.model, small.posterior, starts=6000, steps=15, mode=small.mode)
    assert np.abs(scores).max() < THRESHOLD


@pytest.mark.parametrize("resample", ["explicit", "explicit-without", "sweep"])
def test_explicit_resampling_keeps_exact_draws(resample, small):
    sampler = Firefly(bound="untuned", xi=0.1, resample=resample, fraction=0.2)
    scores = invariance_scores(sampler, small.model, small.posterior, starts=10_000, steps=20, mode=small.mode)
    assert np.abs(scores).max() < THRESHOLD


def _models():
    X, y = logistic_arrays(50, seed=11)
    rng = np.random.default_rng(12)
    real = X @ [0.5, 0.1] + 0.5 * rng.standard_t(4, 50)
    robust = tb.models.student_t(tb.Dataset.from_arrays(X, real), tb.priors.laplace(0.2), nu=4.0, scale=0.5)
    softmax = tb.models.softmax(tb.Dataset.from_arrays(X[:, 1:], y), tb.priors.normal(1.5), classes=2)
    return {"robust": robust, "softmax": softmax, "normal": tb.models.normal(real[:20])}


@pytest.mark.parametrize(
    "name, sampler",
    [
        ("robust", Firefly(move=tb.moves.slice(), bound="untuned")),
        pytest.param("robust", Firefly(move=tb.moves.mala()), marks=pytest.mark.slow),
        pytest.param("softmax", Firefly(move=tb.moves.mala(), bound="untuned", rate=0.2), marks=pytest.mark.slow),
        pytest.param("normal", Firefly(move=tb.moves.hmc(), bound="taylor"), marks=pytest.mark.slow),
    ],
    ids=["robust-slice", "robust-mala", "softmax-mala", "normal-hmc"],
)
def test_other_families_keep_exact_draws(name, sampler):
    model = _models()[name]
    scores = invariance_scores(sampler, model, exact_posterior(model, points=161), starts=4000, steps=15)
    assert np.abs(scores).max() < THRESHOLD


# Pseudo-marginal Firefly.


def test_a_loose_bound_is_refused():
    X, y = logistic_arrays(400, effects=[0.0] + [1.5] * 11)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    with pytest.raises(ModelError, match=r"variance of .* above 10"):
        PseudoMarginalFirefly().setup(model, tb.find_mode(model, progress=False), 0, False)


# What users meet.


def test_firefly_reads_few_rows_and_an_audit_passes(medium):
    fit = tb.sample(medium, "firefly", draws=1000, chains=2, seed=1, progress=False)
    assert fit.evals.mean() < 20 and "Jaakkola-Jordan, tuned" in fit.why
    notes = fit.meta["notes"]
    assert {"bright_share", "rows_never_looked_at", "bright_count_IF", "expected_bright"} <= notes.keys()
    assert notes["rows_never_looked_at"] > 0 and notes["bright_share"] < 1e-3 and fit.meta["warnings"] == []
    report = fit.audit(medium, pairs=3)
    assert report.passed and report.facts["smallest gap between likelihood and bound"] > 0.0
    again = tb.sample(medium, Firefly(move=tb.moves.mala()), draws=50, warmup=50, chains=1, seed=1, progress=False)
    assert again.stats["evals_gradient"].sum() > 0


def test_a_loose_bound_is_warned_of(small):
    with pytest.warns(TallbayesWarning, match=r"% of the rows are bright.*bound='tuned'"):
        tb.sample(small.model, Firefly(bound="untuned", xi=6.0), draws=200, chains=1, seed=1, progress=False)


def test_lights_that_stick_are_warned_of():
    """The lognormal sample of Bardenet et al. under their bound: L/B - 1 of every row is far above a small rate."""
    model = tb.models.normal(np.random.default_rng(5).lognormal(sigma=2.0, size=2000))
    with pytest.warns(TallbayesWarning) as caught:
        sampler = Firefly(bound="taylor-uniform", rate=1e-5)
        fit = tb.sample(model, sampler, draws=2000, warmup=200, chains=2, seed=2, progress=False)
    stays, slow, *_ = (str(w.message) for w in caught)  # others judge the chains
    assert re.match(r"a bright row stays bright for .* Raise rate", stays)
    assert re.match(r"each effective draw takes .* for the same move on all rows .* Raise rate", slow)
    assert fit.meta["notes"]["iterations_bright"] > 40 and fit.meta["warnings"][:2] == [stays, slow]


def test_options_are_checked_and_survive_json():
    sampler = Firefly(move=tb.moves.hmc(time=0.7), bound="untuned", xi=2.0, resample="sweep", fraction=0.3)
    assert from_dict(sampler.as_dict()) == sampler
    for options, message in (
        ({"bound": "loose"}, "bound"),
        ({"resample": "often"}, "resample"),
        ({"rate": 0.0}, "probability"),
        ({"fraction": 1.5}, "probability"),
        ({"rate": 0.1, "resample": "sweep"}, "fraction="),
        ({"excess": 0.0}, "positive"),
        ({"excess": 1.0, "rate": 0.1}, "omit rate"),
        ({"xi": 1.0}, "untuned"),
        ({"theta_moves": 0}, "at least 1"),
    ):
        with pytest.raises(OptionError, match=message):
            Firefly(**options)
    with pytest.raises(OptionError, match="known proposal ratio"):
        PseudoMarginalFirefly(move=tb.moves.nuts())

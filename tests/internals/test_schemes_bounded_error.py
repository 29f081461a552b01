"""Internals of `tallbayes.schemes.bounded_error`; what users see of it is tested in test_confidence.py."""

import math

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.samplers import Confidence
from tallbayes.schemes.bounded_error import Weighted, beside_delta
from tallbayes.schemes.sequential_tests import Betting
from tallbayes.testing import THRESHOLD, replay_decisions

ROWS = 2000


@pytest.fixture(scope="module")
def heavy():
    """Rows of very different norms, so that residuals have a long tail."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(ROWS), rng.standard_t(3, (ROWS, 2))])
    y = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-X @ [-0.5, 0.7, 0.3]))
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    return model, tb.find_mode(model, progress=False)


def flips(sampler, model, mode, pairs, repeats, seed, worst):
    """Wrong decisions on stored (theta, theta', u); `worst` puts u next to the exact ratio."""
    rng = np.random.default_rng(seed)
    white = rng.standard_normal((pairs, 1, model.dim)) + np.concatenate(
        [np.zeros((pairs, 1, model.dim)), rng.standard_normal((pairs, 1, model.dim))], axis=1
    )
    thetas = mode.reference + white @ mode.factor.T
    levels = np.log1p(-rng.random((pairs, repeats)))
    if worst:
        exact = np.array([model.log_posterior(other) - model.log_posterior(theta) for theta, other in thetas])
        levels[:] = (exact + np.where(np.arange(pairs) % 2, 1e-5, -1e-5))[:, None]
    return replay_decisions(sampler, model, thetas, levels, mode=mode, seed=seed).wrong(levels)


def most(trials, delta):
    return delta * trials + THRESHOLD * math.sqrt(delta * (1 - delta) * trials)


def test_a_rule_that_spends_more_than_its_level_is_caught(heavy):
    """The mutant: bets at level 0.6 said to be 0.1."""

    class Loose(Confidence):
        def rule(self, model, mode, seed):
            rule, why, notes = super().rule(model, mode, seed)
            assert isinstance(rule, Weighted)
            return rule._replace(test=Betting(0.6, 1.5, 8, 0.75)), why, notes

    assert flips(Loose(delta=0.1), *heavy, 12, 300, 7, True).sum() > most(12 * 300, 0.1)


def test_the_audit_puts_the_flip_rate_beside_delta(medium):
    fit = tb.sample(medium, Confidence(delta=0.1), draws=200, warmup=100, chains=1, seed=1, progress=False)
    audit = fit.audit(medium, pairs=4)
    assert audit.passed and audit.facts["delta"] == 0.1 and audit.facts["flip rate"] <= 0.1
    facts = {"decisions replayed": 1000, "flip rate": 0.2}
    assert beside_delta((facts, []), 0.1)[1] and not beside_delta((facts, []), 0.19)[1]

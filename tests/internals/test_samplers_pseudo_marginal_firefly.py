"""Internals of `tallbayes.samplers.pseudo_marginal_firefly`; what users see of it is tested in test_firefly.py."""

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.proxies.lower_bounds import bound_value, gaps_at
from tallbayes.samplers import Firefly
from tallbayes.samplers.pseudo_marginal_firefly import lit_value, log_variance
from tallbayes.schemes.lights import (
    log_odds,
)
from tallbayes.testing import invariance_error, irreducible

LIGHTS = list(itertools.product((0, 1), repeat=3))


class Three(NamedTuple):
    """Three rows under a loose bound, three states of theta: gaps, and the joint law of theta and z."""

    target: object
    theta: np.ndarray
    gap: np.ndarray
    joint: np.ndarray  # (states, lights)
    posterior: np.ndarray


@cache
def three():
    X = np.array([[1.0, 0.4], [1.0, -1.3], [1.0, 2.0]])
    data = tb.Dataset.from_arrays(X, [1.0, 0.0, 0.0], [0.2, 0.0, -0.3], [1.0, 2.5, 0.7])
    model = tb.models.logistic(data, tb.priors.cauchy(2.0))
    mode = tb.find_mode(model, progress=False)
    target = Firefly(bound="untuned", xi=4.0).setup(model, mode, 0, False).target()
    theta = np.array([[0.3, -1.0], [-0.5, 0.6], [1.2, 0.4]])
    gap = np.array([gaps_at(model.rows, target.proxy, t) for t in theta])
    base = np.array([bound_value(target.proxy, t) + model.log_prior(t) for t in theta])
    joint = np.exp(
        np.array([[b + sum(log_odds(g[i]) for i in range(3) if z[i]) for z in LIGHTS] for b, g in zip(base, gap, strict=True)])
    )
    log_posterior = np.array([model.log_posterior(t) for t in theta])
    posterior = np.exp(log_posterior - log_posterior.max())
    return Three(target, theta, gap, joint / joint.sum(), posterior / posterior.sum())


# Pseudo-marginal Firefly.


def test_the_estimator_is_unbiased_and_its_chain_invariant():
    case, chance = three(), np.array([0.3, 0.05, 0.4])
    prior = np.array([np.prod(np.where(z, chance, 1 - chance)) for z in LIGHTS])
    log_estimate = np.array(
        [
            [bound_value(case.target.proxy, t) + sum(lit_value(g[i], chance[i]) for i in range(3) if z[i]) for z in LIGHTS]
            for t, g in zip(case.theta, case.gap, strict=True)
        ]
    )
    weights = np.exp([tb.models.priors.prior_value(case.target.prior, t) for t in case.theta])
    estimate = np.exp(log_estimate - log_estimate.max()) * weights[:, None]
    mean = estimate @ prior
    np.testing.assert_allclose(mean / mean.sum(), case.posterior, rtol=1e-9)  # up to the constant of unlit rows
    for s in range(3):
        spread = prior @ log_estimate[s] ** 2 - (prior @ log_estimate[s]) ** 2
        assert log_variance(case.gap[s], chance) == pytest.approx(spread, rel=1e-9)
    law = (estimate * prior).reshape(-1)
    law /= law.sum()
    matrix, mutant = np.zeros((24, 24)), np.zeros((3, 3))
    for s, z, t, w in itertools.product(range(3), range(8), range(3), range(8)):
        if t == s:
            continue
        accept = min(1.0, estimate[t, w] / estimate[s, z]) * prior[w] / 3.0
        matrix[s * 8 + z, t * 8 + w] = accept
        mutant[s, t] += accept * prior[z]  # the estimate at the present state drawn anew: not exact
    matrix += np.diag(1.0 - matrix.sum(1))
    mutant += np.diag(1.0 - mutant.sum(1))
    assert invariance_error(matrix, law) < 1e-15 and irreducible(matrix)
    assert invariance_error(mutant, case.posterior) > 1e-4
    conditional = (estimate * prior) / (estimate * prior).sum(1, keepdims=True)  # what the first draw of z must have
    np.testing.assert_allclose(conditional, case.joint / case.joint.sum(1, keepdims=True), rtol=1e-9)

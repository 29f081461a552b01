"""Internals of `tallbayes.samplers.penalty`; what users see of it is tested in test_subsampled_acceptance.py."""

import math

import numpy as np
from scipy.special import ndtr

from tallbayes.samplers.penalty import penalty_of
from tallbayes.testing import (
    invariance_error,
    irreducible,
    transition_matrix,
)

# Decisions replayed on one pair


def penalised(ratio, sd, penalty):
    """E min(1, exp(D - penalty)) for D ~ N(ratio, sd^2)."""
    low = (ratio - penalty) / sd
    return ndtr(low) + np.exp(ratio - penalty + 0.5 * sd**2) * ndtr(-low - sd)


def test_the_penalty_method_is_exact_for_normal_noise_of_known_variance():
    rng = np.random.default_rng(0)
    log_law, sd = rng.normal(0, 1, 4), rng.uniform(0.3, 1.5, (4, 4))
    sd = sd + sd.T
    law = np.exp(log_law) / np.exp(log_law).sum()

    def outcomes(i, share):
        for j in range(4):
            if j != i:
                accept = float(penalised(log_law[j] - log_law[i], sd[i, j], share * penalty_of(sd[i, j] ** 2, math.inf)))
                yield accept / 3, j
                yield (1 - accept) / 3, i

    matrix = transition_matrix(4, lambda i: outcomes(i, 1.0))
    assert invariance_error(matrix, law) < 1e-12 and irreducible(matrix)
    assert invariance_error(transition_matrix(4, lambda i: outcomes(i, 0.0)), law) > 1e-3


def test_the_penalty_for_an_estimated_variance_restores_balance():
    from scipy.stats import chi2

    count, sd = 30, 1.0
    estimate = sd**2 * chi2.ppf((np.arange(4000) + 0.5) / 4000, count - 1) / (count - 1)

    def imbalance(penalty):
        forward, backward = penalised(1.0, sd, penalty).mean(), penalised(-1.0, sd, penalty).mean()
        return abs(forward / backward / math.e - 1.0)

    assert imbalance(penalty_of(estimate, count)) < 3e-4 < 3e-3 < imbalance(0.5 * estimate)

"""Trap: the product of skewed sub-posteriors lies in the tail of one of them. Truth: the posterior of all rows, on a grid."""

import numpy as np
import pytest
from test_combine import GriddedLogistic

from tallbayes.shards import diagnose, resolve

OFF = 0.75  # posterior standard deviations of a mean that no combination may be off without a word


@pytest.mark.parametrize("seed, trapped", [(0, False), (5, False), (21, True), (47, True), (82, False)])
def test_semiparametric_with_four_shards_of_sixty_rows(seed, trapped):
    problem, combiner = GriddedLogistic(4, 600, rows=60, seed=seed), resolve("semiparametric")
    combined = combiner(problem.sub, draws=600, seed=22)
    error = np.abs(combined.theta.mean(0) - problem.mean) / np.sqrt(np.diag(problem.covariance))
    _, sentences = diagnose(problem.sub, combined, combiner)
    if trapped:
        assert error.max() > 0.5, "the trap is none: the answer is right"
        assert any("extrapolates the tail of the shard" in sentence for sentence in sentences)
    else:
        assert error.max() < OFF

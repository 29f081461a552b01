"""Internals of `tallbayes.partial`; what users see of it is tested in test_pseudo_marginal.py."""

import numpy as np
import pytest
from support import logistic_arrays
from test_hmc_ecs import plain, quad, scores  # noqa: F401

import tallbayes as tb
from tallbayes.errors import OptionError
from tallbayes.partial import _part
from tallbayes.testing import THRESHOLD


def test_partial_posteriors_are_debiased_and_a_part_has_the_prior_of_the_whole():
    rng = np.random.default_rng(0)
    data = tb.Dataset.from_arrays(np.ones((1600, 1)), 3.0 + rng.standard_normal(1600))
    model = tb.models.gaussian(data, tb.priors.normal(0.5), sigma=1.0)  # a prior that pulls small parts towards zero
    done = tb.partial_posteriors(model, first=100, replications=60, draws=60, warmup=30, seed=1)
    precision = 1600 + 4.0
    assert done.sizes == (100, 200, 400, 800, 1600)
    assert abs(done.mean[0] - data.y.sum() / precision) < THRESHOLD * done.error[0]
    assert done.terms.min() == 1 and done.evals > 0 and "not for the posterior" in repr(done)
    part = _part(tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(500))), np.arange(100))
    assert part.data.n == 100
    whole = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(500)))
    assert part.log_prior(np.array([1.0, 2.0])) == whole.log_prior(np.array([1.0, 2.0]))
    for options, message in (
        ({"first": 1}, "at least"),
        ({"replications": 1}, "at least 2"),
        ({"decay": 1.0}, "between 0 and 1"),
    ):
        with pytest.raises(OptionError, match=message):
            tb.partial_posteriors(model, **options)

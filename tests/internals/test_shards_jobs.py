"""Internals of `tallbayes.shards.jobs`; what users see of it is tested in test_shards.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import TallbayesWarning

ROWS, SHARDS = 3000, 4
PRIOR = tb.priors.normal(2.0)


@pytest.fixture(scope="module")
def logistic():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(ROWS)), PRIOR)


def sharded(model, combine, **options):
    given = {
        "sampler": "exact-minibatch",
        "shards": SHARDS,
        "draws": 1000,
        "warmup": 200,
        "seed": 5,
        "progress": False,
        **options,
    }
    return tb.sample_shards(model, combine=combine, **given)


def test_sub_models_multiply_to_the_posterior(logistic):
    """The product convention at random points: the sum of sub-posterior log densities is the log posterior, up to a constant."""
    from tallbayes.shards.jobs import Job, ModelRows, shard_densities

    parts = np.array_split(np.random.default_rng(0).permutation(ROWS), SHARDS)
    jobs = [Job(k, ModelRows(logistic, p), 1.0, PRIOR.power(1 / SHARDS)) for k, p in enumerate(parts)]
    theta = np.random.default_rng(1).standard_normal((6, 2))
    found = np.sum([shard_densities(job, theta) for job in jobs], axis=0)
    whole = np.array([logistic.log_posterior(t) for t in theta])
    np.testing.assert_allclose(found - found[0], whole - whole[0], rtol=1e-10)
    powered = Job(0, ModelRows(logistic, parts[0]), 4.0, PRIOR, logistic.prior_terms).model()
    likelihood = jobs[0].model().log_posterior(theta[0]) - jobs[0].model().log_prior(theta[0])
    assert powered.log_posterior(theta[0]) == pytest.approx(4.0 * likelihood + logistic.log_prior(theta[0]), rel=1e-12)
    assert powered.data.total_weight == 4.0 * parts[0].size


def test_shards_of_an_average_share_the_prior_of_all_rows():
    """The default prior takes its scales from columns: a shard must not take them from its own."""
    X, y = logistic_arrays(400)
    X[:200, 1] *= 10.0
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    with pytest.warns(TallbayesWarning):
        fit = sharded(model, "wasserstein", shards=np.repeat([0, 1], 200), draws=200)
    assert fit.meta["default_prior"]
    from tallbayes.shards.jobs import Job, ModelRows

    sub = Job(0, ModelRows(model, np.arange(200)), 2.0, model.prior, model.prior_terms).model()
    own = Job(0, ModelRows(model, np.arange(200)), 2.0, model.prior).model()
    theta = np.array([0.3, 2.0])
    assert sub.log_prior(theta) == model.log_prior(theta) != own.log_prior(theta)

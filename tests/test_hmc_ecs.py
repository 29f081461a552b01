"""HMC with energy conserving subsampling: its Hamiltonian, its law against quadrature, and the mutants that must fail."""

from typing import NamedTuple

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.errors import ModelError, OptionError, TallbayesWarning
from tallbayes.samplers import HMCECS, Outcome, resolve
from tallbayes.testing import (
    THRESHOLD,
    counting_rows,
    effective_sizes,
    exact_posterior,
    mode_at,
    run_chunks,
)


class Quad(NamedTuple):
    """Two parameters and 200 rows, with the posterior known from a grid."""

    model: tb.models.Model
    mode: object
    posterior: object


@pytest.fixture(scope="module")
def quad():
    X, y = logistic_arrays(200)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(10.0))
    return Quad(model, tb.find_mode(model, progress=False), exact_posterior(model))


def scores(fit, posterior, weights):
    """z-scores of means and variances of a run against the exact ones, and effective sizes."""
    x = (fit.theta - posterior.mean) / np.sqrt(np.diag(posterior.covariance))
    values = np.concatenate([x, x * x - 1.0], axis=2)
    mean = np.einsum("cd,cdk->k", weights, values) / weights.sum()
    variance = np.einsum("cd,cdk->k", weights, (values - mean) ** 2) / weights.sum()
    sizes = effective_sizes(values, weights)
    return mean / np.sqrt(variance / sizes), sizes


def plain(fit):
    return np.ones(fit.theta.shape[:2])


def test_the_perturbed_law_is_the_posterior_to_the_accuracy_of_a_long_run(quad):
    sampler = HMCECS(subsample=20, blocks=5)
    fit = tb.sample(quad.model, sampler, draws=20_000, warmup=500, seed=1, mode=quad.mode, progress=False)
    z, sizes = scores(fit, quad.posterior, plain(fit))
    assert sizes.min() > 19_500 and np.abs(z).max() < THRESHOLD
    assert fit.meta["notes"]["bias_sd"] < 0.01
    assert fit.stats["variance"].mean() < 0.1


def test_a_coarse_estimate_shows_and_weights_repair_it(quad):
    sampler = HMCECS(subsample=12, blocks=4, order=1)
    with pytest.warns(TallbayesWarning) as told:
        fit = tb.sample(quad.model, sampler, draws=40_000, warmup=500, seed=2, mode=quad.mode, progress=False)
    assert any("at a distance" in str(w.message) for w in told)
    assert np.abs(scores(fit, quad.posterior, plain(fit))[0]).max() > THRESHOLD
    exact = fit.reweight(quad.model, draws=8000)
    assert exact.guarantee.kind == "EXACT" and exact.theta.shape == (4, 8000, 2)
    assert np.abs(scores(exact, quad.posterior, exact.weights)[0]).max() < THRESHOLD
    assert exact.cost()["setup"]["evals"] >= 4 * 8000 * 200


@pytest.fixture(scope="module")
def signed_fit(quad):
    """A reference off the mode and few products, so that some estimates are negative."""
    reference = quad.mode.reference - 1.5 * quad.mode.factor @ np.array([1.0, -0.5])
    sampler = HMCECS(estimator="signed", products=2, batch=1, shift=0.5, pilot=60)
    mode = mode_at(quad.model, reference)
    with pytest.warns(tb.TallbayesWarning, match="iterations diverged"):  # a poor reference and noisy gradients
        return tb.sample(quad.model, sampler, draws=30_000, warmup=500, seed=1, mode=mode, progress=False)


def test_signed_averages_are_exact_and_without_signs_they_are_not(quad, signed_fit):
    positive = (signed_fit.weights > 0).mean()
    assert 0.75 < positive < 0.98
    z, sizes = scores(signed_fit, quad.posterior, signed_fit.weights)
    assert sizes.min() > 19_500 and np.abs(z).max() < THRESHOLD
    assert np.abs(scores(signed_fit, quad.posterior, plain(signed_fit))[0]).max() > 2 * THRESHOLD


def test_signs_are_carried_through_the_fit(signed_fit, tmp_path):
    cost, summary = signed_fit.cost(), signed_fit.summary()
    positive = (signed_fit.weights > 0).mean()
    assert cost["positive"] == positive and "positive sign" in repr(summary)
    unsigned = effective_sizes(signed_fit.theta)
    assert abs(cost["ess_rule"] - unsigned.min() * (2 * positive - 1) ** 2) < 1e-6
    assert cost["ess_min"] == signed_fit.ess.min() < signed_fit.weights.size
    mean = np.einsum("cd,cdk->k", signed_fit.weights, signed_fit.theta) / signed_fit.weights.sum()
    np.testing.assert_allclose(summary["mean"], mean)
    predicted = signed_fit.predict(np.eye(2), draws=4000)
    assert (predicted["lower"] < predicted["mean"]).all() and (predicted["mean"] < predicted["upper"]).all()
    again = tb.load(signed_fit.save(tmp_path / "fit.nc"))
    assert again.idata.attrs["weighted"] == 1 and (again.weights == signed_fit.weights).all()
    with pytest.raises(OptionError, match="weights already"):
        signed_fit.reweight(None)


def test_effective_sizes_of_signed_draws_are_those_of_their_averages():
    rng, means = np.random.default_rng(0), []
    for _ in range(400):
        theta = rng.standard_normal((1, 500, 1))
        signs = np.where(rng.random((1, 500)) < 0.85, 1.0, -1.0)
        means.append((signs * theta[..., 0]).sum() / signs.sum())
    size = effective_sizes(theta, signs)[0]
    expected = 1.0 / np.var(means)
    assert 0.7 < size / expected < 1.4


def test_no_weight_no_sign(quad):
    fit = tb.sample(quad.model, "hmc-ecs", draws=50, warmup=50, chains=2, seed=1, mode=quad.mode, progress=False)
    assert "weight" not in fit.stats and "positive" not in fit.cost() and (fit.weights == 1).all()


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(HMCECS(move=tb.moves.nuts(), subsample=20), marks=pytest.mark.slow),
        HMCECS(order=1, mass="conditional", subsample=100),
    ],
)
def test_nuts_and_the_conditional_mass_have_the_same_law(quad, sampler):
    fit = tb.sample(quad.model, sampler, draws=15_000, warmup=500, seed=1, mode=quad.mode, progress=False)
    weighted = fit.reweight(quad.model, draws=3000)
    assert np.abs(scores(weighted, quad.posterior, weighted.weights)[0]).max() < THRESHOLD


def test_evaluations_are_those_of_the_block_and_the_trajectory(quad):
    _, info, _ = run_chunks(HMCECS(subsample=40, blocks=10), quad.model, quad.mode, [200])
    report = dict(zip(resolve("hmc-ecs").columns, info.T, strict=True))
    np.testing.assert_array_equal(report["evals"], 4 + 40 * report["n_steps"])
    np.testing.assert_array_equal(report["evals_gradient"], report["evals"])


def test_a_poor_reference_is_recentred(quad):
    far = mode_at(quad.model, quad.mode.reference + 2.0 * quad.mode.factor @ np.array([0.8, -0.6]))
    sampler = HMCECS(recentre=2)
    with counting_rows() as recentred:
        setup = sampler.setup(quad.model, far, 1, False)
    moved = np.linalg.norm(quad.mode.laplace().whiten(np.array(setup.notes["reference"])))
    assert moved < 1.0 and setup.notes["recentred"] == 2
    with counting_rows() as once:
        HMCECS().setup(quad.model, far, 1, False)
    assert recentred.rows > 3 * once.rows  # three pilots, and the chains between them


def test_signs_that_cancel_end_the_run(quad):
    far = mode_at(quad.model, quad.mode.reference - 2.5 * quad.mode.factor @ np.array([1.0, -0.5]))
    sampler = HMCECS(estimator="signed", products=1, batch=1, shift=0.1, pilot=5, order=1)
    with pytest.raises(ModelError, match=r"Raise products|met the wall"):
        tb.sample(quad.model, sampler, draws=100, warmup=200, chains=2, seed=1, mode=far, progress=False)


def test_warnings_say_what_is_wrong(quad):
    with pytest.warns(TallbayesWarning, match="the data have 200"):
        fit = tb.sample(
            quad.model, HMCECS(subsample=300), draws=50, warmup=50, chains=2, seed=1, mode=quad.mode, progress=False
        )
    assert any("the data have 200" in w for w in fit.meta["warnings"])


def test_a_variance_outside_its_range_is_told(quad):
    setup = HMCECS(subsample=20).setup(quad.model, quad.mode, 0, False)
    stats = {"variance": np.full((2, 50), 12.0), "u_accepted": np.ones((2, 50)), "wall": np.zeros((2, 50))}
    theta = quad.mode.laplace().draw(np.random.default_rng(0), 100).reshape(2, 50, 2)
    told = HMCECS(subsample=20).diagnose(Outcome(setup, theta, stats)).warnings
    assert len(told) == 1 and "variance of 12, above 10" in told[0]
    stats["wall"][0, :5] = 1.0
    assert any("5 % of the iterations met the wall" in t for t in HMCECS().diagnose(Outcome(setup, theta, stats)).warnings)
    X, y = logistic_arrays(20_000)
    large = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(2.0))
    fit = HMCECS(subsample=5000).setup(large, tb.find_mode(large, progress=False), 0, False)
    stats = {"variance": np.full((2, 50), 0.01), "u_accepted": np.ones((2, 50)), "wall": np.zeros((2, 50))}
    assert "more than needed" in HMCECS().diagnose(Outcome(fit, theta, stats)).warnings[0]


def test_an_estimate_that_escapes_is_stopped(quad):
    """Without proxies 20 rows have a bias that grows with the distance: the chain leaves, and says so."""
    with pytest.raises(ModelError, match="met the wall"):
        tb.sample(
            quad.model, HMCECS(subsample=20, order=0), draws=50, warmup=200, chains=2, seed=1, mode=quad.mode, progress=False
        )


def test_an_audit_compares_estimates_with_all_rows(quad):
    fit = tb.sample(quad.model, HMCECS(subsample=20), draws=100, warmup=100, chains=2, seed=1, mode=quad.mode, progress=False)
    audit = fit.audit(quad.model, pairs=10)
    assert audit.passed and audit.facts["draws evaluated on all rows"] == 10
    fit.stats["log_likelihood"] += 100.0
    assert not fit.audit(quad.model, pairs=10).passed


@pytest.mark.parametrize(
    "options, message",
    [
        ({"estimator": "sined"}, "did you mean 'signed'"),
        ({"move": tb.moves.random_walk()}, "hmc.. or nuts"),
        ({"order": 3}, "0, 1 or 2"),
        ({"rows": "all"}, "unknown rows"),
        ({"mass": "fixed"}, "unknown mass"),
        ({"subsample": 0}, "at least 1"),
        ({"blocks": 0}, "at least 1"),
        ({"variance": 0.0}, "positive"),
        ({"products": 3}, "applies only to estimator='signed'"),
        ({"estimator": "signed", "subsample": 10}, "applies only to estimator='perturbed'"),
        ({"estimator": "signed", "mass": "conditional"}, "applies only to estimator='perturbed'"),
        ({"estimator": "signed", "products": 3, "refreshed": 4}, "exceeds products"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        HMCECS(**options)


def test_few_rows_are_refused(quad):
    with pytest.raises(OptionError, match="improper"):
        HMCECS(subsample=5).setup(quad.model, quad.mode, 0, False)

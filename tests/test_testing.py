"""The tools that test samplers, tested: quadrature, importance sampling, enumeration, scores."""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.testing import (
    THRESHOLD,
    exact_posterior,
    importance_moments,
    invariance_error,
    invariance_scores,
    irreducible,
    moment_scores,
    poisson_outcomes,
    transition_matrix,
)

SIGMA, SCALE, LOCATION = 0.8, 1.5, 0.3


@pytest.fixture(scope="module")
def conjugate():
    """A Gaussian model of known sigma with a normal prior, and its mean and covariance in closed form."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(40), rng.standard_normal(40) + 0.5])
    y, weights = X @ [0.5, -1.0] + SIGMA * rng.standard_normal(40), rng.gamma(2.0, size=40)
    prior = tb.priors.normal(SCALE, LOCATION)
    model = tb.models.gaussian(tb.Dataset.from_arrays(X, y, weights=weights), prior, sigma=SIGMA)
    precision = X.T @ (weights[:, None] * X) / SIGMA**2 + np.eye(2) / SCALE**2
    mean = np.linalg.solve(precision, X.T @ (weights * y) / SIGMA**2 + LOCATION / SCALE**2)
    return model, mean, np.linalg.inv(precision)


@pytest.fixture(scope="module")
def exact(conjugate):
    return exact_posterior(conjugate[0])


def test_quadrature_agrees_with_closed_forms(conjugate, exact):
    _, mean, covariance = conjugate
    np.testing.assert_allclose(exact.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(exact.covariance, covariance, rtol=0, atol=1e-9)
    variance = np.diag(covariance)
    np.testing.assert_allclose(exact.moment(2), variance, rtol=1e-8)
    np.testing.assert_allclose(exact.moment(3), 0.0, atol=1e-8)
    np.testing.assert_allclose(exact.moment(4), 3.0 * variance**2, rtol=1e-8)
    assert exact.probability.sum() == pytest.approx(1.0, abs=1e-12)


def test_quadrature_of_one_parameter():
    data = tb.Dataset.from_arrays(np.ones((5, 1)), np.arange(5.0))
    exact = exact_posterior(tb.models.gaussian(data, tb.priors.flat(), sigma=2.0))
    np.testing.assert_allclose([exact.mean[0], exact.covariance[0, 0]], [2.0, 0.8], rtol=1e-9)


def test_quadrature_refuses_three_parameters():
    data = tb.Dataset.from_arrays(np.random.default_rng(0).standard_normal((9, 3)), np.arange(9.0))
    with pytest.raises(tb.OptionError, match=r"one or two parameters; the model has 3"):
        exact_posterior(tb.models.gaussian(data, sigma=1.0))


def test_draws_have_the_moments_of_the_grid(exact):
    draws = exact.draw(np.random.default_rng(1), 50_000)
    assert np.abs(moment_scores(draws, exact)).max() < THRESHOLD


@pytest.mark.parametrize("change", ["shift", "spread", "correlation"])
def test_scores_see_a_change_of_four_percent(exact, change):
    draws = exact.draw(np.random.default_rng(1), 50_000)
    white = np.linalg.solve(np.linalg.cholesky(exact.covariance), (draws - exact.mean).T)
    factor = {"shift": np.eye(2), "spread": 1.04 * np.eye(2), "correlation": np.array([[1.0, 0.0], [0.04, 1.0]])}[change]
    moved = factor @ white + (0.04 if change == "shift" else 0.0)
    changed = exact.mean + (np.linalg.cholesky(exact.covariance) @ moved).T
    assert np.abs(moment_scores(changed, exact)).max() > THRESHOLD


def test_importance_sampling_agrees_with_quadrature(small):
    estimate = importance_moments(small.model, draws=20_000, mode=small.mode)
    sd = np.sqrt(np.diag(small.posterior.covariance))
    assert (np.abs(estimate.mean - small.posterior.mean) < 4.9 * estimate.mean_error).all()
    assert (np.abs(estimate.sd - sd) < 4.9 * estimate.sd_error).all()
    assert (estimate.mean_error < 0.02 * sd).all() and (estimate.sd_error < 0.02 * sd).all()
    assert 0.5 < estimate.ess / estimate.draws <= 1.0


def test_importance_errors_are_honest(small):
    estimates = [importance_moments(small.model, draws=400, seed=seed, mode=small.mode) for seed in range(60)]
    sd = np.sqrt(np.diag(small.posterior.covariance))
    means = np.array([(e.mean - small.posterior.mean) / e.mean_error for e in estimates])
    spreads = np.array([(e.sd - sd) / e.sd_error for e in estimates])
    for scores in (means, spreads):
        assert 0.6 < np.sqrt((scores**2).mean()) < 1.5


LAW = np.array([0.2, 0.5, 0.3])


def metropolis(accept):
    """Outcomes of Metropolis on a ring of three states: each neighbour is proposed with probability one half."""

    def outcomes(state):
        for proposal in ((state + 1) % 3, (state + 2) % 3):
            accepted = accept(state, proposal)
            yield 0.5 * accepted, proposal
            yield 0.5 * (1.0 - accepted), state

    return transition_matrix(3, outcomes)


def test_enumeration_passes_metropolis():
    matrix = metropolis(lambda i, j: min(1.0, LAW[j] / LAW[i]))
    assert invariance_error(matrix, LAW) < 1e-12
    assert irreducible(matrix)
    np.testing.assert_allclose(matrix[0], [0.0, 0.5, 0.5])
    np.testing.assert_allclose(matrix[1], [0.2, 0.5, 0.3])


@pytest.mark.parametrize(
    "accept",
    [lambda i, j: min(1.0, 1.01 * LAW[j] / LAW[i]), lambda i, j: min(1.0, LAW[i] / LAW[j]), lambda i, j: 1.0],
    ids=["one percent", "inverted", "always"],
)
def test_enumeration_fails_a_wrong_acceptance(accept):
    assert invariance_error(metropolis(accept), LAW) > 1e-4


def test_enumeration_fails_outcomes_left_out():
    matrix = transition_matrix(3, lambda i: [(0.999, i)])
    assert invariance_error(matrix, LAW) > 1e-4


def test_a_kernel_that_stays_is_invariant_but_not_irreducible():
    matrix = metropolis(lambda i, j: 0.0)
    assert invariance_error(matrix, LAW) < 1e-12
    assert not irreducible(matrix)


@pytest.mark.parametrize("rate", [0.0, 1e-3, 2.5, 40.0])
def test_poisson_outcomes_are_a_law(rate):
    probability, count = np.array(list(poisson_outcomes(rate))).T
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert probability @ count == pytest.approx(rate, abs=1e-10)
    assert probability @ count**2 == pytest.approx(rate + rate**2, rel=1e-10)


def test_interpreted_scores_equal_compiled_ones(small):
    sampler = tb.samplers.FullData(tb.moves.random_walk())
    options = {"starts": 10, "steps": 3, "mode": small.mode}
    compiled = invariance_scores(sampler, small.model, small.posterior, **options)
    interpreted = invariance_scores(sampler, small.model, small.posterior, compiled=False, **options)
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-8)

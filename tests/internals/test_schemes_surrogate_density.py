"""Internals of `tallbayes.schemes.surrogate_density`; what users see of it is tested in test_surrogate_moves.py."""

import numpy as np
import pytest

import tallbayes as tb
from internals.test_proxies_third_order import accepted_by_rows, enumerated, posterior_on
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.samplers import ExactMinibatch
from tallbayes.schemes.surrogate_density import Surrogate
from tallbayes.testing import invariance_error

pytestmark = pytest.mark.filterwarnings("ignore:column 'x1' separates the response")


def decisions(mode, certified, white):
    """Probabilities that rows accept a pair of states, and the posterior on the states."""
    accept = [[1.0 if i == j else accepted_by_rows(mode, certified, white[i], white[j]) for j in range(4)] for i in range(4)]
    return np.array(accept), posterior_on(mode, white)


def on_surrogate(surrogate, weights):
    """The transition matrix of Metropolis-Hastings on the surrogate, given symmetric proposals."""
    with np.errstate(invalid="ignore"):
        ratio = np.exp(np.minimum(0.0, surrogate[None, :] - surrogate[:, None]))
    matrix = weights * np.nan_to_num(ratio)
    np.fill_diagonal(matrix, 0.0)
    return matrix + np.diag(1.0 - matrix.sum(1))


def with_decision(proposal, accept):
    matrix = proposal * accept
    np.fill_diagonal(matrix, 0.0)
    return matrix + np.diag(1.0 - matrix.sum(1))


def imbalance(matrix, law):
    """Largest relative difference of the flows between two states: one of them has a probability of 1e-8."""
    flow = law[:, None] * matrix
    return (np.abs(flow - flow.T) / np.maximum(flow + flow.T, 1e-300)).max()


def test_several_steps_and_one_decision_are_exact_if_the_steps_are_reversible_and_stay_within_reach():
    mode, certified, white = enumerated()
    accept, law = decisions(mode, certified, white)
    density = Surrogate(certified.proxy, certified.whitening, mode.model.prior_terms)
    values = np.array([log_density(density, w) for w in white])
    assert np.isfinite(values[:3]).all() and values[3] == -np.inf  # the last state is beyond the reach
    rng = np.random.default_rng(0)
    kernels = []
    for _ in range(2):
        weights = rng.uniform(0.05, 0.3, (4, 4))
        kernels.append(on_surrogate(values, 0.5 * (weights + weights.T)))
    first, second = kernels
    for kernel in (first, second):  # the last state stays where it is
        kernel[3] = [0.0, 0.0, 0.0, 1.0]
    assert invariance_error(with_decision(np.linalg.matrix_power(first, 5), accept), law) < 1e-11
    assert invariance_error(with_decision(first @ second @ first, accept), law) < 1e-11  # a palindrome
    assert invariance_error(with_decision(first @ second, accept), law) > 1e-6
    far = certified.proxy._replace(reach=0.0)
    everywhere = np.append(values[:3], log_density(density._replace(proxy=far), white[3]))
    leaving = on_surrogate(everywhere, np.full((4, 4), 0.25))
    assert imbalance(with_decision(np.linalg.matrix_power(first, 5), accept), law) < 1e-9
    assert imbalance(with_decision(np.linalg.matrix_power(leaving, 5), accept), law) > 1e-3


@pytest.mark.parametrize("order", [2, 3])
def test_the_gradient_of_the_surrogate(order):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.standard_normal((200, 3))])
    data = tb.Dataset.from_arrays(X, (rng.random(200) < 0.1).astype(float))
    mode = tb.find_mode(tb.models.logistic(data, tb.priors.cauchy(2.0)), progress=False)
    certified = ExactMinibatch(order=order).setup(mode.model, mode, 0, False).proxy
    density = Surrogate(certified.proxy, certified.whitening, mode.model.prior_terms)
    white, gradient = rng.standard_normal(4), np.empty(4)
    assert log_density_gradient(density, white, gradient) == pytest.approx(log_density(density, white), rel=1e-13)
    differences = [(log_density(density, white + h) - log_density(density, white - h)) / 2e-5 for h in 1e-5 * np.eye(4)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-7, atol=1e-8)

"""Surrogate transitions as a move of exact minibatch: enumerated with their mutants, gradients, invariance from exact draws."""

import numpy as np
import pytest
from test_third_order import accepted_by_rows, enumerated, posterior_on

import tallbayes as tb
from tallbayes.moves import from_dict, hmc, independence, nuts, pcn, surrogate
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.samplers import ExactMinibatch
from tallbayes.schemes.surrogate_density import Surrogate
from tallbayes.testing import THRESHOLD, exact_posterior, invariance_error, invariance_scores

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
    far = certified.proxy.second
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


def skewed():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(400), rng.standard_normal(400)])
    y = (rng.random(400) < 0.02).astype(float)
    tempered = tb.Dataset.from_arrays(X, y, weights=np.full(400, 0.9))
    return (tb.models.logistic(data, tb.priors.laplace(1.0)) for data in (tb.Dataset.from_arrays(X, y), tempered))


@pytest.mark.slow
@pytest.mark.parametrize("order, inner", [(2, None), (3, None), (2, nuts()), (3, nuts()), (3, hmc())])
def test_the_posterior_stays_invariant(order, inner):
    model, tempered = skewed()
    sampler, posterior = ExactMinibatch(order=order, move=surrogate(inner, steps=3)), exact_posterior(model)
    assert np.abs(invariance_scores(sampler, model, posterior)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, tempered, posterior)).max() > THRESHOLD


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # tails are heavier than those of the Laplace fit: that is the case in question
def test_more_proposals_are_accepted_where_the_posterior_is_skewed():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 9))])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, (rng.random(20_000) < 0.002).astype(float)), tb.priors.normal(5.0))
    options = {"draws": 3000, "warmup": 300, "chains": 2, "seed": 1, "progress": False}
    plain, several = (tb.sample(model, ExactMinibatch(order=3, move=m), **options) for m in (independence(), surrogate()))
    assert several.stats["accepted"].mean() > plain.stats["accepted"].mean() + 0.05
    assert several.ess.min() > 1.3 * plain.ess.min()
    error = np.sqrt(plain.theta.var((0, 1)) / plain.ess + several.theta.var((0, 1)) / several.ess)
    assert np.abs((plain.theta.mean((0, 1)) - several.theta.mean((0, 1))) / error).max() < 5.0


def test_options_survive_json_and_what_is_no_surrogate_move_is_refused():
    for move in (surrogate(), surrogate(nuts(max_depth=5), steps=2, share=0.5), surrogate(pcn(0.3))):
        assert from_dict(move.as_dict()) == move
    sampler = ExactMinibatch(move=surrogate(nuts()))
    assert tb.samplers.from_dict(sampler.as_dict()) == sampler
    with pytest.raises(tb.OptionError, match="known proposal ratio"):
        surrogate(tb.moves.slice())
    with pytest.raises(tb.OptionError, match="steps must be at least 1"):
        surrogate(steps=0)
    with pytest.raises(tb.OptionError, match="probability below 1"):
        surrogate(share=1.0)
    data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
    with pytest.raises(tb.ModelError, match=r"surrogate\(independence\(\)\)"):
        tb.sample(tb.models.gaussian(data), sampler, draws=5, progress=False)
    with pytest.raises(tb.OptionError, match="known proposal ratio"):
        tb.sample(
            tb.models.logistic(tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 0])),
            tb.samplers.DelayedAcceptance(move=surrogate()),
        )


def test_a_run_tunes_and_uses_the_move():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(2_000), rng.standard_normal(2_000)])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.random(2_000) < 0.4), tb.priors.normal(5.0))
    fit = tb.sample(model, ExactMinibatch(move=surrogate()), draws=400, warmup=100, chains=2, seed=1, progress=False)
    assert fit.stats["accepted"].mean() > 0.6 and fit.r_hat.max() < 1.1


@pytest.mark.parametrize("sampler", [tb.samplers.FullData(surrogate()), tb.samplers.Firefly(move=surrogate())])
def test_samplers_without_a_surrogate_refuse_the_move(sampler):
    x = np.random.default_rng(0).standard_normal(60)
    model = tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(60), x]), np.arange(60) % 2))
    with pytest.raises(tb.OptionError, match="which this sampler does not have"):
        tb.sample(model, sampler, draws=5, warmup=5, chains=1, progress=False)

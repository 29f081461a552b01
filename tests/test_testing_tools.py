"""The tools that run chains, replay decisions, compare laws and make fits from draws, tested."""

import numpy as np
import pyarrow as pa
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes.testing import (
    BATCH_ROWS,
    THRESHOLD,
    ScriptedRandom,
    all_draws,
    counting_rows,
    design_matrix,
    effective_sizes,
    fit_from_draws,
    frozen_kernel,
    invariance_error,
    irreducible,
    largest_disagreement,
    log_likelihood,
    log_likelihood_gradient,
    mode_at,
    replay_decisions,
    row_log_likelihoods,
    run_chunks,
    transition_matrix,
)

POINTS = np.array([[-1.0, 0.2], [0.0, 0.0], [0.7, -0.9]])
TABLE = np.array([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])


def random_walk():
    return tb.samplers.FullData(tb.moves.random_walk())


def test_chunks_and_speed_do_not_change_a_chain(small):
    whole = run_chunks(random_walk(), small.model, small.mode, [12], compiled=False)
    for sizes, compiled in (([5, 7], False), ([12], True)):
        other = run_chunks(random_walk(), small.model, small.mode, sizes, compiled=compiled)
        np.testing.assert_allclose(other.theta, whole.theta, rtol=1e-10)
        assert other.state.keys() == whole.state.keys() and other.info.shape == (12, len(random_walk().columns))
    thinned = run_chunks(random_walk(), small.model, small.mode, [6], thin=2, compiled=False)
    np.testing.assert_array_equal(thinned.theta, whole.theta[1::2])
    assert thinned.info[:, 0].sum() == whole.info[:, 0].sum() == 12 * 60


def matrix_of(sampler, model, mode):
    """The transition matrix of real iterations on three points, whose one uniform number is summed out, and their law."""
    kernel, thetas = frozen_kernel(sampler, model, mode), mode.reference + POINTS @ mode.factor.T

    def accepted(goal, state, level):
        return kernel.proposing(POINTS, TABLE, goal).step(ScriptedRandom(level), state)[0] is not state

    def outcomes(i):
        state = kernel.start(ScriptedRandom(), thetas[i])
        for j in {0, 1, 2} - {i}:
            low, high = 0.0, 1.0  # an iteration accepts if the uniform number is on one side of a threshold
            first = accepted(j, state, 1e-12)
            if accepted(j, state, 1.0 - 1e-12) == first:
                chance = float(first)
            else:
                for _ in range(45):
                    middle = 0.5 * (low + high)
                    low, high = (middle, high) if accepted(j, state, middle) == first else (low, middle)
                chance = low if first else 1.0 - low
            yield TABLE[i, j] * chance, j
            yield TABLE[i, j] * (1.0 - chance), i
        yield TABLE[i, i], i

    law = np.exp([model.log_posterior(theta) for theta in thetas])
    return transition_matrix(3, outcomes), law / law.sum()


def test_an_iteration_is_enumerated_with_given_proposals(small):
    sampler = tb.samplers.DelayedAcceptance(form="product", batches=2)
    matrix, law = matrix_of(sampler, small.model, small.mode)
    assert invariance_error(matrix, law) < 1e-10 and irreducible(matrix)
    assert invariance_error(matrix_of(sampler, small.tempered, small.mode)[0], law) > 1e-4


def test_points_are_for_samplers_that_propose(small):
    kernel = frozen_kernel(tb.samplers.FullData(tb.moves.nuts()), small.model, small.mode)
    with pytest.raises(tb.OptionError, match="no proposal kernel"):
        kernel.proposing(POINTS, TABLE, 0)
    with pytest.raises(tb.OptionError, match="more uniform numbers"):
        ScriptedRandom().random()


def stored(model, mode, count, repeats):
    rng = np.random.default_rng(3)
    pairs = mode.reference + rng.standard_normal((count, 2, model.dim)) @ mode.factor.T
    return pairs, np.log1p(-rng.random((count, repeats)))


def test_decisions_on_all_rows_are_never_wrong_and_on_few_they_are(small):
    pairs, levels = stored(small.model, small.mode, 6, 200)
    every = replay_decisions(tb.samplers.Austerity(batch=60), small.model, pairs, levels, mode=small.mode)
    expected = [small.model.log_posterior(b) - small.model.log_posterior(a) for a, b in pairs]
    np.testing.assert_allclose(every.exact, expected)
    np.testing.assert_array_equal(every.accepted, levels < every.exact[:, None])
    assert every.wrong(levels).sum() == 0 < every.accepted.sum() < every.accepted.size
    larger = tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(600)), tb.priors.normal(2.0))
    pairs, levels = stored(larger, tb.find_mode(larger, progress=False), 6, 200)
    few = tb.samplers.Austerity(order=0, batch=30, epsilon=0.4)
    assert replay_decisions(few, larger, pairs, levels).wrong(levels).sum() > 0
    with pytest.raises(tb.OptionError, match="acceptance rule on a subsample; mh does not"):
        replay_decisions(random_walk(), small.model, pairs, levels)


def gaussian(seed, correlation=0.0, spread=1.0, chains=4, draws=4000):
    noise, out = np.random.default_rng(seed).standard_normal((chains, draws, 2)), np.empty((chains, draws, 2))
    out[:, 0] = noise[:, 0]
    for k in range(1, draws):
        out[:, k] = correlation * out[:, k - 1] + np.sqrt(1.0 - correlation**2) * noise[:, k]
    return spread * out


@pytest.fixture(scope="module")
def two():
    return tb.models.logistic(tb.Dataset.from_arrays(*logistic_arrays(40)))


def test_fits_of_one_law_agree_and_others_do_not(two):
    one = fit_from_draws(two, gaussian(1))
    assert largest_disagreement(one, fit_from_draws(two, gaussian(2, correlation=0.6))) < THRESHOLD
    assert largest_disagreement(one, fit_from_draws(two, gaussian(2) + np.array([0.0, 0.1]))) > THRESHOLD  # a mean
    assert largest_disagreement(one, fit_from_draws(two, gaussian(2, spread=1.055))) > THRESHOLD  # a scale
    tails = np.random.default_rng(3).standard_t(4, (4, 4000, 2)) / np.sqrt(2.0)  # mean and variance are the same
    assert largest_disagreement(one, fit_from_draws(two, tails)) > THRESHOLD


def test_effective_sizes_know_correlation_and_signs():
    sizes = effective_sizes(gaussian(1, correlation=0.6))
    np.testing.assert_allclose(sizes, 16_000 * 0.4 / 1.6, rtol=0.15)
    signs = np.where(np.random.default_rng(1).random((4, 4000)) < 0.9, 1.0, -1.0)
    np.testing.assert_allclose(effective_sizes(gaussian(1), signs), 16_000 * 0.8**2, rtol=0.1)


def test_a_fit_from_draws_answers_saves_and_loads(two, tmp_path):
    theta = 0.1 * gaussian(1, draws=50)
    fit = fit_from_draws(two, theta)
    x = two.data.records[:, : two.data.d]
    expected = 1.0 / (1.0 + np.exp(-x @ theta.reshape(-1, 2).T))
    assert np.allclose(fit.predictions().posterior[:, 0], expected.mean(0), rtol=1e-9)
    again = tb.load(fit.save(tmp_path / "fit.nc"))
    np.testing.assert_array_equal(again.theta, theta)
    assert fit.summary().shape[0] == 2 and fit.status == "complete"
    assert fit_from_draws(two, theta, keep_rows=False).data is None
    steps = fit_from_draws(two, theta, stats={"n_steps": np.full((4, 50), 3.0)})
    assert steps.stats["n_steps"].mean() == 3.0 and not steps.evals.any()
    with pytest.raises(tb.OptionError, match=r"theta must be an array \(chains, draws, 2\)"):
        fit_from_draws(two, theta[0])


def test_a_fit_from_draws_has_levels():
    X, y = logistic_arrays(40)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"shop": np.arange(40) % 5}))
    rng = np.random.default_rng(1)
    theta, levels = rng.random((2, 30, model.dim)), rng.standard_normal((2, 30, 5))
    fit = fit_from_draws(model, theta, levels=levels)
    np.testing.assert_array_equal(fit.draws("1|shop"), levels)
    np.testing.assert_array_equal(all_draws(fit), np.concatenate([theta, levels], axis=2))
    with pytest.raises(tb.OptionError, match="give their draws as levels="):
        fit_from_draws(model, theta)


def test_likelihoods_are_those_of_numpy_and_their_rows_are_counted():
    X, y = logistic_arrays(50)
    weights, theta = np.linspace(0.5, 2.0, 50), np.array([0.3, -0.8])
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y, weights=weights))
    eta = X @ theta
    expected = weights * (y * eta - np.log1p(np.exp(eta)))
    with counting_rows() as count:
        np.testing.assert_allclose(log_likelihood(model, theta), expected.sum())
        assert count.rows == 50
        np.testing.assert_allclose(row_log_likelihoods(model, theta, [3, 7]), expected[[3, 7]])
    assert count.rows == 52
    np.testing.assert_allclose(row_log_likelihoods(model, theta), expected)
    np.testing.assert_allclose(log_likelihood_gradient(model, theta), X.T @ (weights * (y - 1.0 / (1.0 + np.exp(-eta)))))
    assert count.rows == 52  # closed


def test_a_reference_anywhere_has_the_curvature_there(small):
    theta = small.mode.reference + 0.3
    mode = mode_at(small.model, theta)
    np.testing.assert_array_equal(mode.reference, theta)
    np.testing.assert_allclose(mode.gradient, small.model.gradient(theta)[1], rtol=1e-9)
    np.testing.assert_allclose(mode.factor @ mode.factor.T, np.linalg.inv(mode.precision), rtol=1e-9)
    assert np.abs(mode.gradient).max() > 0.1


def test_designs_of_new_rows_are_those_of_the_formula():
    table = pa.table({"y": [0, 1, 1, 0], "x": [1.0, 2.0, 3.0, 6.0], "g": ["a", "b", "a", "b"]})
    data = tb.read(table, "y ~ center(x) + g", progress=False)
    new = pa.table({"x": [5.0, 3.0], "g": ["b", "a"]})
    np.testing.assert_array_equal(design_matrix(data, new), [[1.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
    fit = fit_from_draws(tb.models.logistic(data), np.zeros((2, 5, 3)))
    np.testing.assert_array_equal(design_matrix(fit, new), design_matrix(data, new))


def test_more_rows_than_a_batch_are_read_in_parts():
    rows = pa.table({"y": np.arange(BATCH_ROWS + 10) % 2, "x": np.ones(BATCH_ROWS + 10)})
    assert tb.read(rows, "y ~ 0 + x", progress=False).n == BATCH_ROWS + 10

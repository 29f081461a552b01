"""Delayed acceptance and naive subsampling: their laws, enumerated or kept from exact draws, and the faults tests must find."""

import itertools

import numpy as np
import pytest
from support import logistic_arrays, named

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.errors import TallbayesWarning
from tallbayes.proxies.taylor import proxy_value, whiten
from tallbayes.samplers import advance, delayed_acceptance
from tallbayes.samplers.naive_subsampling import State as NaiveState
from tallbayes.testing import (
    THRESHOLD,
    ExactPosterior,
    ScriptedRandom,
    frozen_kernel,
    invariance_error,
    invariance_scores,
    irreducible,
    moment_scores,
    run_chunks,
    transition_matrix,
)

SAMPLERS = tb.samplers


# Delayed acceptance


POINTS = np.array([-1.5, -0.4, 0.3, 1.8])
TABLE = np.random.default_rng(2).dirichlet(np.ones(4), 4)


def three_rows():
    data = tb.Dataset.from_arrays(np.array([[1.0], [-2.0], [0.7]]), [1.0, 1.0, 0.0])
    return tb.models.logistic(data, tb.priors.normal(1.5))


def threshold(accepts):
    """The largest v with accepts(v), by bisection: a step accepts iff 1 - U is below it."""
    if accepts(1.0 - 1e-15):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(48):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


def enumerated(sampler, change=lambda options: options):
    """Transition matrix of the real step, uniform numbers summed out, and the posterior on the points."""
    model = three_rows()
    mode = tb.find_mode(model, progress=False)
    kernel = frozen_kernel(sampler, model, mode, 1)
    kernel = kernel._replace(options=change(kernel.options))
    thetas = mode.reference + POINTS[:, None] * mode.factor[0, 0]
    law = np.exp([model.log_posterior(t) for t in thetas])
    law /= law.sum()
    subsets = [()]
    if sampler.subsample:
        sizes = range(3, 3 - sampler.subsample, -1)
        subsets = list(itertools.product(*([(j + 0.5) / size for j in range(size)] for size in sizes)))

    def outcomes(i):
        for j in set(range(4)) - {i}:
            chosen = kernel.proposing(POINTS[:, None], TABLE, j)
            for subset in subsets:

                def run(*levels, chosen=chosen, subset=subset):
                    state = chosen.start(ScriptedRandom(), thetas[i])
                    after, info = chosen.step(ScriptedRandom(*subset, *(1.0 - v for v in levels)), state)
                    return after is not state, info["stages"]

                if sampler.form == "product":
                    accept = threshold(lambda v: run(v)[0])
                else:
                    accept = threshold(lambda v: run(v, 1.0 - 1e-15)[1] == 2) * threshold(lambda v: run(1e-12, v)[0])
                yield TABLE[i, j] * accept / len(subsets), j
                yield TABLE[i, j] * (1.0 - accept) / len(subsets), i
        yield TABLE[i, i], i

    return transition_matrix(4, outcomes), law


@pytest.mark.parametrize(
    "options",
    [
        {"form": "product", "batches": 3},
        {"form": "product", "batches": 2},
        {"form": "surrogate"},
        {"form": "surrogate", "order": 1},
        {"form": "surrogate", "order": 0, "subsample": 2},
        {"form": "surrogate", "order": 1, "subsample": 1},
    ],
)
def test_delayed_acceptance_is_exact_with_an_asymmetric_proposal(options):
    matrix, law = enumerated(SAMPLERS.DelayedAcceptance(**options))
    assert invariance_error(matrix, law) < 1e-12 and irreducible(matrix)


def test_the_whole_proposal_ratio_in_every_factor_is_found():
    sampler = SAMPLERS.DelayedAcceptance(form="product", batches=3)
    matrix, law = enumerated(sampler, lambda options: options._replace(power=1.0))
    assert invariance_error(matrix, law) > 1e-3


def test_a_second_stage_with_the_plain_ratio_is_found(monkeypatch):
    honest = delayed_acceptance.log_posterior

    def plain(target, theta):
        cheap = proxy_value(target.proxy.proxy, whiten(target.proxy.whitening, theta)) + targets.log_prior(target, theta)
        return honest(target, theta) + cheap  # so that the subtraction of the surrogate is undone

    monkeypatch.setattr(delayed_acceptance, "log_posterior", plain)
    matrix, law = enumerated(SAMPLERS.DelayedAcceptance())
    assert invariance_error(matrix, law) > 1e-3


@pytest.mark.parametrize(
    "options", [{"form": "product", "batches": 4}, {"form": "surrogate", "order": 1, "subsample": 20}], ids=lambda o: o["form"]
)
def test_delayed_acceptance_keeps_exact_draws(options, small):
    sampler = SAMPLERS.DelayedAcceptance(**options, move=tb.moves.independence(0.5))
    assert np.abs(invariance_scores(sampler, small.model, small.posterior)).max() < THRESHOLD
    assert np.abs(invariance_scores(sampler, small.tempered, small.posterior)).max() > THRESHOLD


def test_delayed_acceptance_costs_what_the_stages_read(small):
    n = small.model.data.n
    product = SAMPLERS.DelayedAcceptance(form="product", batches=5)
    found = named(product, run_chunks(product, small.model, small.mode, [200])[1])
    np.testing.assert_array_equal(found["evals"], found["rows"])
    np.testing.assert_array_equal(found["rows"], found["stages"] * n / 5)
    assert found["evals"].mean() < n and (found["rows"][found["acceptance_rate"] == 1] == n).all()
    surrogate = SAMPLERS.DelayedAcceptance()
    found = named(surrogate, run_chunks(surrogate, small.model, small.mode, [200])[1])
    np.testing.assert_array_equal(found["evals"], np.where(found["stages"] == 2, n, 0))


@pytest.mark.filterwarnings("ignore:'x0' has .* effective draws of 300")  # for want of acceptance
def test_a_poor_surrogate_is_reported(small):
    with pytest.warns(TallbayesWarning, match="second stage rejected"):
        tb.sample(
            small.model,
            SAMPLERS.DelayedAcceptance(order=1, move=tb.moves.random_walk()),
            draws=300,
            warmup=0,
            chains=1,
            seed=1,
            progress=False,
        )


# Naive subsampling


def tabulated(model, posterior, share, estimator):
    """The law p(theta) prod [w p_i^a + 1 - w] on the grid of a posterior, and p_i^a there."""
    power = 1.0 / share if estimator == "unbiased" else 1.0
    X, y = model.data.records[:, :2], model.data.y
    grid = np.stack(np.meshgrid(*posterior.axes, indexing="ij"), -1).reshape(-1, 2)
    eta = grid @ X.T
    likelihood = power * (y * eta - np.logaddexp(0.0, eta))
    log_law = np.log(share * np.exp(likelihood) + 1.0 - share).sum(1) + np.array([model.log_prior(t) for t in grid])
    law = np.exp(log_law - log_law.max())
    return ExactPosterior(posterior.axes, (law / law.sum()).reshape(posterior.probability.shape)), power


@pytest.mark.parametrize("estimator, share", [("unbiased", 0.8), ("biased", 0.8)])
def test_naive_subsampling_has_the_law_it_states_and_it_is_not_the_posterior(estimator, share):
    X, y = logistic_arrays(12)
    model = tb.models.logistic(tb.Dataset.from_arrays(X, y), tb.priors.normal(1.0))
    posterior = tb.testing.exact_posterior(model, points=151)
    law, power = tabulated(model, posterior, share, estimator)
    sampler, starts = SAMPLERS.NaiveSubsampling(share=share, estimator=estimator), 20_000
    setup = sampler.setup(model, tb.find_mode(model, progress=False), 1, False)
    options, target, rng = setup.policy.options(setup.policy.begin(), True), setup.target(), np.random.default_rng(5)
    ends = law.draw(rng, starts)
    eta = ends @ X.T
    values = power * (y * eta - np.logaddexp(0.0, eta))
    chosen = rng.random(values.shape) < share * np.exp(values) / (share * np.exp(values) + 1.0 - share)  # z given theta
    info, order = np.zeros((20, len(sampler.columns))), np.arange(12, dtype=np.int32)
    for row, z, value in zip(ends, chosen, values, strict=True):
        white = whiten(target.proxy.whitening, row)
        state = NaiveState(row.copy(), white, float((z * value).sum()) + model.log_prior(row), order)
        advance(rng, target, options, state, False, row[None, :], info, 20)
    assert np.abs(moment_scores(ends, law)).max() < THRESHOLD
    assert np.abs(moment_scores(ends, posterior)).max() > THRESHOLD


def test_naive_subsampling_says_that_its_noise_is_too_large(medium):
    with pytest.warns(TallbayesWarning, match="where 1 to 3 would be efficient"):
        fit = tb.sample(medium, "naive-subsampling", draws=50, warmup=20, chains=1, seed=1, progress=False)
    assert 0.09 < fit.evals.mean() / medium.data.n < 0.11
    found = fit.audit(medium, pairs=3)
    assert abs(found.facts["mean error of the estimated log posterior"]) > 1.0

"""Delayed acceptance and naive subsampling: their laws, enumerated or kept from exact draws, and the faults tests must find."""

import itertools

import numpy as np
import pytest
from support import named

import tallbayes as tb
from tallbayes.errors import TallbayesWarning
from tallbayes.testing import (
    THRESHOLD,
    ScriptedRandom,
    frozen_kernel,
    invariance_error,
    invariance_scores,
    irreducible,
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


def test_naive_subsampling_says_that_its_noise_is_too_large(medium):
    with pytest.warns(TallbayesWarning, match="where 1 to 3 would be efficient"):
        fit = tb.sample(medium, "naive-subsampling", draws=50, warmup=20, chains=1, seed=1, progress=False)
    assert 0.09 < fit.evals.mean() / medium.data.n < 0.11
    found = fit.audit(medium, pairs=3)
    assert abs(found.facts["mean error of the estimated log posterior"]) > 1.0

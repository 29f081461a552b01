"""Internals of `tallbayes.samplers.delayed_acceptance`; what users see of it is tested in test_delayed_acceptance.py."""

import itertools

import numpy as np

import tallbayes as tb
from tallbayes import target as targets
from tallbayes.proxies.taylor import proxy_value, whiten
from tallbayes.samplers import delayed_acceptance
from tallbayes.testing import (
    ScriptedRandom,
    frozen_kernel,
    invariance_error,
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


def test_a_second_stage_with_the_plain_ratio_is_found(monkeypatch):
    honest = delayed_acceptance.log_posterior

    def plain(target, theta):
        cheap = proxy_value(target.proxy.proxy, whiten(target.proxy.whitening, theta)) + targets.log_prior(target, theta)
        return honest(target, theta) + cheap  # so that the subtraction of the surrogate is undone

    monkeypatch.setattr(delayed_acceptance, "log_posterior", plain)
    matrix, law = enumerated(SAMPLERS.DelayedAcceptance())
    assert invariance_error(matrix, law) > 1e-3

"""Sweeps of minibatch Gibbs from exact draws of posteriors with few groups, where levels have tails as wide as their prior."""

import numpy as np
import pytest
from test_hard_groups import FIVE, TWO, functions, grouped, quadrature

import tallbayes as tb
from tallbayes.contract import advance
from tallbayes.run.chain import Chain
from tallbayes.streams import chain as chain_seed
from tallbayes.testing import THRESHOLD


def from_exact_draws(model, posterior, starts, steps, seed):
    """States drawn from the posterior, and where sweeps of a tuned chain take them."""
    rng = np.random.default_rng(seed)
    sampler, mode = tb.samplers.MinibatchGibbs(), tb.find_mode(model, progress=False)
    setup = sampler.setup(model, mode, 0, False)
    chain = Chain(0, sampler, setup, chain_seed(seed, 0), mode.reference, 400, 1)
    while chain.warming:
        chain.chunk(0)
    beta, log_sigma, levels = posterior.draw(rng, starts)
    target, width = setup.target(), 2 + levels.shape[1]
    ends, info = np.empty((starts, 1, width)), np.zeros((steps, len(sampler.columns)))
    for k in range(starts):
        state = setup.policy.blank(np.array([beta[k], np.exp(log_sigma[k])]))
        state.beta[:], state.log_sd[:], state.levels[:, 0] = beta[k], log_sigma[k], levels[k]
        advance(rng, target, chain.options, state, False, ends[k], info, steps)
    ends = ends[:, 0]
    return (beta, log_sigma, levels), (ends[:, 0], np.log(ends[:, 1]), ends[:, 2:] + ends[:, :1])


def paired_scores(before, after, posterior):
    """z of the changes of functions: independent between starts, with mean zero if the posterior is left invariant."""
    pairs = [(f(before[1]), f(after[1])) for f in functions(posterior)]
    for a, b in [(before[0], after[0]), *zip(before[2].T, after[2].T, strict=True)]:
        middle, scale = np.median(a), np.quantile(a, 0.8) - np.quantile(a, 0.2)
        pairs += [(np.tanh((a - middle) / scale), np.tanh((b - middle) / scale))]
        pairs += [(np.tanh(np.abs(a - middle) / scale), np.tanh(np.abs(b - middle) / scale))]
    changes = np.array([b - a for a, b in pairs])
    return np.abs(changes.mean(1) / changes.std(1, ddof=1) * np.sqrt(changes.shape[1]))


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        (TWO, 2000),
        ({**FIVE, "family": "poisson"}, 2000),
        pytest.param({**FIVE, "family": "poisson"}, 20_000, marks=pytest.mark.slow),
        pytest.param({**FIVE, "family": "logistic"}, 20_000, marks=pytest.mark.slow),
    ],
    ids=["two", "five", "five, at length", "five, logistic, at length"],
)
def test_sweeps_leave_the_posterior_of_few_groups_invariant(settings, starts):
    """No effective size is needed: every start is an independent draw. Quadrature under another prior is the mutant."""
    model = grouped(**settings)
    posterior = quadrature(model)
    before, after = from_exact_draws(model, posterior, starts, 25, 1)
    assert paired_scores(before, after, posterior).max() < THRESHOLD
    narrow = quadrature(grouped(**{**settings, "prior": tb.priors.half_student_t(10.0, 1.0)}))
    before, after = from_exact_draws(model, narrow, 2000, 25, 2)
    assert paired_scores(before, after, narrow).max() > THRESHOLD

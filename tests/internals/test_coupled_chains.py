"""Internals of `tallbayes.coupled_chains`; what users see of it is tested in test_unbiased.py."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from tallbayes import ModelError, coupled_chains
from tallbayes.coupled_chains import CoupledKernel, Replication, reflection_coupling, replicate, weight
from tallbayes.testing import THRESHOLD

SHIFT = 1.0  # of the target from where the proposals are centred


def target(white):
    return -0.5 * float((white - SHIFT) @ (white - SHIFT))


def moments(draws):
    """z-scores of mean and second moment against the target, one coordinate at a time."""
    centred = draws - SHIFT
    root = math.sqrt(draws.shape[0])
    return np.concatenate([centred.mean(0) * root, ((centred**2).mean(0) - 1.0) * root / math.sqrt(2.0)])


def stepped(kernel, draws, correlation, seed=0):
    """Both states after one joint iteration from exact draws of the target, which may depend on each other."""
    rng, out = np.random.default_rng(seed), np.empty((2, draws, kernel.dim))
    for k in range(draws):
        x = rng.standard_normal(kernel.dim)
        y = correlation * x + math.sqrt(1.0 - correlation**2) * rng.standard_normal(kernel.dim)
        states = [kernel.state(v + SHIFT) for v in (x, y)]
        out[0, k], out[1, k] = (state.white for state in kernel.pair(rng, *states))
    return out


@pytest.mark.parametrize("walk", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("correlation", [0.0, -0.9])
def test_each_chain_of_a_pair_leaves_the_target_invariant(walk, correlation):
    for draws in stepped(CoupledKernel(target, 2, walk), 4000, correlation):
        assert np.abs(moments(draws)).max() < THRESHOLD


def test_a_joint_move_that_changes_the_law_of_a_chain_is_seen(monkeypatch):
    """Independent proposals accepted as if they were those of a random walk."""
    monkeypatch.setattr(coupled_chains, "log_ratio", lambda x, proposal, independent: proposal.value - x.value)
    for draws in stepped(CoupledKernel(target, 2, 0.0), 4000, 0.0):
        assert np.abs(moments(draws)).max() > THRESHOLD


@pytest.mark.parametrize("gap", [0.3, 2.0])
def test_coupled_proposals_have_their_laws_and_meet_as_often_as_they_can(gap):
    rng, draws = np.random.default_rng(1), 20_000
    x, y, size = np.array([0.5, -1.0]), np.array([0.5 + gap * 0.7 * 0.6, -1.0 + gap * 0.7 * 0.8]), 0.7
    pairs = [reflection_coupling(rng, x, y, size) for _ in range(draws)]
    for place, centre in enumerate((x, y)):
        noise = (np.array([pair[place] for pair in pairs]) - centre) / size
        scores = [*noise.mean(0), *((noise**2).mean(0) - 1.0) / math.sqrt(2.0), (noise[:, 0] * noise[:, 1]).mean()]
        assert np.abs(scores).max() * math.sqrt(draws) < THRESHOLD
    met = np.mean([first is second for first, second in pairs])
    best = 2.0 * norm.cdf(-gap / 2.0)  # one minus the total variation of the two laws
    assert abs(met - best) < THRESHOLD * math.sqrt(best * (1.0 - best) / draws)


@pytest.mark.parametrize("walk", [0.0, 0.3, 1.0])
def test_one_chain_alone_and_chains_that_have_met_move_by_the_same_law(walk):
    kernel, rng = CoupledKernel(target, 1, walk), np.random.default_rng(2)
    x, y = kernel.state(np.array([0.2])), kernel.state(np.array([1.9]))
    alone = np.array([kernel.step(rng, x).white[0] for _ in range(8000)])
    together = np.array([kernel.pair(rng, x, y)[0].white[0] for _ in range(8000)])
    behind = np.array([kernel.pair(rng, y, x)[1].white[0] for _ in range(8000)])
    for other in (together, behind):
        for h in (lambda v: v, lambda v: v == 0.2, lambda v: v > 1.0):
            a, b = h(alone).astype(float), h(other).astype(float)
            assert abs(a.mean() - b.mean()) < THRESHOLD * math.sqrt((a.var() + b.var()) / 8000)


@pytest.mark.parametrize("lag, start, stop", list(itertools.product([1, 2, 5], [0, 3], [3, 4, 11])))
def test_weights_count_how_often_a_difference_is_used(lag, start, stop):
    """H_t = h(X_t) + sum over j of h(X_{t+jL}) - h(Y_{t+(j-1)L}), averaged over t = k .. m."""
    counts = np.zeros(60)
    for t in range(start, stop + 1):
        counts[t + lag :: lag] += 1.0
    found = [weight(t, lag, start, stop) * (stop - start + 1) for t in range(start + lag, 60)]
    np.testing.assert_allclose(found, counts[start + lag :])


def replications(count, lag, start, stop, seed=3, walk=0.3):
    kernel, out = CoupledKernel(target, 1, walk), []
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        out.append(replicate(rng, kernel, lambda w: np.concatenate([w, w**2]), lag, start, stop, 5000))
    return out


@pytest.mark.parametrize("lag, start, stop", [(1, 0, 0), (1, 0, 4), (3, 1, 6), (4, 2, 2)])
def test_short_chains_are_unbiased_with_the_correction_and_biased_without(lag, start, stop):
    done = replications(3000, lag, start, stop)
    values, plain = (np.array([r.value - s * r.correction for r in done]) for s in (0.0, 1.0))
    truth = np.array([SHIFT, 1.0 + SHIFT**2])

    def score(table):
        return np.abs(table.mean(0) - truth).max() / (table.std(0, ddof=1) / math.sqrt(len(done)))

    assert score(values).max() < THRESHOLD < score(plain).max()


def test_the_bound_on_the_distance_holds_and_shrinks():
    """Against the true distance of a chain, from its transition matrix on a grid."""
    done = replications(3000, 1, 0, 0, walk=0.0)
    meeting = np.array([r.meeting for r in done])
    grid = np.linspace(-12.0, 12.0, 801)
    law = np.exp([target(np.array([v])) for v in grid])
    start = np.exp([coupled_chains.log_student(np.array([v])) for v in grid])
    law, start = law / law.sum(), start / start.sum()
    ratio = law / start
    accept = np.minimum(1.0, ratio[None, :] / ratio[:, None])
    kernel = start[None, :] * accept
    kernel += np.diag(1.0 - kernel.sum(1))
    bounds = []
    for t in range(6):
        true = 0.5 * np.abs(start - law).sum()
        late = np.maximum(0, meeting - 1 - t)
        bounds.append(late.mean())
        assert true < late.mean() + THRESHOLD * late.std() / math.sqrt(late.size)
        start = start @ kernel
    assert bounds[0] > 0.3 and bounds == sorted(bounds, reverse=True) and bounds[5] < 0.1 * bounds[0]


def test_chains_that_never_meet_are_an_error_and_no_number():
    wide = CoupledKernel(target, 50, 1.0)  # first states are ten standard deviations apart, steps a third of one
    with pytest.raises(ModelError, match="not met in 20 iterations"):
        replicate(np.random.default_rng(0), wide, lambda w: w, 1, 0, 0, 20)
    nowhere = CoupledKernel(lambda w: -math.inf, 2, 0.0)
    with pytest.raises(ModelError, match="finite posterior density"):
        nowhere.first(np.random.default_rng(0))


def test_a_density_that_is_not_a_number_is_never_accepted():
    def half(white):
        return target(white) if white[0] > SHIFT else math.nan

    kernel = CoupledKernel(half, 1, 0.5)
    assert kernel.state(np.array([0.0])).value == -math.inf and kernel.calls == 1
    done = [replicate(np.random.default_rng([4, k]), kernel, lambda w: w, 2, 1, 5, 5000) for k in range(1500)]
    values = np.array([r.value[0] for r in done])
    assert isinstance(done[0], Replication)
    expected = SHIFT + math.sqrt(2.0 / math.pi)
    assert abs(values.mean() - expected) < THRESHOLD * values.std() / math.sqrt(values.size)

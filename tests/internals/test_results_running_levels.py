"""Internals of `tallbayes.results.running_levels`; what users see of it is tested in test_running_levels.py."""

import numpy as np
import pytest

from tallbayes.results import running_levels
from tallbayes.results.cost import r_hats
from tallbayes.results.running_levels import FIRST, LevelStatistics, absorb, running, statistics
from tallbayes.testing import effective_sizes


def chain_draws(n, levels, rho, seed, chains=4):
    """Stationary autoregressions with different scales, skewed in the last level."""
    rng = np.random.default_rng(seed)
    z = np.empty((chains, n, levels))
    z[:, 0] = rng.standard_normal((chains, levels))
    for t in range(1, n):
        z[:, t] = rho * z[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((chains, levels))
    out = 5.0 + np.geomspace(0.01, 100.0, levels) * z
    out[..., -1] = np.exp(0.5 * z[..., -1])
    return out


def absorbed(draws, thinned=50, chunks=None):
    where = np.arange(1, draws.shape[2] + 1)
    wide = np.concatenate([np.zeros((*draws.shape[:2], 1)), draws], axis=2)
    out = []
    for own in wide:
        r = running(where.size, thinned)
        for part in np.split(own, [] if chunks is None else chunks):
            absorb(r, np.ascontiguousarray(part), where)
        out.append(r)
    return out


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_statistics_are_those_of_all_draws(rho):
    draws = chain_draws(3000, 6, rho, 1)
    found = statistics(absorbed(draws))
    flat = draws.reshape(-1, 6)
    np.testing.assert_allclose(found.mean, flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.sd, flat.std(0), rtol=1e-4)
    for probability in (0.025, 0.055, 0.3, 0.5, 0.945, 0.975):
        gap = np.abs(found.quantiles(probability) - np.quantile(flat, probability, axis=0)) / flat.std(0)
        assert gap.max() < 0.05
    assert np.abs(found.r_hat - 1.0).max() < 0.02
    ratio = found.ess[:-1] / effective_sizes(draws)[:-1]
    assert (ratio > 0.5).all() and (ratio < 2.0).all()


def test_chains_that_disagree_and_levels_that_never_move_are_seen():
    draws = chain_draws(1000, 3, 0.0, 2)
    draws[0, :, 0] += 2.0 * draws[..., 0].std()
    draws[:, :, 1] = 7.0
    found = statistics(absorbed(draws))
    assert abs(found.r_hat[0] - r_hats(draws)[0]) < 0.15 and found.r_hat[0] > 1.2
    assert found.ess[0] < 400 and found.ess[1] == 0.0 and found.sd[1] == 0.0
    assert abs(found.quantiles(0.5)[1] - 7.0) < 1e-6


def test_a_narrow_start_widens_the_grid():
    draws = chain_draws(4000, 2, 0.0, 3)
    draws[:, :FIRST] = draws.mean((0, 1)) + 1e-4 * (draws[:, :FIRST] - draws.mean((0, 1)))
    chains = absorbed(draws)
    assert all((r.bins.sum(1) == 4000).all() for r in chains)
    flat, found = draws.reshape(-1, 2), statistics(chains)
    assert (np.abs(found.quantiles(0.1) - np.quantile(flat, 0.1, axis=0)) < 0.05 * flat.std(0)).all()
    np.testing.assert_allclose(found.sd, flat.std(0), rtol=1e-3)


def test_chunks_do_not_matter_and_the_compiled_code_is_the_source():
    draws = chain_draws(333, 3, 0.5, 4, chains=1)
    whole, parts = absorbed(draws)[0], absorbed(draws, chunks=[1, 31, 32, 33, 40, 200])[0]
    plain = running(3, 50)
    running_levels.absorb.py_func(plain, draws[0], np.arange(3))
    for a, b, c in zip(whole, parts, plain, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-6)


@pytest.mark.parametrize("n", [10, 50, 51, 100, 101, 333, 1000])
def test_the_thinned_set_is_evenly_spaced(n):
    draws = np.arange(n, dtype=float)[None, :, None]
    counts, thinned = absorbed(draws)[0][:2]
    stride = int(counts[2])
    np.testing.assert_array_equal(thinned[: counts[1], 0], np.arange(0, n, stride))
    assert counts[1] <= 50 and (stride == 1 or counts[1] >= 25)


def test_quantiles_between_scores_are_interpolated():
    scores = running_levels.SCORES[:, None] * 2.0 + 1.0
    own = LevelStatistics(np.ones(1), 2.0 * np.ones(1), np.ones(1), np.ones(1), scores)
    np.testing.assert_allclose(own.quantiles(0.975), 1.0 + 2.0 * 1.959964, rtol=1e-6)
    np.testing.assert_allclose(own.quantiles(0.5), 1.0)

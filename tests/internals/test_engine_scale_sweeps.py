"""Internals of `tallbayes.engine.scale_sweeps`; what users see of it is tested in test_unknown_scales.py."""

import numpy as np
import pytest

from tallbayes.compile import jit
from tallbayes.engine.scale_sweeps import Blocks, Quadratic, Scales, sweep, update_scales


def blocks_of(count, local=False, slab=0.0, df=3.0):
    one = np.ones(1)
    return Blocks(np.zeros(count, np.int64), np.ones(count), count * one, np.array([local]), df * one, 1.0 * one, slab * one)


@jit
def _pairs(rng, quadratic, blocks, scales, beta, coin, out):
    for t in range(out.shape[0]):
        out[t, 0], out[t, 1] = beta[0], np.log(scales.shared[0])
        sweep(rng, quadratic, blocks, scales, beta, 1, rng.random() < 0.5 if coin else True)
        out[t, 2], out[t, 3] = beta[0], np.log(scales.shared[0])


@pytest.mark.parametrize("coin, reversible", [(True, True), (False, False)])
def test_a_sweep_is_reversible_by_its_coin_alone(coin, reversible):
    """E f(x) g(x') = E g(x) f(x') for consecutive states, f = beta^2 and g = log sigma; forward sweeps alone break it."""
    quadratic = Quadratic(np.array([[0.6, 0.2], [0.2, 0.5]]), np.array([1.0, 0.3]))
    rng, out = np.random.default_rng(1), np.empty((400_000, 4))
    scales = Scales(np.ones(1), np.ones(1), np.ones(2), np.ones(2))
    _pairs(rng, quadratic, blocks_of(2), scales, np.ones(2), coin, out)
    difference = out[:, 0] ** 2 * out[:, 3] - out[:, 2] ** 2 * out[:, 1]
    parts = difference.reshape(200, -1).mean(1)
    score = abs(parts.mean()) / (parts.std() / np.sqrt(200))
    assert (score < 5.0) if reversible else (score > 8.0)


@jit
def _scales(rng, blocks, scales, beta, out):
    for t in range(out.shape[0]):
        update_scales(rng, blocks, scales, beta)
        out[t, 0], out[t, 1] = scales.shared[0], scales.own[0]


@pytest.mark.parametrize("slab", [0.0, 4.0])
def test_scales_given_coefficients_have_their_density(slab):
    """Two coefficients with a horseshoe: the law of tau and lambda_1 on a grid, lambda_2 summed out."""
    beta, rng = np.array([0.8, 0.1]), np.random.default_rng(3)
    out = np.empty((300_000, 2))
    _scales(rng, blocks_of(2, True, slab, 1.0), Scales(np.ones(1), np.ones(1), np.ones(2), np.ones(2)), beta, out)
    grid = np.linspace(-9.0, 9.0, 181)
    size = np.exp(grid)  # tau, lambda_1 and lambda_2, each with the Jacobian of its logarithm
    cauchy = size / (1.0 + size**2)
    precision = 1.0 / (size[:, None] * size[None, :]) ** 2 + slab

    def given(b):
        return np.sqrt(precision) * np.exp(-0.5 * precision * b * b) * cauchy[None, :]

    first, second = given(beta[0]), given(beta[1]).sum(1)
    joint = first * (second * cauchy)[:, None]
    joint /= joint.sum()
    for k, law in enumerate((joint.sum(1), joint.sum(0))):
        cumulative = np.cumsum(law) - 0.5 * law
        for level in (-1.0, 0.0, 1.0):
            below = (0.5 * np.log(out[:, k]) < level).astype(float)
            error = below.reshape(100, -1).mean(1).std() / 10.0
            assert abs(below.mean() - np.interp(level, grid, cumulative)) < 5.0 * error + 2e-3


@jit
def _shared(rng, quadratic, blocks, scales, beta, out):
    for t in range(out.shape[0]):
        sweep(rng, quadratic, blocks, scales, beta, 1, rng.random() < 0.5)
        out[t] = scales.shared


def test_scales_of_two_blocks_have_their_law_with_coefficients_integrated_out():
    """Correlated coefficients of two ridges, one of them with a slab, against log m(s) on a grid."""
    quadratic = Quadratic(np.array([[2.0, 1.2, 0.3], [1.2, 1.5, 0.4], [0.3, 0.4, 0.8]]), np.array([1.5, -0.5, 0.7]))
    two = np.ones(2)
    blocks = Blocks(
        np.array([0, 0, 1]),
        np.array([1.0, 2.0, 0.5]),
        np.array([2.0, 1.0]),
        np.zeros(2, bool),
        3.0 * two,
        two,
        np.array([0.0, 0.25]),
    )
    out = np.empty((200_000, 2))
    scales = Scales(np.ones(2), np.ones(2), np.ones(3), np.ones(3))
    _shared(np.random.default_rng(8), quadratic, blocks, scales, np.zeros(3), out)
    grid = np.linspace(-9.0, 9.0, 121)
    variance = np.exp(grid)  # squared scales with the Jacobian of their logarithm
    log_prior = 0.5 * grid - 2.0 * np.log1p(variance / 3.0)
    inverse = np.stack(
        np.broadcast_arrays(1.0 / variance[:, None], 1.0 / variance[:, None], 1.0 / variance[None, :] + 0.25), -1
    )
    prior = blocks.weight * inverse
    total = quadratic.information + prior[..., None] * np.eye(3)
    solved = np.linalg.solve(total, np.broadcast_to(quadratic.pull, total.shape[:-1])[..., None])[..., 0]
    log_m = 0.5 * np.log(prior).sum(-1) - 0.5 * np.linalg.slogdet(total)[1] + 0.5 * solved @ quadratic.pull
    joint = np.exp(log_m + log_prior[:, None] + log_prior[None, :])
    joint /= joint.sum()
    for k, law in enumerate((joint.sum(1), joint.sum(0))):
        cumulative = np.cumsum(law) - 0.5 * law
        for level in (-2.0, 0.0, 2.0):
            below = (np.log(out[:, k]) < level).astype(float)
            error = below.reshape(100, -1).mean(1).std() / 10.0
            assert abs(below.mean() - np.interp(level, grid, cumulative)) < 5.0 * error + 1e-3

"""The minibatch gradient and its noise, for samplers that follow it.

In whitened coordinates theta = theta* + L w, L L' the Laplace covariance, the gradient of the log posterior is estimated from
m rows drawn with replacement with probabilities p_i (1/n unless weighted) by

    g(w) = L' [grad log p + sum_i grad q_i + (1/m) sum_u (grad l_u - grad q_u) / p_u],

q_i the Taylor proxy of order 0, 1 or 2 at theta* (control variates: Baker et al. 2019; Dang et al. 2019, eq. 14). It is unbiased; V is
the covariance of its noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable, jit
from tallbayes.engine import passes
from tallbayes.engine.gradients import control_gradient, expect_rows
from tallbayes.engine.random_rows import CHUNK, ProportionalRows, UniformRows, allocate, build, draw_rows
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.moves.linear import dot, upper_times
from tallbayes.proxies.capabilities import HasProxy, HasScheme
from tallbayes.proxies.taylor import (
    ProxyTotal,
    Whitening,
    add_expansion_gradient,
    factor_of,
    reference_of,
    taylor,
    whitening_of,
)
from tallbayes.target import Target, charge, count, count_again, log_prior_gradient

MOST_ROWS = 2000  # read at each point where noise is measured


class Controls(NamedTuple):
    """What the estimator needs of the target: coordinates, sums of proxies, and how rows are drawn."""

    whitening: Whitening
    proxy: ProxyTotal
    scheme: Any


@inlinable
def residual_gradient(
    target: Target[HasProxy], index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray
) -> None:
    """Add factors times gradients of l_i - q_i of the indexed rows, q_i of the proxy's order: one evaluation per row."""
    count(target, 0, index.size, index.size)
    reference, order = reference_of(target.proxy.whitening), target.proxy.proxy.order
    control_gradient(target.rows, index, factors, theta, reference, order, gradient)


@inlinable
def plain_gradient(
    target: Target[HasScheme], index: np.ndarray, factors: np.ndarray, known: bool, theta: np.ndarray, gradient: np.ndarray
) -> None:
    """Write the whitened gradient of the log posterior that the indexed rows estimate, without control variates, to `gradient`; `known` if
    these rows were evaluated at theta before."""
    if known:
        count_again(target, index.size)
    else:
        count(target, 0, index.size, index.size)
    whitening, raw = target.proxy.whitening, np.zeros(theta.size)
    control_gradient(target.rows, index, factors, theta, reference_of(whitening), 0, raw)
    log_prior_gradient(target, theta, raw)
    upper_times(factor_of(whitening), raw, gradient)


@inlinable
def noisy_gradient(
    rng: np.random.Generator,
    target: Target[HasScheme],
    subsample: int,
    white: np.ndarray,
    theta: np.ndarray,
    gradient: np.ndarray,
) -> float:
    """Write the estimate g(w) to `gradient`; returns an unbiased estimate of tr V / d.

    The noise is estimated from the difference of the two halves of the minibatch: no row is read for it.
    """
    d = white.size
    controls = target.proxy
    index, factors = np.empty(subsample, np.int64), np.empty(subsample)
    half = subsample // 2
    draw_rows(rng, controls.scheme, subsample, index[:half], factors[:half])
    expect_rows(target.rows, index[:half])  # they come while the other half is drawn
    draw_rows(rng, controls.scheme, subsample, index[half:], factors[half:])
    expect_rows(target.rows, index[half:])
    first, second = np.zeros(d), np.zeros(d)
    residual_gradient(target, index[:half], factors[:half], theta, first)
    residual_gradient(target, index[half:], factors[half:], theta, second)
    gap, up, down = np.empty(d), subsample / half, subsample / (subsample - half)
    for j in range(d):
        gap[j] = up * first[j] - down * second[j]
        first[j] += second[j]
    log_prior_gradient(target, theta, first)
    upper_times(factor_of(controls.whitening), gap, second)
    upper_times(factor_of(controls.whitening), first, gradient)
    add_expansion_gradient(controls.proxy, white, gradient)
    return dot(second, second) / ((up + down) * d)


@jit
def _single_rows(rng: np.random.Generator, target: Target[HasScheme], theta: np.ndarray, out: np.ndarray) -> None:
    """Whitened terms of the estimator at one theta, as if m were 1, in the rows of `out`."""
    index, factors, raw = np.empty(1, np.int64), np.empty(1), np.empty(theta.size)
    for k in range(out.shape[0]):
        draw_rows(rng, target.proxy.scheme, 1, index, factors)
        raw[:] = 0.0
        residual_gradient(target, index, factors, theta, raw)
        upper_times(factor_of(target.proxy.whitening), raw, out[k])


@jit
def minibatch_gradients(
    rng: np.random.Generator, target: Target[HasScheme], subsample: int, white: np.ndarray, theta: np.ndarray, out: np.ndarray
) -> None:
    """Independent estimates of the gradient at one point, in the rows of `out`."""
    for k in range(out.shape[0]):
        noisy_gradient(rng, target, subsample, white, theta, out[k])


class Noise(NamedTuple):
    """Covariance of the gradient's noise over pilot points: eigenvalues (ascending) and vectors, and its trace / d at each."""

    values: np.ndarray
    vectors: np.ndarray
    levels: np.ndarray


def measure_noise(target: Target[HasScheme], points: np.ndarray, subsample: int, rng: np.random.Generator) -> Noise:
    """V at given points (theta), averaged: minibatches of m rows drawn with replacement have 1/m of the variance of one row."""
    d = points.shape[1]
    rows = noise_rows(subsample, d)
    average, levels = np.zeros((d, d)), []
    for theta in points:
        terms = np.empty((rows, d))
        _single_rows(rng, target, theta, terms)
        centred = terms - terms.mean(0)
        covariance = centred.T @ centred / ((rows - 1.0) * subsample)
        average += covariance / points.shape[0]
        levels.append(np.trace(covariance) / d)
    charge(target)
    values, vectors = np.linalg.eigh(average)
    return Noise(np.maximum(values, 0.0), np.ascontiguousarray(vectors), np.asarray(levels))


def noise_rows(subsample: int, d: int) -> int:
    """Rows read at each point where noise is measured."""
    return min(MOST_ROWS, max(subsample, 10 * d))


def make_controls(mode: Mode, order: int, rows: str) -> Controls:
    """Proxy of an order, and the scheme by which rows are drawn; a weighted one takes a pass over them."""
    model = mode.model
    scheme: Any = UniformRows(model.data.n)
    if model.partitions is not None:
        if rows == "weighted":
            raise ModelError("rows in partitions are drawn uniformly by this sampler; leave out rows='weighted'.")
        scheme = model.partitions.uniform_scheme(mode)
    if rows == "weighted":
        folder = None if model.data.store is None else model.data.store.parent
        weight = allocate((model.data.n,), np.float64, folder)
        norms = mode.norms

        def work(start: int, stop: int) -> None:
            omega = passes.block(model.rows, start, stop)[3]
            weight[start:stop] = omega * norms[start:stop] ** (order + 1)

        passes.over_ranges(model.data.n, CHUNK, work)
        scheme = ProportionalRows(build(weight, folder=folder))
    return Controls(whitening_of(mode), taylor(mode, order), scheme)

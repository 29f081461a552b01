"""Gibbs sweeps over coefficients and their unknown scales under the Gaussian surrogate of the likelihood: no row is read.

Coefficient j of block b has prior precision w_j (1 / (s_b l_j) + c_b), s_b = sigma_b^2, l_j = lambda_j^2 (1 without local scales), c_b the
slab's. A half-Student-t sigma is an inverse gamma mixture: s | a ~ IG(df / 2, df / a), a ~ IG(1/2, 1 / A^2); likewise lambda_j with mixing
variable m_j (Makalic and Schmidt 2016). Updates that the slab makes non-conjugate are accepted by Metropolis-Hastings. With many local
scales these updates alone are slow, because s_b and all l_j hold each other: a trade multiplies s_b and divides all l_j by one factor,
which leaves the prior of the coefficients as it is; mixing variables are summed out of it and redrawn. Nor do a scale and its coefficients
let go of each other where the rows say little: shared scales also move with all coefficients integrated out,

    log m(s) = 1/2 log |Q| - 1/2 log |Q + H| + 1/2 r' (Q + H)^-1 r + log p(s),    Q the prior precisions, H and r the surrogate's,

before mixing variables and coefficients are drawn given them.

A sweep runs its updates forwards or backwards, as a fair coin decides: each update is reversible, so the mixture of a composition and
its reverse is reversible with respect to the surrogate posterior, however many sweeps there are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable, jit

TRADE = 6.0  # of the logarithm of the factor of a trade, over sqrt(2 + coefficients): 2.4 / sqrt(the expected curvature)
SPREAD = 6.0  # of the logarithm of a squared scale in a collapsed move, over sqrt(1 + coefficients), times a log-normal number


class Blocks(NamedTuple):
    """Which coefficients share an unknown scale, and its prior."""

    home: np.ndarray  # block of each coefficient, -1 for those with a fixed prior
    weight: np.ndarray  # w_j, the variance of the column
    size: np.ndarray  # coefficients of each block
    local: np.ndarray  # whether the coefficients of a block have scales of their own
    df: np.ndarray
    width: np.ndarray  # A
    slab: np.ndarray  # c_b = 1 / width^2 of the slab, or 0


class Scales(NamedTuple):
    """Squared scales of blocks and coefficients, with their mixing variables."""

    shared: np.ndarray
    mixing: np.ndarray
    own: np.ndarray
    own_mixing: np.ndarray


class Quadratic(NamedTuple):
    """The surrogate of the likelihood and of the fixed prior: pull . beta - beta' information beta / 2."""

    information: np.ndarray
    pull: np.ndarray


@inlinable
def copied(scales: Scales) -> Scales:
    """A copy."""
    return Scales(scales.shared.copy(), scales.mixing.copy(), scales.own.copy(), scales.own_mixing.copy())


@inlinable
def prior_precisions(blocks: Blocks, scales: Scales, out: np.ndarray) -> None:
    """Prior precision of every coefficient given the scales; 0 for those with a fixed prior."""
    for j in range(out.size):
        b = blocks.home[j]
        out[j] = 0.0 if b < 0 else blocks.weight[j] * (1.0 / (scales.shared[b] * scales.own[j]) + blocks.slab[b])


@inlinable
def _inverse_gamma(rng: np.random.Generator, shape: float, rate: float) -> float:
    return max(rate, 1e-290) / max(rng.standard_gamma(shape), 1e-290)


@inlinable
def _update_mixing(rng: np.random.Generator, blocks: Blocks, scales: Scales, b: int) -> None:
    df = blocks.df[b]
    scales.mixing[b] = _inverse_gamma(rng, 0.5 * (df + 1.0), df / scales.shared[b] + 1.0 / blocks.width[b] ** 2)


@inlinable
def _update_shared(rng: np.random.Generator, blocks: Blocks, scales: Scales, beta: np.ndarray, b: int) -> None:
    rate = blocks.df[b] / scales.mixing[b]
    for j in range(beta.size):
        if blocks.home[j] == b:
            rate += 0.5 * blocks.weight[j] * beta[j] * beta[j] / scales.own[j]
    proposal = _inverse_gamma(rng, 0.5 * (blocks.df[b] + blocks.size[b]), rate)
    if blocks.slab[b] > 0.0:
        ratio = 0.0
        for j in range(beta.size):
            if blocks.home[j] == b:
                ratio += 0.5 * math.log1p(proposal * scales.own[j] * blocks.slab[b])
                ratio -= 0.5 * math.log1p(scales.shared[b] * scales.own[j] * blocks.slab[b])
        if not math.log(1.0 - rng.random()) < ratio:
            return
    scales.shared[b] = proposal


@inlinable
def _update_own_mixing(rng: np.random.Generator, blocks: Blocks, scales: Scales) -> None:
    for j in range(blocks.home.size):
        if blocks.home[j] >= 0 and blocks.local[blocks.home[j]]:
            scales.own_mixing[j] = _inverse_gamma(rng, 1.0, 1.0 + 1.0 / scales.own[j])


@inlinable
def _update_own(rng: np.random.Generator, blocks: Blocks, scales: Scales, beta: np.ndarray) -> None:
    for j in range(beta.size):
        b = blocks.home[j]
        if b < 0 or not blocks.local[b]:
            continue
        rate = 1.0 / scales.own_mixing[j] + 0.5 * blocks.weight[j] * beta[j] * beta[j] / scales.shared[b]
        proposal = _inverse_gamma(rng, 1.0, rate)
        if blocks.slab[b] > 0.0:
            reach = scales.shared[b] * blocks.slab[b]
            ratio = 0.5 * (math.log1p(proposal * reach) - math.log1p(scales.own[j] * reach))
            if not math.log(1.0 - rng.random()) < ratio:
                continue
        scales.own[j] = proposal


@inlinable
def _trade(rng: np.random.Generator, blocks: Blocks, scales: Scales, b: int) -> None:
    """Multiply the squared scale of a block, and divide those of its coefficients, by one random factor."""
    if not blocks.local[b]:
        return
    step = TRADE / math.sqrt(2.0 + blocks.size[b]) * rng.standard_normal()
    factor, width = math.exp(step), blocks.df[b] * blocks.width[b] ** 2
    shared = scales.shared[b] * factor
    ratio = 0.5 * step * (1.0 - blocks.size[b])
    ratio -= 0.5 * (blocks.df[b] + 1.0) * (math.log1p(shared / width) - math.log1p(scales.shared[b] / width))
    for j in range(blocks.home.size):
        if blocks.home[j] == b:
            ratio -= math.log1p(scales.own[j] / factor) - math.log1p(scales.own[j])
    accepted = math.log(1.0 - rng.random()) < ratio
    if accepted:
        scales.shared[b] = shared
    _update_mixing(rng, blocks, scales, b)
    for j in range(blocks.home.size):
        if blocks.home[j] == b:
            if accepted:
                scales.own[j] /= factor
            scales.own_mixing[j] = _inverse_gamma(rng, 1.0, 1.0 + 1.0 / scales.own[j])


@inlinable
def _shared_density(blocks: Blocks, scales: Scales, b: int, shared: float) -> float:
    """Log density of log sigma^2 of a block, its mixing variable summed out, and half the log determinant of its prior precisions."""
    df, width = blocks.df[b], blocks.width[b]
    total = 0.5 * math.log(shared) - 0.5 * (df + 1.0) * math.log1p(shared / (df * width * width))
    for j in range(blocks.home.size):
        if blocks.home[j] == b:
            total += 0.5 * math.log(1.0 / (shared * scales.own[j]) + blocks.slab[b])
    return total


@inlinable(options=SUMS)
def quadratic_value(quadratic: Quadratic, beta: np.ndarray, scratch: np.ndarray) -> float:
    """Log of the surrogate likelihood and fixed prior."""
    total = 0.0
    for j in range(beta.size):
        scratch[j] = 0.0
        for k in range(beta.size):
            scratch[j] += quadratic.information[j, k] * beta[k]
        total += (quadratic.pull[j] - 0.5 * scratch[j]) * beta[j]
    return total


@inlinable(options=SUMS)
def factorise(matrix: np.ndarray) -> None:
    """Cholesky factor of a positive definite matrix, in place of its lower triangle."""
    d = matrix.shape[0]
    for j in range(d):
        for k in range(j + 1):
            total = matrix[j, k]
            for m in range(k):
                total -= matrix[j, m] * matrix[k, m]
            matrix[j, k] = math.sqrt(max(total, 1e-300)) if j == k else total / matrix[k, k]


@inlinable
def _collapse(quadratic: Quadratic, precision: np.ndarray, factor: np.ndarray, half: np.ndarray) -> float:
    """Log of the surrogate integrated over the coefficients, but for the prior's determinant.

    `factor` receives the Cholesky factor of Q + H, `half` its inverse times r.
    """
    d, total = half.size, 0.0
    for j in range(d):
        for k in range(j + 1):
            factor[j, k] = quadratic.information[j, k]
        factor[j, j] += precision[j]
    factorise(factor)
    for j in range(d):
        inner = quadratic.pull[j]
        for k in range(j):
            inner -= factor[j, k] * half[k]
        half[j] = inner / factor[j, j]
        total += 0.5 * half[j] * half[j] - math.log(factor[j, j])
    return total


@inlinable
def solve_transposed(factor: np.ndarray, vector: np.ndarray) -> None:
    """factor'^-1 vector, in place."""
    d = vector.size
    for j in range(d - 1, -1, -1):
        total = vector[j]
        for k in range(j + 1, d):
            total -= factor[k, j] * vector[k]
        vector[j] = total / factor[j, j]


@inlinable
def _move_and_draw(
    rng: np.random.Generator,
    quadratic: Quadratic,
    blocks: Blocks,
    scales: Scales,
    beta: np.ndarray,
    mean: np.ndarray,
    forward: bool,
) -> None:
    """Shared scales with the coefficients integrated out, one block after the other; then coefficients, `mean` their conditional mean."""
    d, number = beta.size, blocks.size.size
    precision, factor, half = np.empty(d), np.empty((d, d)), np.empty(d)
    other_precision, other_factor, other_half = np.empty(d), np.empty((d, d)), np.empty(d)
    prior_precisions(blocks, scales, precision)
    value = _collapse(quadratic, precision, factor, half)
    for i in range(number):
        b = i if forward else number - 1 - i
        width = SPREAD / math.sqrt(1.0 + blocks.size[b]) * math.exp(rng.standard_normal())
        former = scales.shared[b]
        shared = former * math.exp(min(max(width * rng.standard_normal(), -50.0), 50.0))
        ratio = _shared_density(blocks, scales, b, shared) - _shared_density(blocks, scales, b, former)
        scales.shared[b] = shared
        prior_precisions(blocks, scales, other_precision)
        other = _collapse(quadratic, other_precision, other_factor, other_half)
        if math.log(1.0 - rng.random()) < ratio + other - value:
            value = other
            factor, other_factor = other_factor, factor
            half, other_half = other_half, half
        else:
            scales.shared[b] = former
        _update_mixing(rng, blocks, scales, b)
    mean[:] = half
    solve_transposed(factor, mean)
    for j in range(d):
        beta[j] = rng.standard_normal()
    solve_transposed(factor, beta)
    for j in range(d):
        beta[j] += mean[j]


@inlinable
def update_scales(rng: np.random.Generator, blocks: Blocks, scales: Scales, beta: np.ndarray) -> None:
    """Scales given the coefficients: exact, whatever the likelihood, since rows depend on coefficients alone."""
    for b in range(blocks.size.size):
        _trade(rng, blocks, scales, b)
        _update_mixing(rng, blocks, scales, b)
        _update_shared(rng, blocks, scales, beta, b)
    _update_own_mixing(rng, blocks, scales)
    _update_own(rng, blocks, scales, beta)


@inlinable
def sweep(
    rng: np.random.Generator, quadratic: Quadratic, blocks: Blocks, scales: Scales, beta: np.ndarray, count: int, forward: bool
) -> None:
    """`count` sweeps over everything, in place; all forwards or all backwards."""
    mean = np.empty(beta.size)
    for _ in range(count):
        if forward:
            update_scales(rng, blocks, scales, beta)
            _move_and_draw(rng, quadratic, blocks, scales, beta, mean, True)
        else:
            _move_and_draw(rng, quadratic, blocks, scales, beta, mean, False)
            _update_own(rng, blocks, scales, beta)
            _update_own_mixing(rng, blocks, scales)
            for b in range(blocks.size.size - 1, -1, -1):
                _update_shared(rng, blocks, scales, beta, b)
                _update_mixing(rng, blocks, scales, b)
                _trade(rng, blocks, scales, b)


@jit
def explore(
    rng: np.random.Generator,
    quadratic: Quadratic,
    blocks: Blocks,
    scales: Scales,
    beta: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
    shared: np.ndarray,
) -> None:
    """A chain on the surrogate. After every sweep: conditional means and prior precisions of the coefficients, squared shared scales."""
    for t in range(means.shape[0]):
        update_scales(rng, blocks, scales, beta)
        _move_and_draw(rng, quadratic, blocks, scales, beta, means[t], True)
        prior_precisions(blocks, scales, precisions[t])
        shared[t, :] = scales.shared

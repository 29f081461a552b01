"""The difference estimator of a log-likelihood: Taylor proxies summed over all rows, plus a sample of what they leave out.

With residuals d_i = l_i - q_i and rows u_1 .. u_m drawn with replacement with probabilities p_i (Hansen and Hurwitz 1943),

    l-hat = sum_i q_i + Z-bar,   Z_k = d_{u_k} / p_{u_k}

is unbiased for l. Its exponential is not unbiased for the likelihood; two estimators of the likelihood are built on it:

* PenaltyEstimator: log L-hat = l-hat - s^2/2, s^2 = sum_k (Z_k - Z-bar)^2 / m^2, unbiased to the order of the normal approximation
  (Ceperley and Dewing 1999; Quiroz et al. 2019; Dang et al. 2019, equation 13).
* BlockPoisson: L-hat = e^(sum q) prod_l xi_l, xi_l = e^((a + lambda)/lambda) prod_{h <= X_l} (Z-bar_{h,l} - a)/lambda with
  X_l ~ Poisson(1): unbiased, but it may be negative (Quiroz et al. 2021). Here a(theta) = d~(theta) - shift lambda follows the
  residual sum d~ of a fixed few pilot rows: with a constant a the law of |L-hat| can leak far from the posterior.

Both return derivatives in Z, so that one sum over the rows gives the gradient.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable
from tallbayes.engine.random_rows import draw_number, draw_rows, row_scale
from tallbayes.mode.laplace import Mode
from tallbayes.priors import prior_gradient, prior_value
from tallbayes.proxies.taylor import Whitening, reference_of, whitening_of


class Difference(NamedTuple):
    """Sum of the proxies at all rows, level + gradient . h + h' hessian h / 2, and how the rest is sampled."""

    whitening: Whitening
    level: float
    sums: np.ndarray  # (1 + d, d): the gradient, and the Hessian
    order: int
    scheme: Any
    radius: float  # in whitened units: the density is 0 beyond


class PenaltyEstimator(NamedTuple):
    """`size` rows in `blocks` blocks of equal size, one of which is redrawn at a time."""

    size: int
    blocks: int


class BlockPoisson(NamedTuple):
    """`products` factors of Poisson(1) minibatches of `batch` rows; `refreshed` of them are redrawn at a time."""

    pilot: np.ndarray
    products: int
    batch: int
    refreshed: int
    shift: float


@inlinable(options=SUMS)
def proxy_sum(proxy: Difference, theta: np.ndarray) -> float:
    """Sum of the proxies of all rows at theta."""
    reference, sums, d = reference_of(proxy.whitening), proxy.sums, theta.size
    total = 0.0
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += sums[j + 1, k] * (theta[k] - reference[k])
        total += (theta[j] - reference[j]) * (sums[0, j] + 0.5 * inner)
    return proxy.level + total


@inlinable(options=SUMS)
def proxy_sum_gradient(proxy: Difference, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same, its gradient written to `gradient`."""
    reference, sums, d = reference_of(proxy.whitening), proxy.sums, theta.size
    total = 0.0
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += sums[j + 1, k] * (theta[k] - reference[k])
        total += (theta[j] - reference[j]) * (sums[0, j] + 0.5 * inner)
        gradient[j] = sums[0, j] + inner
    return proxy.level + total


@generic
@declared
def combine(estimator: Any, counts: np.ndarray, z: np.ndarray, factors: np.ndarray) -> tuple[float, float, float]:
    """log |L-hat| less the proxies, its sign, and an estimate of its variance given theta; derivatives in z are written to `factors`."""
    raise TypeError


@combine.register(PenaltyEstimator)
def _penalty(estimator: PenaltyEstimator, counts: np.ndarray, z: np.ndarray, factors: np.ndarray) -> tuple[float, float, float]:
    m = z.size
    mean = 0.0
    for k in range(m):
        mean += z[k]
    mean /= m
    squares = 0.0
    for k in range(m):
        c = z[k] - mean
        squares += c * c
        factors[k] = (1.0 - c / m) / m
    squares /= m * m
    return mean - 0.5 * squares, 1.0, squares


@combine.register(BlockPoisson)
def _block_poisson(
    estimator: BlockPoisson, counts: np.ndarray, z: np.ndarray, factors: np.ndarray
) -> tuple[float, float, float]:
    """The first entries of z are those of the pilot rows, which fix a(theta).

    log |L-hat| is a Poisson(lambda) number of terms log |A|, so its variance given theta is lambda E (log |A|)^2, which the sum of the
    squared terms estimates without bias, also where draws have one minibatch or none.
    """
    fixed, batch, rate = estimator.pilot.size, estimator.batch, float(estimator.products)
    pilot = 0.0
    for k in range(fixed):
        pilot += z[k]
    pilot /= fixed
    total, sign, inverse = pilot + rate * (1.0 - estimator.shift), 1.0, 0.0
    batches = (z.size - fixed) // batch
    squares = 0.0
    for b in range(batches):
        begin = fixed + b * batch
        average = 0.0
        for k in range(begin, begin + batch):
            average += z[k]
        average /= batch
        term = estimator.shift + (average - pilot) / rate
        if term < 0.0:
            sign = -sign
        logarithm = math.log(max(abs(term), 1e-300))
        total += logarithm
        squares += logarithm * logarithm
        share = 1.0 / (rate * term) if abs(term) > 1e-300 else 0.0
        inverse += share
        for k in range(begin, begin + batch):
            factors[k] = share / batch
    for k in range(fixed):
        factors[k] = (1.0 - inverse) / fixed
    return total, sign, squares


@generic(argument=1)
@declared
def fresh_rows(rng: np.random.Generator, estimator: Any, scheme: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All auxiliary variables from their law: row numbers, 1/p of each, and counts of minibatches."""
    raise TypeError


@generic(argument=1)
@declared
def refreshed_rows(
    rng: np.random.Generator, estimator: Any, scheme: Any, index: np.ndarray, scale: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A part redrawn: rows, 1/p, counts, and for each row its old place, or -1 if it is new."""
    raise TypeError


@fresh_rows.register(PenaltyEstimator)
def _fresh_penalty(
    rng: np.random.Generator, estimator: PenaltyEstimator, scheme: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index, scale = np.empty(estimator.size, np.int64), np.empty(estimator.size)
    draw_rows(rng, scheme, 1, index, scale)
    return index, scale, np.zeros(0, np.int64)


@refreshed_rows.register(PenaltyEstimator)
def _refreshed_penalty(
    rng: np.random.Generator, estimator: PenaltyEstimator, scheme: Any, index: np.ndarray, scale: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    size = estimator.size // estimator.blocks
    begin = draw_number(rng, estimator.blocks) * size
    new_index, new_scale, origin = index.copy(), scale.copy(), np.arange(index.size)
    draw_rows(rng, scheme, 1, new_index[begin : begin + size], new_scale[begin : begin + size])
    origin[begin : begin + size] = -1
    return new_index, new_scale, counts, origin


@inlinable
def _pilot_scale(estimator: BlockPoisson, scheme: Any, scale: np.ndarray) -> None:
    for k in range(estimator.pilot.size):
        scale[k] = row_scale(scheme, estimator.pilot[k])


@fresh_rows.register(BlockPoisson)
def _fresh_poisson(rng: np.random.Generator, estimator: BlockPoisson, scheme: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.empty(estimator.products, np.int64)
    batches = 0
    for l in range(counts.size):
        counts[l] = rng.poisson(1.0)
        batches += counts[l]
    fixed = estimator.pilot.size
    size = fixed + batches * estimator.batch
    index, scale = np.empty(size, np.int64), np.empty(size)
    index[:fixed] = estimator.pilot
    _pilot_scale(estimator, scheme, scale)
    draw_rows(rng, scheme, 1, index[fixed:], scale[fixed:])
    return index, scale, counts


@refreshed_rows.register(BlockPoisson)
def _refreshed_poisson(
    rng: np.random.Generator, estimator: BlockPoisson, scheme: Any, index: np.ndarray, scale: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Products `first`, `first` + 1, .. (cyclically) get new counts and new minibatches; counts belong to the auxiliaries."""
    products, batch, fixed = estimator.products, estimator.batch, estimator.pilot.size
    first = draw_number(rng, products)
    new_counts, renewed = counts.copy(), np.zeros(products, np.bool_)
    for r in range(estimator.refreshed):
        l = (first + r) % products
        renewed[l] = True
        new_counts[l] = rng.poisson(1.0)
    new_index, new_scale, origin = _kept_rows(estimator, index, scale, counts, new_counts, renewed)
    begin = fixed
    for l in range(products):
        end = begin + new_counts[l] * batch
        if renewed[l]:
            draw_rows(rng, scheme, 1, new_index[begin:end], new_scale[begin:end])
        begin = end
    return new_index, new_scale, new_counts, origin


@inlinable
def _kept_rows(
    estimator: BlockPoisson,
    index: np.ndarray,
    scale: np.ndarray,
    counts: np.ndarray,
    new_counts: np.ndarray,
    renewed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the pilot and of the products that stay, at their new places; the others are left open, with origin -1."""
    batch, fixed = estimator.batch, estimator.pilot.size
    size = fixed + new_counts.sum() * batch
    new_index, new_scale, origin = np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64)
    for k in range(fixed):
        new_index[k], new_scale[k], origin[k] = index[k], scale[k], k
    old, new = fixed, fixed
    for l in range(counts.size):
        length = new_counts[l] * batch
        if renewed[l]:
            origin[new : new + length] = -1
        else:
            for k in range(length):
                new_index[new + k], new_scale[new + k], origin[new + k] = index[old + k], scale[old + k], old + k
        old += counts[l] * batch
        new += length
    return new_index, new_scale, origin


def difference(mode: Mode, order: int, scheme: Any, radius: float) -> Difference:
    """The difference estimator of a model at a reference: sums of the proxies from what the mode knows.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.engine.random_rows import UniformRows
    >>> from tallbayes.proxies.difference import difference, proxy_sum
    >>> X = np.column_stack([np.ones(50), np.linspace(-1, 1, 50)])
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1]), tb.priors.flat(), sigma=1.0)
    >>> proxy = difference(tb.find_mode(model, progress=False), 2, UniformRows(50), np.inf)
    >>> theta = np.array([0.3, -0.2])
    >>> bool(abs(proxy_sum(proxy, theta) - model.log_posterior(theta)) < 1e-9)  # the likelihood is quadratic
    True
    """
    model = mode.model
    prior_part = np.zeros(mode.gradient.size)
    prior_gradient(model.prior_terms, mode.reference, prior_part)
    level = mode.log_posterior - float(prior_value(model.prior_terms, mode.reference))
    gradient = mode.gradient - prior_part if order >= 1 else np.zeros(mode.gradient.size)
    hessian = mode.hessian if order >= 2 else np.zeros_like(mode.hessian)
    return Difference(
        whitening_of(mode), level, np.ascontiguousarray(np.vstack([gradient, hessian])), order, scheme, float(radius)
    )

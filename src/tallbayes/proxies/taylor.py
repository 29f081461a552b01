"""Taylor proxies at a reference: q_i(theta) = f_i + f_i' s_i + f_i'' s_i^2 / 2 (order 2), s_i = x_i . (theta - theta*).

The sum over rows costs O(d^2) from the gradient A and Hessian B of the log-likelihood at the reference. Everything is kept
in whitened coordinates w = L^-1 (theta - theta*), in which the Laplace fit is standard normal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable, jit
from tallbayes.mode.laplace import Mode


class Whitening(NamedTuple):
    """theta = reference + factor w."""

    reference: np.ndarray
    factor: np.ndarray


class Taylor(NamedTuple):
    """Sum of the Taylor proxies in w: gradient . w + w' hessian w / 2, the terms above `order` left out."""

    gradient: np.ndarray
    hessian: np.ndarray
    order: int


@generic
@declared
def proxy_value(proxy: Any, white: np.ndarray) -> float:
    """Sum of the proxies of all rows, less its value at the reference: reads no row."""
    raise TypeError


@proxy_value.register(Taylor)
def _taylor_value(proxy: Taylor, white: np.ndarray) -> float:
    d = white.size
    linear, quadratic = 0.0, 0.0
    if proxy.order >= 1:
        for j in range(d):
            linear += proxy.gradient[j] * white[j]
    if proxy.order >= 2:
        for j in range(d):
            inner = 0.0
            for k in range(d):
                inner += proxy.hessian[j, k] * white[k]
            quadratic += inner * white[j]
    return linear + 0.5 * quadratic


@inlinable(options=SUMS)
def unwhiten(whitening: Whitening, white: np.ndarray, theta: np.ndarray) -> None:
    """theta = reference + factor w, in place of `theta`."""
    for j in range(white.size):
        total = 0.0
        for k in range(j + 1):
            total += whitening.factor[j, k] * white[k]
        theta[j] = whitening.reference[j] + total


@inlinable
def whiten(whitening: Whitening, theta: np.ndarray) -> np.ndarray:
    """w with reference + factor w = theta."""
    white = theta - whitening.reference
    for j in range(white.size):
        for k in range(j):
            white[j] -= whitening.factor[j, k] * white[k]
        white[j] /= whitening.factor[j, j]
    return white


@jit
def proxy_value_at(proxy: Any, white: np.ndarray) -> float:
    """`proxy_value`, for Python."""
    return proxy_value(proxy, white)


@jit
def whitened(whitening: Whitening, theta: np.ndarray) -> np.ndarray:
    """`whiten`, for Python."""
    return whiten(whitening, theta)


@jit
def unwhitened(whitening: Whitening, white: np.ndarray) -> np.ndarray:
    """`unwhiten`, for Python: theta."""
    theta = np.empty(white.size)
    unwhiten(whitening, white, theta)
    return theta


def whitening_of(mode: Mode) -> Whitening:
    """The coordinates in which the Laplace fit of a mode is standard normal."""
    return Whitening(mode.reference, np.ascontiguousarray(mode.factor))


def taylor(mode: Mode, order: int = 2) -> Taylor:
    """The proxy of a model at its mode.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.proxies.taylor import proxy_value, taylor
    >>> X = np.column_stack([np.ones(50), np.linspace(-1, 1, 50)])
    >>> mode = tb.find_mode(tb.models.gaussian(tb.Dataset.from_arrays(X, X[:, 1]), tb.priors.flat(), sigma=1.0))
    >>> round(float(proxy_value(taylor(mode), np.array([1.0, 1.0]))), 6)  # the likelihood is quadratic: -|w|^2 / 2
    -1.0
    """
    from tallbayes.priors import prior_gradient

    likelihood_gradient = mode.gradient.copy()
    prior_part = np.zeros(mode.gradient.size)
    prior_gradient(mode.model.prior_terms, mode.reference, prior_part)
    likelihood_gradient -= prior_part
    return Taylor(mode.factor.T @ likelihood_gradient, np.ascontiguousarray(mode.whitened_hessian), order)

"""Taylor proxies at a reference: q_i(theta) = f_i + f_i' s_i + f_i'' s_i^2 / 2 (order 2), s_i = x_i . (theta - theta*).

The sum over rows costs O(d^2) from the gradient A and Hessian B of the log-likelihood at the reference. Everything is kept
in whitened coordinates w = L^-1 (theta - theta*), in which the Laplace fit is standard normal.

Compiled code knows one type of sum, `ProxyTotal`, whatever the proxies are: numbers, and the address of the function of its value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.compile import SUMS, inlinable, jit
from tallbayes.mode.laplace import Mode
from tallbayes.pointers import calls, pointer


class Whitening(NamedTuple):
    """theta = reference + factor w: the reference is the first row, the factor, which is lower triangular, the others."""

    rows: np.ndarray


def whitening_at(reference: np.ndarray, factor: np.ndarray) -> Whitening:
    """The whitening of a reference and a factor.

    >>> law = whitening_at(np.array([1.0, 2.0]), np.eye(2))
    >>> reference_of(law), factor_of(law)[1]
    (array([1., 2.]), array([0., 1.]))
    """
    return Whitening(np.ascontiguousarray(np.vstack([reference, factor])))


@inlinable
def reference_of(whitening: Whitening) -> np.ndarray:
    """theta at w = 0."""
    return whitening.rows[0]


@inlinable
def factor_of(whitening: Whitening) -> np.ndarray:
    """L of theta = reference + L w."""
    return whitening.rows[1:]


_numbers = types.Array(types.float64, 1, "C")
_VALUE = types.float64(_numbers, _numbers)
_call_value = calls(_VALUE)  # (address, numbers, white): the sum, less its value at the reference


class ProxyTotal(NamedTuple):
    """The sum of the proxies of all rows in w, less its value at the reference.

    Of Taylor proxies `numbers` has the gradient, the Hessian row after row, and the entries of a tensor where there are terms of third
    order (`proxies.third_order`). Of sufficient statistics it has what their function needs.
    """

    numbers: np.ndarray
    value: int  # address of the function of numbers and w
    order: int  # of the expansion: terms above it are left out
    reach: float  # distance from the reference within which pairs of positions have terms of third order; 0 without

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        return _total_again, (self.numbers, _NAMES[self.value], self.order, self.reach)


_VALUES: dict[str, Callable[..., Any]] = {}  # functions of numbers and w by name
_NAMES: dict[int, str] = {}


def proxy_function(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Offer a function of numbers and w, which allocates nothing, as the value of a `ProxyTotal`."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _VALUES[name] = function
        return function

    return add


@functools.cache
def _address(name: str) -> int:
    address = pointer(_VALUES[name], _VALUE, f"proxy value {name}")
    _NAMES[address] = name
    return address


def proxy_total(name: str, numbers: np.ndarray, order: int = 2, reach: float = 0.0) -> ProxyTotal:
    """A sum whose value is the function of a name."""
    return ProxyTotal(numbers, _address(name), order, reach)


def _total_again(numbers: np.ndarray, name: str, order: int, reach: float) -> ProxyTotal:
    return proxy_total(name, numbers, order, reach)


@proxy_function("taylor 0")
def _constant(numbers: np.ndarray, white: np.ndarray) -> float:
    return 0.0


@proxy_function("taylor 1")
def _linear(numbers: np.ndarray, white: np.ndarray) -> float:
    total = 0.0
    for j in range(white.size):
        total += numbers[j] * white[j]
    return total


@proxy_function("taylor 2")
def _quadratic(numbers: np.ndarray, white: np.ndarray) -> float:
    d = white.size
    total = 0.0
    for j in range(d):
        row = numbers[d + j * d : d + j * d + d]
        inner = 0.0
        for k in range(j):
            inner += row[k] * white[k]
        total += white[j] * (numbers[j] + inner + 0.5 * row[j] * white[j])
    return total


@inlinable
def proxy_value(proxy: ProxyTotal, white: np.ndarray) -> float:
    """Sum of the proxies of all rows, less its value at the reference: reads no row."""
    return _call_value(proxy.value, proxy.numbers, white)


@inlinable(options=SUMS)
def add_expansion_gradient(proxy: ProxyTotal, white: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient in w of the sum of Taylor proxies, to second order at most: reads no row."""
    d, numbers = white.size, proxy.numbers
    if proxy.order >= 1:
        for j in range(d):
            gradient[j] += numbers[j]
    if proxy.order >= 2:
        for j in range(d):
            total, place = 0.0, d + j * d
            for k in range(d):
                total += numbers[place + k] * white[k]
            gradient[j] += total


@inlinable(options=SUMS)
def unwhiten(whitening: Whitening, white: np.ndarray, theta: np.ndarray) -> None:
    """theta = reference + factor w, in place of `theta`."""
    rows = whitening.rows
    for j in range(white.size):
        total = 0.0
        for k in range(j + 1):
            total += rows[j + 1, k] * white[k]
        theta[j] = rows[0, j] + total


@inlinable
def whiten(whitening: Whitening, theta: np.ndarray) -> np.ndarray:
    """w with reference + factor w = theta."""
    return whiten_from(whitening.rows[0], whitening.rows[1:], theta)


@inlinable
def whiten_from(reference: np.ndarray, factor: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The same for a reference and a factor in arrays of their own."""
    white = theta - reference
    for j in range(white.size):
        for k in range(j):
            white[j] -= factor[j, k] * white[k]
        white[j] /= factor[j, j]
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
    return whitening_at(mode.reference, mode.factor)


def expansion(order: int, gradient: np.ndarray, hessian: np.ndarray) -> ProxyTotal:
    """The sum of Taylor proxies with a gradient and a Hessian in whitened coordinates.

    >>> line = expansion(1, np.array([2.0, 0.0]), np.zeros((2, 2)))
    >>> float(proxy_value(line, np.array([1.0, 5.0])))
    2.0
    """
    return proxy_total(f"taylor {order}", np.concatenate([gradient, np.ravel(hessian)]), order)


def gradient_of(proxy: ProxyTotal, dimension: int) -> np.ndarray:
    """The gradient of an expansion at the reference."""
    return proxy.numbers[:dimension]


def taylor(mode: Mode, order: int = 2) -> ProxyTotal:
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
    return expansion(order, mode.factor.T @ likelihood_gradient, mode.whitened_hessian)

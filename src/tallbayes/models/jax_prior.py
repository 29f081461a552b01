"""Priors that users write as functions in JAX: compiled code asks for them by a call of Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.callbacks import BLOCK, call_python, numbered, view
from tallbayes.engine.jax_rows import import_jax
from tallbayes.models.transforms import Parameters
from tallbayes.pointers import pointer
from tallbayes.prior_terms import GRADIENT, VALUE, LogPrior, log_prior_of
from tallbayes.priors import prior_gradient, prior_precision, prior_value


class JaxPrior:
    """A log prior density in JAX, on the flat vector, with the Jacobian of the transforms."""

    def __init__(self, function: Callable[[Any], Any], named: Parameters | None, dim: int) -> None:
        jax = import_jax()
        self.function, self.named, self.dim = function, named, dim
        self.kind = np.zeros(dim, np.int64)  # no coordinate has a kink or a named density
        self.traced, self.gradient = jax.jit(self.density), jax.jit(jax.value_and_grad(self.density))
        self.hessian = jax.jit(jax.hessian(self.density))

    def density(self, theta: Any) -> Any:
        """The log density as JAX sees it."""
        import jax.numpy as jnp

        if self.named is None:
            return self.function(theta)
        return self.function(self.named.unpack(theta, jnp)) + self.named.log_jacobian(theta, jnp)

    def __reduce__(self) -> Any:
        """Programs are those of a process."""
        return JaxPrior, (self.function, self.named, self.dim)

    def call(self, block: Sequence[int]) -> None:
        """What compiled code asks for: (number, size of theta, addresses of theta, of the value, and of the gradient or 0)."""
        _, size, theta, value, gradient = block[:5]
        at = view(theta, (size,), np.float64).copy()
        if gradient:
            view(value, (1,), np.float64)[0] = prior_gradient(self, at, view(gradient, (size,), np.float64))
        else:
            view(value, (1,), np.float64)[0] = prior_value(self, at)


@prior_value.register(JaxPrior)
def _prior_value(prior: JaxPrior, theta: np.ndarray) -> float:
    return float(_double(prior.traced, theta))


@prior_gradient.register(JaxPrior)
def _prior_gradient(prior: JaxPrior, theta: np.ndarray, gradient: np.ndarray) -> float:
    value, slope = _double(prior.gradient, theta)
    gradient += np.asarray(slope)
    return float(value)


@prior_precision.register
def _prior_precision(prior: JaxPrior, theta: np.ndarray) -> np.ndarray:
    return -np.asarray(_double(prior.hessian, theta))


def _double(function: Callable[..., Any], theta: np.ndarray) -> Any:
    with import_jax().enable_x64(True):
        return function(np.asarray(theta, float))


@inlinable
def _asked(p: np.ndarray, theta: np.ndarray, value: np.ndarray, gradient: int) -> float:
    """The value by a call of Python; NaN, and its status in the last of the numbers, if that fails."""
    block = np.empty(BLOCK, np.int64)
    block[0], block[1], block[2], block[3], block[4] = int(p[1]), theta.size, theta.ctypes.data, value.ctypes.data, gradient
    status = call_python(int(p[0]), np.int64(block.ctypes.data))
    if status != 0:
        p[p.size - 1] = status
        return np.nan
    return value[0]


def _asked_value(p: np.ndarray, theta: np.ndarray) -> Any:
    return _asked(p, theta, np.empty(1), 0)


def _asked_gradient(p: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> Any:
    return _asked(p, theta, np.empty(1), np.int64(gradient.ctypes.data))


@functools.cache
def _prior_pointers() -> tuple[int, int]:
    return pointer(_asked_value, VALUE, "prior in python"), pointer(_asked_gradient, GRADIENT, "prior gradient in python")


@log_prior_of.register
def _log_prior_in_python(prior: JaxPrior) -> LogPrior:
    return LogPrior(*_prior_pointers(), numbered(prior.call, np.zeros(3)))

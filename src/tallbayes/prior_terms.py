"""Priors in numbers, as compiled code sees them: log-densities up to a constant, their gradients and curvatures.

Kinds of a coordinate theta_j: 0 flat, 1 normal, 2 Laplace, 3 Student-t. From 4 on theta_j is the logarithm of a positive parameter with one
of the densities of `scale_priors`, kind - 4; the Jacobian e^theta_j is included.

Samplers see any prior as a `LogPrior`: two addresses and one array of numbers.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.compile import STRICT, declared, generic, inlinable
from tallbayes.pointers import Kind, calls, kind_of, member_maker, member_pointer, numbers_of
from tallbayes.scale_priors import scale_density, scale_derivative, scale_precision

FLAT, NORMAL, LAPLACE, STUDENT, POSITIVE = 0, 1, 2, 3, 4


class PriorTerms(NamedTuple):
    """A prior in numbers. Coordinate j is judged at theta_j, except the intercept, judged at theta . centre."""

    kind: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    df: np.ndarray
    centre: np.ndarray
    intercept: int
    dense: np.ndarray  # precision of a joint normal prior around `location`, or 0 x 0


@inlinable
def _coordinate(prior: PriorTerms, theta: np.ndarray, j: int) -> float:
    if j != prior.intercept:
        return theta[j]
    total = 0.0
    for c in range(theta.size):
        total += prior.centre[c] * theta[c]
    return total


@generic
@declared
def prior_value(prior: Any, theta: np.ndarray) -> float:
    """Log prior density up to a constant."""
    raise TypeError


@generic
@declared
def prior_gradient(prior: Any, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log prior density; its gradient is added to `gradient`."""
    raise TypeError


@prior_value.register(PriorTerms)
def _prior_value(prior: PriorTerms, theta: np.ndarray) -> float:
    total = 0.0
    for j in range(theta.size):
        kind = prior.kind[j]
        if kind == 0:
            continue
        z = (_coordinate(prior, theta, j) - prior.location[j]) / prior.scale[j]
        if kind == 1:
            total -= 0.5 * z * z
        elif kind == 2:
            total -= abs(z)
        elif kind == 3:
            total -= 0.5 * (prior.df[j] + 1.0) * np.log1p(z * z / prior.df[j])
        else:
            sigma = math.exp(min(max(theta[j], -700.0), 700.0))
            total += scale_density(kind - 4.0, prior.scale[j], prior.df[j], sigma) + theta[j]
    for j in range(prior.dense.shape[0]):
        inner = 0.0
        for k in range(theta.size):
            inner += prior.dense[j, k] * (theta[k] - prior.location[k])
        total -= 0.5 * inner * (theta[j] - prior.location[j])
    return total


@prior_gradient.register(PriorTerms)
def _prior_gradient(prior: PriorTerms, theta: np.ndarray, gradient: np.ndarray) -> float:
    total = 0.0
    for j in range(theta.size):
        kind = prior.kind[j]
        if kind == 0:
            continue
        s = prior.scale[j]
        z = (_coordinate(prior, theta, j) - prior.location[j]) / s
        if kind == 1:
            total -= 0.5 * z * z
            g = -z / s
        elif kind == 2:
            total -= abs(z)
            g = -np.sign(z) / s
        elif kind > 3:
            sigma = math.exp(min(max(theta[j], -700.0), 700.0))
            total += scale_density(kind - 4.0, s, prior.df[j], sigma) + theta[j]
            g = scale_derivative(kind - 4.0, s, prior.df[j], sigma) + 1.0
        else:
            nu = prior.df[j]
            total -= 0.5 * (nu + 1.0) * np.log1p(z * z / nu)
            g = -(nu + 1.0) * z / (nu + z * z) / s
        if j != prior.intercept:
            gradient[j] += g
        else:
            for c in range(theta.size):
                gradient[c] += g * prior.centre[c]
    for j in range(prior.dense.shape[0]):
        inner = 0.0
        for k in range(theta.size):
            inner += prior.dense[j, k] * (theta[k] - prior.location[k])
        total -= 0.5 * inner * (theta[j] - prior.location[j])
        gradient[j] -= inner
    return total


_numbers = types.Array(types.float64, 1, "C")
VALUE, GRADIENT = types.float64(_numbers, _numbers), types.float64(_numbers, _numbers, _numbers)
_call_value, _call_gradient = calls(VALUE), calls(GRADIENT)  # (address, p, theta), (address, p, theta, gradient)


class LogPrior(NamedTuple):
    """Any log prior density as samplers see it."""

    value: int  # addresses
    gradient: int
    p: np.ndarray  # numbers; the last is 0, or the status with which a call has failed

    def __reduce__(self) -> Any:
        """Addresses are those of a process."""
        raise TypeError("a compiled prior cannot be pickled: send the model, and make its target there.")


@prior_value.register(LogPrior)
def _value_by_address(prior: LogPrior, theta: np.ndarray) -> float:
    return _call_value(prior.value, prior.p, theta)


@prior_gradient.register(LogPrior)
def _gradient_by_address(prior: LogPrior, theta: np.ndarray, gradient: np.ndarray) -> float:
    return _call_gradient(prior.gradient, prior.p, theta, gradient)


@generic
def prior_status(prior: Any) -> float:
    """The status with which a prior that is not compiled has failed; 0 as long as it has not."""
    return 0.0


@prior_status.register(LogPrior)
def _status(prior: LogPrior) -> float:
    return prior.p[prior.p.size - 1]


@functools.singledispatch
def log_prior_of(terms: Any) -> LogPrior:
    """A prior for a chain."""
    whole = type(terms)(*(np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for v in terms))
    return LogPrior(*_addresses(kind_of(whole)), numbers_of(whole, 1))


@functools.cache
def _addresses(kind: Kind) -> tuple[int, int]:
    member = member_maker(kind)

    def value(p: np.ndarray, theta: np.ndarray) -> float:
        return prior_value(member(p), theta)

    def gradient(p: np.ndarray, theta: np.ndarray, slope: np.ndarray) -> float:
        return prior_gradient(member(p), theta, slope)

    return (
        member_pointer(value, "prior", kind, VALUE, options=STRICT),
        member_pointer(gradient, "prior gradient", kind, GRADIENT, options=STRICT),
    )


@functools.singledispatch
def prior_precision(prior: Any, theta: np.ndarray) -> np.ndarray:
    """Minus the Hessian of the log prior (a Laplace prior has none)."""
    raise TypeError


@prior_precision.register
def _prior_precision(prior: PriorTerms, theta: np.ndarray) -> np.ndarray:
    out = np.zeros((theta.size, theta.size))
    out[: prior.dense.shape[0], : prior.dense.shape[0]] = prior.dense
    for j in range(theta.size):
        kind, s, nu = prior.kind[j], prior.scale[j], prior.df[j]
        if kind == NORMAL:
            curvature = 1.0 / s**2
        elif kind == STUDENT:
            z = (_coordinate(prior, theta, j) - prior.location[j]) / s
            curvature = (nu + 1.0) * (nu - z * z) / (nu + z * z) ** 2 / s**2
        elif kind >= POSITIVE:
            curvature = scale_precision(float(kind - POSITIVE), s, nu, math.exp(min(max(theta[j], -700.0), 700.0)))
        else:
            continue
        if j == prior.intercept:
            out += curvature * np.outer(prior.centre, prior.centre)
        else:
            out[j, j] += curvature
    return out

"""Counts with zeros of two kinds: zero-inflated counts and hurdles, u = (eta, a) or (eta, a, kappa), the second predictor a a logit.

A law of counts registers l = -log P(0), with derivatives in eta and kappa, and its log probabilities. With q = 1 / (1 + e^-a) the
probability of a zero that is no count, S the softplus function and c = a + l:

    zero-inflated:  f(0) = log(q + (1 - q) e^-l) = -S(a) - l + S(c),   f(y) = -S(a) + log P(y)
    hurdle:         f(0) = log q = -S(-a),                             f(y) = -S(a) + log P(y) - log(1 - e^-l)

Only the zeros of zero-inflated counts couple the predictors. Along a line with derivatives t of a and l', l'', l''' of l the third
derivative of f(0) is -S'''(a) t^3 - (1 - S'(c)) l''' + S'''(c) (t + l')^3 + 3 S''(c) (t + l') l'', and that of -log(1 - e^-l), with
e = 1 / (e^l - 1), is -e l''' + 3 e (1 + e) l' l'' - e (1 + e) (1 + 2e) l'^3: certificates by the triangle inequality.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, declared, generic, inlinable
from tallbayes.engine.arithmetic import exp, log1p_unit
from tallbayes.engine.neighbourhood import SLACK, Neighbourhood, largest_on, third_bounds
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_value

Jet = tuple[float, float, float, float, float, float]
_LEAST = 1e-280  # of l, where 1 / l still has a square


@generic(options=SCALAR)
@declared
def zero_jet(law: Any, eta: float, kappa: float) -> Jet:
    """l = -log P(0) and l_0, l_1, l_00, l_01, l_11, its derivatives in eta and kappa."""
    raise TypeError


@generic(options=SCALAR)
@declared
def count_jet(law: Any, eta: float, kappa: float, y: float) -> Jet:
    """log P(y) without terms of y alone, and its derivatives."""
    raise TypeError


@inlinable(options=SCALAR)
def _logistic(a: float) -> tuple[float, float, float]:
    """S(a), S'(a) and S'(-a)."""
    z = exp(-abs(a))
    larger, smaller = 1.0 / (1.0 + z), z / (1.0 + z)
    soft = max(a, 0.0) + log1p_unit(z)
    return (soft, larger, smaller) if a >= 0.0 else (soft, smaller, larger)


Terms = tuple[float, float, float, float, float, float, float, float, float, float]
"""f, derivatives in eta, a and kappa, then second ones: eta eta, eta a, a a, eta kappa, a kappa and kappa kappa."""


@inlinable(options=SCALAR)
def _inflated(family: Any, u: np.ndarray, y: float) -> Terms:
    a, kappa = u[1], u[2] if u.size > 2 else 0.0
    soft, q, rest = _logistic(a)
    if y > 0.0:
        f, f0, f1, f00, f01, f11 = count_jet(family, u[0], kappa, y)
        return f - soft, f0, -q, f1, f00, 0.0, -q * rest, f01, 0.0, f11
    l, l0, l1, l00, l01, l11 = zero_jet(family, u[0], kappa)
    c = a + l
    _, p, tail = _logistic(c)
    v = p * tail
    f = (a - soft if c >= 0.0 else -l - soft) + log1p_unit(exp(-abs(c)))
    h00, h01, h11 = v * l0 * l0 - tail * l00, v * l0 * l1 - tail * l01, v * l1 * l1 - tail * l11
    return f, -tail * l0, rest - tail, -tail * l1, h00, v * l0, v - q * rest, h01, v * l1, h11


@inlinable(options=SCALAR)
def _hurdle(family: Any, u: np.ndarray, y: float) -> Terms:
    a, kappa = u[1], u[2] if u.size > 2 else 0.0
    soft, q, rest = _logistic(a)
    if not y > 0.0:
        return a - soft, 0.0, rest, 0.0, 0.0, 0.0, -q * rest, 0.0, 0.0, 0.0
    f, f0, f1, f00, f01, f11 = count_jet(family, u[0], kappa, y)
    l, l0, l1, l00, l01, l11 = zero_jet(family, u[0], kappa)
    l = max(l, _LEAST)
    more = -math.expm1(-l)
    b = l * exp(-l) / more  # l / (e^l - 1)
    r0, r1, square = l0 / l, l1 / l, b * (b + l)
    h00 = f00 - b * (l00 / l) + square * r0 * r0
    h01 = f01 - b * (l01 / l) + square * r0 * r1
    h11 = f11 - b * (l11 / l) + square * r1 * r1
    return f - math.log(more) - soft, f0 - b * r0, -q, f1 - b * r1, h00, 0.0, -q * rest, h01, 0.0, h11


@inlinable(options=SCALAR)
def _write_gradient(terms: Terms, g: np.ndarray) -> float:
    g[0], g[1] = terms[1], terms[2]
    if g.size > 2:
        g[2] = terms[3]
    return terms[0]


@inlinable(options=SCALAR)
def _write_hessian(terms: Terms, g: np.ndarray, h: np.ndarray) -> float:
    h[0, 0], h[0, 1], h[1, 0], h[1, 1] = terms[4], terms[5], terms[5], terms[6]
    if g.size > 2:
        h[0, 2], h[2, 0], h[1, 2], h[2, 1], h[2, 2] = terms[7], terms[7], terms[8], terms[8], terms[9]
    return _write_gradient(terms, g)


def inflated_value(family: Any, u: np.ndarray, y: float) -> float:
    """Log-likelihood of a row of zero-inflated counts."""
    return _inflated(family, u, y)[0]


def inflated_gradient(family: Any, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    """The same with its gradient."""
    return _write_gradient(_inflated(family, u, y), gradient)


def inflated_hessian(family: Any, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """The same with its gradient and Hessian."""
    return _write_hessian(_inflated(family, u, y), gradient, hessian)


def hurdle_value(family: Any, u: np.ndarray, y: float) -> float:
    """Log-likelihood of a row of counts behind a hurdle."""
    return _hurdle(family, u, y)[0]


def hurdle_gradient(family: Any, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    """The same with its gradient."""
    return _write_gradient(_hurdle(family, u, y), gradient)


def hurdle_hessian(family: Any, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """The same with its gradient and Hessian."""
    return _write_hessian(_hurdle(family, u, y), gradient, hessian)


class CountSuprema(NamedTuple):
    """Of each row within a neighbourhood: the range of l, and bounds along lines of unit speed."""

    low: np.ndarray
    high: np.ndarray
    slope: np.ndarray  # |l'|
    curvature: np.ndarray  # |l''|
    third: np.ndarray  # |l'''|
    law: np.ndarray  # |D^3 log P(y)|


@functools.singledispatch
def count_suprema(law: Any, near: Neighbourhood) -> CountSuprema:
    """The bounds of a law of counts."""
    raise TypeError


def spread(c: Any) -> Any:
    """S''."""
    z = np.exp(-np.abs(c))
    return z / (1.0 + z) ** 2


def skew(c: Any) -> Any:
    """|S'''|."""
    z = np.exp(-np.abs(c))
    return z * (1.0 - z) / (1.0 + z) ** 3


SKEWEST = math.log(2.0 + math.sqrt(3.0))  # where |S'''| is largest, on both sides of 0


def largest_skew(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """sup |S'''| on intervals."""
    return largest_on(skew, low, high, (-SKEWEST, SKEWEST))


def _logit_third(near: Neighbourhood) -> np.ndarray:
    """Of -S(a), along lines of unit speed."""
    return near.other_speed**3 * largest_skew(*near.between(near.other, near.other_speed))


def inflated_bounds(member: Any, near: Neighbourhood) -> np.ndarray:
    """The certificate of zero-inflated counts."""
    found, t = count_suprema(member, near), near.other_speed
    low, high = near.between(near.other, t)
    low, high = low + found.low, high + found.high
    z = np.exp(-np.abs(low))
    tail = np.where(low >= 0.0, z, 1.0) / (1.0 + z)
    step = t + found.slope
    zero = tail * found.third + largest_skew(low, high) * step**3
    zero = zero + 3.0 * largest_on(spread, low, high, (0.0,)) * step * found.curvature
    return (_logit_third(near) + np.where(near.y > 0.0, found.law, zero)) * SLACK


@functools.singledispatch
def truncated_third(member: Any, near: Neighbourhood) -> np.ndarray:
    """Of counts given that they are not zero, by the triangle inequality; a law may know a smaller bound."""
    found = count_suprema(member, near)
    e = 1.0 / np.expm1(np.maximum(found.low, _LEAST))
    more = e * (1.0 + e)
    return found.law + e * found.third + 3.0 * more * found.slope * found.curvature + more * (1.0 + 2.0 * e) * found.slope**3


def hurdle_bounds(member: Any, near: Neighbourhood) -> np.ndarray:
    """The certificate of counts behind a hurdle."""
    return (_logit_third(near) + np.where(near.y > 0.0, truncated_third(member, near), 0.0)) * SLACK


def register_inflated(kind: type) -> None:
    """Make a law of counts a family of zero-inflated counts with a certificate."""
    vector_value.register(kind)(inflated_value)
    vector_gradient.register(kind)(inflated_gradient)
    vector_hessian.register(kind)(inflated_hessian)
    third_bounds.register(kind)(inflated_bounds)


def register_hurdle(kind: type) -> None:
    """Make a law of counts a family of counts behind a hurdle with a certificate."""
    vector_value.register(kind)(hurdle_value)
    vector_gradient.register(kind)(hurdle_gradient)
    vector_hessian.register(kind)(hurdle_hessian)
    third_bounds.register(kind)(hurdle_bounds)


def start_zero_counts(model: Any, hurdle: bool) -> np.ndarray:
    """Intercepts that fit the share of zeros and the mean of the other counts, over a part of the rows.

    A size, if unknown, starts at 5: from a small one, with which counts alone have as many zeros, the search may leave the other zeros out.
    """
    theta, data = np.zeros(model.dim), model.data
    theta[data.d :] = math.log(5.0)
    first = data.d - model.second
    picked = np.asarray(data.records[:: max(1, data.n // 20_000), data.d : data.d + 2], float)
    y, positive = picked[:, 0], picked[:, 0] > 0.0
    zeros = min(max(1.0 - float(np.mean(positive)), 0.01), 0.99)
    mean = max(float(y[positive].mean()) if positive.any() else 1.0, 1.05)
    rate = (
        mean - mean * math.exp(-mean) if mean > 2.0 else 2.0 * (mean - 1.0)
    )  # nearly the rate of a truncated law of this mean
    share = zeros if hurdle else min(max((zeros - math.exp(-rate)) / (1.0 - math.exp(-rate)), 0.05), 0.99)
    for place, value in (
        (data.column_of_ones(0, first), math.log(rate) - float(picked[:, 1].mean())),
        (data.column_of_ones(first, data.d), math.log(share / (1.0 - share))),
    ):
        if place is not None:
            theta[place] = value
    return theta

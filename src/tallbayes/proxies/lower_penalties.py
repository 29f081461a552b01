"""Taylor expansions as lower bounds: the expansion, and the penalties that make it one.

Penalties are terms of theta alone, each multiplied by a number of the row that is summed once. Gaps are computed without
cancellation, as the third-order residual of the family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.arithmetic import exp_remainder
from tallbayes.engine.family_functions import jet2, residual, slope_residual
from tallbayes.engine.lower_gaps import (
    lower_gap,
    lower_jet,
    lower_slope,
    vector_lower_gap,
    vector_lower_jet,
    vector_lower_slope,
)
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual


class TaylorKind(NamedTuple):
    """Second-order Taylor expansion at the reference; a bound only with its penalties."""


class PenaltyTerms(NamedTuple):
    """Terms of theta, each with a coefficient in every row: none of a quadratic log B, one of a Taylor expansion, three of Gaussian rows.

    One: |w|^3. Three, of rows with unknown sigma, b = log sigma - log sigma*: E2+, E1 |v|, E0+ |v|^2, with the coefficients z^2/2,
    |z||a| and |a|^2/2, where E0 = e^(-2b) - 1, E1 = E0 + 2b >= 0, E2 = E1 - 2b^2 and v the whitened coefficients; the residual of a
    row is exactly -E2 z^2/2 + E1 z (x.h/sigma*) - E0 (x.h/sigma*)^2/2.

    The factor that whitens is given beside: of all coordinates, or of the coefficients alone where there are three terms.
    """

    terms: int  # 0, 1 or 3
    coefficient: np.ndarray  # (n, terms)
    total: tuple[float, float, float]  # sums of the coefficients, 0 for those that there are not


def penalty_of(coefficient: np.ndarray, total: Sequence[float]) -> PenaltyTerms:
    """The terms with their coefficients, and the sums of these over all rows."""
    first, second, third = [*map(float, total), 0.0, 0.0, 0.0][:3]
    return PenaltyTerms(coefficient.shape[1], coefficient, (first, second, third))


def no_penalty() -> PenaltyTerms:
    """Of a bound that is quadratic."""
    return penalty_of(np.zeros((0, 0)), [])


@inlinable
def _solve(factor: np.ndarray, change: np.ndarray, size: int) -> np.ndarray:
    """w with factor w = the first elements of change."""
    white = change[:size].copy()
    for j in range(size):
        for k in range(j):
            white[j] -= factor[j, k] * white[k]
        white[j] /= factor[j, j]
    return white


@inlinable
def _solve_transposed(factor: np.ndarray, vector: np.ndarray) -> None:
    """u with factor' u = vector, in place."""
    for j in range(vector.size - 1, -1, -1):
        for k in range(j + 1, vector.size):
            vector[j] -= factor[k, j] * vector[k]
        vector[j] /= factor[j, j]


@inlinable
def _square(vector: np.ndarray) -> float:
    total = 0.0
    for j in range(vector.size):
        total += vector[j] * vector[j]
    return total


@inlinable
def penalty_terms(penalty: PenaltyTerms, factor: np.ndarray, change: np.ndarray, terms: np.ndarray) -> None:
    """The terms at theta = reference + change."""
    if penalty.terms == 1:
        terms[0] = _square(_solve(factor, change, change.size)) ** 1.5
    elif penalty.terms == 3:
        d = change.size - 1
        b, square = change[d], _square(_solve(factor, change, d))
        second = exp_remainder(-2.0 * b)
        terms[0] = max(0.0, second)
        terms[1] = max(0.0, second + 2.0 * b * b) * math.sqrt(square)
        terms[2] = max(0.0, math.expm1(-2.0 * b)) * square


@inlinable
def add_penalty_gradient(
    penalty: PenaltyTerms, factor: np.ndarray, change: np.ndarray, factors: np.ndarray, gradient: np.ndarray
) -> None:
    """Add sum_m factors[m] grad terms[m] to `gradient`."""
    if penalty.terms == 1:
        white = _solve(factor, change, change.size)
        scale = 3.0 * math.sqrt(_square(white)) * factors[0]
        _solve_transposed(factor, white)
        for j in range(gradient.size):
            gradient[j] += scale * white[j]
    elif penalty.terms == 3:
        d = change.size - 1
        b, white = change[d], _solve(factor, change, d)
        square = _square(white)
        e0, e2 = math.expm1(-2.0 * b), exp_remainder(-2.0 * b)
        e1 = max(0.0, e2 + 2.0 * b * b)
        length = math.sqrt(square)
        if e2 > 0.0:
            gradient[d] -= 2.0 * e1 * factors[0]
        gradient[d] -= 2.0 * e0 * length * factors[1]
        if e0 > 0.0:
            gradient[d] -= 2.0 * (e0 + 1.0) * square * factors[2]
        scale = factors[1] * e1 / max(length, 1e-300) + 2.0 * factors[2] * max(0.0, e0)
        _solve_transposed(factor, white)
        for j in range(d):
            gradient[j] += scale * white[j]


@lower_gap.register(TaylorKind)
def _taylor_gap(kind: TaylorKind, family: Any, base: float, shift: float, y: float) -> float:
    return residual(family, base, y, shift)


@lower_slope.register(TaylorKind)
def _taylor_slope(kind: TaylorKind, family: Any, base: float, shift: float, y: float) -> float:
    return slope_residual(family, base, y, shift)


@lower_jet.register(TaylorKind)
def _taylor_jet(kind: TaylorKind, family: Any, base: float, y: float) -> tuple[float, float, float]:
    return jet2(family, base, y)


@vector_lower_gap.register(TaylorKind)
def _taylor_vector_gap(kind: TaylorKind, family: Any, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    return vector_residual(family, base, shift, y)


@vector_lower_slope.register(TaylorKind)
def _taylor_vector_slope(
    kind: TaylorKind, family: Any, base: np.ndarray, shift: np.ndarray, y: float, gradient: np.ndarray
) -> None:
    q = base.size
    start, hessian = np.empty(q), np.empty((q, q))
    vector_hessian(family, base, y, start, hessian)
    vector_gradient(family, base + shift, y, gradient)
    for k in range(q):
        gradient[k] -= start[k]
        for l in range(q):
            gradient[k] -= hessian[k, l] * shift[l]


@vector_lower_jet.register(TaylorKind)
def _taylor_vector_jet(
    kind: TaylorKind, family: Any, base: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray
) -> float:
    return vector_hessian(family, base, y, gradient, hessian)

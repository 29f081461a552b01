"""What a family of several indices must say of one row: the generic functions its file registers.

u holds the indices of the row, those with linear predictors first, then unknown parameters. Weights are applied by the engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SUMS, declared, generic, inlinable

VALUE, SLOPE, CURVATURE, SLOPE_ALONE, CURVATURE_ALONE = 0, 1, 2, 3, 4
"""What a jet is asked for: the value, with the gradient, with the Hessian; the gradient alone, gradient and Hessian alone."""


@generic
@declared
def vector_value(family: Any, u: np.ndarray, y: float) -> float:
    """Log-likelihood of a row in u."""
    raise TypeError


@generic
@declared
def vector_gradient(family: Any, u: np.ndarray, y: float, gradient: np.ndarray) -> float:
    """Value; the gradient in u is written to `gradient`."""
    raise TypeError


@generic
@declared
def vector_hessian(family: Any, u: np.ndarray, y: float, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """Value; gradient and whole Hessian in u are written."""
    raise TypeError


@inlinable(options=SUMS)
def _taylor(value: float, g: np.ndarray, h: np.ndarray, shift: np.ndarray) -> float:
    total = value
    for k in range(shift.size):
        total += g[k] * shift[k]
        for l in range(shift.size):
            total += 0.5 * h[k, l] * shift[k] * shift[l]
    return total


@generic
def vector_residual(family: Any, base: np.ndarray, shift: np.ndarray, y: float) -> float:
    """Value at base + shift less its second-order Taylor expansion at `base`; families override it to avoid cancellation."""
    g, h = np.empty(base.size), np.empty((base.size, base.size))
    f = vector_hessian(family, base, y, g, h)
    return vector_value(family, base + shift, y) - _taylor(f, g, h, shift)


@generic(options=SUMS)
@declared
def tile_jet(
    family: Any, u: np.ndarray, y: np.ndarray, k: int, size: int, order: int, f: np.ndarray, g: np.ndarray, h: np.ndarray
) -> None:
    """Derivatives of a whole tile, as `tiles` asks for them: for families whose loops over rows vectorise. No other needs it."""
    raise TypeError

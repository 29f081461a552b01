"""What a family of one linear predictor must say of one row: the generic functions its file registers.

eta is the linear predictor including the offset, y the response. Weights are applied by the engine. Constants that do not
depend on eta may be left out of `value`, but must be left out of all functions alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import SCALAR, declared, generic, inlinable


@generic(options=SCALAR)
@declared
def value(family: Any, eta: float, y: float) -> float:
    """Log-likelihood f(eta) of a row."""
    raise TypeError


@generic(options=SCALAR)
@declared
def jet1(family: Any, eta: float, y: float) -> tuple[float, float]:
    """f and f'."""
    raise TypeError


@generic(options=SCALAR)
@declared
def jet2(family: Any, eta: float, y: float) -> tuple[float, float, float]:
    """f, f' and f''."""
    raise TypeError


@generic(options=SCALAR)
@declared
def third(family: Any, eta: float, y: float) -> float:
    """f'''."""
    raise TypeError


@generic(options=SCALAR)
@declared
def third_supremum(family: Any, y: float) -> float:
    """sup |f'''| over all eta; infinite if there is none."""
    raise TypeError


@generic(options=SCALAR)
@declared
def third_supremum_on(family: Any, y: float, low: float, high: float) -> float:
    """sup |f'''| over eta in [low, high]."""
    raise TypeError


@generic(options=SCALAR)
def slope_supremum(family: Any, y: float) -> float:
    """sup |f'| over all eta; infinite, unless a family says otherwise."""
    return np.inf


@generic(options=SCALAR)
def curvature_supremum(family: Any, y: float) -> float:
    """sup |f''| over all eta; infinite, unless a family says otherwise."""
    return np.inf


@generic(options=SCALAR)
def residual(family: Any, eta: float, y: float, shift: float) -> float:
    """f(eta + shift) minus its second-order Taylor expansion at eta; families override it to avoid cancellation."""
    f, slope, curvature = jet2(family, eta, y)
    return value(family, eta + shift, y) - (f + shift * (slope + 0.5 * curvature * shift))


@inlinable(options=SCALAR)
def slope_residual(family: Any, eta: float, y: float, shift: float) -> float:
    """f'(eta + shift) - f'(eta) - f''(eta) shift."""
    _, slope, curvature = jet2(family, eta, y)
    return jet1(family, eta + shift, y)[1] - slope - curvature * shift

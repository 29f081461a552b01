"""Certified bounds on the gradient that a second-order Taylor proxy leaves out, for processes that move in continuous time.

In whitened coordinates the gradient of a row's residual is c_i = rho_i'(s_i) a_i, and |rho_i'(s)| <= m_i s^2 / 2 with
s_i = a_i . w, so that |c_i| <= 3 lambda_i |w|^2 with lambda_i = m_i |a_i|^3 / 6: the weights of the tables of bound T6. Where a
family is self-concordant, |rho_i'(s)| <= |f_i''*| psi(S) s^2 / 2 for |s| <= S gives the same with the weights of T9, for |w|
up to a `reach`. The centred constant of softmax serves as well, its third derivative being bounded as a form, and so do the
weights of T10, within its radii.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.bounds.interval import Ranged
from tallbayes.bounds.pair_functions import OVERFLOW, psi
from tallbayes.bounds.streamed import StreamedClasses, StreamedSeparable
from tallbayes.bounds.tables import Classed, Separable, Zero
from tallbayes.compile import declared, generic


@generic
@declared
def slope_rate(bound: Any, reach: float, rates: np.ndarray) -> float:
    """Sum of lambda_i for |w| <= reach; `rates` receives what `draw_row` needs to draw a row in proportion to it."""
    raise TypeError


@slope_rate.register(Zero)
def _zero(bound: Zero, reach: float, rates: np.ndarray) -> float:
    return 0.0


@slope_rate.register(Separable)
def _separable(bound: Separable, reach: float, rates: np.ndarray) -> float:
    rates[0] = 1.0
    return bound.table.cumulative[-1]


@slope_rate.register(Ranged)
def _ranged(bound: Ranged, reach: float, rates: np.ndarray) -> float:
    rates[0] = 1.0
    if reach <= bound.radius[0]:
        rates[1] = 0.0
        return bound.near.cumulative[-1]
    if reach <= bound.radius[1]:
        rates[1] = 1.0
        return bound.far.cumulative[-1]
    rates[1] = 2.0
    return bound.globally.cumulative[-1] if bound.bounded else np.inf


@slope_rate.register(Classed)
def _classed(bound: Classed, reach: float, rates: np.ndarray) -> float:
    total = 0.0
    for k in range(bound.radius.size):
        first, last = bound.chunk[k], bound.chunk[k + 1]
        steps = bound.radius[k] * reach
        rate, factor = np.inf, -1.0
        if steps <= OVERFLOW:
            growth = psi(steps)
            rate, factor = (bound.local.cumulative[last] - bound.local.cumulative[first]) * growth, growth
        if bound.bounded:
            everywhere = bound.globally.cumulative[last] - bound.globally.cumulative[first]
            if everywhere < rate:
                rate, factor = everywhere, -1.0
        rates[2 * k], rates[2 * k + 1] = rate, factor
        total += rate
    return total


@slope_rate.register(StreamedSeparable)
def _streamed(bound: StreamedSeparable, reach: float, rates: np.ndarray) -> float:
    rates[0] = 1.0
    return bound.total


@slope_rate.register(StreamedClasses)
def _streamed_classes(bound: StreamedClasses, reach: float, rates: np.ndarray) -> float:
    total = 0.0
    for k in range(bound.radius.size):
        steps = bound.radius[k] * reach
        rate, factor = np.inf, -1.0
        if steps <= OVERFLOW:
            growth = psi(steps)
            rate, factor = bound.local[k] * growth, growth
        if bound.bounded and bound.globally[k] < rate:
            rate, factor = bound.globally[k], -1.0
        rates[2 * k], rates[2 * k + 1] = rate, factor
        total += rate
    return total

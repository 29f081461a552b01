"""A certified bound of what third-order proxies leave out of a pair of positions near the reference.

With f the log-likelihood of a row in its predictor, the third-order residual rho has |rho'(v)| <= m |v|^3 / 6, m the supremum of |f''''| on
the way. Hence |rho(s') - rho(s)| <= m / 24 |s'|s'|^3 - s|s|^3|, and lambda_i = m_i / 24 |a_i|^4 g4(w, w') with g4 the largest such
difference of projections of the pair on a unit vector (`pair_functions.quartic`). Where |f''''| <= |f''| and f'' grows at most like e^|v|,
m_i is |f''_i*| psi4(|a_i| max(|w|, |w'|)), or the supremum of |f''''| everywhere if that is less. Rows are in classes of |a_i| as in T9. A
pair with an end further away than `reach` has the second-order bound `far`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import classed_tables
from tallbayes.bounds.pair_functions import OVERFLOW, norm, psi4, quartic
from tallbayes.bounds.tables import Classed, draw_row, rate_count, row_rate, total_rate
from tallbayes.engine import passes
from tallbayes.mode.laplace import Mode


class FourthOrder(NamedTuple):
    """Tables of |f''*| |a|^4 / 24 and sup |f''''| |a|^4 / 24, and the bound of pairs beyond `reach`."""

    near: Classed
    far: Any
    reach: float


@rate_count.register(FourthOrder)
def _count(bound: FourthOrder) -> int:
    return max(rate_count(bound.near), rate_count(bound.far)) + 1


@total_rate.register(FourthOrder)
def _total(bound: FourthOrder, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    reach, near = max(norm(white), norm(other)), bound.near
    if reach > bound.reach:
        rates[-1] = 1.0
        return total_rate(bound.far, white, other, rates)
    rates[-1] = 0.0
    g, total = quartic(white, other), 0.0
    for k in range(near.radius.size):
        first, last = near.chunk[k], near.chunk[k + 1]
        steps = near.radius[k] * reach
        rate, factor = np.inf, -1.0
        if steps <= OVERFLOW:
            factor = psi4(steps) * g
            rate = (near.local.cumulative[last] - near.local.cumulative[first]) * factor
        if near.bounded:
            everywhere = (near.globally.cumulative[last] - near.globally.cumulative[first]) * g
            if everywhere < rate:
                rate, factor = everywhere, -g
        if g == 0.0:
            rate, factor = 0.0, 0.0
        rates[2 * k], rates[2 * k + 1] = rate, factor
        total += rate
    return total


@draw_row.register(FourthOrder)
def _draw(rng: np.random.Generator, bound: FourthOrder, rates: np.ndarray, total: float) -> tuple[int, float]:
    if rates[-1] > 0.0:
        return draw_row(rng, bound.far, rates, total)
    return draw_row(rng, bound.near, rates, total)


@row_rate.register(FourthOrder)
def _row(bound: FourthOrder, rates: np.ndarray, row: int) -> float:
    return row_rate(bound.far, rates, row) if rates[-1] > 0.0 else row_rate(bound.near, rates, row)


def fourth_order(mode: Mode, far: Any, reach: float, indexed: bool = False) -> FourthOrder:
    """The bound over all rows of a model, one more pass; `far` is its second-order bound."""
    model = mode.model
    folder: Path | None = None if model.data.store is None else model.data.store.parent
    supremum = model.family.fourth_supremum

    def weights(start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        norms, curvature, _ = passes.survey(model.rows, start, stop, mode.factor, mode.reference)
        weight = passes.block(model.rows, start, stop)[3]
        size = norms**4 / 24.0
        return norms, curvature * size, np.full(stop - start, np.inf) if supremum is None else supremum * weight * size

    return FourthOrder(classed_tables(model.data.n, weights, folder, indexed), far, reach)

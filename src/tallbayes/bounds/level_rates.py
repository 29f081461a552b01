"""Certified bounds of what the surrogate of a hierarchical model leaves out, as sums of a few products that add up level by level.

With v = x . delta, e = z . eps, u = v + e and rho = f - f* - f' u - f'' u^2/2 - f''' (v e^2/2 + e^3/6), |f'''| <= M3, |f''''| <= M4:

    |d rho/dv| <= M3 (v^2/2 + |v e|) + M4 |e|^3/6,      |d rho/de| <= M3 v^2/2 + M4 (|v| e^2/2 + |e|^3/6).

Along a segment |v| <= a |omega| and |e| <= zeta |nu|, a = |F' x| and zeta = |L^-1 z|, so every bound is a sum of the products
a^3, a^2 zeta, a zeta^3, zeta^4, each times M3 of the row, with factors that are the same for all rows of a level. Self-concordant
families without suprema use |f''*| instead of M3 and the exponential bound, V and E the largest |v| and |e| of the level, U = V + E:

    |d rho/dv| <= |f''*| (e^U - 1 - U - E^2/2),      |d rho/de| <= |f''*| (e^U - 1 - U - V E - E^2/2).

All bounds are symmetric in their two ends.
"""

from __future__ import annotations

import math
from typing import Any

from tallbayes.compile import inlinable
from tallbayes.engine.arithmetic import exp, exp_remainder
from tallbayes.errors import ModelError
from tallbayes.model import Model

PRODUCTS = 4  # a^3, a^2 zeta, a zeta^3, zeta^4; the exponential bound uses the last two as a and zeta


def proven_bounds(model: Model) -> tuple[float | None, bool]:
    """Supremum of the fourth derivative over that of the third, None where there are none, and whether the exponential bound holds.

    A family with neither is refused.
    """
    family = model.family
    ratio, exponential = family.fourth_ratio(model.member), family.self_concordant and family.fourth_concordant()
    if ratio is None and not exponential:
        raise ModelError(
            f"minibatch-gibbs needs a bound on the fourth derivative, which is not known for this {family.name} model; use 'nuts'."
        )
    return ratio, exponential


@inlinable
def product(exponential: bool, k: int, load: float, a: float, zeta: float) -> float:
    """Product k of a row, times its load: M3 or |f''*|, weight included."""
    if exponential:
        return 0.0 if k < 2 else load * a if k == 2 else load * zeta
    if k == 0:
        return load * a * a * a
    if k == 1:
        return load * a * a * zeta
    if k == 2:
        return load * a * zeta * zeta * zeta
    return load * zeta * zeta * zeta * zeta


@inlinable
def coefficient_factors(
    exponential: bool,
    ratio: float,
    distance: float,
    square: float,
    radius: float,
    effect: float,
    most_norm: float,
    most_zeta: float,
) -> tuple[float, float, float, float]:
    """Factors of the products for a move of the coefficients, level effects held fixed.

    `distance` = |omega' - omega|, `square` the mean of |omega|^2 along the segment, `radius` the larger end, `effect` = |nu|; then the
    largest a and zeta of the level.
    """
    if exponential:
        widest, effects = most_norm * radius, most_zeta * effect
        reach = exp_remainder(widest + effects) + 0.5 * widest * (widest + 2.0 * effects)
        return 0.0, 0.0, distance * reach, 0.0
    cubic = distance * ratio * effect * effect * effect / 6.0
    return 0.5 * distance * square, distance * math.sqrt(square) * effect, cubic, 0.0


@inlinable
def _exponential_integral(widest: float, t: float) -> float:
    """The integral from 0 to t of e^(V + |s|) - 1 - (V + |s|) - V|s| - s^2/2, odd in t, without cancellation."""
    s = abs(t)
    start = exp_remainder(widest) + 0.5 * widest * widest
    cubic = s * s * s / 6.0
    value = start * (s + 0.5 * s * s) + (exp(widest) - 1.0) * cubic + exp(widest) * max(exp_remainder(s) - cubic, 0.0)
    return value if t >= 0.0 else -value


@inlinable
def effect_factors(
    exponential: bool, ratio: float, radius: float, before: float, after: float, most_norm: float, most_zeta: float
) -> tuple[float, float, float, float]:
    """Factors of the products for a move of the one effect of a level from eps = `before` to `after`, zeta = |z|."""
    if exponential:
        widest = most_norm * radius
        if not most_zeta > 0.0:
            return 0.0, 0.0, 0.0, 0.0
        gap = _exponential_integral(widest, most_zeta * after) - _exponential_integral(widest, most_zeta * before)
        return 0.0, 0.0, 0.0, abs(gap) / most_zeta
    cubes = abs(after * after * after - before * before * before)
    fourth = after * after * after * abs(after) - before * before * before * abs(before)
    return 0.0, 0.5 * radius * radius * abs(after - before), ratio * radius * cubes / 6.0, ratio * abs(fourth) / 24.0


@inlinable
def effects_factors(
    exponential: bool,
    ratio: float,
    radius: float,
    first: float,
    inner: float,
    second: float,
    most_norm: float,
    most_zeta: float,
) -> tuple[float, float, Any, float]:
    """The same for several effects: `first`, `second` = |nu|^2 at the ends and `inner` their product, zeta = |L^-1 z|."""
    gap = max(first - 2.0 * inner + second, 0.0)
    distance = math.sqrt(gap)
    if exponential:
        widest, effect = most_norm * radius, most_zeta * math.sqrt(max(first, second))
        return 0.0, 0.0, 0.0, distance * (exp_remainder(widest + effect) + 0.5 * widest * widest)
    square = max((first + inner + second) / 3.0, 0.0)
    slope = inner - first
    fourth = (
        first * first + 2.0 * first * slope + (4.0 * slope * slope + 2.0 * first * gap) / 3.0 + slope * gap + gap * gap / 5.0
    )
    quartic = distance * ratio * math.sqrt(square * max(fourth, 0.0)) / 6.0
    return 0.0, 0.5 * distance * radius * radius, 0.5 * distance * ratio * radius * square, quartic

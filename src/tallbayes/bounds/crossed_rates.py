"""Certified bounds for several factors: what the surrogate leaves out of a row with v = x . delta and e_k = z_k . eps_k.

A move of factor k treats the other factors as a known shift s of the level and the rest t = sum_{l != k} e_l - s. With p = v + s,
w = |p| + |t|, |f''*|, M3, M4 and rho the log-likelihood less f' e + f'' (p e + e^2/2) + f''' (p e^2/2 + e^3/6):

    |d rho/de| <= |f''* t| + M3 (|t e| + w^2/2) + M4 (w e^2/2 + |e|^3/6).

A move of the coefficients with E = sum_k e_k = s + sum_k d_k leaves out the products d_k d_l of different factors:

    |d rho/dv| <= M3 (v^2/2 + |v E| + sum_{k<l} |d_k d_l|) + M4 |E|^3/6.

Self-concordant families without suprema: |f''*| times |t| + R(w + |e|) + w^2/2 + |t e|, and times R(|v| + |E|) + v^2/2 + |v E| +
sum |d_k d_l|, R(u) = e^u - 1 - u - u^2/2. With |v| <= a |omega|, |e_k| <= zeta |nu| and B^2 = (sum of the other zetas)^2 + sigma^2
every bound is at most a sum of seven products of a, zeta and B, which add up level by level; a candidate row is then kept with the
probability that its own bound has of that sum. All bounds are symmetric in their two ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.engine.arithmetic import exp_remainder

PARTS = 7


@inlinable
def effect_products(
    exponential: bool, curve: float, load: float, a: float, zeta: float, others: float, out: np.ndarray
) -> None:
    """Products of a row for moves of the level of one factor; `curve` = w |f''*|, `load` = w M3."""
    out[0] = curve * zeta * others
    if exponential:
        out[1] = curve * zeta
        for k in range(2, 7):
            out[k] = 0.0
        return
    out[1] = load * a * a * zeta
    out[2] = load * others * others * zeta
    out[3] = load * others * zeta * zeta
    out[4] = load * a * zeta * zeta * zeta
    out[5] = load * others * zeta * zeta * zeta
    out[6] = load * zeta * zeta * zeta * zeta


@inlinable
def slope_products(exponential: bool, curve: float, load: float, a: float, zeta: float, others: float, out: np.ndarray) -> None:
    """Products of a row for moves of the coefficients."""
    if exponential:
        out[0] = curve * a
        for k in range(1, 7):
            out[k] = 0.0
        return
    out[0] = load * a * a * a
    out[1] = load * a * a * zeta
    out[2] = load * a * a * others
    out[3] = load * a * zeta * zeta * zeta
    out[4] = load * a * others * others * others
    out[5] = load * a * zeta * others
    out[6] = load * a * others * others


@inlinable
def segment_moments(first: float, inner: float, second: float) -> tuple[float, float, float, float]:
    """Length of the segment from nu to nu', then bounds of the means of |nu|, |nu|^2 and |nu|^3 along it, from products of the ends."""
    gap = max(first - 2.0 * inner + second, 0.0)
    square = max((first + inner + second) / 3.0, 0.0)
    slope = inner - first
    fourth = (
        first * first + 2.0 * first * slope + (4.0 * slope * slope + 2.0 * first * gap) / 3.0 + slope * gap + gap * gap / 5.0
    )
    return math.sqrt(gap), math.sqrt(square), square, math.sqrt(square * max(fourth, 0.0))


@inlinable
def crossed_effect_factors(
    exponential: bool,
    ratio: float,
    radius: float,
    rest: float,
    shift: float,
    moments: Any,
    furthest: float,
    most: np.ndarray,
    out: np.ndarray,
) -> None:
    """Factors of `effect_products` for a move of one level.

    |t| <= B `rest` and |s| <= B `shift`; `furthest` the larger |nu|; `most` the largest a, zeta and B of the level.
    """
    distance, mean, square, cubic = moments
    whole = rest + shift
    for k in range(7):
        out[k] = 0.0
    out[0] = distance * rest
    if exponential:
        widest, effect = most[0] * radius + most[2] * whole, most[1] * furthest
        out[1] = distance * (exp_remainder(widest + effect) + 0.5 * widest * widest + most[2] * rest * effect)
        return
    out[1] = distance * radius * radius
    out[2] = distance * whole * whole
    out[3] = distance * rest * mean
    out[4] = 0.5 * distance * ratio * radius * square
    out[5] = 0.5 * distance * ratio * whole * square
    out[6] = distance * ratio * cubic / 6.0


@inlinable
def row_effect_bound(
    exponential: bool,
    ratio: float,
    curve: float,
    load: float,
    a: float,
    zeta: float,
    radius: float,
    rest: float,
    shift: float,
    moments: Any,
    furthest: float,
) -> float:
    """The bound of one row, `rest` = |t| and `shift` = |s| its own."""
    distance, mean, square, cubic = moments
    width = a * radius + shift + rest
    if exponential:
        effect = zeta * furthest
        return curve * zeta * distance * (rest + exp_remainder(width + effect) + 0.5 * width * width + rest * effect)
    inner = zeta * rest * mean + 0.5 * width * width
    inner += ratio * zeta * zeta * (0.5 * width * square + zeta * cubic / 6.0)
    return distance * zeta * (curve * rest + load * inner)


@inlinable
def crossed_slope_factors(
    exponential: bool,
    ratio: float,
    distance: float,
    square: float,
    radius: float,
    effect: float,
    rest: float,
    shift: float,
    pairs: bool,
    most: np.ndarray,
    out: np.ndarray,
) -> None:
    """Factors of `slope_products`: `square` the mean of |omega|^2 along the segment, `radius` its larger end, `effect` = |nu| of the level,
    the other factors |d| <= B `rest`, and |s| <= B `shift`; `pairs` where there are two or more other factors."""
    whole = rest + shift
    for k in range(7):
        out[k] = 0.0
    if exponential:
        widest, own, others = most[0] * radius, most[1] * effect, most[2] * rest
        total = own + most[2] * whole
        product = own * others + (0.5 * others * others if pairs else 0.0)
        out[0] = distance * (exp_remainder(widest + total) + 0.5 * widest * widest + widest * total + product)
        return
    mean = math.sqrt(square)
    out[0] = 0.5 * distance * square
    out[1] = distance * mean * effect
    out[2] = distance * mean * whole
    out[3] = distance * ratio * 4.0 * effect * effect * effect / 6.0
    out[4] = distance * ratio * 4.0 * whole * whole * whole / 6.0
    out[5] = distance * effect * rest
    out[6] = 0.5 * distance * rest * rest if pairs else 0.0


@inlinable
def row_slope_bound(
    exponential: bool,
    ratio: float,
    curve: float,
    load: float,
    a: float,
    distance: float,
    square: float,
    radius: float,
    total: float,
    products: float,
) -> float:
    """The bound of one row, `total` = |E| and `products` = sum of |d_k d_l| its own."""
    if exponential:
        widest = a * radius
        return curve * a * distance * (exp_remainder(widest + total) + 0.5 * widest * widest + widest * total + products)
    cubic = ratio * total * total * total / 6.0
    return load * a * distance * (0.5 * a * a * square + a * math.sqrt(square) * total + products + cubic)

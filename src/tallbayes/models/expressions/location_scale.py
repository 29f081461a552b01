"""A certificate for two indices: a law of location and scale, f(eta, tau) = h(e) + k tau with e = (eta - y) e^-tau.

Its third derivatives are functions of e alone, times a power of e^-tau:

    f_eta,eta,eta = e^-3tau G_0,    G_0 = h''',
    f_eta,eta,tau = -e^-2tau G_1,   G_1 = 2 h'' + e h''',
    f_eta,tau,tau = e^-tau G_2,     G_2 = h' + 3 e h'' + e^2 h''',
    f_tau,tau,tau = -G_3,           G_3 = e h' + 3 e^2 h'' + e^3 h'''.

So one table over e serves all rows. On a cell with midpoint c and half-width r

    |G| <= |G(c)| + r |G'(c)| + r^2 / 2 sup |G''|,

every term a ball of Arb, the last over the whole cell; cells that are neither tight nor small are halved. Beyond the table
nothing is known, and the bound is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from flint import arb

from tallbayes.models.expressions.balls import BallProgram, arithmetic, ball, lower, upper
from tallbayes.models.expressions.grammar import ETA, LOG_SCALE, Y

_DISTANCE = sp.Symbol("distance", real=True)
_ROUNDING = 1.0 + 1e-12  # of the arithmetic on entries of the table
_TIGHT, _DEEPEST = 0.02, 5
_SMALL = 1e-3  # share of the largest |G| below which a cell need not be tight
_CORE = 8.0  # |e| up to which every bound must be finite


def is_location_scale(expression: Any) -> bool:
    """Whether an expression is h((eta - y) / exp(log_scale)) + k log_scale.

    >>> is_location_scale(-LOG_SCALE - (Y - ETA) ** 2 * sp.exp(-2 * LOG_SCALE))
    True
    >>> is_location_scale(-LOG_SCALE - (Y - ETA) ** 2 * sp.exp(-LOG_SCALE))
    False
    """
    moved = sp.expand(expression.subs(Y, ETA - _DISTANCE * sp.exp(LOG_SCALE)))
    slope = sp.simplify(sp.diff(moved, LOG_SCALE))
    return not moved.has(ETA) and not slope.has(LOG_SCALE, _DISTANCE)


@dataclass(frozen=True)
class ScaleCertificate:
    """Proven suprema of |G_0| .. |G_3| on intervals of e = (eta - y) / exp(log_scale)."""

    edges: np.ndarray
    table: np.ndarray  # (4, edges + 1); the first and last are beyond the table, and infinite

    @cached_property
    def _levels(self) -> list[np.ndarray]:
        """Maxima over 1, 2, 4, .. neighbouring intervals."""
        levels = [self.table]
        while 2 ** len(levels) <= self.table.shape[1]:
            half = 2 ** (len(levels) - 1)
            levels.append(np.maximum(levels[-1][:, :-half], levels[-1][:, half:]))
        return levels

    def suprema(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """sup |G_k| over e in [low, high], of shape (4, intervals): the largest of the cells an interval meets."""
        first = np.searchsorted(self.edges, low, side="right")
        last = np.maximum(np.searchsorted(self.edges, high, side="left"), first)
        level = np.floor(np.log2(last - first + 1.0)).astype(int)
        out = np.empty((4, first.size))
        for k in np.unique(level):
            at = np.flatnonzero(level == k)
            widest = self._levels[k]
            out[:, at] = np.maximum(widest[:, first[at]], widest[:, last[at] + 1 - 2**k])
        return out

    def third_bounds(
        self,
        eta: np.ndarray,
        y: np.ndarray,
        log_scale: float,
        reach: np.ndarray,
        scale_reach: float,
        length: np.ndarray,
        scale_length: float,
    ) -> np.ndarray:
        """Bounds of the third derivative of each row along any line on which eta has speed at most `length` and log_scale
        at most `scale_length`, at all points within `reach` of eta and within `scale_reach` of log_scale."""
        slack = 1e-12 * (np.abs(eta) + np.abs(y) + reach)
        ends = np.stack([eta - y - reach - slack, eta - y + reach + slack])
        with np.errstate(over="ignore"):
            largest = np.exp(scale_reach - log_scale) * _ROUNDING
            smallest = np.exp(-scale_reach - log_scale) / _ROUNDING
        ends_of_box = np.stack([ends[0] * largest, ends[0] * smallest, ends[1] * largest, ends[1] * smallest])
        sup = self.suprema(ends_of_box.min(0), ends_of_box.max(0))
        speed = length * largest
        total = speed**3 * sup[0] + 3.0 * speed**2 * scale_length * sup[1]
        return (total + 3.0 * speed * scale_length**2 * sup[2] + scale_length**3 * sup[3]) * _ROUNDING

    def __str__(self) -> str:
        reach = self.edges[np.flatnonzero(np.isfinite(self.table[:, 1:-1]).all(0))[-1] + 1]
        return (
            "third derivatives in eta and log_scale, a law of (y - eta)/exp(log_scale): table for distances up to "
            f"{reach:.3g} scales"
        )


def certify_scale(stable: Any, original: Any, constants: Mapping[str, float]) -> ScaleCertificate | None:
    """The certificate of a location-scale law; None if the expression is none, or not proven smooth near its centre.

    >>> law = -LOG_SCALE - ((Y - ETA) / sp.exp(LOG_SCALE)) ** 2 / 2
    >>> certificate = certify_scale(law, law, {})
    >>> certificate.suprema(np.array([-1.0]), np.array([2.0]))[3].round(0)  # G_3 = -4 e^2
    array([17.])
    """
    if not is_location_scale(original):
        return None
    steps = np.arange(-480, 481) / 16.0
    edges = 1e-3 * np.sinh(steps)
    program = BallProgram(stable.subs({Y: 0, LOG_SCALE: 0}), constants)
    table = np.full((4, edges.size + 1), np.inf)
    with arithmetic():
        centre = [_size(program, float(e)) for e in edges[(np.abs(edges) < _CORE)][::4]]
        floor = _SMALL * np.max(centre, axis=0)
        for k, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            table[:, k + 1] = _cell(program, low, high, floor, _DEEPEST if max(low, -high) < 32.0 else 1)
    near = np.flatnonzero((edges[1:] > -_CORE) & (edges[:-1] < _CORE)) + 1
    if not np.isfinite(table[:, near]).all():
        return None
    return ScaleCertificate(edges, table * _ROUNDING)


def _cell(program: BallProgram, low: float, high: float, floor: np.ndarray, depth: int) -> np.ndarray:
    middle = 0.5 * low + 0.5 * high
    radius = arb(max(math.nextafter(high - middle, math.inf), math.nextafter(middle - low, math.inf)))
    whole = ball(low, high)
    point, slope, _ = _forms(_derivatives(program, arb(middle)), arb(middle))
    second = _forms(_derivatives(program, whole), whole)[2]
    above = np.array(
        [upper(abs(g) + radius * abs(s) + radius * radius * abs(c) / 2) for g, s, c in zip(point, slope, second, strict=True)]
    )
    if depth == 0 or not low < middle < high or (above <= floor).all():
        return above
    below = np.max([[lower(g) for g in point], _size(program, low), _size(program, high)], axis=0)
    with np.errstate(over="ignore"):
        if (above <= np.maximum((1.0 + _TIGHT) * below, floor)).all():
            return above
    return np.maximum(_cell(program, low, middle, floor, depth - 1), _cell(program, middle, high, floor, depth - 1))


def _size(program: BallProgram, e: float) -> list[float]:
    """Lower bounds of |G_0| .. |G_3| at a point."""
    return [lower(g) for g in _forms(_derivatives(program, arb(e)), arb(e))[0]]


def _derivatives(program: BallProgram, e: Any) -> list[Any]:
    """h', h'', .. up to the fifth, as balls."""
    series = program.series(e, arb(0))
    return [series[k] * math.factorial(k) for k in range(6)]


def _forms(h: list[Any], e: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """G_0 .. G_3 and their first and second derivatives in e."""
    _, h1, h2, h3, h4, h5 = h
    return (
        [h3, 2 * h2 + e * h3, h1 + e * (3 * h2 + e * h3), e * (h1 + e * (3 * h2 + e * h3))],
        [h4, 3 * h3 + e * h4, 4 * h2 + e * (5 * h3 + e * h4), h1 + e * (7 * h2 + e * (6 * h3 + e * h4))],
        [h5, 4 * h4 + e * h5, 9 * h3 + e * (7 * h4 + e * h5), 8 * h2 + e * (19 * h3 + e * (9 * h4 + e * h5))],
    )

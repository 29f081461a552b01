"""Certified bounds as samplers are compiled for them: one type, whose functions are behind addresses.

A certificate of `tables`, `interval`, `user_given`, `fourth_order`, `uniform_ranges` or `streamed` is a NamedTuple of its own, and
registers with `total_rate`, `draw_row` and so on. `bound_of` turns it into a `Bound`, which registers with the same functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.bounds.slopes import slope_rate
from tallbayes.bounds.tables import draw_candidates, draw_row, rate_count, total_rate
from tallbayes.bounds.uniform_ranges import LOWEST, PublishedGamma, gap_range, moved, reference_passes, reference_scale
from tallbayes.compile import STRICT, inlinable
from tallbayes.engine.survey import range_lowest
from tallbayes.pointers import GENERATOR, Kind, calls, kind_of, member_maker, member_of, member_pointer, numbers_of

TOTAL, DRAW, SLOPE, RANGE = "total", "draw", "slope", "range"
"""What a sampler may ask of a bound: the sum of all rates, candidate rows, rates along a path, the range of all rows."""

_numbers, _index, _number, _whole = (
    types.Array(types.float64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.float64,
    types.int64,
)
SIGNATURES = {  # of the numbers p of a certificate, and
    TOTAL: _number(_numbers, _numbers, _numbers, _numbers),  # white, other, rates
    DRAW: _whole(_numbers, GENERATOR, _numbers, _number, _index, _numbers),  # rng, rates, total, index, limits: rows drawn
    SLOPE: _number(_numbers, _number, _numbers),  # reach, rates
    RANGE: _whole(
        _numbers, _numbers, _whole, _numbers, _numbers, _numbers, _numbers, _numbers
    ),  # as `gap_range`, and its two ends
}
_call_total, _call_draw, _call_slope, _call_range = (calls(SIGNATURES[verb]) for verb in (TOTAL, DRAW, SLOPE, RANGE))


class Bound(NamedTuple):
    """Addresses of what a sampler asks of a bound, and its numbers. What was not asked for is 0: then nothing is known of the rows."""

    total: int
    draw: int
    slope: int
    range: int
    lowest: int  # which of the numbers depends on the reference; -1 if none
    rates: int  # how many numbers `total_rate` leaves for `draw_row`
    numbers: np.ndarray

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        return bound_of, (certificate_of(self), self.asked)

    @property
    def asked(self) -> tuple[str, ...]:
        """What it was made for."""
        return tuple(verb for verb in SIGNATURES if getattr(self, verb) != 0)


def bound_of(certificate: Any, asked: tuple[str, ...] = (TOTAL, DRAW)) -> Bound:
    """A certificate as one type, with what is asked of it.

    >>> from tallbayes.bounds.tables import NoBound
    >>> bound = bound_of(NoBound())
    >>> total_rate(bound, np.zeros(2), np.ones(2), np.zeros(bound.rates))
    inf
    """
    kind = kind_of(certificate)
    addresses = {verb: _address(kind, verb) if verb in asked else 0 for verb in SIGNATURES}
    lowest = LOWEST if isinstance(certificate, PublishedGamma) else -1
    return Bound(**addresses, lowest=lowest, rates=int(rate_count(certificate)), numbers=numbers_of(certificate))


def certificate_of(bound: Any) -> Any:
    """The certificate that a bound was made of."""
    return member_of(bound.numbers, _KINDS[_first(bound)]) if isinstance(bound, Bound) else bound


_KINDS: dict[int, Kind] = {}  # of certificates, by the address of any of their functions


def _first(bound: Bound) -> int:
    return next(getattr(bound, verb) for verb in SIGNATURES if getattr(bound, verb) != 0)


@functools.cache
def _address(kind: Kind, verb: str) -> int:
    address = member_pointer(_MAKERS[verb](member_maker(kind)), f"bound {verb}", kind, SIGNATURES[verb], options=STRICT)
    _KINDS[address] = kind
    return address


def _total(member: Callable[..., Any]) -> Callable[..., Any]:
    def total(p: np.ndarray, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
        return total_rate(member(p), white, other, rates)

    return total


def _draw(member: Callable[..., Any]) -> Callable[..., Any]:
    def draw(
        p: np.ndarray, rng: np.random.Generator, rates: np.ndarray, total: float, index: np.ndarray, limits: np.ndarray
    ) -> int:
        return draw_candidates(rng, member(p), rates, total, index, limits)

    return draw


def _slope(member: Callable[..., Any]) -> Callable[..., Any]:
    def slope(p: np.ndarray, reach: float, rates: np.ndarray) -> float:
        return slope_rate(member(p), reach, rates)

    return slope


def _range(member: Callable[..., Any]) -> Callable[..., Any]:
    def limits(
        p: np.ndarray,
        reference: np.ndarray,
        order: int,
        theta: np.ndarray,
        other: np.ndarray,
        white: np.ndarray,
        other_white: np.ndarray,
        out: np.ndarray,
    ) -> int:
        out[0], out[1] = gap_range(member(p), reference, order, theta, other, white, other_white)
        return 0

    return limits


_MAKERS = {TOTAL: _total, DRAW: _draw, SLOPE: _slope, RANGE: _range}


@rate_count.register(Bound)
def _bound_count(bound: Bound) -> int:
    return bound.rates


@total_rate.register(Bound)
def _bound_total(bound: Bound, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    return _call_total(bound.total, bound.numbers, white, other, rates) if bound.total != 0 else np.inf


@draw_candidates.register(Bound)
@inlinable
def _bound_candidates(
    rng: np.random.Generator, bound: Bound, rates: np.ndarray, total: float, index: np.ndarray, limits: np.ndarray
) -> int:
    return _call_draw(bound.draw, bound.numbers, rng, rates, total, index, limits) if bound.draw != 0 else 0


@draw_row.register(Bound)
def _bound_row(rng: np.random.Generator, bound: Bound, rates: np.ndarray, total: float) -> tuple[int, float]:
    index, limits = np.empty(1, np.int64), np.empty(1)
    if _bound_candidates(rng, bound, rates, total, index, limits) == 0:
        return -1, 0.0
    return index[0], limits[0]


@slope_rate.register(Bound)
def _bound_slope(bound: Bound, reach: float, rates: np.ndarray) -> float:
    return _call_slope(bound.slope, bound.numbers, reach, rates) if bound.slope != 0 else np.inf


@gap_range.register(Bound)
def _bound_range(
    bound: Bound,
    reference: np.ndarray,
    order: int,
    theta: np.ndarray,
    other: np.ndarray,
    white: np.ndarray,
    other_white: np.ndarray,
) -> tuple[float, float]:
    out = np.array([-np.inf, np.inf])
    if bound.range != 0:
        _call_range(bound.range, bound.numbers, reference, order, theta, other, white, other_white, out)
    return out[0], out[1]


@moved.register(Bound)
def _bound_moved(bound: Bound, scale: float) -> Bound:
    numbers = bound.numbers
    if bound.lowest >= 0:
        numbers = numbers.copy()  # its arrays are held by those of the target
        numbers[bound.lowest] = scale
    return Bound(bound.total, bound.draw, bound.slope, bound.range, bound.lowest, bound.rates, numbers)


@reference_passes.register(Bound)
def _bound_passes(bound: Bound) -> int:
    return 1 if bound.lowest >= 0 else 0


@reference_scale.register(Bound)
def _bound_scale(bound: Bound, rows: Any, reference: np.ndarray) -> float:
    return range_lowest(rows, 0, rows.records.shape[0], reference) if bound.lowest >= 0 else 0.0

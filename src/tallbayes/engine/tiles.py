"""The waist: what compiled code knows of a family is a table of addresses. One type for all families, so every caller is compiled once.

A function of the table works on a few rows at once, a tile, in the K indices u of each row: arrays are flat, index after index, so that
index k of row j is u[k size + j], and the second derivative in k and l is h[(k K + l) size + j]. The numbers of a family (a size,
degrees of freedom) are in `p`. Each returns a status, 0 for success; weights are the caller's.

A family says what it knows of one row (`family_functions`, `several_functions`); the loops over a tile are made here, from the type of
the family, and compiled into one function each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.compile import inlinable
from tallbayes.engine.family_functions import (
    curvature_supremum,
    jet1,
    jet2,
    residual,
    slope_residual,
    slope_supremum,
    third,
    third_supremum,
    third_supremum_on,
    value,
)
from tallbayes.engine.several_functions import (
    CURVATURE,
    SLOPE,
    SLOPE_ALONE,
    VALUE,
    tile_jet,
    vector_gradient,
    vector_hessian,
    vector_residual,
    vector_value,
)
from tallbayes.pointers import Kind, calls, member_maker, member_pointer

_numbers, _whole = types.Array(types.float64, 1, "C"), types.int64
JET = _whole(_numbers, _numbers, _numbers, _whole, _whole, _whole, _numbers, _numbers, _numbers)
RESIDUAL = _whole(_numbers, _numbers, _numbers, _numbers, _whole, _whole, _numbers)
SLOPES = _whole(_numbers, _numbers, _numbers, _numbers, _whole, _whole, _whole, _numbers)
THIRD = _whole(_numbers, _numbers, _numbers, _whole, _whole, _numbers)
REACH = _whole(_numbers, _numbers, _numbers, _numbers, _whole, _whole, _whole, _numbers)

call_jet = calls(JET)  # (address, u, y, p, K, size, order, f, g, h)
call_residual = calls(
    RESIDUAL
)  # (address, base, shift, y, p, K, size, out): f(base + shift) less its expansion to second order
call_slope = calls(
    SLOPES
)  # (address, base, shift, y, p, K, size, order, out): f'(base + shift) less its expansion to that order less one
call_third = calls(THIRD)  # (address, u, y, p, K, size, out): third derivatives of one index
call_reach = calls(REACH)  # (address, base, box, y, p, K, size, order, out): suprema of |derivatives| within `box` of `base`


class Tiles(NamedTuple):
    """Addresses of the functions of a family; 0 where it has none."""

    jet: int
    third: int
    residual: int
    slope: int
    reach: int

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        return tiles_of, _KINDS[int(self.jet)]


_KINDS: dict[int, tuple[Any, bool]] = {}  # what each table was made of, by the address of its jet


def tile_pointer(function: Callable[..., Any] | None, verb: str, kind: Kind, signature: Any) -> int:
    """The address of a function over a tile; 0 if there is none."""
    return 0 if function is None else member_pointer(function, verb, kind, signature)


@functools.cache
def tiles_of(kind: Kind, several: bool) -> Tiles:
    """The table of a kind of family, of one index or of several: compiled, or loaded from the cache."""
    functions = _several_tiles(kind) if several else _single_tiles(kind)
    signatures = {"jet": JET, "third": THIRD, "residual": RESIDUAL, "slope": SLOPES, "reach": REACH}
    tiles = Tiles(**{verb: tile_pointer(functions.get(verb), verb, kind, signatures[verb]) for verb in signatures})
    _KINDS[tiles.jet] = kind, several
    return tiles


def _single_tiles(kind: Kind) -> dict[str, Callable[..., Any]]:
    """Loops over a tile of rows with one index."""
    member = member_maker(kind)

    def jet(
        u: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, order: int, f: np.ndarray, g: np.ndarray, h: np.ndarray
    ) -> int:
        family = member(p)
        if order == VALUE:
            for j in range(size):
                f[j] = value(family, u[j], y[j])
        elif order == SLOPE:
            for j in range(size):
                f[j], g[j] = jet1(family, u[j], y[j])
        elif order == CURVATURE:
            for j in range(size):
                f[j], g[j], h[j] = jet2(family, u[j], y[j])
        elif order == SLOPE_ALONE:
            for j in range(size):
                g[j] = jet1(family, u[j], y[j])[1]
        else:
            for j in range(size):
                _, g[j], h[j] = jet2(family, u[j], y[j])
        return 0

    def residuals(base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray) -> int:
        family = member(p)
        for j in range(size):
            out[j] = residual(family, base[j], y[j], shift[j])
        return 0

    def slopes(
        base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, order: int, out: np.ndarray
    ) -> int:
        family = member(p)
        if order == 2:
            for j in range(size):
                out[j] = slope_residual(family, base[j], y[j], shift[j])
        elif order == 1:
            for j in range(size):
                out[j] = jet1(family, base[j] + shift[j], y[j])[1] - jet1(family, base[j], y[j])[1]
        else:
            for j in range(size):
                out[j] = jet1(family, base[j] + shift[j], y[j])[1]
        return 0

    def thirds(u: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray) -> int:
        family = member(p)
        for j in range(size):
            out[j] = third(family, u[j], y[j])
        return 0

    everywhere = third_supremum if kind.type in third_supremum.registry else _unknown
    between = third_supremum_on if kind.type in third_supremum_on.registry else _unknown_on

    def reach(
        base: np.ndarray, box: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, order: int, out: np.ndarray
    ) -> int:
        family = member(p)
        for j in range(size):
            if order == 1:
                out[j] = slope_supremum(family, y[j])
            elif order == 2:
                out[j] = curvature_supremum(family, y[j])
            elif box[j] == np.inf:
                out[j] = everywhere(family, y[j])
            else:
                out[j] = between(family, y[j], base[j] - box[j], base[j] + box[j])
        return 0

    found: dict[str, Callable[..., Any]] = {"jet": jet, "residual": residuals, "slope": slopes, "reach": reach}
    if kind.type in third.registry:
        found["third"] = thirds
    return found


@inlinable
def _unknown(family: Any, y: float) -> float:
    return np.inf


@inlinable
def _unknown_on(family: Any, y: float, low: float, high: float) -> float:
    return np.inf


def _several_tiles(kind: Kind) -> dict[str, Callable[..., Any]]:
    """Loops over a tile of rows with several indices."""
    member = member_maker(kind)

    def whole(
        u: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, order: int, f: np.ndarray, g: np.ndarray, h: np.ndarray
    ) -> int:
        tile_jet(member(p), u, y, k, size, order, f, g, h)
        return 0

    def jet(
        u: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, order: int, f: np.ndarray, g: np.ndarray, h: np.ndarray
    ) -> int:
        family = member(p)
        if order == VALUE:
            for j in range(size):
                f[j] = vector_value(family, u[j : k * size : size], y[j])
        elif order in (SLOPE, SLOPE_ALONE):
            for j in range(size):
                f[j] = vector_gradient(family, u[j : k * size : size], y[j], g[j : k * size : size])
        else:
            second = h[: k * k * size].reshape((k, k, size))
            for j in range(size):
                f[j] = vector_hessian(family, u[j : k * size : size], y[j], g[j : k * size : size], second[:, :, j])
        return 0

    def residuals(base: np.ndarray, shift: np.ndarray, y: np.ndarray, p: np.ndarray, k: int, size: int, out: np.ndarray) -> int:
        family = member(p)
        for j in range(size):
            out[j] = vector_residual(family, base[j : k * size : size], shift[j : k * size : size], y[j])
        return 0

    return {"jet": whole if kind.type in tile_jet.registry else jet, "residual": residuals}

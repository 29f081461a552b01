"""The waist: what compiled code knows of a family is a table of addresses. One type for all families, so every caller is compiled once.

A function of the table works on a few rows at once, a tile, in the K indices u of each row: arrays are flat, row after row, so that
row j has the indices u[j K], .., u[j K + K - 1]. The numbers of a family (a size, degrees of freedom) are in `p`. Each returns a
status, 0 for success; weights are the caller's.

A family says what it knows of one row (`family_functions`, `several_functions`); the loops over a tile are made here, from the type of
the family, and compiled into one function each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tallbayes.compile import SUMS, calls, inlinable, pointer
from tallbayes.engine.family_functions import (
    curvature_supremum,
    jet1,
    jet2,
    residual,
    slope_supremum,
    third,
    third_supremum,
    third_supremum_on,
    value,
)
from tallbayes.engine.several_functions import vector_gradient, vector_hessian, vector_residual, vector_value

VALUE, SLOPE, CURVATURE, SLOPE_ALONE, CURVATURE_ALONE = 0, 1, 2, 3, 4
"""What a jet is asked for: the value, with the gradient, with the Hessian; the gradient alone, gradient and Hessian alone."""

_numbers, _whole = types.Array(types.float64, 1, "C"), types.int64
JET = _whole(_numbers, _numbers, _numbers, _whole, _whole, _whole, _numbers, _numbers, _numbers)
RESIDUAL = _whole(_numbers, _numbers, _numbers, _numbers, _whole, _whole, _numbers)
THIRD = _whole(_numbers, _numbers, _numbers, _whole, _whole, _numbers)
REACH = _whole(_numbers, _numbers, _numbers, _numbers, _whole, _whole, _whole, _numbers)

call_jet = calls(JET)  # (address, u, y, p, K, size, order, f, g, h)
call_residual = calls(RESIDUAL)  # (address, base, shift, y, p, K, size, out): f(base + shift) less its expansion to second order
call_third = calls(THIRD)  # (address, u, y, p, K, size, out): third derivatives of one index
call_reach = calls(REACH)  # (address, base, box, y, p, K, size, order, out): suprema of |derivatives| within `box` of `base`


class Tiles(NamedTuple):
    """Addresses of the functions of a family; 0 where it has none."""

    jet: int
    third: int
    residual: int
    reach: int

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        return tiles_of, _KINDS[self.jet]


_KINDS: dict[int, tuple[Any, bool]] = {}  # what each table was made of, by the address of its jet


class Kind(NamedTuple):
    """The type of a family; `parts` has the type of each field that is a number, the dimensions of an array, the kind of a family inside."""

    type: type
    parts: tuple[Any, ...]


def kind_of(member: Any) -> Kind:
    """The kind of a member of a family: all that its compiled code depends on."""

    def part_of(part: Any) -> Any:
        if isinstance(part, tuple):
            return kind_of(part)
        return part.ndim if isinstance(part, np.ndarray) else type(part)

    return Kind(type(member), tuple(part_of(part) for part in member))


def numbers_of(member: Any) -> np.ndarray:
    """The numbers of a member in the order of its fields; of an array where it begins and its shape, its elements after all fields."""
    fields: list[float] = []
    arrays: list[tuple[int, np.ndarray]] = []

    def collect(part: Any) -> None:
        for value in part:
            if isinstance(value, tuple):
                collect(value)
            elif isinstance(value, np.ndarray):
                arrays.append((len(fields), value))
                fields.extend([0.0, *value.shape])
            else:
                fields.append(float(value))

    collect(member)
    elements: list[float] = []
    for place, value in arrays:
        fields[place] = len(fields) + len(elements)
        elements.extend(value.astype(np.float64).ravel())
    return np.array(fields + elements, np.float64)


def member_maker(kind: Kind) -> Callable[[np.ndarray], Any]:
    """A function that makes the member from its numbers, in Python and in compiled code."""
    names: dict[str, Any] = {}
    place = 0

    def array(dimensions: int) -> str:
        nonlocal place
        shape = [f"int(p[{place + 1 + k}])" for k in range(dimensions)]
        text = f"p[int(p[{place}]):int(p[{place}]) + {' * '.join(shape)}].reshape(({', '.join(shape)},))"
        place += 1 + dimensions
        return text

    def source(kind: Kind) -> str:
        nonlocal place
        name = f"kind{len(names)}"
        names[name] = kind.type
        parts = []
        for part in kind.parts:
            if isinstance(part, Kind):
                parts.append(source(part))
            elif isinstance(part, int):
                parts.append(array(part))
            else:
                parts.append(f"int(p[{place}])" if issubclass(part, int | np.integer) else f"p[{place}]")
                place += 1
        return f"{name}({', '.join(parts)})"

    text = f"def member(p):\n    return {source(kind)}\n"
    exec(compile(text, "<member>", "exec"), names)
    return inlinable(names["member"])


def cache_name(kind: Kind) -> str | None:
    """A name for the code of a kind, the same in every process; None for types from outside the package that have no tag."""
    inside = kind.type.__module__.partition(".")[0] == __name__.partition(".")[0]
    own = getattr(kind.type, "cache_tag", None) if not inside else ""
    parts = [
        cache_name(part) if isinstance(part, Kind) else str(part) if isinstance(part, int) else part.__name__ for part in kind.parts
    ]
    if own is None or None in parts:
        return None
    return f"{kind.type.__module__}.{kind.type.__qualname__}{own}({','.join(str(part) for part in parts)})"


def tile_pointer(function: Callable[..., Any] | None, verb: str, kind: Kind, signature: Any) -> int:
    """The address of a function over a tile; 0 if there is none."""
    if function is None:
        return 0
    name = cache_name(kind)
    return pointer(function, signature, None if name is None else f"{verb} {name}", options=SUMS)


@functools.cache
def tiles_of(kind: Kind, several: bool) -> Tiles:
    """The table of a kind of family, of one index or of several: compiled, or loaded from the cache."""
    functions = _several_tiles(kind) if several else _single_tiles(kind)
    signatures = {"jet": JET, "third": THIRD, "residual": RESIDUAL, "reach": REACH}
    tiles = Tiles(**{verb: tile_pointer(functions.get(verb), verb, kind, signatures[verb]) for verb in signatures})
    _KINDS[tiles.jet] = kind, several
    return tiles


def _single_tiles(kind: Kind) -> dict[str, Callable[..., Any]]:
    """Loops over a tile of rows with one index."""
    member = member_maker(kind)

    def jet(u, y, p, k, size, order, f, g, h):  # type: ignore[no-untyped-def]
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

    def residuals(base, shift, y, p, k, size, out):  # type: ignore[no-untyped-def]
        family = member(p)
        for j in range(size):
            out[j] = residual(family, base[j], y[j], shift[j])
        return 0

    def thirds(u, y, p, k, size, out):  # type: ignore[no-untyped-def]
        family = member(p)
        for j in range(size):
            out[j] = third(family, u[j], y[j])
        return 0

    everywhere = third_supremum if kind.type in third_supremum.registry else _unknown  # type: ignore[attr-defined]
    between = third_supremum_on if kind.type in third_supremum_on.registry else _unknown_on  # type: ignore[attr-defined]

    def reach(base, box, y, p, k, size, order, out):  # type: ignore[no-untyped-def]
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

    found: dict[str, Callable[..., Any]] = {"jet": jet, "residual": residuals, "reach": reach}
    if kind.type in third.registry:  # type: ignore[attr-defined]
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

    def jet(u, y, p, k, size, order, f, g, h):  # type: ignore[no-untyped-def]
        family = member(p)
        for j in range(size):
            at = u[j * k : j * k + k]
            if order == VALUE:
                f[j] = vector_value(family, at, y[j])
            elif order == SLOPE or order == SLOPE_ALONE:
                f[j] = vector_gradient(family, at, y[j], g[j * k : j * k + k])
            else:
                second = h[j * k * k : (j + 1) * k * k].reshape((k, k))
                f[j] = vector_hessian(family, at, y[j], g[j * k : j * k + k], second)
        return 0

    def residuals(base, shift, y, p, k, size, out):  # type: ignore[no-untyped-def]
        family = member(p)
        for j in range(size):
            out[j] = vector_residual(family, base[j * k : j * k + k], shift[j * k : j * k + k], y[j])
        return 0

    return {"jet": jet, "residual": residuals}

"""Scalar functions that LLVM can vectorise, and the prefetch instruction.

Numba from the package index has no vector exp or log, and a call to the scalar one stops vectorisation of a loop. These are
branch-free polynomials, accurate to about one unit in the last place. A conditional expression stays branch-free only if
both of its ends are names or constants: compute first, choose afterwards (measured: 1 ns per row against 15).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from tallbayes.compile import SCALAR, inlinable

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # leading 33 bits of log 2: k * _LN2_HIGH is exact for |k| < 2**20
_LN2_LOW = 1.9082149292705877e-10
_LN2 = 0.6931471805599453
_SQRT2_MINUS_1 = 0.41421356237309503


def _power_of_two(exponent: float) -> float:
    """2**exponent for a whole exponent in [-1022, 1023]; NaN gives a NaN product either way."""
    return math.ldexp(1.0, int(exponent)) if exponent == exponent else math.nan


@overload(_power_of_two, jit_options=SCALAR, strict=False)
def _power_of_two_compiled(exponent: Any) -> Any:
    def implementation(exponent: float) -> float:
        return np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)

    return implementation


@inlinable(options=SCALAR)
def exp(x: float) -> float:
    """exp(x); 0 below -708 and a finite 8.2e307 above 709, so that a loop over it vectorises."""
    clipped = min(max(x, -708.0), 709.0)
    k = np.floor(clipped * _LOG2_E + 0.5)
    f = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    # Taylor, |f| <= log(2)/2: the first term left out is below 4e-18.
    r = 1 / 6227020800 * f + 1 / 479001600
    r = r * f + 1 / 39916800
    r = r * f + 1 / 3628800
    r = r * f + 1 / 362880
    r = r * f + 1 / 40320
    r = r * f + 1 / 5040
    r = r * f + 1 / 720
    r = r * f + 1 / 120
    r = r * f + 1 / 24
    r = r * f + 1 / 6
    r = r * f + 0.5
    r = r * f * f + f + 1.0
    scaled = r * _power_of_two(k)
    return 0.0 if x <= -708.0 else scaled


@inlinable(options=SCALAR)
def log1p_unit(z: float) -> float:
    """log(1 + z) for z in [0, 1]."""
    upper = z > _SQRT2_MINUS_1
    halved = (z - 1.0) * 0.5
    f = halved if upper else z
    shift = _LN2 if upper else 0.0
    s = f / (2.0 + f)
    q = s * s
    # 2 artanh(s), |s| <= 0.1716: the first term left out is below 3e-17.
    r = q * (1 / 23) + 1 / 21
    r = r * q + 1 / 19
    r = r * q + 1 / 17
    r = r * q + 1 / 15
    r = r * q + 1 / 13
    r = r * q + 1 / 11
    r = r * q + 1 / 9
    r = r * q + 1 / 7
    r = r * q + 1 / 5
    r = r * q + 1 / 3
    return shift + 2.0 * (s + s * q * r)


def elements_per_line(records: np.ndarray) -> int:
    """Elements in a cache line of 64 bytes: a constant of compiled code, which would otherwise divide for every row."""
    return 64 // records.itemsize


@overload(elements_per_line, jit_options=SCALAR, strict=False)
def _elements_per_line_compiled(records: Any) -> Any:
    count = 512 // records.dtype.bitwidth

    def implementation(records: np.ndarray) -> int:
        return count

    return implementation


_EXP_SERIES = 0.5  # the first term left out is below 4e-17 of the sum; above, the difference keeps 14 digits
_LOG_SERIES = 0.1


@inlinable(options=SCALAR)
def exp_remainder(x: float) -> float:
    """e^x - 1 - x - x^2/2: a series near 0, where the difference would cancel."""
    near = min(max(x, -_EXP_SERIES), _EXP_SERIES)
    r = 1 / 1307674368000 * near + 1 / 87178291200
    r = r * near + 1 / 6227020800
    r = r * near + 1 / 479001600
    r = r * near + 1 / 39916800
    r = r * near + 1 / 3628800
    r = r * near + 1 / 362880
    r = r * near + 1 / 40320
    r = r * near + 1 / 5040
    r = r * near + 1 / 720
    r = r * near + 1 / 120
    r = r * near + 1 / 24
    r = r * near + 1 / 6
    series = r * near * near * near
    difference = exp(x) - 1.0 - x * (1.0 + 0.5 * x)
    return series if abs(x) < _EXP_SERIES else difference


@inlinable(options=SCALAR)
def log1p_excess(x: float) -> float:
    """log(1 + x) - x for x > -1: a series near 0, where the difference would cancel."""
    near = min(max(x, -_LOG_SERIES), _LOG_SERIES)
    r = 0.0
    for k in range(16, 1, -1):
        r = (1.0 if k % 2 else -1.0) / k + near * r
    series = near * near * r
    difference = math.log1p(max(x, -1.0 + 1e-300)) - x
    return series if abs(x) < _LOG_SERIES else difference


@inlinable(options=SCALAR)
def log1p_remainder(x: float) -> float:
    """log(1 + x) - x + x^2/2 for x > -1, the same with one more term."""
    near = min(max(x, -_LOG_SERIES), _LOG_SERIES)
    r = 0.0
    for k in range(17, 2, -1):
        r = (1.0 if k % 2 else -1.0) / k + near * r
    series = near * near * near * r
    difference = math.log1p(max(x, -1.0 + 1e-300)) - x + 0.5 * x * x
    return series if abs(x) < _LOG_SERIES else difference


def prefetch(records: np.ndarray, index: int) -> None:
    """Ask the memory for the cache line of the flat element `index`; does nothing when interpreted."""


def prefetch_second(records: np.ndarray, index: int) -> None:
    """The same into the second-level cache, which waits for several times more lines at once than the first."""


def _prefetcher(locality: int) -> Any:
    """The prefetch instruction for a level of the cache: 3 the first, 2 the second."""

    @intrinsic
    def instruction(typing_context: Any, records: Any, index: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        int32 = ir.IntType(32)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte_pointer)
            kind = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [address, int32(0), int32(locality), int32(1)])
            return context.get_dummy_value()

        return types.void(records, index), generate

    return instruction


_first_level, _second_level = _prefetcher(3), _prefetcher(2)


@overload(prefetch, jit_options=SCALAR, strict=False)
def _prefetch_compiled(records: Any, index: Any) -> Any:
    def implementation(records: np.ndarray, index: int) -> None:
        _first_level(records, index)

    return implementation


@overload(prefetch_second, jit_options=SCALAR, strict=False)
def _prefetch_second_compiled(records: Any, index: Any) -> Any:
    def implementation(records: np.ndarray, index: int) -> None:
        _second_level(records, index)

    return implementation

"""Addresses of verbs, in tables that compiled code reads: those of likelihoods of indices are compiled when they are first called."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from numba import types

from tallbayes.compile import INLINED, SCALAR, SUMS, inlinable
from tallbayes.engine import index_verbs, range_verbs
from tallbayes.engine.callbacks import keep
from tallbayes.engine.indexed_rows import Ask, Indexed, indexed
from tallbayes.engine.outside import DOUBLE, SINGLE
from tallbayes.pointers import PLAIN, array_at, calls, pointer

_VERBS: tuple[Callable[[Indexed, Ask], None], ...] = (
    index_verbs.row_values,
    index_verbs.weighted_gradient,
    index_verbs.residual_differences,
    index_verbs.proxy_values,
    range_verbs.range_value,
    range_verbs.range_gradient,
    range_verbs.range_hessian,
    index_verbs.residual_values,
    index_verbs.residual_slopes,
    index_verbs.add_slopes,
    index_verbs.add_curvatures,
    index_verbs.control_gradient,
    range_verbs.range_scores,
)
"""In the order of their numbers in `outside`."""


def _behind_address(function: Callable[[Indexed, Ask], None]) -> Callable[..., int]:
    """A verb with the signature that all of them have behind addresses."""
    work = inlinable(function, options={**SUMS, **INLINED})

    def verb(
        records: np.ndarray,
        layout: np.ndarray,
        p: np.ndarray,
        verb: int,
        index: np.ndarray,
        start: int,
        stop: int,
        theta: np.ndarray,
        other: np.ndarray,
        reference: np.ndarray,
        order: int,
        factors: np.ndarray,
        total: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> int:
        work(indexed(records, layout, p), Ask(index, start, stop, theta, other, reference, order, factors, total, out, table))
        return 0

    verb.__name__ = function.__name__
    return verb


VERBS = tuple(_behind_address(function) for function in _VERBS)
SLOTS = len(VERBS) + 1  # the last has the address of `_resolve`
_TABLES: dict[str, np.ndarray] = {}
_OUTSIDE: dict[int, np.ndarray] = {}
_guard = threading.RLock()
_FAILED: list[Any] = []  # functions of `_failing`: kept, their addresses may be in use
call_resolver = calls(
    types.int64(types.int64, types.int64)
)  # (address of the function, address of a slot, calls before this one)


@functools.cache
def verb_pointer(verb: int, kind: str) -> int:
    """The address of a verb for records of a type of numbers."""
    signature = SINGLE if kind == "float32" else DOUBLE
    return pointer(VERBS[verb], signature, f"{VERBS[verb].__name__} {kind}", options=SUMS)


def _fill(place: int) -> None:
    for kind, table in [*_TABLES.items()]:  # another thread may add one
        slot = (place - table.ctypes.data) // 8
        if 0 <= slot < len(VERBS):
            with _guard:
                try:
                    table[slot] = verb_pointer(slot, kind)
                except Exception as error:
                    table[slot] = _failing(error, table, slot)


def _failing(error: Exception, table: np.ndarray, slot: int) -> int:
    """The address of a function in place of a verb that could not be compiled: it fails once, and the next call compiles again."""

    def verb() -> int:
        table[slot] = 0
        return keep(error)

    function = ctypes.CFUNCTYPE(ctypes.c_int64)(verb)  # arguments are its caller's to take back
    _FAILED.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _resolve(place: int, attempt: int) -> int:
    """Compile what a slot is for, and write its address there.

    An exception is lost between here and the compiled code that called, and what is returned is void then. So the slot is the answer: while
    it is empty, compiled code calls again. A signal may arrive anywhere, even before the first line, and makes a KeyboardInterrupt here if
    this is the main thread: it is sent again when it can be raised.
    """
    try:
        _fill(place)
    except KeyboardInterrupt:
        return 0
    if attempt > 0:
        start_new_thread(_interrupt_later, (threading.get_ident(),))
    return 0


def _interrupt_later(thread: int) -> None:
    """Interrupt the main thread once it has left the resolver, which it does with no step of Python in between."""
    while _is_resolving(sys._current_frames().get(thread)):
        time.sleep(0.001)
    interrupt_main()


def _is_resolving(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is _resolve.__code__:
            return True
        frame = frame.f_back
    return False


_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_resolve)  # of this process, kept as long as it
_RESOLVER: int = ctypes.cast(_C_FUNCTION, ctypes.c_void_p).value or 0
PLAIN[_RESOLVER] = _resolve


def index_table(kind: str) -> int:
    """Where the addresses of verbs are, for rows of indices with records of a type of numbers."""
    with _guard:
        if kind not in _TABLES:
            table = np.zeros(SLOTS, np.int64)
            table[-1] = _RESOLVER
            _TABLES[kind] = table
    return int(_TABLES[kind].ctypes.data)


def outside_table(address: int) -> int:
    """The same for a likelihood outside, one function for all verbs."""
    with _guard:
        if address not in _OUTSIDE:
            _OUTSIDE[address] = np.full(SLOTS, address, np.int64)
    return int(_OUTSIDE[address].ctypes.data)


@inlinable
def _compiled_address(table: int, verb: int) -> int:
    slots = array_at(float(table), (SLOTS,), np.int64)
    attempt = 0
    while slots[verb] == 0:
        call_resolver(slots[SLOTS - 1], table + 8 * verb, attempt)
        attempt += 1
    return slots[verb]


@inlinable(options=SCALAR)
def verb_address(table: int, verb: int) -> int:
    """The address of a verb; compiles it if nobody has called it in this process."""
    slots = array_at(float(table), (SLOTS,), np.int64)
    return slots[verb] if slots[verb] != 0 else _compiled_address(table, verb)

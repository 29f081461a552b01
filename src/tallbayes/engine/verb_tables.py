"""Addresses of verbs, in tables that compiled code reads: those of likelihoods of indices are compiled when they are first called."""

from __future__ import annotations

import ctypes
import functools
import threading
from _thread import interrupt_main
from collections.abc import Callable

import numpy as np
from numba import types

from tallbayes.compile import INLINED, SCALAR, SUMS, inlinable
from tallbayes.engine import index_verbs, range_verbs
from tallbayes.engine.callbacks import keep
from tallbayes.engine.indexed_rows import FAILURE, HEAD, Ask, Indexed, indexed
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
_INSTEAD: dict[int, int] = {}  # what stands for the verb of a slot that could not be compiled
_guard = threading.RLock()
call_resolver = calls(types.int64(types.int64))  # (address of the function, address of a slot) -> address of the verb


def failed_verb(
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
    """Instead of a verb that could not be compiled: the status under which the reason is kept."""
    return array_at(float(layout[HEAD - 1]), (1,), np.int64)[0]


@functools.cache
def verb_pointer(verb: int, kind: str) -> int:
    """The address of a verb for records of a type of numbers."""
    signature = SINGLE if kind == "float32" else DOUBLE
    return pointer(VERBS[verb], signature, f"{VERBS[verb].__name__} {kind}", options=SUMS)


def _fill(place: int) -> int:
    for kind, table in _TABLES.items():
        slot = (place - table.ctypes.data) // 8
        if 0 <= slot < len(VERBS):
            with _guard:
                table[slot] = verb_pointer(slot, kind)
            return int(table[slot])
    raise LookupError(f"{place} is not the address of a verb")


def _resolve(place: int) -> int:
    """Compile what a slot is for. Compiled code calls this, and nothing may be raised: an interrupt is sent again when it is done."""
    interrupted = False
    while True:
        try:
            found = _fill(place)
        except KeyboardInterrupt:
            interrupted = True
            continue
        except BaseException as error:
            FAILURE[0] = keep(error)
            found = _INSTEAD[place]
        if interrupted:
            interrupt_main()
        return found


_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(_resolve)  # of this process, and kept as long as it
_RESOLVER: int = ctypes.cast(_C_FUNCTION, ctypes.c_void_p).value or 0
PLAIN[_RESOLVER] = _resolve


def index_table(kind: str) -> int:
    """Where the addresses of verbs are, for rows of indices with records of a type of numbers."""
    with _guard:
        if kind not in _TABLES:
            table = np.zeros(SLOTS, np.int64)
            table[-1] = _RESOLVER
            _TABLES[kind] = table
            instead = pointer(failed_verb, SINGLE if kind == "float32" else DOUBLE, f"failed verb {kind}", options=SUMS)
            _INSTEAD.update((table.ctypes.data + 8 * slot, instead) for slot in range(len(VERBS)))
    return int(_TABLES[kind].ctypes.data)


def outside_table(address: int) -> int:
    """The same for a likelihood outside, one function for all verbs."""
    with _guard:
        if address not in _OUTSIDE:
            _OUTSIDE[address] = np.full(SLOTS, address, np.int64)
    return int(_OUTSIDE[address].ctypes.data)


@inlinable(options=SCALAR)
def verb_address(table: int, verb: int) -> int:
    """The address of a verb; compiles it if nobody has called it in this process."""
    slots = array_at(float(table), (SLOTS,), np.int64)
    if slots[verb] == 0:
        return call_resolver(slots[SLOTS - 1], table + 8 * verb)
    return slots[verb]

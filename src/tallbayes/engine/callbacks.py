"""Python functions that compiled code calls: one C function for all, which takes the GIL and finds the Python function by a number.

An exception cannot pass through compiled code. It is kept here under the status that the call returns, compiled code ends with that
status, and `raise_kept` lets the caller of the compiled code see it with its own traceback.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numba import types

from tallbayes.errors import ModelError
from tallbayes.pointers import PLAIN, calls

BLOCK = 24  # whole numbers that describe a call; the first is the number of the Python function
call_python = calls(types.int64(types.int64))  # (address of the C function, address of the block) -> status
call_python_with = calls(types.int64(*[types.int64] * 7))  # the same with the first seven numbers of a block, which is quicker

_FUNCTIONS: dict[int, Callable[[Sequence[int]], None]] = {}
_RAISED: dict[int, BaseException] = {}
_numbers, _statuses = itertools.count(1), itertools.count(1000)
_KEPT = 64  # exceptions that nobody has asked for
_guard = threading.Lock()
_views = threading.local()
_MOST_VIEWS = 1000


def _run(place: int) -> int:
    return _run_with(*view(int(place), (BLOCK,), np.int64).tolist())


def _run_with(*block: int) -> int:
    try:
        _FUNCTIONS[block[0]](block)
    except BaseException as error:  # what compiled code cannot pass on
        _forget_views(error)
        return keep(error)
    return 0


def keep(error: BaseException) -> int:
    """A status for an exception, until `raise_kept` is asked for it."""
    with _guard:
        status = next(_statuses)
        _RAISED[status] = error
        while len(_RAISED) > _KEPT:
            _RAISED.pop(next(iter(_RAISED)))
    return status


def _forget_views(error: BaseException) -> None:
    """Empty our own frames of a traceback and those of JAX: whoever shows local variables must not read memory that is gone by then."""
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in ("tallbayes", "jax", "jaxlib"):
            with suppress(RuntimeError):  # `_run` itself is still running
                trace.tb_frame.clear()
        trace = trace.tb_next


_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(_run)  # of this process, and kept as long as it
_C_FUNCTION_WITH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)(_run_with)
ENTRANCE, ENTRANCE_WITH = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (_C_FUNCTION, _C_FUNCTION_WITH))
PLAIN[ENTRANCE], PLAIN[ENTRANCE_WITH] = _run, lambda *block: _run_with(*map(int, block))


def view(address: int, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    """The array at an address, of use during the present call alone: others get a copy of it.

    Views are kept, because compiled code asks for the same places again.
    """
    try:
        known = _views.known
    except AttributeError:
        known = _views.known = {}
    found = known.get((address, shape, kind))
    if found is not None:
        return found
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if size == 0:
        return np.empty(shape, kind)
    if len(known) >= _MOST_VIEWS:
        known.clear()
    found = np.frombuffer((ctypes.c_byte * size).from_address(address), kind).reshape(shape)
    known[address, shape, kind] = found
    return found


def numbered(function: Callable[[Sequence[int]], None], holder: np.ndarray, entrance: int = ENTRANCE) -> np.ndarray:
    """Write (entrance, number) of a Python function to the first places of an array; it is called for as long as the array lives."""
    number = next(_numbers)
    _FUNCTIONS[number] = function
    weakref.finalize(holder, _FUNCTIONS.pop, number, None)
    holder[0], holder[1] = entrance, number
    return holder


def raise_kept(status: float) -> None:
    """Raise the exception behind a status other than zero."""
    if status == 0.0:
        return
    error = _RAISED.pop(int(status), None)
    if error is None:
        raise ModelError(f"a function of the model ended with status {int(status)}.")
    raise error

"""The time limit of a run while it is prepared: passes over rows and pilots end when it is over. Compiling does not count.

Chains have the rest, and their own clock in `run.driver`. Code that prepares asks `require_time` between pieces of work; what runs
compiled is asked to end by a thread that watches the clock, through the counters it was given.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numba.core import event

from tallbayes.errors import StoppedError


class _CompileClock(event.Listener):
    """Seconds spent in Numba's compiler, or in waiting for it, by any thread."""

    def __init__(self) -> None:
        self._lock, self._total, self._inside, self._since = threading.Lock(), 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        """Compiling begins, perhaps within another compilation."""
        with self._lock:
            if self._inside == 0:
                self._since = time.monotonic()
            self._inside += 1

    def on_end(self, event: Any) -> None:
        """Compiling ends."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._total += time.monotonic() - self._since

    def seconds(self) -> float:
        """So far."""
        with self._lock:
            return self._total + (time.monotonic() - self._since if self._inside else 0.0)


_COMPILING = _CompileClock()
event.register("numba:compiler_lock", _COMPILING)


class Deadline:
    """A number of seconds from now, in which compiling is not counted.

    >>> Deadline(3600.0).left > 3000.0
    True
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = float(seconds)
        self._begun, self._compiled = time.monotonic(), _COMPILING.seconds()
        self._watched: list[tuple[weakref.ref[np.ndarray], int, int]] = []

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self.seconds - (time.monotonic() - self._begun) + (_COMPILING.seconds() - self._compiled)

    def require(self) -> None:
        """Refuse to go on when it is over."""
        if self.left <= 0.0:
            raise StoppedError(
                f"time limit reached during setup, before the first draw; allow more time than max_seconds={self.seconds:g}, "
                "or use fewer rows. There is nothing to resume yet.",
                "time limit",
            )

    def watch(self, counters: np.ndarray, place: int, value: int) -> None:
        """Write `value` to a place of `counters` when it is over."""
        self._watched.append((weakref.ref(counters), place, value))

    def expire(self) -> None:
        """Tell all that is watched."""
        for reference, place, value in list(self._watched):
            counters = reference()
            if counters is not None:
                counters[place] = value

    def wait(self, ended: threading.Event) -> None:
        """Tell all that is watched when it is over, unless it `ended` before; runs in a thread of its own."""
        while not ended.wait(min(max(0.01, self.left), threading.TIMEOUT_MAX)):
            if self.left <= 0.0:
                self.expire()


_OPEN: ContextVar[Deadline | None] = ContextVar("tallbayes deadline", default=None)


def present_deadline() -> Deadline | None:
    """That of the code that asks, if it has one."""
    return _OPEN.get()


def require_time() -> None:
    """Refuse to go on when the time limit of the code that asks is over.

    >>> with limited(Deadline(1e-9)):
    ...     require_time()
    Traceback (most recent call last):
    ...
    tallbayes.errors.StoppedError: time limit reached during setup, before the first draw; ...
    """
    deadline = _OPEN.get()
    if deadline is not None:
        deadline.require()


@contextmanager
def limited(deadline: Deadline | None) -> Iterator[None]:
    """Code with a time limit; None is none."""
    if deadline is None:
        yield
        return
    ended, token = threading.Event(), _OPEN.set(deadline)
    thread = threading.Thread(target=deadline.wait, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        _OPEN.reset(token)
        ended.set()
        thread.join()

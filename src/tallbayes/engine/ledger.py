"""What is read of the rows before and after the chains: set-up passes, pilots, checks of a finished run.

Chains count their own rows in the counters of a target. Everything else goes through `engine.passes`, `engine.residuals` or a
target of its own, and is recorded here, in whichever account is open: `tallbayes.sample` opens one for preparing and checking a run.
A pass over whole rows counts n, whatever is computed from a row; looking up weights or responses alone does not count.

    with counting() as account:
        ...
    account.rows
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tallbayes.deadline import require_time


class Account:
    """Rows recorded while it was open."""

    def __init__(self) -> None:
        self.rows = 0
        self._known: set[Hashable] = set()
        self._lock = threading.Lock()

    def add(self, rows: int, once: Hashable | None = None) -> None:
        """Add rows; with `once`, only the first time that this thing is named."""
        with self._lock:
            if once is not None and once in self._known:
                return
            self._known.add(once)
            self.rows += int(rows)


_OPEN: ContextVar[Account | None] = ContextVar("tallbayes account", default=None)


def record(rows: int, once: Hashable | None = None) -> None:
    """Charge rows to the account that is open, if one is; refused when the time limit of the run is over.

    `once` names something that is computed once and shared, such as the norms of a mode: every account pays for it, and pays once.

    >>> with counting() as account:
    ...     record(10)
    ...     record(5, once="norms")
    ...     record(5, once="norms")
    >>> account.rows
    15
    """
    account = _OPEN.get()
    if account is not None:
        account.add(rows, once)
    require_time()


@contextmanager
def counting() -> Iterator[Account]:
    """Open an account; one that was open before gets nothing meanwhile."""
    account = Account()
    token = _OPEN.set(account)
    try:
        yield account
    finally:
        _OPEN.reset(token)

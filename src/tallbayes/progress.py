"""Progress on anything that takes longer than two seconds; silent when asked to be, and never part of a result."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears


class Progress:
    """A rich progress bar that appears only after `PATIENCE` seconds.

    >>> with Progress("reading", total=10, enabled=False) as bar:
    ...     bar.advance(10)
    >>> bar.done
    10
    """

    def __init__(self, label: str, total: float | None, enabled: bool = True) -> None:
        self.label = label
        self.total = total
        self.enabled = enabled
        self.done: Any = 0
        self._start = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Move on by `amount`; `note` is shown at the end of the line."""
        self.done += amount
        self.update(note)

    def update(self, note: str = "") -> None:
        """Redraw with the present count."""
        if not self.enabled or (self._bar is None and time.monotonic() - self._start < PATIENCE):
            return
        if self._bar is None:
            self._open()
        self._bar.update(self._task, completed=self.done, note=note)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task(self.label, total=self.total, completed=self.done, note="")

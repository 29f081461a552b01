"""Progress on anything that takes longer than two seconds; silent when asked to be, and never part of a result."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears
NOTEBOOK_SECONDS = 0.25  # between two changes of a line in a notebook
LINE_SECONDS = 30.0  # between two lines where bars cannot be drawn: a log file, a pipe


class Progress:
    """A rich progress bar that appears only after `PATIENCE` seconds; in a notebook a line that is kept up to date.

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
        self._line: NotebookLine | None = None
        self._written = self._start

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._line is not None:
            self._line.show(self._text("stopped" if error is not None else ""), last=True)

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Move on by `amount`; `note` is shown at the end of the line."""
        self.done += amount
        self.update(note)

    def update(self, note: str = "") -> None:
        """Redraw with the present count."""
        if not self.enabled or (self._bar is None and self._line is None and time.monotonic() - self._start < PATIENCE):
            return
        if self._bar is None and self._line is None:
            if _in_notebook():
                self._line = NotebookLine()
            elif _drawable():
                self._open()
        if self._line is not None:
            self._line.show(self._text(note))
        elif self._bar is not None:
            self._bar.update(self._task, completed=self.done, total=self.total, note=note)
        else:
            self._write(note)

    def _write(self, note: str) -> None:
        now = time.monotonic()
        if now - self._written >= LINE_SECONDS:
            self._written = now
            print(self._text(note), file=sys.stderr, flush=True)

    def _text(self, note: str) -> str:
        share = f" {100.0 * self.done / self.total:.0f}%" if self.total else ""
        return f"{self.label}{share} after {time.monotonic() - self._start:.0f} s{', ' * bool(note)}{note}"

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


class NotebookLine:
    """One line of output in a Jupyter notebook, replaced as it changes; rich's own display needs ipywidgets."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = -NOTEBOOK_SECONDS

    def show(self, text: str, last: bool = False) -> None:
        """Replace the line, unless it was replaced a moment ago and this is not the last time."""
        from IPython.display import DisplayHandle

        now = time.monotonic()
        if not last and now - self._shown < NOTEBOOK_SECONDS:
            return
        self._shown = now
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(content, raw=True)
        else:
            self._handle.update(content, raw=True)


class Waiting:
    """Says what a call that cannot report its progress is doing, once it has taken `PATIENCE` seconds.

    >>> with Waiting("compiling", enabled=False):
    ...     pass
    """

    def __init__(self, label: str, enabled: bool = True) -> None:
        self._label = label
        self._timer = threading.Timer(PATIENCE, self._show) if enabled else None
        self._lock = threading.Lock()
        self._status: Any = None
        self._line: NotebookLine | None = None
        self._over = False

    def __enter__(self) -> Waiting:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._status is not None:
                self._status.stop()
            if self._line is not None:
                self._line.show(f"{self._label}: done", last=True)

    def _show(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._over:
                return
            if _in_notebook():
                self._line = NotebookLine()
                self._line.show(self._label)
            elif _drawable():
                self._status = Console(stderr=True).status(self._label)
                self._status.start()
            else:
                print(self._label, file=sys.stderr, flush=True)


def _drawable() -> bool:
    """Whether standard error is a terminal, where a bar can be drawn and erased."""
    from rich.console import Console

    return Console(stderr=True).is_terminal


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, where output is not a terminal but can be replaced."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")

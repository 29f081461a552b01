"""What operating systems do differently: how much memory and how many cores there are, and when files are on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil


def available_memory() -> int:
    """Bytes that can still be used without swapping.

    >>> available_memory() > 0
    True
    """
    return int(psutil.virtual_memory().available)


def peak_memory() -> int:
    """Largest number of resident bytes of this process so far.

    >>> peak_memory() > 1_000_000
    True
    """
    try:
        import resource
    except ImportError:  # Windows
        held = psutil.Process().memory_info()
        return int(getattr(held, "peak_wset", held.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def available_cores() -> int:
    """Cores that this process may use.

    >>> available_cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def idle_cores() -> float:
    """Cores of the machine that nobody uses, while this thread sleeps for a moment.

    >>> idle_cores() >= 0.0
    True
    """
    return (os.cpu_count() or 1) * (1.0 - psutil.cpu_percent(interval=0.05) / 100.0)


def sync_file(path: Path) -> None:
    """Wait until a file that is written is on disk."""
    with open(path, "r+b") as file:  # Windows syncs only files that are open for writing
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk; Windows, which opens no folders, sees to that itself."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

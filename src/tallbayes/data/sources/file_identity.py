"""What every file source needs: that the file exists, and what identifies its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallbayes.errors import DataError


def require_file(path: str | Path) -> Path:
    """The path of a file that exists.

    >>> require_file("nowhere.csv")
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: nowhere.csv does not exist.
    """
    path = Path(path)
    try:
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} is not a usable path ({error}).") from error
    if not exists:
        raise DataError(f"{path} does not exist.")
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    return path


def identify(path: Path) -> dict[str, Any]:
    """Path, size and time of a file: a store made from it is reused while these are the same."""
    stat = path.stat()
    return {"path": str(path.resolve()), "size": stat.st_size, "modified": stat.st_mtime_ns}

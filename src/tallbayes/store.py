"""The packed stores on disk: where they are, what they hold, and how to delete them."""

from __future__ import annotations

import builtins
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tallbayes.data.packed_store import default_folder
from tallbayes.errors import DataError, StoreError, unknown
from tallbayes.option_types import checked

_ABANDONED = 86_400.0  # seconds after which an unfinished store has no writer any more


@dataclass(frozen=True)
class StoreEntry:
    """A packed store: `rows` is None if its description is damaged, `source` is None for a stream."""

    name: str
    path: Path
    rows: int | None
    bytes: int
    source: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {**asdict(self), "path": str(self.path)}


def folder() -> Path:
    """The default folder of packed stores: TALLBAYES_STORE, or the user's cache folder.

    >>> import os, tempfile
    >>> os.environ["TALLBAYES_STORE"] = tempfile.mkdtemp()
    >>> str(folder()) == os.environ["TALLBAYES_STORE"]
    True
    >>> del os.environ["TALLBAYES_STORE"]
    """
    return default_folder()


@checked
def list(folder: str | Path | None = None) -> builtins.list[StoreEntry]:
    """All packed stores in a folder, sorted by name.

    >>> import pyarrow as pa, tallbayes as tb, tempfile
    >>> where = tempfile.mkdtemp()
    >>> _ = tb.read(pa.table({"y": [0, 1], "x": [1.0, 2.0]}), "y ~ x", store=where, progress=False)
    >>> [(entry.rows, entry.source) for entry in tb.store.list(where)]
    [(2, None)]
    """
    where = default_folder() if folder is None else Path(folder)
    if not where.is_dir():
        return []
    return [_entry(path) for path in sorted(where.iterdir()) if (path / "store.json").is_file() and ".part-" not in path.name]


@checked
def clear(name: str | None = None, folder: str | Path | None = None) -> builtins.list[str]:
    """Delete one store, or all of them; returns the names. Data sets that are open keep their rows until they are closed.

    >>> import pyarrow as pa, tallbayes as tb, tempfile
    >>> where = tempfile.mkdtemp()
    >>> _ = tb.read(pa.table({"y": [0, 1], "x": [1.0, 2.0]}), "y ~ x", store=where, progress=False)
    >>> len(tb.store.clear(folder=where)), tb.store.list(where)
    (1, [])
    """
    entries = {entry.name: entry.path for entry in list(folder)}
    if name is not None and name not in entries:
        raise DataError(str(unknown("store", name, entries or ["none"])))
    selection = entries if name is None else {name: entries[name]}
    paths = [*selection.values(), *(_abandoned(folder) if name is None else [])]
    for path in paths:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"cannot delete {path}: {error}.") from error
    return builtins.list(selection)


def _abandoned(folder: str | Path | None) -> builtins.list[Path]:
    """Unfinished stores of processes that were killed."""
    where = default_folder() if folder is None else Path(folder)
    if not where.is_dir():
        return []
    return [p for p in where.iterdir() if ".part-" in p.name and p.is_dir() and time.time() - p.stat().st_mtime > _ABANDONED]


def _entry(path: Path) -> StoreEntry:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    try:
        description = json.loads((path / "store.json").read_text())
        return StoreEntry(path.name, path, int(description["n"]), size, description["recipe"]["source"].get("path"))
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return StoreEntry(path.name, path, None, size, None)

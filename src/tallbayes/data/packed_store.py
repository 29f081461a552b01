"""Packed stores on disk: a folder with raw records and a JSON description, written under a temporary name, synced and renamed.

Stores are opened copy-on-write and viewed as ordinary arrays, so that compiled code sees the same type as for rows in
memory, and nothing can change the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset
from tallbayes.data.group_files import open_factors
from tallbayes.data.groups import fingerprint_of_factor
from tallbayes.data.moments import Moments
from tallbayes.errors import StoreError
from tallbayes.machine import sync_folder

FORMAT = "tallbayes-store-1"
GROWING = "append.part"  # a file that is there while rows are appended: records beyond those described are its remains


def default_folder() -> Path:
    """Where packed stores live unless `store=` says otherwise: TALLBAYES_STORE, or the user's cache folder."""
    if "TALLBAYES_STORE" in os.environ:
        return Path(os.environ["TALLBAYES_STORE"])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tallbayes" / "stores"


class StoreWriter:
    """Writes a store row chunk by row chunk; the store appears under its name only when it is complete."""

    def __init__(
        self,
        path: Path,
        columns: tuple[str, ...],
        response: str,
        dtype: np.dtype,
        extra: int = 0,
        trials_place: int | None = None,
    ) -> None:
        self.path, self.columns, self.response, self.dtype = path, columns, response, dtype
        self.extra, self.trials_place = extra, trials_place  # numbers behind the weight
        self.width = packed.width_of(len(columns) + extra, dtype)
        self.n = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix=path.name + ".part-", dir=path.parent))
            self.file = open(self.folder / "records.bin", "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise StoreError(f"cannot write a store in {path.parent}: {error}. Choose another folder with store=.") from error

    def write(self, chunk: np.ndarray) -> None:
        """Append packed rows."""
        view = memoryview(np.ascontiguousarray(chunk).data).cast("B")
        try:
            while view:
                view = view[self.file.write(view) :]
        except OSError as error:
            self.abort()
            raise StoreError(
                f"writing the packed rows to {self.path.parent} failed: {error}. Free space there or choose another folder "
                "with store=; dtype='float32' halves the size."
            ) from error
        self.n += chunk.shape[0]

    def finish(
        self,
        moments: Moments,
        has_offset: bool,
        has_weights: bool,
        recipe: dict[str, Any],
        groups: Sequence[dict[str, Any]] = (),
    ) -> Dataset:
        """Sync, describe, rename and open; `groups` describes the factors whose files are in the folder."""
        try:
            return self._finish(moments, has_offset, has_weights, recipe, groups)
        except OSError as error:
            self.abort()
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"completing the store in {self.path.parent} failed: {error}. Free space there or choose another folder "
                "with store=."
            ) from error

    def _finish(
        self,
        moments: Moments,
        has_offset: bool,
        has_weights: bool,
        recipe: dict[str, Any],
        groups: Sequence[dict[str, Any]],
    ) -> Dataset:
        os.fsync(self.file.fileno())
        self.file.close()
        rows = _map(self.folder / "records.bin", self.n, self.width, self.dtype)
        description = {
            "format": FORMAT,
            "n": self.n,
            "width": self.width,
            "dtype": self.dtype.str,
            "columns": list(self.columns),
            "response": self.response,
            "has_offset": has_offset,
            "has_weights": has_weights,
            "moments": moments.as_dict(),
            "recipe": recipe,
            "fingerprint": packed.fingerprint(rows, self.columns, self.response),
        }
        if self.extra:
            description["effects"] = self.extra
        if self.trials_place is not None:
            description["trials"] = self.trials_place
        if groups:
            own = [{**term, "sorted": not (self.folder / f"members-{term['file']}.bin").exists()} for term in groups]
            opened, _ = open_factors(self.folder, own, self.n)
            fingerprint = str(description["fingerprint"]) + "".join(map(fingerprint_of_factor, opened))
            description |= {"groups": own, "fingerprint": fingerprint}
            del opened
        del rows
        write_synced(self.folder / "store.json", json.dumps(description).encode())
        if self.path.exists():
            shutil.rmtree(self.path)
        os.replace(self.folder, self.path)
        return open_store(self.path)

    def abort(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):
            self.file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_store(path: str | Path) -> Dataset:
    """Open a packed store without reading its rows; refuses a truncated or foreign one."""
    path = Path(path)
    try:
        description = json.loads((path / "store.json").read_text())
    except FileNotFoundError:
        raise StoreError(f"{path} is not a packed store (no store.json in it).") from None
    except (ValueError, OSError) as error:
        raise StoreError(f"the store {path} is damaged ({error}); delete it and read the source again.") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise StoreError(f"the store {path} was written in another format; delete it and read the source again.")
    try:
        return _open_records(path, description)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the store {path} is damaged ({error!r}); delete it and read the source again.") from error


def _open_records(path: Path, description: dict[str, Any]) -> Dataset:
    dtype = np.dtype(description["dtype"])
    n, width = int(description["n"]), int(description["width"])
    columns, response = tuple(description["columns"]), description["response"]
    if width != packed.width_of(len(columns) + int(description.get("effects", 0)), dtype):
        raise ValueError(f"{len(columns)} columns in records of {width} numbers")
    rows = _map(path / "records.bin", n, width, dtype)
    groups, order = open_factors(path, description["groups"], n) if "groups" in description else ((), None)
    return Dataset(
        rows,
        columns,
        response,
        Moments.from_dict((*columns, response, "offset", "weights"), n, description["moments"]),
        description["has_offset"],
        description["has_weights"],
        path,
        description["recipe"],
        description["fingerprint"],
        groups,
        order,
        description.get("trials"),
    )


def _map(file: Path, n: int, width: int, dtype: np.dtype) -> np.ndarray:
    expected = n * width * dtype.itemsize
    actual = file.stat().st_size if file.exists() else 0
    if actual < expected or (actual > expected and not (file.parent / GROWING).exists()):
        raise StoreError(
            f"the store {file.parent} is truncated: {actual:,} of {expected:,} bytes. Delete it and read the source again."
        )
    return np.asarray(np.memmap(file, dtype=dtype, mode="c", shape=(n, width)))


def write_synced(path: Path, content: bytes) -> None:
    """Write aside, sync, rename, sync the folder: after a crash the file is the old one or the new one."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)

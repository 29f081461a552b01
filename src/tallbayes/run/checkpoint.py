"""Checkpoints: a folder with a description of the run and, for each chain, its state and its draws.

Draws are appended and synced before the state that counts them is written aside, synced and renamed; so after a kill at any
moment the state names a number of draws that are on disk, and what follows them is cut off on resuming.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.compile import source_stamp
from tallbayes.data.packed_store import write_synced
from tallbayes.errors import StoreError
from tallbayes.run.chain import Chain
from tallbayes.version import __version__

FORMAT = "tallbayes-run-1"


class Checkpoint:
    """A folder that holds a run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._saved: dict[int, int] = {}  # draws of each chain on disk
        self._sums: dict[int, int] = {}  # and their checksums

    def require_vacant(self) -> None:
        """Refuse a folder that already holds a run."""
        if (self.folder / "run.json").exists():
            raise StoreError(
                f"{self.folder} already holds a run; continue it with tallbayes.resume({str(self.folder)!r}), or choose another "
                "folder or delete it."
            )

    def create(self, description: dict[str, Any]) -> None:
        """Start a new run; refuses a folder that already holds one."""
        self.require_vacant()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._describe({**description, "format": FORMAT, "version": __version__, "sources": source_stamp()})

    def _describe(self, description: dict[str, Any]) -> None:
        write_synced(self.folder / "run.json", json.dumps(description, indent=1).encode())

    def read(self) -> dict[str, Any]:
        """The description; refuses another version."""
        try:
            description = json.loads((self.folder / "run.json").read_text())
        except FileNotFoundError:
            raise StoreError(f"{self.folder} holds no run (no run.json).") from None
        except ValueError as error:
            raise StoreError(f"{self.folder}/run.json is damaged ({error}); the run cannot be resumed.") from error
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise StoreError(f"{self.folder}/run.json is not a description of a run in the format of this version.")
        if (description["version"], description["sources"]) != (__version__, source_stamp()):
            raise StoreError(
                f"the run in {self.folder} was made by tallbayes {description['version']} (sources {description['sources'][:8]}), "
                f"this is {__version__} (sources {source_stamp()[:8]}); draws of two versions are not mixed. Install the version "
                "that made it, or start a new run."
            )
        return description

    def change(self, **values: Any) -> dict[str, Any]:
        """Update entries of the description."""
        description = {**self.read(), **values}
        self._describe(description)
        return description

    def save(self, chain: Chain) -> None:
        """Append the new draws of a chain, then its state."""
        theta, info = chain.collected()
        done = self._saved.get(chain.number, 0)
        if theta.shape[0] > done:
            table = np.ascontiguousarray(np.hstack([theta[done:], info[done:]]))
            path = self._draws(chain.number)
            with open(path, "r+b" if path.exists() else "w+b") as file:
                file.seek(done * table.shape[1] * 8)  # over what an interrupted save may have left
                content = table.tobytes()
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self._saved[chain.number] = theta.shape[0]
            self._sums[chain.number] = zlib.crc32(content, self._sums.get(chain.number, 0))
        buffer = io.BytesIO()
        checksum = np.int64(self._sums.get(chain.number, 0))
        np.savez(buffer, allow_pickle=False, checksum=checksum, **chain.save())
        write_synced(self._state(chain.number), buffer.getvalue())

    def restore(self, chain: Chain) -> None:
        """Bring a chain back to its last saved state, if it has one."""
        if not self._state(chain.number).exists():
            if self._draws(chain.number).exists():
                self._draws(chain.number).unlink()
            return
        damage = (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError)
        try:
            with np.load(io.BytesIO(self._state(chain.number).read_bytes()), allow_pickle=False) as file:
                saved = {k: file[k] for k in file.files}
            draws = json.loads(str(saved["meta"]))["draws"]
        except damage as error:
            raise StoreError(f"{self._state(chain.number)} is damaged ({error}); the run cannot be resumed.") from error
        d, k = chain.state.theta.size, len(chain.sampler.columns)
        size = draws * (d + k) * 8
        path = self._draws(chain.number)
        actual = path.stat().st_size if path.exists() else 0
        if actual < size:
            raise StoreError(f"{path} is truncated: {actual:,} of {size:,} bytes; the run cannot be resumed.")
        if actual > size:
            os.truncate(path, size)
        content = path.read_bytes() if size else b""
        if zlib.crc32(content) != int(saved.get("checksum", -1)):
            raise StoreError(f"{path} is damaged: its draws are not those that were saved; the run cannot be resumed.")
        table = np.frombuffer(content, np.float64).reshape(draws, d + k)
        try:
            chain.restore(saved, table[:, :d].copy(), table[:, d:].copy())
        except damage as error:
            raise StoreError(f"{self._state(chain.number)} is damaged ({error}); the run cannot be resumed.") from error
        self._saved[chain.number], self._sums[chain.number] = draws, zlib.crc32(content)

    def _state(self, number: int) -> Path:
        return self.folder / f"chain-{number}.npz"

    def _draws(self, number: int) -> Path:
        return self.folder / f"chain-{number}.draws"

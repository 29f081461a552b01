"""Checkpoints: a folder with a description of the run and, for each chain, its state and its draws.

Draws are appended and synced before the state that counts them is written to a temporary file, synced and renamed; after a kill at any
moment the state names a number of draws that are on disk, and what follows them is cut off on resuming. The state ends in its
digest and holds that of the draws; the description holds its own. All are checked before anything is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.compile import source_stamp
from tallbayes.data.packed_store import write_synced
from tallbayes.digest import seal, unseal
from tallbayes.errors import StoreError
from tallbayes.run.chain import Chain
from tallbayes.version import __version__

FORMAT = "tallbayes-run-4"


class Checkpoint:
    """A folder that holds a run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._saved: dict[int, int] = {}  # draws of each chain on disk
        self._digests: dict[int, Any] = {}  # and their running digests

    def require_vacant(self) -> None:
        """Refuse a folder that already holds a run."""
        if (self.folder / "run.json").exists():
            raise StoreError(
                f"{self.folder} already holds a run; continue it with tallbayes.resume({str(self.folder)!r}), or choose "
                "another folder or delete it."
            )

    def create(self, description: dict[str, Any]) -> None:
        """Start a new run; refuses a folder that already holds one."""
        self.require_vacant()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._describe({**description, "format": FORMAT, "version": __version__, "sources": source_stamp()})

    def _describe(self, description: dict[str, Any]) -> None:
        content = {**description, "digest": _digest(description)}
        write_synced(self.folder / "run.json", json.dumps(content, indent=1).encode())

    def read(self) -> dict[str, Any]:
        """The description; refuses another version."""
        path = self.folder / "run.json"
        try:
            description = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise StoreError(
                f"{self.folder} holds no run (no run.json); a run that was stopped during its setup has to be started again."
            ) from None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path} is damaged ({error}); the run cannot be resumed.") from error
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise StoreError(f"{path} does not describe a run in the format of this version; start a new run.")
        if description.pop("digest", None) != _digest(description):
            raise StoreError(f"{path} is damaged: its content has changed since it was written. The run cannot be resumed.")
        if (description["version"], description["sources"]) != (__version__, source_stamp()):
            raise StoreError(
                f"the run in {self.folder} was started by tallbayes {description['version']} (sources "
                f"{description['sources'][:8]}), this is {__version__} (sources {source_stamp()[:8]}); draws from two versions "
                "cannot be mixed. Install the version that started the run, or start a new run."
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
        digest = self._digests.get(chain.number, _running())
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
            digest = digest.copy()
            digest.update(content)
            self._saved[chain.number], self._digests[chain.number] = theta.shape[0], digest
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, digest=np.array(digest.hexdigest()), **chain.save())
        write_synced(self._state(chain.number), seal(buffer.getvalue()))

    def restore(self, chain: Chain) -> None:
        """Bring a chain back to its last saved state, if it has one."""
        if not self._state(chain.number).exists():
            if self._draws(chain.number).exists():
                self._draws(chain.number).unlink()
            return
        try:
            sealed = unseal(self._state(chain.number).read_bytes())
        except StoreError as error:
            raise StoreError(f"{self._state(chain.number)} is damaged: {error}; the run cannot be resumed.") from error
        with np.load(io.BytesIO(sealed), allow_pickle=False) as file:
            saved = {k: file[k] for k in file.files}
        draws = json.loads(str(saved["meta"]))["draws"]
        d, k = chain.width, len(chain.sampler.columns)
        digest, content = _running(), self._content(chain.number, draws * (d + k) * 8)
        digest.update(content)
        if digest.hexdigest() != str(saved["digest"]):
            raise StoreError(
                f"{self._draws(chain.number)} is damaged: its draws have changed since they were saved. The run cannot be "
                "resumed."
            )
        table = np.frombuffer(content, np.float64).reshape(draws, d + k)
        chain.restore(saved, table[:, :d].copy(), table[:, d:].copy())
        self._saved[chain.number], self._digests[chain.number] = draws, digest

    def forget(self, chains: list[Chain]) -> None:
        """Remove what was saved of chains that are not continued."""
        for chain in chains:
            self._state(chain.number).unlink(missing_ok=True)
            self._draws(chain.number).unlink(missing_ok=True)
            self._saved.pop(chain.number, None)
            self._digests.pop(chain.number, None)

    def _content(self, number: int, size: int) -> bytes:
        """The draws that the state counts; what follows them is cut off."""
        path = self._draws(number)
        actual = path.stat().st_size if path.exists() else 0
        if actual < size:
            raise StoreError(f"{path} is truncated: {actual:,} of {size:,} bytes; the run cannot be resumed.")
        if actual > size:
            os.truncate(path, size)
        return path.read_bytes() if size else b""

    def _state(self, number: int) -> Path:
        return self.folder / f"chain-{number}.npz"

    def _draws(self, number: int) -> Path:
        return self.folder / f"chain-{number}.draws"


def _running() -> Any:
    return hashlib.blake2b(digest_size=32)


def _digest(description: dict[str, Any]) -> str:
    """Of the description without its digest."""
    return hashlib.blake2b(json.dumps(description, sort_keys=True).encode(), digest_size=32).hexdigest()

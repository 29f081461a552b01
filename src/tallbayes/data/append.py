"""Rows appended to a data set: in memory with room to spare, so that a series of appends copies little; to a store atomically."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.dataset import Dataset
from tallbayes.data.packed_store import GROWING, open_store, write_synced
from tallbayes.data.split import merge_moments
from tallbayes.errors import DataError, StoreError

_SPARE = 0.5  # room kept for further rows, as a share of those there are


class Room:
    """Records with room after them. Data sets that share it see its beginning; the longest of them may write what follows."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype) -> None:
        self.records = packed.empty(rows, columns, dtype)
        self.used = 0

    def write(self, records: np.ndarray) -> np.ndarray:
        """Add records after those that are used; returns all."""
        end = self.used + records.shape[0]
        self.records[self.used : end] = records
        self.used = end
        return self.records[:end]


def append(data: Dataset, part: Dataset, identity: dict[str, Any] | None = None) -> Dataset:
    """The rows of both, those of `data` first; a store grows in its place. `identity` says where the new rows come from.

    >>> import numpy as np, tallbayes as tb
    >>> old, new = (tb.Dataset.from_arrays(np.ones((m, 1)), np.arange(float(m))) for m in (3, 2))
    >>> append(old, new).y
    array([0., 1., 2., 0., 1.])
    """
    if data.groups or part.groups:
        raise DataError("rows of models with group effects cannot be appended; read all rows together.")
    if (part.columns, part.response) != (data.columns, data.response):
        raise DataError(
            f"the rows have the columns {', '.join(data.columns)} and the response {data.response!r}, the new ones have "
            f"{', '.join(part.columns)} and {part.response!r}; read them with the same formula."
        )
    records = part.records
    if records.dtype != data.records.dtype or data.trials_place != part.trials_place:
        records = packed.empty(part.n, data.records.shape[1] - 3, data.records.dtype)
        records[:, : data.d + 3] = part.records[:, : data.d + 3]
        _place_trials(data, part, records)
    entry = {"rows": part.n, "source": identity or None}
    grown = _append_to_store(data, part, records, entry) if data.store is not None else _append_to_memory(data, records, entry)
    grown.moments = merge_moments([data.moments, part.moments])
    grown.has_offset, grown.has_weights = data.has_offset or part.has_offset, data.has_weights or part.has_weights
    grown.complete_hashes = packed.complete_hashes(data.records, data.complete_hashes)
    return grown


def _place_trials(data: Dataset, part: Dataset, records: np.ndarray) -> None:
    """The numbers of trials of new rows where the old rows have theirs."""
    trials = part.trials(slice(None))
    if data.trials_place is not None:
        records[:, data.trials_place] = trials
    elif part.trials_place is not None and (trials != part.records[:, data.d + 2]).any():
        raise DataError(
            "the new rows of p(successes, trials) have weights=, the old ones do not; read both in the same way, with a column of ones as "
            "weights of the old rows."
        )


def _append_to_memory(data: Dataset, records: np.ndarray, entry: dict[str, Any]) -> Dataset:
    room, total = data.room, data.n + records.shape[0]
    if room is None or room.used != data.n or room.records.shape[0] < total:
        room = Room(int(total * (1.0 + _SPARE)), data.records.shape[1] - 3, data.records.dtype)
        room.write(data.records)
    recipe: dict[str, Any] = {k: data.recipe[k] for k in ("plan", "dtype") if k in data.recipe}
    recipe["appended"] = [*data.recipe.get("appended", []), entry]  # no source: its file holds the old rows alone
    grown = replace(data, records=room.write(records), recipe=recipe, _fingerprint=None)
    grown.room = room
    return grown


def _append_to_store(data: Dataset, part: Dataset, records: np.ndarray, entry: dict[str, Any]) -> Dataset:
    """Write the records after those of the store, sync, then replace its description: a crash leaves the old store or the new one."""
    assert data.store is not None
    path, width = Path(data.store), data.records.shape[1]
    description = json.loads((path / "store.json").read_text())
    if description["fingerprint"] != data.fingerprint:
        raise StoreError(
            f"the store {path} has grown or changed since it was opened; open it again with tallbayes.read({str(path)!r}) and append "
            "to that."
        )
    begin = data.n * width * data.records.dtype.itemsize
    try:
        write_synced(path / GROWING, b"")
        with open(path / "records.bin", "r+b") as file:
            file.truncate(begin)  # what an interrupted append may have left
            file.seek(begin)
            file.write(np.ascontiguousarray(records).data)
            file.flush()
            os.fsync(file.fileno())
        moments = merge_moments([data.moments, part.moments])
        rows = np.asarray(np.memmap(path / "records.bin", dtype=data.records.dtype, mode="c", shape=(moments.n, width)))
        hashes = packed.complete_hashes(data.records, data.complete_hashes)
        description |= {
            "n": moments.n,
            "moments": moments.as_dict(),
            "has_offset": data.has_offset or part.has_offset,
            "has_weights": data.has_weights or part.has_weights,
            "recipe": {**data.recipe, "appended": [*data.recipe.get("appended", []), entry]},
            "fingerprint": packed.fingerprint(rows, data.columns, data.response, hashes),
        }
        write_synced(path / "store.json", json.dumps(description).encode())
        (path / GROWING).unlink()
    except OSError as error:
        raise StoreError(f"appending to the store {path} failed: {error}. The store is as it was; free space there.") from error
    return open_store(path)

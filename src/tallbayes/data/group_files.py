"""The grouping factors of a packed store: codes, rows of every level and names of levels, in memory-mapped files beside the records.

`codes-k.bin` has the level of every record, `offsets-k.bin` where the rows of each level begin, `members-k.bin` the rows level by level
(none for a factor by which the records are sorted), `levels-k.arrow` the names, `order.bin` the row of the source that each record holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data.groups import GroupFactor, fill_members, in_order
from tallbayes.errors import StoreError


class GroupFiles:
    """Writes the files, records in order."""

    def __init__(self, folder: Path, factors: int) -> None:
        self.folder = folder
        self.codes = [open(folder / f"codes-{k}.bin", "wb") for k in range(factors)]  # noqa: SIM115
        self.order = open(folder / "order.bin", "wb")  # noqa: SIM115

    def write(self, codes: np.ndarray, order: np.ndarray) -> None:
        """Append codes, (rows, factors), and the numbers of the rows in the source."""
        for k, file in enumerate(self.codes):
            file.write(np.ascontiguousarray(codes[:, k], np.int32).data)
        self.order.write(np.ascontiguousarray(order, np.int64).data)

    def finish(self, labels: list[np.ndarray], counts: list[np.ndarray], n: int) -> None:
        """Indexes and names of levels."""
        for file in (*self.codes, self.order):
            file.flush()
            os.fsync(file.fileno())
        self.close()
        for k, (names, rows) in enumerate(zip(labels, counts, strict=True)):
            offsets = np.zeros(names.size + 1, np.int64)
            np.cumsum(rows, out=offsets[1:])
            _write(self.folder / f"offsets-{k}.bin", offsets)
            _write_labels(self.folder / f"levels-{k}.arrow", names)
            codes = _map(self.folder / f"codes-{k}.bin", n, np.int32)
            if not in_order(codes):
                members = np.memmap(self.folder / f"members-{k}.bin", np.int64, "w+", shape=(n,))
                fill_members(codes, offsets, members)
                members.flush()
                del members
            del codes

    def close(self) -> None:
        """Close the files."""
        for file in (*self.codes, self.order):
            file.close()


def open_factors(folder: Path, described: list[dict[str, Any]], n: int) -> tuple[tuple[GroupFactor, ...], np.ndarray]:
    """The factors of a store, one for each term, and the order of its records; refuses truncated files."""
    files: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = {}
    out = []
    for term in described:
        k = int(term["file"])
        if k not in files:
            labels = _read_labels(folder / f"levels-{k}.arrow")
            sorted_rows = not (folder / f"members-{k}.bin").exists()
            files[k] = (
                labels,
                _map(folder / f"codes-{k}.bin", n, np.int32),
                _map(folder / f"offsets-{k}.bin", labels.size + 1, np.int64),
                np.empty(0, np.int64) if sorted_rows else _map(folder / f"members-{k}.bin", n, np.int64),
            )
            if sorted_rows and not bool(term["sorted"]):
                raise StoreError(f"the store {folder} has lost a file; delete it and read the source again.")
        labels, codes, offsets, members = files[k]
        out.append(GroupFactor(str(term["name"]), labels, codes, tuple(term["terms"]), int(term["first"]), offsets, members))
    return tuple(out), _map(folder / "order.bin", n, np.int64)


def _map(path: Path, size: int, dtype: Any) -> np.ndarray:
    expected = size * np.dtype(dtype).itemsize
    actual = path.stat().st_size if path.exists() else 0
    if actual != expected:
        raise StoreError(
            f"the store {path.parent} is truncated: {path.name} has {actual:,} of {expected:,} bytes. Delete it and read the source again."
        )
    return np.asarray(np.memmap(path, dtype=dtype, mode="c", shape=(size,)))


def _write(path: Path, values: np.ndarray) -> None:
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(values).data)
        file.flush()
        os.fsync(file.fileno())


def _write_labels(path: Path, labels: np.ndarray) -> None:
    import pyarrow as pa

    column = pa.array([str(v) for v in labels]) if labels.dtype.kind == "O" else pa.array(labels)
    table = pa.table({"level": column})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read_labels(path: Path) -> np.ndarray:
    import pyarrow as pa

    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            return reader.read_all().column("level").to_numpy()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise StoreError(
            f"the names of levels {path} are damaged ({error}); delete the store and read the source again."
        ) from error

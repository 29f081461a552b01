"""Folders and patterns of files: one format, the same columns, in sorted order."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tallbayes.data.arrow import Source, kind_of
from tallbayes.errors import DataError


def folder(pattern: str | Path, open_file: Callable[[Path], Source]) -> Source:
    """All files of a folder, or all that match a pattern with `*`, `?` or `**`; names that begin with . or _ are skipped.

    >>> import tempfile
    >>> from tallbayes.data.sources.csv import csv
    >>> path = tempfile.mkdtemp()
    >>> for name in ("a", "b"):
    ...     with open(f"{path}/{name}.csv", "w") as file:
    ...         _ = file.write("y,x\\n0,1\\n")
    >>> sum(batch.num_rows for batch in folder(path, csv).batches(["y"]))
    2
    """
    absolute = str(Path(pattern).absolute())
    candidates = Path(absolute).iterdir() if Path(absolute).is_dir() else map(Path, glob.glob(absolute, recursive=True))
    paths = sorted(p for p in candidates if p.is_file() and not p.name.startswith((".", "_")))
    if not paths:
        raise DataError(f"there is no file in {pattern}; for files in subfolders write a pattern such as folder/**/*.parquet.")
    formats = sorted({p.suffix for p in paths})
    if len(formats) > 1:
        raise DataError(f"{pattern} holds files of several formats ({', '.join(formats)}); choose one, such as *{formats[0]}.")
    parts = [open_file(p) for p in paths]
    return join_sources(paths, parts, {"path": absolute, "files": [part.identity for part in parts]})


def join_sources(paths: Sequence[str | Path], parts: Sequence[Source], identity: dict[str, Any]) -> Source:
    """Several sources as one, in order; refuses columns that differ in name or kind."""
    head = parts[0]
    kinds = dict(zip(head.names, map(kind_of, head.types), strict=True))
    for path, part in zip(paths, parts, strict=True):
        if different := sorted(set(part.names) ^ set(head.names)):
            raise DataError(f"{path} and {paths[0]} have different columns: {', '.join(different)} is not in both.")
        for name, type_ in zip(part.names, part.types, strict=True):
            if kind_of(type_) != kinds[name]:
                expected = head.types[head.names.index(name)]
                raise DataError(f"column {name!r} is {type_} in {path}, but {expected} in {paths[0]}; make them the same type.")

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        for part in parts:
            yield from part.batches(columns)

    n = sum(part.n or 0 for part in parts) if all(part.n is not None for part in parts) else None
    ordered = frozenset.intersection(*(part.ordered for part in parts))
    return Source(head.names, n, identity, batches, head.types, ordered=ordered)

"""Certified bounds of old rows and of new ones at the same reference, as one bound: alias tables get more chunks, T9 more classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.bounds.interval import Ranged
from tallbayes.bounds.tables import Classed, Separable
from tallbayes.engine.random_rows import AliasTable, allocate

MOST_CLASSES = 1000  # of T9: every append adds up to 41, and an iteration looks at all of them


def join_bounds(old: Any, new: Any, folder: Path | None) -> Any:
    """The bound over the rows of both, those of `new` numbered after those of `old`; None where the two do not go together."""
    if type(old) is not type(new):
        return None
    if isinstance(old, Separable):
        return Separable(_joined(old.table, new.table, folder), old.pair) if _same_pair(old.pair, new.pair) else None
    if isinstance(old, Classed) and old.radius.size + new.radius.size <= MOST_CLASSES:
        return Classed(
            _concatenated(old.row, new.row + old.row.size, folder),
            np.empty(0, np.int64),
            np.concatenate([old.radius, new.radius]),
            np.concatenate([old.chunk, new.chunk[1:] + old.chunk[-1]]),
            _joined(old.local, new.local, folder),
            _joined(old.globally, new.globally, folder),
            old.bounded and new.bounded,
        )
    if isinstance(old, Ranged) and (old.radius == new.radius).all() and old.bounded == new.bounded:
        near, far, globally = (_joined(getattr(old, k), getattr(new, k), folder) for k in ("near", "far", "globally"))
        return Ranged(near, far, globally, old.radius, old.bounded, old.several)
    return None


def _same_pair(pair: Any, other: Any) -> bool:
    """Whether both sizes of a pair of positions are the same function; that of T4 depends on the rows."""
    return type(pair) is type(other) and len(pair) == 0


def _joined(old: AliasTable, new: AliasTable, folder: Path | None) -> AliasTable:
    """Both tables, the chunks of `new` after those of `old`."""
    weight, threshold, alias = (
        _concatenated(getattr(old, k), getattr(new, k), folder) for k in ("weight", "threshold", "alias")
    )
    start = np.concatenate([old.start, new.start[1:] + old.start[-1]])
    return AliasTable(
        weight, threshold, alias, start, np.concatenate([old.cumulative, new.cumulative[1:] + old.cumulative[-1]])
    )


def _concatenated(old: np.ndarray, new: np.ndarray, folder: Path | None) -> np.ndarray:
    out = allocate((old.size + new.size,), old.dtype.type, folder)
    out[: old.size], out[old.size :] = old, new
    return out

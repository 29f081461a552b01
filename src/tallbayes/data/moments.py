"""Streaming checks and moments of columns: what priors, scaling and error messages need, in the pass that packs the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tallbayes.errors import DataError


def check_finite(values: np.ndarray, names: tuple[str, ...], first_row: int) -> None:
    """Refuse NaN and infinity, naming the row and the column.

    >>> check_finite(np.array([[1.0, np.nan]]), ("a", "b"), 10)
    Traceback (most recent call last):
    ...
    tallbayes.errors.DataError: row 10, column 'b' is nan. Drop or impute such rows before fitting.
    """
    if np.isfinite(values).all():
        return
    row, column = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
    raise DataError(
        f"row {first_row + row}, column {names[column]!r} is {values[row, column]}. Drop or impute such rows before fitting."
    )


@dataclass
class Moments:
    """Count, mean, spread and range of every column, merged chunk by chunk (Chan's update)."""

    names: tuple[str, ...]
    n: int = 0
    mean: np.ndarray = field(init=False)
    scatter: np.ndarray = field(init=False)
    low: np.ndarray = field(init=False)
    high: np.ndarray = field(init=False)
    two_valued: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        k = len(self.names)
        self.mean, self.scatter = np.zeros(k), np.zeros(k)
        self.low, self.high = np.full(k, np.inf), np.full(k, -np.inf)
        self.two_valued = np.ones(k, bool)

    def add(self, chunk: np.ndarray) -> None:
        """Merge a chunk of rows."""
        m = chunk.shape[0]
        if m == 0:
            return
        with np.errstate(over="ignore"):  # a column of 1e200 has no finite variance; only priors would use it
            mean = chunk.mean(0)
            scatter = ((chunk - mean) ** 2).sum(0)
            gap = mean - self.mean
            total = self.n + m
            self.scatter += scatter + gap * (gap * (self.n * m / total))
        self.mean += gap * (m / total)
        low, high = np.minimum(self.low, chunk.min(0)), np.maximum(self.high, chunk.max(0))
        earlier = self.n == 0 or (((self.low == low) | (self.low == high)) & ((self.high == low) | (self.high == high)))
        self.two_valued &= earlier
        for k in np.flatnonzero(self.two_valued):
            self.two_valued[k] = ((chunk[:, k] == low[k]) | (chunk[:, k] == high[k])).all()
        self.low, self.high, self.n = low, high, total

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of every column (divisor n)."""
        return np.sqrt(self.scatter / max(1, self.n))

    def as_dict(self) -> dict[str, list]:
        """Plain lists, for JSON."""
        return {k: getattr(self, k).tolist() for k in ("mean", "scatter", "low", "high", "two_valued")}

    @classmethod
    def from_dict(cls, names: tuple[str, ...], n: int, values: dict[str, list]) -> Moments:
        """The inverse of `as_dict`."""
        out = cls(names)
        out.n = n
        for k in ("mean", "scatter", "low", "high"):
            setattr(out, k, np.asarray(values[k], float))
        out.two_valued = np.asarray(values["two_valued"], bool)
        return out

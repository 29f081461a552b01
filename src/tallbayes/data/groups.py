"""Grouping factors: the level of every row, the columns whose effects vary by level, and the rows of every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.data.records import CHUNK
from tallbayes.errors import DataError, warn

CONSTANT = "1"  # name of the term of a random intercept
_MANY = 100  # levels from which hardly more rows than levels are worth a warning


@dataclass(frozen=True, eq=False)
class GroupFactor:
    """One grouping factor of a data set, in the order of its records.

    `terms` names the columns whose effects vary by level, "1" the intercept. `first` is the position of these columns in a
    record, -1 if the only one is the intercept. The rows of level g are `members[offsets[g]:offsets[g + 1]]`; where the
    records are sorted by this factor `members` is empty, and the row numbers are the positions themselves.
    """

    name: str
    labels: np.ndarray
    codes: np.ndarray
    terms: tuple[str, ...]
    first: int
    offsets: np.ndarray
    members: np.ndarray

    @property
    def levels(self) -> int:
        """Number of levels, those without rows included."""
        return int(self.labels.size)

    @property
    def sorted(self) -> bool:
        """Whether the records are sorted by this factor."""
        return self.members.size == 0


@dataclass(frozen=True, eq=False)
class Grouping:
    """What a user gave for one factor: level of every row in the order given, and the columns of its terms."""

    name: str
    labels: np.ndarray
    codes: np.ndarray
    terms: tuple[str, ...]
    columns: np.ndarray | None  # (n, terms); None for a random intercept alone


def groupings(groups: Mapping[str, Any], X: np.ndarray, columns: Sequence[str]) -> tuple[Grouping, ...]:
    """The factors of `Dataset.from_arrays`: each a vector of codes, or (codes, Z), Z a matrix or names of columns.

    >>> made = groupings({"shop": ["b", "a", "b"]}, np.ones((3, 1)), ["x0"])
    >>> made[0].labels.tolist(), made[0].codes.tolist(), made[0].terms
    (['a', 'b'], [1, 0, 1], ('1',))
    """
    if not isinstance(groups, Mapping) or not groups:
        raise DataError(
            "groups must be a dictionary of at least one factor, such as groups={'shop': codes} or groups={'shop': (codes, Z)}."
        )
    return tuple(_grouping(str(name), value, X, tuple(columns)) for name, value in groups.items())


def _grouping(name: str, value: Any, X: np.ndarray, columns: tuple[str, ...]) -> Grouping:
    values, Z = (value[0], value[1]) if isinstance(value, tuple) and len(value) == 2 else (value, None)
    labels, codes = level_codes(name, values, X.shape[0])
    if Z is None:
        return Grouping(name, labels, codes, (CONSTANT,), None)
    terms, matrix = _terms(name, Z, X, columns)
    return Grouping(name, labels, codes, terms, None if terms == (CONSTANT,) else matrix)


def level_codes(name: str, values: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Names of the levels, sorted, and the code of every row; integers, text or a categorical, whose unused levels are kept."""
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(
            f"the codes of factor {name!r} are a masked array; drop the masked rows or give them a level of their own."
        )
    import pandas as pd

    categorical = getattr(values, "dtype", None)
    if isinstance(categorical, pd.CategoricalDtype):
        coded = pd.Categorical(values)
        labels, codes = np.asarray(coded.categories), np.asarray(coded.codes, np.int64)
    else:
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"the codes of factor {name!r} must be a vector, one for each row; their shape is {array.shape}.")
        if array.dtype.kind == "f" and (np.isfinite(array) & (array != np.floor(array))).any():
            raise DataError(
                f"factor {name!r} has fractional values such as {array[array != np.floor(array)][0]:g}: a measurement, not a level. "
                "Use it as a column of X, or cut it into classes first."
            )
        codes, labels = pd.factorize(array, sort=False)
        try:
            order = np.argsort(np.asarray(labels), kind="stable")
        except TypeError:
            raise DataError(f"the codes of factor {name!r} mix types that have no order; convert them to text.") from None
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        labels = np.asarray(labels)[order]
        codes = np.where(codes < 0, -1, rank[codes]) if order.size else codes
    if codes.shape != (n,):
        raise DataError(f"factor {name!r} has {codes.size:,} codes, but X has {n:,} rows; give one code for each row.")
    if (codes < 0).any():
        raise DataError(
            f"row {int(np.argmax(codes < 0))}: the level of factor {name!r} is missing. Drop such rows or give them a level of "
            "their own."
        )
    check_levels(name, int(np.unique(codes).size), n)
    if labels.dtype.kind == "f":
        labels = labels.astype(np.int64)
    return labels, codes.astype(np.int32)


def check_levels(name: str, present: int, n: int) -> None:
    """Refuse a factor with as many levels as rows, and issue a warning for one with hardly more rows than levels."""
    if n > 1 and present == n:
        raise DataError(
            f"factor {name!r} has as many levels as rows ({n:,}): an effect of a single row cannot be told from its noise. Group by a "
            "coarser factor."
        )
    if present >= _MANY and 2 * present > n:
        warn(
            f"factor {name!r} has {present:,} levels in {n:,} rows, fewer than two rows per level. If it is a measurement, use it as a "
            "predictor; if it identifies rows, group by a coarser factor."
        )


def _terms(name: str, Z: Any, X: np.ndarray, columns: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    n = X.shape[0]
    if isinstance(Z, str) or (isinstance(Z, list | tuple) and Z and all(isinstance(z, str) for z in Z)):
        names = (Z,) if isinstance(Z, str) else tuple(Z)
        missing = [z for z in names if z != CONSTANT and z not in columns]
        if missing:
            raise DataError(
                f"factor {name!r}: {missing[0]!r} is not a column of X; terms are '1' or one of {', '.join(columns)}, or give a matrix."
            )
        matrix = np.column_stack([np.ones(n) if z == CONSTANT else X[:, columns.index(z)] for z in names])
    else:
        matrix = np.asarray(Z)
        matrix = matrix[:, None] if matrix.ndim == 1 else matrix
        if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] == 0 or matrix.dtype.kind not in "fiub":
            raise DataError(
                f"factor {name!r}: Z must be a matrix of numbers with {n:,} rows, one column for each term (a column of ones for the "
                f"intercept); its shape is {np.shape(Z)}."
            )
        matrix = matrix.astype(np.float64)
        if not np.isfinite(matrix).all():
            row = int(np.argmin(np.isfinite(matrix).all(1)))
            raise DataError(f"row {row}: Z of factor {name!r} is not finite. Drop such rows.")
        names = tuple(_term_name(matrix[:, a], a, X, columns) for a in range(matrix.shape[1]))
    if len(set(names)) != len(names):
        raise DataError(f"factor {name!r}: two of its terms are the same column ({', '.join(names)}); give each once.")
    return names, matrix.astype(np.float64)


def _term_name(z: np.ndarray, position: int, X: np.ndarray, columns: tuple[str, ...]) -> str:
    if (z == 1.0).all():
        return CONSTANT
    for j, column in enumerate(columns):
        if (X[:, j] == z).all():
            return column
    return f"z{position}"


def row_order(made: Sequence[Grouping]) -> tuple[int, np.ndarray]:
    """The factor with most levels, and the order of rows that sorts them by it; equal rows keep their order."""
    largest = int(np.argmax([g.labels.size for g in made]))
    return largest, np.argsort(made[largest].codes, kind="stable")


def factors(made: Sequence[Grouping], order: np.ndarray, first: int) -> tuple[GroupFactor, ...]:
    """Factors of records in `order`, with the columns of their terms from position `first` of a record on."""
    out = []
    for group in made:
        codes = np.ascontiguousarray(group.codes[order])
        offsets, members = rows_of_levels(codes, group.labels.size)
        out.append(
            GroupFactor(group.name, group.labels, codes, group.terms, -1 if group.columns is None else first, offsets, members)
        )
        first += 0 if group.columns is None else group.columns.shape[1]
    return tuple(out)


def rows_of_levels(codes: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows of each level begin, and the rows level by level; no rows if the codes are in order already.

    >>> rows_of_levels(np.array([1, 0, 1], np.int32), 2)
    (array([0, 1, 3]), array([1, 0, 2]))
    """
    offsets = np.zeros(levels + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=levels), out=offsets[1:])
    if in_order(codes):
        return offsets, np.empty(0, np.int64)
    members = np.empty(codes.size, np.int64)
    fill_members(codes, offsets, members)
    return offsets, members


def in_order(codes: np.ndarray) -> bool:
    """Whether codes never decrease; looked at in chunks, as they may be memory-mapped."""
    return all(bool((np.diff(codes[k : k + CHUNK + 1]) >= 0).all()) for k in range(0, codes.size, CHUNK))


def fill_members(codes: np.ndarray, offsets: np.ndarray, members: np.ndarray) -> None:
    """Write the rows level by level, a chunk of rows at a time."""
    following = offsets[:-1].copy()
    for start in range(0, codes.size, CHUNK):
        part = codes[start : start + CHUNK]
        members[places(part, following)] = np.arange(start, start + part.size)


def places(codes: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Where the rows of a chunk belong when rows are sorted by level: `following` has the next place of every level, and is advanced.

    >>> following = np.array([0, 2])
    >>> places(np.array([1, 0, 1]), following).tolist(), following.tolist()
    ([2, 0, 3], [1, 4])
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if codes.size else np.empty(0, np.int64)
    counts = np.diff(np.r_[first, codes.size])
    out = np.empty(codes.size, np.int64)
    out[order] = following[ordered] + np.arange(codes.size) - np.repeat(first, counts)
    following[ordered[first]] += counts
    return out


def fingerprint_of_factor(factor: GroupFactor) -> str:
    """Hash of names, labels and codes."""
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((factor.name, factor.terms, factor.codes.shape)).encode())
    for label in factor.labels:
        digest.update(f"{label}\0".encode())
    for start in range(0, factor.codes.size, CHUNK):
        digest.update(np.ascontiguousarray(factor.codes[start : start + CHUNK]).tobytes())
    return digest.hexdigest()

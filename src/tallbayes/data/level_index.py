"""Levels of a grouping factor of streamed rows: the distinct values of its columns with their counts, and the code of every row.

Pass one counts (`LevelCounter`), in memory of the order of the number of levels. Pass two looks codes up (`LevelIndex`). Levels are in
the order of their values; those of a categorical column in the order of its categories, unused ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.categories import CategoryOrder
from tallbayes.data.design import flat_column
from tallbayes.data.groups import check_levels
from tallbayes.errors import DataError

_COUNT = "count_all"
_WAITING = 1 << 18  # distinct values of batches that wait to be merged


def level_column(batch: Any, name: str, first_row: int) -> Any:
    """A column to be used as levels, as text, whole numbers or booleans; refuses what is missing and fractions.

    >>> import pyarrow as pa
    >>> level_column(pa.record_batch({"g": [2.0, 1.0]}), "g", 0).to_pylist()
    [2, 1]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = flat_column(batch, name, first_row)
    if arrow.kind_of(column.type) == "level":
        return column.cast(pa.string())
    if pa.types.is_boolean(column.type):
        return column
    if not pa.types.is_integer(column.type):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bad = ~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53))
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"row {first_row + row}, column {name!r} is {values[row]:g}: a measurement, not a level of a grouping factor. Use it as a "
                "predictor, or cut it into classes first."
            )
        return pa.array(values.astype(np.int64))
    try:
        return pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        raise DataError(
            f"column {name!r} has whole numbers beyond 64 bits; convert them to text to use them as levels."
        ) from None


class LevelCounter:
    """Pass one: distinct levels and their numbers of rows; `ordered` are the columns whose categories keep their order."""

    def __init__(self, columns: tuple[str, ...], ordered: frozenset[str] = frozenset()) -> None:
        self.columns, self.n = columns, 0
        self.parts: list[Any] = []
        self.waiting, self.merged = 0, 0
        self.categories = CategoryOrder(ordered & set(columns))

    def add(self, batch: Any) -> None:
        """Merge a batch."""
        import pyarrow as pa

        if batch.num_rows == 0:
            return
        self.categories.see(batch)
        table = pa.table([level_column(batch, name, self.n) for name in self.columns], names=list(self.columns))
        self.parts.append(table.group_by(list(self.columns), use_threads=False).aggregate([([], _COUNT)]))
        self.n += batch.num_rows
        self.waiting += self.parts[-1].num_rows
        if self.waiting > _WAITING + self.merged:
            self._merge()

    def _merge(self) -> None:
        import pyarrow as pa

        table = pa.concat_tables(self.parts, promote_options="permissive")
        grouped = table.group_by(list(self.columns), use_threads=False).aggregate([(_COUNT, "sum")])
        table = grouped.rename_columns([_COUNT if name == f"{_COUNT}_sum" else name for name in grouped.column_names])
        self.parts, self.waiting, self.merged = [table], 0, table.num_rows

    def index(self) -> LevelIndex:
        """The levels of all rows."""
        import pyarrow as pa

        self._merge()
        table, values, codes = self.parts[0], [], []
        for name in self.columns:
            column = table.column(name).combine_chunks()
            own = column.unique()
            categories = self.categories.of(name)
            if categories is not None:
                own = level_column(pa.record_batch([categories], [name]), name, 0)
            else:
                own = own.take(pa.compute.array_sort_indices(own))
            values.append(own.to_numpy(zero_copy_only=False))
            codes.append(pa.compute.index_in(column, value_set=own).to_numpy(zero_copy_only=False).astype(np.int64))
        keys = codes[0]
        for own_values, own_codes in zip(values[1:], codes[1:], strict=True):
            if keys.size and int(keys.max() + 1) * own_values.size >= 2**62:
                raise DataError(f"the combinations of {':'.join(self.columns)} are too many to count.")
            keys = keys * own_values.size + own_codes
        order = np.argsort(keys)
        keys, counts = keys[order], table.column(_COUNT).to_numpy().astype(np.int64)[order]
        if len(self.columns) == 1 and keys.size < values[0].size:  # categories without rows
            every = np.zeros(values[0].size, np.int64)
            every[keys] = counts
            keys, counts = np.arange(values[0].size), every
        name = ":".join(self.columns)
        check_levels(name, int(np.count_nonzero(counts)), self.n)
        return LevelIndex(name, self.columns, tuple(values), keys, counts)


@dataclass(frozen=True, eq=False)
class LevelIndex:
    """The levels of a factor: distinct values of each of its columns, the combinations that occur, and their numbers of rows."""

    name: str
    columns: tuple[str, ...]
    values: tuple[np.ndarray, ...]
    keys: np.ndarray  # combined codes of the values, ascending
    counts: np.ndarray

    @property
    def levels(self) -> int:
        """Number of levels."""
        return int(self.keys.size)

    @cached_property
    def labels(self) -> np.ndarray:
        """Names of the levels: values of the column, or values joined by colons."""
        if len(self.columns) == 1:
            return self.values[0]
        rest, parts = self.keys, []
        for values in reversed(self.values):
            parts.append(values[rest % values.size])
            rest = rest // values.size
        names = np.array([":".join(map(str, combination)) for combination in zip(*reversed(parts), strict=True)], object)
        if np.unique(names.astype(str)).size < names.size:
            raise DataError(f"two levels of {self.name!r} have the same name, as their values have colons; replace the colons.")
        return names

    @cached_property
    def _tables(self) -> list[Any]:
        import pandas as pd

        return [pd.Index(values, dtype=object if values.dtype.kind == "O" else None) for values in self.values]

    def codes(self, batch: Any, first_row: int) -> np.ndarray:
        """The code of every row of a batch; -1 for a level that is not among them."""
        keys = np.zeros(batch.num_rows, np.int64)
        known = np.ones(batch.num_rows, bool)
        for name, table in zip(self.columns, self._tables, strict=True):
            encoded = level_column(batch, name, first_row).dictionary_encode()
            places = table.get_indexer(encoded.dictionary.to_numpy(zero_copy_only=False))
            own = places[encoded.indices.to_numpy(zero_copy_only=False)]
            known &= own >= 0
            keys = keys * table.size + own
        found = np.minimum(np.searchsorted(self.keys, keys), self.levels - 1)
        return np.where(known & (self.keys[found] == keys), found, -1).astype(np.int32)

"""The order of categories of streamed columns: kept if it is meant, and the same in all batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def ordered_columns(schema: Any) -> frozenset[str]:
    """Categorical columns whose categories have an order that is meant: those of pandas, and those that say so.

    >>> import pandas as pd, pyarrow as pa
    >>> table = pa.Table.from_pandas(pd.DataFrame({"g": pd.Categorical(["b"], categories=["b", "a"]), "h": ["b"]}))
    >>> sorted(ordered_columns(table.schema))
    ['g']
    """
    import pyarrow as pa

    pandas = bool(schema.pandas_metadata)
    fields = [f for f in schema if pa.types.is_dictionary(f.type)]
    return frozenset(f.name for f in fields if pandas or f.type.ordered)


class CategoryOrder:
    """The categories of some columns, as long as those of all batches are the same."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.known: dict[str, Any] = {name: None for name in columns}
        self.different: set[str] = set()

    def see(self, batch: Any) -> None:
        """Compare the categories of a batch with those before."""
        import pyarrow as pa

        for name in self.known:
            column = batch.column(name)
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                if not pa.types.is_dictionary(chunk.type) or chunk.dictionary.null_count or not _valid(chunk.dictionary):
                    self.different.add(name)
                elif self.known[name] is None:
                    self.known[name] = chunk.dictionary
                elif not self.known[name].equals(chunk.dictionary):
                    self.different.add(name)

    def of(self, name: str) -> Any:
        """The categories of a column as an array, or None if there is no order to keep."""
        return None if name in self.different else self.known.get(name)


def _valid(values: Any) -> bool:
    """Whether all categories, also those without rows, are proper text."""
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

"""What identifies the rows of a prediction: the index of a pandas frame, and columns that are copied from the new rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tallbayes.data import arrow
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError, unknown
from tallbayes.results.new_rows import BLOCK


def with_ids(blocks: Iterable[pd.DataFrame], new: Any, names: str | Sequence[str] | None) -> Iterable[pd.DataFrame]:
    """Blocks of predictions with the columns that identify their rows before them."""
    if names is None:
        return blocks
    wanted = [names] if isinstance(names, str) else list(names)
    return _joined(blocks, _id_blocks(_source(new, wanted), wanted), wanted)


def _joined(blocks: Iterable[pd.DataFrame], ids: Iterable[pd.DataFrame], names: list[str]) -> Iterator[pd.DataFrame]:
    for block, own in zip(blocks, ids, strict=True):
        clash = [name for name in names if name in block.columns]
        if clash:
            raise DataError(f"the predictions have a column {clash[0]!r} of their own; rename the id column.")
        yield pd.concat([own, block], axis=1)


def _source(new: Any, names: list[str]) -> arrow.Source:
    import pyarrow as pa

    if isinstance(new, dict):
        new = pa.table({str(k): v for k, v in new.items()})
    if not (isinstance(new, str | Path) or hasattr(new, "__arrow_c_stream__")) or (
        isinstance(new, str | Path) and (Path(new) / "store.json").exists()
    ):
        raise DataError("id= names columns of new; give a table, a file or a dictionary of columns, not design rows.")
    source = open_source(new)
    if not source.repeatable:
        raise DataError("id= needs rows that can be read twice; give a table or a file, not a stream.")
    for name in names:
        if name not in source.names:
            raise DataError(f"new has no column {name!r} for id=: {unknown('column', name, source.names)}")
    arrow.refuse_ambiguous(source.names, names)
    return source


def _id_blocks(source: arrow.Source, names: list[str]) -> Iterator[pd.DataFrame]:
    waiting: list[pd.DataFrame] = []
    count = row = 0
    for batch in source.batches(names):
        for name in names:
            arrow.require_decodable(batch.column(name), name, row)
        row += batch.num_rows
        waiting.append(batch.to_pandas())
        count += batch.num_rows
        if count >= BLOCK:
            whole = pd.concat(waiting, ignore_index=True)
            full = count - count % BLOCK
            for start in range(0, full, BLOCK):
                yield whole.iloc[start : start + BLOCK].reset_index(drop=True)
            waiting, count = [whole.iloc[full:]], count - full
    if count:
        yield pd.concat(waiting, ignore_index=True)


def with_index(table: pd.DataFrame, new: Any) -> pd.DataFrame:
    """The predictions with the index of a pandas frame that they were made for."""
    return table.set_axis(new.index, axis=0) if isinstance(new, pd.DataFrame) and len(new) == len(table) else table

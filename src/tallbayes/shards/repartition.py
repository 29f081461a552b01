"""Rows of files that are sorted, by date or by place, spread at random over new files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.data.file_partitions import files_of, join_files
from tallbayes.errors import DataError, OptionError
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator


def repartition(paths: Any, folder: str | Path, shards: int, seed: int = 0, progress: bool = True) -> list[str]:
    """Write every row to one of `shards` new Parquet files, drawn at random; one pass, a batch in memory at a time.

    The order of the rows is lost, so a series, whose rows depend on those before them, must not be spread.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"x": list(range(100))}), f"{folder}/sorted.parquet")
    >>> files = repartition(f"{folder}/sorted.parquet", f"{folder}/random", shards=2, progress=False)
    >>> len(files), sum(pq.read_metadata(f).num_rows for f in files)
    (2, 100)
    """
    import pyarrow.parquet as pq

    if not isinstance(shards, int | np.integer) or shards < 1:
        raise OptionError(f"shards must be a whole number of at least 1; got {shards!r}.")
    source, target = join_files(files_of(paths)), Path(folder)
    if target.exists() and any(target.iterdir()):
        raise DataError(f"{target} is not empty; give a new folder.")
    target.mkdir(parents=True, exist_ok=True)
    names = [str(target / f"part-{k:05d}.parquet") for k in range(shards)]
    rng, counts = generator(seed, Stream.REPARTITION), np.zeros(shards, np.int64)
    writers: list[Any] = []
    with ExitStack() as stack, Progress("spreading rows", source.n, progress) as bar:
        for batch in source.batches(list(source.names)):
            if not writers:
                writers = [stack.enter_context(pq.ParquetWriter(name, batch.schema)) for name in names]
            where = rng.integers(0, shards, batch.num_rows)
            for k in np.unique(where):
                writers[k].write_batch(batch.take(np.flatnonzero(where == k)))
            counts += np.bincount(where, minlength=shards)
            bar.advance(batch.num_rows)
    if counts.min() == 0:
        raise DataError(f"{counts.sum():,} rows left {int((counts == 0).sum())} of {shards} files empty; use fewer shards.")
    return names

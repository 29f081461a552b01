"""The demo: a million rows made on disk, fitted from the file, with table, plots and cost."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tallbayes import api
from tallbayes.errors import OptionError
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator

_CHUNK = 100_000
_EFFECT = np.array([0.8, -0.5, 0.3, 0.0, 0.15, -1.1, 0.4, 0.0])
_INTERCEPT = -1.0


def write_rows(path: Path, rows: int, seed: int, progress: bool = True) -> None:
    """Write a Parquet file of clicks: eight correlated columns and a response, a chunk at a time.

    >>> import tempfile, pyarrow.parquet
    >>> path = Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> write_rows(path, 1000, seed=0, progress=False)
    >>> pyarrow.parquet.read_metadata(path).num_rows
    1000
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = generator(seed, Stream.DEMO)
    d = _EFFECT.size
    mixing = np.linalg.cholesky(0.6 * np.eye(d) + 0.4)
    names = [f"x{j + 1}" for j in range(d)]
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    with Progress("writing rows", rows, progress) as bar:
        for start in range(0, rows, _CHUNK):
            m = min(_CHUNK, rows - start)
            x = rng.standard_normal((m, d)) @ mixing.T
            y = rng.random(m) < 1 / (1 + np.exp(-(_INTERCEPT + x @ _EFFECT)))
            table = pa.table({**{c: x[:, j] for j, c in enumerate(names)}, "clicked": y.astype(np.int8)})
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            bar.advance(m)
    if writer is not None:
        writer.close()


def run(folder: Path, rows: int, seed: int, progress: bool = True) -> None:
    """Everything `tallbayes demo` does."""
    if rows < 1:
        raise OptionError(f"the demo needs at least one row; got --rows {rows}.")
    path = folder / "clicks.parquet"
    print(f"1. {rows:,} rows of simulated clicks -> {path}")
    begun = time.perf_counter()
    write_rows(path, rows, seed, progress)
    print(f"   {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - begun:.1f} s")
    print('2. tallbayes.fit("clicked ~ .", path, family="logistic")')
    begun = time.perf_counter()
    fit = api.fit("clicked ~ .", path, "logistic", draws=2000, warmup=500, seed=seed, progress=progress)
    print(f"   {time.perf_counter() - begun:.1f} s; chosen: {fit.why}\n")
    table = fit.summary()
    table["truth"] = [_INTERCEPT, *_EFFECT]
    print(table)
    for kind in ("trace", "marginals", "cost"):
        fit.plot(kind, folder / f"{kind}.png")
    saved = fit.save(folder / "fit.nc")
    print(f"\n3. plots in {folder}/trace.png, marginals.png, cost.png; the fit in {saved} (tallbayes.load reads it)")

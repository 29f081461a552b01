"""Named problems, real and synthetic, that the benchmarks share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb

COVTYPE_ROWS = 400_000
FEW = 2000  # rows of a quick run


def data_folder() -> Path:
    folder = os.environ.get("TALLBAYES_DATA")
    if not folder:
        sys.exit("set TALLBAYES_DATA to the folder with covtype.parquet, flights3m_2001.parquet and freMTPL2freq.parquet")
    return Path(folder)


def real_table(name: str, quick: bool = False, columns: list[str] | None = None) -> pa.Table:
    """Rows of a Parquet file; a random few of them for a quick run."""
    table = pq.read_table(data_folder() / f"{name}.parquet", columns=columns)
    return table.take(np.sort(np.random.default_rng(0).permutation(table.num_rows)[:FEW])) if quick else table


def covtype(rows: int | None = COVTYPE_ROWS) -> tb.models.Model:
    """Cover type 2 against the rest, ten quantitative columns; a random 400,000 rows, or all 581,012."""
    table = real_table("covtype")
    x = np.column_stack([np.ones(table.num_rows), *(table.column(i).to_numpy() for i in range(10))]).astype(float)
    y = (table["Cover_Type"].to_numpy() == 2).astype(float)
    chosen = np.random.default_rng(0).permutation(y.size)[: rows or y.size]
    names = ["Intercept", *table.column_names[:10]]
    return tb.models.logistic(tb.Dataset.from_arrays(x[chosen], y[chosen], columns=names))


def flights(quick: bool = False) -> tb.models.Model:
    """Delay of more than 15 minutes of three million flights: time of day (two harmonics), distance, weekday, season."""
    table = real_table("flights3m_2001", quick)
    hour = table["minute_of_day"].to_numpy() * (2 * np.pi / 1440)
    month = table["month"].to_numpy() * (2 * np.pi / 12)
    weekday = table["dow"].to_numpy()
    columns = {
        "Intercept": np.ones(table.num_rows),
        "log_distance": np.log(np.maximum(table["distance"].to_numpy(), 1.0)),
        **{f"{kind.__name__}_{k}h": kind(k * hour) for k in (1, 2) for kind in (np.sin, np.cos)},
        **{f"{kind.__name__}_month": kind(month) for kind in (np.sin, np.cos)},
        **{f"dow_{k}": (weekday == k).astype(float) for k in range(1, 7)},
    }
    y = (table["delay"].to_numpy() > 15).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack(list(columns.values())), y, columns=list(columns)))


def claims(quick: bool = False) -> tb.models.Model:
    """Claim counts of 678,013 motor policies with exposure as offset."""
    table = real_table("freMTPL2freq", quick)
    columns = {
        "Intercept": np.ones(table.num_rows),
        "VehPower": table["VehPower"].to_numpy(),
        "VehAge": np.minimum(table["VehAge"].to_numpy(), 20),
        "DrivAge": table["DrivAge"].to_numpy(),
        "log_BonusMalus": np.log(table["BonusMalus"].to_numpy()),
        "log_Density": np.log(table["Density"].to_numpy()),
        "Diesel": (table["VehGas"].to_numpy(zero_copy_only=False) == "Diesel").astype(float),
    }
    data = tb.Dataset.from_arrays(
        np.column_stack(list(columns.values())).astype(float),
        table["ClaimNb"].to_numpy(),
        offset=np.log(table["Exposure"].to_numpy()),
        columns=list(columns),
    )
    return tb.models.poisson(data)


def synthetic_rows(n: int, d: int, seed: int = 0, intercept: float = 0.0, heavy: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A logistic design with an intercept and d - 1 correlated columns; `heavy` draws them from t with 4 degrees."""
    rng = np.random.default_rng(seed)
    x = np.empty((n, d))
    x[:, 0] = 1.0
    common = rng.standard_normal(n)[:, None]
    x[:, 1:] = 0.8 * rng.standard_normal((n, d - 1)) + 0.6 * common
    if heavy:
        x[:, 1:] /= np.sqrt(rng.chisquare(4, n)[:, None] / 4)
    effect = rng.standard_normal(d) / np.sqrt(d)
    effect[0] = intercept
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ effect))).astype(float)
    return x, y


def synthetic(n: int, d: int, **options: float | bool) -> tb.models.Model:
    """The same as a model."""
    return tb.models.logistic(tb.Dataset.from_arrays(*synthetic_rows(n, d, **options)))  # type: ignore[arg-type]

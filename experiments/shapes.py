"""Synthetic rows of the shape of two data sets of Dang et al. (2019), from a seed, in blocks of any number of rows.

HIGGS shape: 28 columns and an intercept; 21 correlated columns with heavy tails, seven nonlinear functions of them. Bankruptcy
shape: eight covariates with ten spline columns each and an intercept; about one event in a hundred. Labels do not come from the
fitted model: the log-odds have interactions and curvature that no column carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import ndtr

import tallbayes as tb

BLOCK = 250_000


def blocks(n: int) -> Iterator[tuple[int, int]]:
    """Number and rows of every block of n rows."""
    for k, start in enumerate(range(0, n, BLOCK)):
        yield k, min(BLOCK, n - start)


def _heavy(rng: np.random.Generator, size: int, d: int, df: float) -> np.ndarray:
    """Correlated columns with multivariate t tails of a fixed correlation matrix."""
    mixing = np.random.default_rng(1234).standard_normal((d, d)) / np.sqrt(d)
    normal = rng.standard_normal((size, d)) @ (0.8 * np.eye(d) + 0.6 * mixing)
    return normal / np.sqrt(rng.chisquare(df, (size, 1)) / df)


def higgs_block(seed: int, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns (intercept first) and labels of one block."""
    rng = np.random.default_rng([seed, block])
    x = _heavy(rng, size, 21, 8.0)
    made = np.column_stack(
        [
            np.sqrt(1.0 + x[:, 0] ** 2 + x[:, 1] ** 2),
            np.log1p(np.abs(x[:, 2] * x[:, 3])),
            np.hypot(x[:, 4], x[:, 5]),
            np.tanh(x[:, 6] + x[:, 7]),
            np.abs(x[:, 8]) ** 0.7,
            np.sqrt(np.abs(x[:, 9] * x[:, 10]) + 0.1),
            np.arctan2(x[:, 11], x[:, 12]),
        ]
    )
    effects = np.linspace(-0.3, 0.3, 21)
    odds = (
        x @ effects
        + 0.5 * (made[:, 0] - 1.5)
        - 0.4 * (made[:, 2] - 1.2)
        + 0.3 * np.sin(2.0 * x[:, 0] * x[:, 4])
        - 0.1 * x[:, 1] ** 2
    )
    y = rng.random(size) < 1.0 / (1.0 + np.exp(-odds))
    return np.column_stack([np.ones(size), x, made]), y.astype(float)


def splines(u: np.ndarray, columns: int = 10) -> np.ndarray:
    """Cubic B-splines with equally spaced knots on (0, 1), the first left out: they and an intercept span all cubic splines."""
    inner = np.linspace(0.0, 1.0, columns - 3 + 2)
    knots = np.concatenate([[0.0] * 3, inner, [1.0] * 3])
    return BSpline.design_matrix(np.clip(u, 0.0, 1.0 - 1e-9), knots, 3).toarray()[:, 1:]


def bankruptcy_covariates(seed: int, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariates of one block of the bankruptcy shape, turned to ranks, and labels."""
    rng = np.random.default_rng([seed, 7, block])
    z = _heavy(rng, size, 8, 5.0)
    u = ndtr(z / np.sqrt(1.5))
    odds = (
        -5.6
        + 1.6 * (1.0 - u[:, 0]) ** 3 * 2.0
        + 0.8 * np.sin(4.0 * u[:, 1])
        - 1.2 * u[:, 2] * u[:, 3]
        + 0.9 * u[:, 4] ** 2
        + 0.4 * u[:, 5]
    )
    y = rng.random(size) < 1.0 / (1.0 + np.exp(-odds))
    return u, y.astype(float)


def bankruptcy_block(seed: int, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns (intercept first) and labels of one block: ten splines of every covariate."""
    u, y = bankruptcy_covariates(seed, block, size)
    return np.column_stack([np.ones(size), *(splines(u[:, j]) for j in range(8))]), y


SHAPES = {"higgs": (higgs_block, 29, 10_500_000), "bankruptcy": (bankruptcy_block, 81, 4_748_089)}


def unseen(shape: str, n: int, seed: int = 2019, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Columns and labels of `count` further blocks of rows, behind the first n."""
    make, first = SHAPES[shape][0], -(-n // BLOCK)
    parts = [make(seed, first + k, BLOCK) for k in range(count)]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def dataset(shape: str, n: int, seed: int = 2019, folder: Path | None = None) -> tb.Dataset:
    """Rows of a shape: in memory, or as a Parquet file in `folder` that is packed into a store from there."""
    make, d, _ = SHAPES[shape]
    if folder is None:
        x, y = np.empty((n, d), np.float32), np.empty(n)
        start = 0
        for k, size in blocks(n):
            x[start : start + size], y[start : start + size] = make(seed, k, size)
            start += size
        return tb.Dataset.from_arrays(x, y, dtype="float32", columns=["Intercept", *(f"x{j}" for j in range(1, d))])
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(1, d)]
    path = folder / f"{shape}-{n}-{seed}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([("y", pa.int8()), *((name, pa.float32()) for name in names)])
        with pq.ParquetWriter(path.with_suffix(".part"), schema) as writer:
            for k, size in blocks(n):
                x, y = make(seed, k, size)
                columns = [pa.array(y.astype(np.int8)), *(pa.array(x[:, j].astype(np.float32)) for j in range(1, d))]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        path.with_suffix(".part").rename(path)
    return tb.read(path, formula="y ~ " + " + ".join(names), store=folder, memory="disk", dtype="float32", progress=False)

"""What the experiments with subsampled acceptance tests share: data, shares of n, figures."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.problems import COVTYPE_ROWS, data_folder
from tallbayes.errors import TallbayesWarning
from tallbayes.mode.laplace import Mode
from tallbayes.results.published_counts import AFTER_FULL_READ, published_evaluations

FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def arguments(description: str | None, *numbers: tuple[str, int, str], parts: tuple[str, ...] = ()) -> argparse.Namespace:
    """--write puts tables and figures into docs, --quick is a smoke run; whole numbers with a default and a help text may follow, and
    parts of the experiment that --part runs alone."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results and the figures beside it")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds on few rows")
    if parts:
        parser.add_argument("--part", choices=parts, default=None, help="one part alone")
    for name, default, text in numbers:
        parser.add_argument(name, type=int, default=default, help=text)
    return parser.parse_args()


def run(model: tb.models.Model, sampler: Any, draws: int, chains: int, warmup: int = 300, **options: Any) -> Any:
    """A run whose warnings about cost are not repeated: the tables say what it cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TallbayesWarning)
        return tb.sample(model, sampler, draws=draws, warmup=warmup, chains=chains, seed=1, progress=False, **options)


def percent(share: float) -> str:
    """A share in per cent with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def charged(fit: Any, n: int, reading: str = AFTER_FULL_READ, renewed: np.ndarray | None = None) -> np.ndarray:
    """Evaluations of every iteration by a reading of the papers' rule (`tallbayes.results.published_counts`), (chains, draws)."""
    return published_evaluations(fit.stats["rows"], fit.stats["full_read"], n, reading, renewed)


def renewals(draws: int, warmup: int, every: int) -> np.ndarray:
    """Which draws renew the reference of a proxy, every so many iterations from the first of warm-up on."""
    return (warmup + np.arange(draws)) % every == 0


def isotropic_mode(mode: Any) -> Any:
    """The same mode with proposals of one scale for all coordinates of theta, as the papers have them."""
    narrow = 1.0 / np.linalg.eigvalsh(mode.covariance)[0]
    precision = narrow * np.eye(mode.model.dim)
    return Mode(mode.model, mode.reference, mode.log_posterior, mode.gradient, mode.hessian, precision, passes=0, evaluations=0)


def share_by_chain(evals: np.ndarray, n: int) -> str:
    """Evaluations of an iteration, (chains, draws), over n: the least and the largest of the chains."""
    shares = evals.mean(1) / n
    low, high = percent(shares.min()), percent(shares.max())
    return low if low == high else f"{low} to {high}"


def standardised(x: np.ndarray) -> np.ndarray:
    """An intercept, and columns with mean 0 and standard deviation 1/2 (Gelman, Jakulin, Pittau and Su 2008)."""
    return np.column_stack([np.ones(len(x)), (x - x.mean(0)) / (2.0 * x.std(0))])


def covtype_columns(rows: int | None = None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The ten quantitative columns and whether the cover type is 2, in random order."""
    table = pq.read_table(data_folder() / "covtype.parquet")
    names = table.column_names[:10]
    x = np.column_stack([table[name].to_numpy() for name in names]).astype(float)
    y = (table["Cover_Type"].to_numpy() == 2).astype(float)
    chosen = np.random.default_rng(0).permutation(y.size)[: rows or y.size]
    return x[chosen], y[chosen], names


def covtype_logistic(rows: int = COVTYPE_ROWS) -> tb.models.Model:
    """Cover type 2 against the rest on ten standardised columns, with the Cauchy prior of the papers."""
    x, y, names = covtype_columns(rows)
    return tb.models.logistic(tb.Dataset.from_arrays(standardised(x), y, columns=["Intercept", *names]))


def covtype_gamma(rows: int = COVTYPE_ROWS) -> tb.models.Model:
    """Distance to the nearest fire point, a gamma variable, on the other nine columns; the shape is a moment estimate."""
    x, _, names = covtype_columns()
    response = names.index("Horizontal_Distance_To_Fire_Points")
    x = x[x[:, response] > 0][:rows]
    y, design = x[:, response], standardised(np.delete(x, response, 1))
    data = tb.Dataset.from_arrays(design, y, columns=["Intercept", *(name for name in names if name != names[response])])
    first = tb.find_mode(tb.models.gamma(data, tb.priors.flat(), shape=1.0), progress=False)
    shape = 1.0 / float(np.mean((y / np.exp(design @ first.reference) - 1.0) ** 2))
    return tb.models.gamma(data, tb.priors.flat(), shape=shape)


def save(figure: Any, name: str) -> None:
    """A small PNG in docs/figures, with a palette."""
    from PIL import Image

    FIGURES.mkdir(exist_ok=True)
    figure.savefig(FIGURES / name, dpi=80, bbox_inches="tight")
    Image.open(FIGURES / name).convert("RGB").quantize(128, Image.Quantize.FASTOCTREE).save(FIGURES / name, optimize=True)
    size = (FIGURES / name).stat().st_size
    if size > 150_000:
        raise SystemExit(f"{name} has {size:,} bytes; make it smaller")

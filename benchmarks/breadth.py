"""Families and formulas on real data: robust regression, counts with a spline and factors, softmax.

    python -m benchmarks.breadth [--quick] [--write]

Each posterior is drawn by `auto` and its means are checked against importance sampling from the Laplace fit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.problems import real_table
from benchmarks.report import show
from tallbayes import auto
from tallbayes.testing import importance_moments


def molecules(quick: bool) -> tb.models.Model:
    """HOMO-LUMO gap of QM9 on ten Coulomb eigenvalues, Student-t errors."""
    table = real_table("qm9", quick)
    eigenvalues = [c for c in table.column_names if "eig" in c.lower() or c.lower().startswith("cm")][:10]
    x = np.column_stack([table[c].to_numpy() for c in eigenvalues]).astype(float)
    x = (x - x.mean(0)) / x.std(0)
    y = table["HOMO_LUMO_gap_au"].to_numpy().astype(float)
    y = (y - np.median(y)) / (0.7 * np.subtract(*np.quantile(y, [0.75, 0.25])))
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(y.size), x]), y, columns=["Intercept", *eigenvalues])
    return tb.models.student_t(data, nu=4.0, scale=0.7)


def delays(quick: bool) -> tb.models.Model:
    """Delay in hours of three million flights on time of day, distance and weekday, Student-t errors."""
    table = real_table("flights3m_2001", quick)
    hour = table["minute_of_day"].to_numpy() * (2 * np.pi / 1440)
    columns = {
        "Intercept": np.ones(table.num_rows),
        "log_distance": np.log(np.maximum(table["distance"].to_numpy(), 1.0)),
        "sin": np.sin(hour),
        "cos": np.cos(hour),
        "weekend": (table["dow"].to_numpy() >= 5).astype(float),
    }
    y = table["delay"].to_numpy() / 60.0
    return tb.models.student_t(
        tb.Dataset.from_arrays(np.column_stack(list(columns.values())), y, columns=list(columns)), nu=4.0, scale=0.2
    )


def claims(quick: bool) -> tb.models.Model:
    """Claim counts with a spline of age, a polynomial and factors."""
    formula = "ClaimNb ~ bs(DrivAge, df=5) + C(Area) + VehGas + log(Density) + log(BonusMalus) + poly(VehAge, 2)"
    return tb.models.poisson(tb.read(real_table("freMTPL2freq", quick), formula, offset="log(Exposure)", progress=False))


def digits(quick: bool) -> tb.models.Model:
    """MNIST digits 0, 1 and 2 on ten principal components, softmax."""
    table = real_table("mnist_all", quick)
    label = table["label"].to_numpy()
    keep = label <= 2
    images = next(c for c in table.column_names if c not in ("label", "is_test"))
    pixels = np.asarray(table[images].combine_chunks().flatten()).reshape(table.num_rows, -1)[keep].astype(float)
    pixels -= pixels.mean(0)
    _, directions = np.linalg.eigh(pixels.T @ pixels)
    scores = pixels @ directions[:, -10:]
    x = np.column_stack([np.ones(scores.shape[0]), scores / scores.std(0)])
    return tb.models.softmax(tb.Dataset.from_arrays(x, label[keep].astype(float)), tb.priors.normal(1.0), classes=3)


PROBLEMS: dict[str, Callable[[bool], tb.models.Model]] = {
    "QM9, robust": molecules,
    "flights, robust": delays,
    "freMTPL2freq, spline and factors": claims,
    "MNIST 0, 1, 2": digits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results")
    options = parsed(parser)
    rows = []
    for label, make in PROBLEMS.items():
        model = make(options.quick)
        start = time.perf_counter()
        few = isinstance(auto.choose(model, tb.find_mode(model, progress=False), None, 1, False)[0], tb.samplers.FullData)
        draws = 50 if options.quick else 300 if few else 5000
        fit = tb.sample(model, draws=draws, warmup=300, chains=2, seed=1, progress=False)
        seconds = time.perf_counter() - start
        exact = importance_moments(model, draws=50 if options.quick else 300)
        flat = fit.theta.reshape(-1, model.dim)
        z = (flat.mean(0) - exact.mean) / np.hypot(exact.mean_error, flat.std(0) / np.sqrt(fit.ess))
        cost = fit.cost()
        rows.append(
            {
                "problem": label,
                "family": model.family.name,
                "n": model.data.n,
                "parameters": model.dim,
                "sampler": fit.meta["sampler_name"],
                "rows per iteration": float(fit.stats["rows"].mean()) if "rows" in fit.stats else model.data.n,
                "evaluations per effective draw": cost["evals_per_ess"],
                "largest R-hat": float(fit.r_hat.max()),
                "largest |z| of means": float(np.abs(z).max()),
                "effective importance draws": exact.ess,
                "seconds": seconds,
            }
        )
        print(rows[-1], flush=True)
    note = "`auto`, two chains of 5,000 draws (300 where it chose full data); seconds include setup, and compilation if not cached."
    show("Families on real data", rows, note, "breadth" if options.write else None)


if __name__ == "__main__":
    main()

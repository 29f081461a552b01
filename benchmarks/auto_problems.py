"""`auto` on named problems: what it predicted of its choice, what that cost, and with --all what the alternatives cost.

python -m benchmarks.auto_problems [NAME ...] [--skip NAME] [--all] [--write]
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.problems import claims, covtype, flights, synthetic, synthetic_rows
from benchmarks.report import kept, show

OTHERS: dict[str, Any] = {
    "exact-minibatch": "exact-minibatch",
    "nuts": "nuts",
    "firefly": tb.samplers.Firefly(move=tb.moves.hmc()),
    "zigzag": "zigzag",
}
BUDGET = 3e8  # row evaluations of a measurement on all rows


def gaussian() -> tb.models.Model:
    x, _ = synthetic_rows(500_000, 10)
    return tb.models.gaussian(
        tb.Dataset.from_arrays(x, x @ np.linspace(-1, 1, 10) + np.random.default_rng(1).standard_normal(500_000))
    )


def counts(n: int, d: int) -> tb.models.Model:
    x, _ = synthetic_rows(n, d)
    mean = np.exp(np.minimum(0.3 * x[:, 1] - 1.0, 3.0))
    return tb.models.poisson(tb.Dataset.from_arrays(x, np.random.default_rng(1).poisson(mean).astype(float)))


def factor(n: int, levels: int) -> tb.models.Model:
    """One factor as fixed effects."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, levels, n)
    x = np.zeros((n, levels))
    x[np.arange(n), level] = 1.0
    x[:, 0] = 1.0
    y = (rng.random(n) < 1 / (1 + np.exp(1.0 - 0.7 * rng.standard_normal(levels)[level]))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y))


def leverage(n: int) -> tb.models.Model:
    """Four rows a thousand standard deviations out."""
    rng = np.random.default_rng(5)
    x, u = rng.standard_normal(n), rng.random(n)
    y = (u < 1.0 / (1.0 + np.exp(0.5 - x))).astype(float)
    x[:4], y[:4] = np.array([1e3, -1e3, 7e2, -4e2]), [1.0, 0.0, 0.0, 0.0]
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(n), x]), y), tb.priors.normal(2.0))


REAL: dict[str, Callable[[], tb.models.Model]] = {
    "covtype, n = 400,000": covtype,
    "freMTPL2freq, n = 678,013": claims,
    "flights, n = 3,000,000": flights,
}
PROBLEMS: dict[str, Callable[[], tb.models.Model]] = {
    "n = 1,000, d = 2": lambda: synthetic(1_000, 2),
    "n = 500, d = 5": lambda: synthetic(500, 5),
    "n = 1,000, d = 20": lambda: synthetic(1_000, 20),
    "n = 2,000, d = 50": lambda: synthetic(2_000, 50),
    "n = 2,000, d = 60": lambda: synthetic(2_000, 60),
    "n = 5,000, d = 100": lambda: synthetic(5_000, 100),
    "n = 20,000, d = 100": lambda: synthetic(20_000, 100),
    "n = 1e5, d = 30": lambda: synthetic(100_000, 30),
    "n = 1e6, d = 10": lambda: synthetic(1_000_000, 10),
    "n = 2,000, d = 10, 2 % positives": lambda: synthetic(2_000, 10, intercept=-4.5),
    "n = 1e5, d = 30, 1 % positives": lambda: synthetic(100_000, 30, intercept=-5.0),
    "n = 1e6, d = 10, 0.1 % positives": lambda: synthetic(1_000_000, 10, intercept=-7.3),
    "n = 20,000, d = 20, t4 columns": lambda: synthetic(20_000, 20, heavy=True),
    "n = 1,000, d = 10, t4 columns": lambda: synthetic(1_000, 10, heavy=True),
    "n = 500, d = 2, rows of 1,000 sd": lambda: leverage(500),
    "n = 50,000, d = 2, rows of 1,000 sd": lambda: leverage(50_000),
    "n = 20,000, factor of 50 levels": lambda: factor(20_000, 50),
    "n = 5,000, factor of 400 levels": lambda: factor(5_000, 400),
    "poisson, n = 50,000, d = 10": lambda: counts(50_000, 10),
    "gaussian, sigma unknown, n = 500,000, d = 10": gaussian,
}


def measured(model: tb.models.Model, sampler: Any, mode: Any) -> tuple[float, float]:
    """Evaluations and microseconds per effective draw."""
    full = isinstance(sampler, tb.samplers.FullData) or sampler == "nuts"
    draws = int(np.clip(BUDGET / (model.data.n * 20), 50, 1000)) if full else 5000
    warmup = 100 if full else 300
    fit = tb.sample(model, sampler, draws=draws, warmup=warmup, chains=2, seed=1, mode=mode, max_seconds=60, progress=False)
    cost = fit.cost()
    return cost["evals_per_ess"], 1e6 * fit.seconds["draws"] / cost["ess_min"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of problems; all if none")
    parser.add_argument("--all", action="store_true", help="measure what was not chosen, too")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="a part of the names of problems to leave out"
    )
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, names=["n = 500, d = 5"], all=True)
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    rows: list[dict[str, Any]] = []
    for label, make in {**PROBLEMS, **(REAL if os.environ.get("TALLBAYES_DATA") else {})}.items():
        if options.names and not any(name in label for name in options.names):
            continue
        if any(name in label for name in options.skip):
            continue
        model = make()
        mode = tb.find_mode(model, progress=False, tolerance=1e-3)
        choice = tb.auto.choose(model, mode, None, 0, False)
        evals, microseconds = measured(model, choice.sampler, mode)
        prediction, name = choice.predictions[0], choice.sampler.name
        row: dict[str, object] = {"problem": label, "auto": name}
        if getattr(choice.sampler, "two_stage", True) is False:
            row["auto"] = f"{name}, Student's t"
        row["evaluations per effective draw, predicted"] = prediction.evals_per_ess
        row["measured"] = evals
        row["measured over predicted"] = evals / prediction.evals_per_ess if prediction.evals_per_ess else 1.0
        row["us per effective draw"] = microseconds
        if options.all:
            times = {name: microseconds}
            for label, other in OTHERS.items():
                if label not in times:
                    try:
                        times[label] = measured(model, other, mode)[1]
                    except tb.TallbayesError:
                        times[label] = np.inf
            row |= {f"{label}, us": "none in 60 s" if np.isinf(times[label]) else times[label] for label in OTHERS}
            row["auto over best"] = microseconds / min(times.values())
        rows.append(row)
        print(row, flush=True)
    if options.write:  # lines of problems that were not run again stay on the page
        rows += kept("auto", PROBLEMS, {row["problem"] for row in rows})
        rows.sort(key=lambda row: [*PROBLEMS, *REAL].index(row["problem"]))
    missing = [name for name in PROBLEMS if all(row["problem"] != name for row in rows)]
    note = "Logistic where nothing else is said." + (f" Not run: {'; '.join(missing)}." if options.write and missing else "")
    show("auto on named problems", rows, note, "auto" if options.write else None)


if __name__ == "__main__":
    main()

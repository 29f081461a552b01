"""Table 1 of Maclaurin and Adams (2014): queries, effective samples and speed-up of Firefly against the same move on all rows.

python -m experiments.s3_table1 [--quick] [--write] [--only NAME]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.s3_problems import PROBLEMS

MOVES = {
    "MNIST 7 v 9": tb.moves.random_walk(acceptance=0.234),
    "CIFAR-10, 3 classes": tb.moves.mala(),
    "CEP molecules": tb.moves.slice(),
    "QM9 molecules": tb.moves.slice(),
    "flights": tb.moves.slice(),
    "synthetic logistic": tb.moves.random_walk(acceptance=0.234),
}
ITERATIONS = {  # of each of two chains after warm-up: regular, untuned, tuned
    "MNIST 7 v 9": (20_000, 20_000, 40_000),
    "CIFAR-10, 3 classes": (600, 600, 2000),
    "CEP molecules": (3000, 3000, 20_000),
    "QM9 molecules": (1200, 1200, 20_000),
    "flights": (800, 800, 20_000),
    "synthetic logistic": (1500, 0, 40_000),
}
PAPER = {
    "MNIST 7 v 9": {"regular": (12_214, 3.7, 1), "untuned": (6252, 1.3, 0.7), "tuned": (207, 1.4, 22)},
    "CIFAR-10, 3 classes": {"regular": (18_000, 8.0, 1), "untuned": (8058, 4.2, 1.2), "tuned": (654, 3.3, 11)},
    "OPV": {"regular": (18_182_764, 1.3, 1), "untuned": (2_753_428, 1.1, 5.7), "tuned": (575_528, 1.2, 29)},
}


def algorithms(name: str) -> dict[str, tuple[str, Any, int]]:
    """Label, sampler and column of iterations; q = 0.1 and 0.01 are the paper's."""
    move = MOVES[name]
    return {
        "regular": ("regular", tb.samplers.FullData(move), 0),
        "untuned": ("untuned, q = 0.1", tb.samplers.Firefly(move, "untuned", rate=0.1), 1),
        "tuned": ("tuned, q = 0.01", tb.samplers.Firefly(move, "tuned", rate=0.01), 2),
        "rows": ("tuned, q of each row", tb.samplers.Firefly(move, "tuned"), 2),
    }


def measure(model: tb.models.Model, sampler: Any, draws: int, warmup: int) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.errors.TallbayesWarning)
        fit = tb.sample(model, sampler, draws=draws, warmup=warmup, chains=2, seed=1, progress=False)
    iterations = 2 * draws
    return {
        "queries": float(fit.evals.mean()),
        "per 1000": float(np.median(fit.ess)) / iterations * 1000.0,
        "seconds": fit.seconds["draws"] / iterations,
        "bright": float(fit.stats["bright"].mean()) if "bright" in fit.stats else float("nan"),
    }


def problem(name: str, quick: bool) -> list[dict[str, Any]]:
    begun = time.perf_counter()
    model, prior = PROBLEMS[name](quick)
    paper = PAPER.get(name, PAPER["OPV"] if MOVES[name].name == "slice" else {})
    rows, base = [], {}
    for key, (label, sampler, column) in algorithms(name).items():
        draws = ITERATIONS[name][column]
        if draws == 0:
            continue
        found = measure(model, sampler, 100 if quick else draws, 100 if quick else max(300, draws // 10))
        base = base or found
        queries = found["per 1000"] / found["queries"] / (base["per 1000"] / base["queries"])
        wall = found["per 1000"] / found["seconds"] / (base["per 1000"] / base["seconds"])
        published = paper.get("tuned" if key == "rows" else key, ("", "", ""))
        rows.append(
            {
                "data": f"{name} (n = {model.data.n:,}, d = {model.dim}, {MOVES[name].name}, {prior})"
                if key == "regular"
                else "",
                "algorithm": label,
                "bright": "" if np.isnan(found["bright"]) else found["bright"],
                "queries an iteration": found["queries"],
                "paper": published[0],
                "effective per 1000": found["per 1000"],
                "paper ": published[1],
                "us an iteration": 1e6 * found["seconds"],
                "speed-up in queries": queries,
                "paper  ": published[2],
                "speed-up in time": wall,
            }
        )
        print(name, rows[-1], f"{time.perf_counter() - begun:.0f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    rows = [row for name in PROBLEMS if options.only in (None, name) for row in problem(name, options.quick)]
    show(
        "Firefly: Table 1",
        rows,
        "Two chains. Effective samples are the median over coordinates of arviz's bulk effective size. Robust regression (slice) stands "
        "beside the paper's OPV numbers, which are of other rows.",
        "s3-table1" if options.write else None,
    )


if __name__ == "__main__":
    main()

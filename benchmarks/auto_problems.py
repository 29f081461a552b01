"""`auto` on named problems: its cost beside that of every sampler it could have chosen.

python -m benchmarks.auto_problems [--write]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import tallbayes as tb
from benchmarks.problems import claims, covtype, flights, synthetic, synthetic_rows
from benchmarks.report import show


def gaussian() -> tb.models.Model:
    x, _ = synthetic_rows(500_000, 10)
    return tb.models.gaussian(
        tb.Dataset.from_arrays(x, x @ np.linspace(-1, 1, 10) + np.random.default_rng(1).standard_normal(500_000))
    )


PROBLEMS: dict[str, Callable[[], tb.models.Model]] = {
    "covtype, n = 400,000": covtype,
    "freMTPL2freq, n = 678,013": claims,
    "synthetic, n = 1e6, d = 10": lambda: synthetic(1_000_000, 10),
    "synthetic, n = 1e5, d = 30": lambda: synthetic(100_000, 30),
    "synthetic, n = 20,000, d = 100": lambda: synthetic(20_000, 100),
    "rare events, n = 1e6, d = 10, 0.1 %": lambda: synthetic(1_000_000, 10, intercept=-7.3),
    "small, n = 500, d = 5": lambda: synthetic(500, 5),
    "gaussian, sigma unknown, n = 500,000": gaussian,
    "flights, n = 3,000,000": flights,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = []
    for label, make in PROBLEMS.items():
        model = make()
        mode = tb.find_mode(model, progress=False, tolerance=1e-3)
        chosen, *_ = tb.auto.choose(model, mode, None, 0, False)
        row: dict[str, object] = {"problem": label, "auto": chosen.name}
        seconds: dict[str, float] = {}
        for name in ("exact-minibatch", "nuts"):
            draws = int(np.clip(2e8 / (model.data.n * 10), 20, 500)) if name == "nuts" else 5000
            tb.sample(model, name, draws=5, warmup=0, chains=1, seed=1, mode=mode, progress=False)
            fit = tb.sample(model, name, draws=draws, warmup=100, chains=2, seed=1, mode=mode, progress=False)
            cost = fit.cost()
            seconds[name] = fit.seconds["draws"] / cost["ess_min"]
            row[f"{name}: evaluations per effective draw"] = cost["evals_per_ess"]
            row[f"{name}: us per effective draw"] = 1e6 * seconds[name]
        row["auto over best"] = seconds[chosen.name] / min(seconds.values())
        rows.append(row)
        print(row, flush=True)
    show("auto on named problems", rows, "", "auto" if options.write else None)


if __name__ == "__main__":
    main()

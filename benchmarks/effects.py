"""Effects in units of the response at n = 1,000,000 and 1,000 draws: seconds and memory of slopes, comparisons and predictions.

python -m benchmarks.effects [--rows 1000000] [--quick] [--write]

Memory is the peak that tracemalloc sees during a call, which includes NumPy's arrays; it is measured in a call of its own.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.report import show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, rows=2000)
    rng = np.random.default_rng(0)
    n = options.rows
    x, age = rng.standard_normal((8, n)), rng.uniform(20, 70, n)
    region = rng.choice(["east", "north", "south", "west"], n)
    chance = 1 / (1 + np.exp(2 - 0.04 * age - 0.3 * x[0] - 0.5 * (region == "south")))
    rows = pa.table({"y": rng.random(n) < chance, "age": age, "region": region, **{f"x{k}": v for k, v in enumerate(x)}})
    formula = "y ~ bs(age, df=5) + region + " + " + ".join(f"x{k}" for k in range(8))
    fit = tb.fit(formula, rows, sampler="exact-minibatch", draws=250, chains=4, seed=1, progress=False)
    calls = {
        'slopes("x0")': lambda: fit.slopes("x0"),
        'slopes("age")': lambda: fit.slopes("age"),
        'slopes("age", by="region")': lambda: fit.slopes("age", by="region"),
        'comparisons("region")': lambda: fit.comparisons("region"),
        "predictions()": lambda: fit.predictions(),
    }
    table: list[dict[str, Any]] = []
    for label, call in calls.items():
        seconds = []
        for _ in range(2):
            begun = time.perf_counter()
            result = call()
            seconds.append(time.perf_counter() - begun)
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        row = {"call": f"fit.{label}", "seconds, first call": seconds[0], "seconds, later calls": seconds[1]}
        row |= {"peak memory (MB)": peak / 1e6, "largest rows_se / sd": float((result["rows_se"] / result["sd"]).max())}
        table.append(row)
        print(row, flush=True)
    note = (
        f"n = {n:,}, d = {fit.theta.shape[2]}, {fit.theta.shape[0] * fit.theta.shape[1]:,} draws; compiled code in the cache."
    )
    show("Effects", table, note, "effects" if options.write else None)


if __name__ == "__main__":
    main()

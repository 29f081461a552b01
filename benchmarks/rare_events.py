"""Rare events and heavy tails, n = 1e6: candidate rows per iteration under T6 and T9.

python -m benchmarks.rare_events [--quick] [--write]
"""

from __future__ import annotations

import argparse

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.problems import synthetic
from benchmarks.report import show

CASES = {
    "balanced, normal columns": {"intercept": 0.0},
    "1 % positives": {"intercept": -5.0},
    "0.1 % positives": {"intercept": -7.3},
    "t4 columns": {"intercept": 0.0, "heavy": True},
    "1 % positives, t4 columns": {"intercept": -5.3, "heavy": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, rows=2000)
    rows = []
    for label, case in CASES.items():
        for d in (10,) if options.quick else (10, 30):
            model = synthetic(options.rows, d, **case)
            mode = tb.find_mode(model, progress=False, tolerance=1e-3)
            row = {"case": label, "d": d, "positives": int(model.data.y.sum())}
            for bound in ("T6", "T9"):
                fit = tb.sample(
                    model,
                    tb.samplers.ExactMinibatch(bound=bound),
                    draws=100 if options.quick else 2000,
                    warmup=100,
                    chains=2,
                    seed=1,
                    mode=mode,
                    progress=False,
                )
                row[f"rows per iteration, {bound}"] = float(fit.stats["rows"].mean())
                row[f"full reads, {bound}"] = f"{100 * fit.stats['full_read'].mean():.3g} %"
                row[f"evaluations per effective draw, {bound}"] = fit.cost()["evals_per_ess"]
            fit = tb.sample(model, "exact-minibatch", draws=10, warmup=0, chains=1, seed=1, mode=mode, progress=False)
            row["auto bound"] = fit.why.split()[-1]
            rows.append(row)
            print(row, flush=True)
    show("T6 against T9", rows, f"n = {options.rows:,}, logistic.", "rare-events" if options.write else None)


if __name__ == "__main__":
    main()

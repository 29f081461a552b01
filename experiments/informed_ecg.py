"""Informed windows on a real series: 650,000 samples of an electrocardiogram. TALLBAYES_DATA names its folder.

python -m experiments.informed_ecg --write
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.samplers import Informed

S0 = "quantiles-autocorrelations"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=650_000)
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.draws = 20_000, 200
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    import pyarrow.parquet as pq

    table = pq.read_table(Path(os.environ["TALLBAYES_DATA"]) / "ecg_mitdb100.parquet")
    y = (table.column(0).to_numpy()[: args.rows] - 1024.0) / 200.0  # millivolts
    model = tb.models.arma(y, 2, 1)
    mode = tb.find_mode(model, progress=False)
    sd = np.sqrt(np.diag(mode.covariance))
    print(dict(zip(model.names, mode.reference.round(4), strict=True)), "passes", mode.passes, flush=True)
    common: dict[str, Any] = {"warmup": 500, "chains": 2, "seed": 1, "mode": mode, "progress": False}
    reference = tb.sample(model, "nuts", max(50, args.draws // 40), **{**common, "warmup": 50})
    methods: dict[str, Any] = {"nuts, all rows": reference}
    for m in (3_600, 36_000):
        if 2 * m > args.rows:
            continue
        methods[f"informed, scores, m = {m:,}"] = tb.sample(model, Informed(m), args.draws, **common)
        methods[f"free, m = {m:,}"] = tb.sample(model, Informed(m, subset="free"), args.draws, **common)
        sampler = Informed(m, S0, bandwidth=1e-2, scaled=False)
        methods[f"LWA, S0, ε = 0.01, m = {m:,}"] = tb.sample(model, sampler, args.draws, **common)
    rows = []
    for name, fit in methods.items():
        flat = fit.theta.reshape(-1, model.dim)
        row = {
            "method": name,
            "evaluations per iteration": float(fit.evals.mean()),
            "refresh rate": float(fit.stats["refreshed"].mean()) if "refreshed" in fit.stats else "",
            "predicted variance ratio": fit.meta["notes"].get("predicted_variance_ratio", ""),
            "largest bias, posterior sd": float((np.abs(flat.mean(0) - reference.theta.mean((0, 1))) / sd).max()),
            "largest sd over posterior sd": float((flat.std(0) / sd).max()),
            "mean ar1": float(flat[:, 0].mean()),
            "seconds": fit.seconds["draws"],
        }
        rows.append(row)
        print(row, flush=True)
    note = f"ARMA(2, 1), n = {args.rows:,}, sigma unknown; {args.draws:,} draws in each of 2 chains. Ten and a hundred seconds of ECG."
    show("ECG", rows, note, "informed-ecg" if args.write else None)


if __name__ == "__main__":
    main()

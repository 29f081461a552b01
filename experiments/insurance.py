"""freMTPL2freq as an actuary would fit it: negative binomial claims with smooths, a ridge and a horseshoe, all scales unknown.

TALLBAYES_DATA=... python -m experiments.insurance [--rows 50000] [--draws 1000] [--warmup 500] [--write]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.problems import data_folder
from benchmarks.report import show

FORMULA = (
    "ClaimNb ~ s(DrivAge) + s(VehAge, k=8) + s(log_BonusMalus, k=8) + s(log_Density, k=8) + VehGas + VehBrand + Region "
    "+ offset(log(Exposure))"
)


def policies(rows: int | None) -> pa.Table:
    table = pq.read_table(data_folder() / "freMTPL2freq.parquet")
    if rows is not None:
        table = table.take(np.random.default_rng(0).permutation(table.num_rows)[:rows])
    columns = {name: table[name] for name in ("ClaimNb", "Exposure", "DrivAge", "VehGas", "VehBrand", "Region")}
    columns["ClaimNb"] = pa.array(
        np.minimum(table["ClaimNb"].to_numpy(), 4)
    )  # more are errors of the data, as others treat them
    columns["VehAge"] = pa.array(np.minimum(table["VehAge"].to_numpy(), 20).astype(float))
    columns["log_BonusMalus"] = pa.array(np.log(np.minimum(table["BonusMalus"].to_numpy(), 150).astype(float)))
    columns["log_Density"] = pa.array(np.log(table["Density"].to_numpy().astype(float)))
    return pa.table(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="10,000 policies and 200 draws")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.draws = 10_000, 200
    table = policies(options.rows)
    prior = {"VehBrand": tb.priors.ridge(), "Region": tb.priors.horseshoe(0.1), "default": tb.priors.normal(5.0)}
    begun = time.perf_counter()
    fit = tb.fit(
        FORMULA,
        table,
        family="negbin",
        prior=prior,
        draws=options.draws,
        warmup=options.warmup,
        chains=2,
        seed=1,
        progress=False,
    )
    seconds = time.perf_counter() - begun
    print(fit.why, f"{seconds:.0f} s", fit.setup, fit.warmup, fit.seconds, flush=True)
    rows = []
    scales = [j for j, name in enumerate(fit.names) if name.endswith(("_sigma", "_tau")) or name == "log_size"]
    for j in scales:
        draws = fit.theta[:, :, j].reshape(-1)
        low, high = np.quantile(draws, (0.05, 0.95))
        rows.append({"quantity": fit.names[j], "mean": draws.mean(), "5 %": low, "95 %": high, "ESS": float(fit.ess[j])})
    for variable, pair in {"DrivAge": (45, 20), "VehAge": (5.0, 0.0), "log_BonusMalus": (np.log(50.0), np.log(100.0))}.items():
        line = fit.comparisons({variable: pair}, scale="ratio", prob=0.9, rows=20_000).iloc[0]
        label = f"rate ratio, {variable} {line['contrast']}"
        rows.append({"quantity": label, "mean": line["mean"], "5 %": line["lower"], "95 %": line["upper"]})
    full, read = 100 * float(fit.stats["full_read"].mean()), float(fit.evals.mean()) / 2
    note = (
        f"n = {table.num_rows:,}, {len(fit.names)} parameters. {read:,.3g} rows per iteration, all rows in {full:.2g} % of "
        f"iterations; acceptance {float(fit.stats['accepted'].mean()):.2f}, smallest ESS {float(fit.ess.min()):,.0f} of "
        f"{2 * options.draws:,} draws, largest R-hat {float(fit.r_hat.max()):.3f}, {seconds:.0f} s from the call, compilation included."
    )
    show("Insurance", rows, note, "insurance" if options.write else None)
    if options.write:
        fit.plot(
            "effect", names=["DrivAge", "VehAge", "log_BonusMalus", "log_Density"], path="docs/figures/insurance_policies.png"
        )


if __name__ == "__main__":
    main()

"""freMTPL2freq as an actuary would fit it: negative binomial claims with smooths, a ridge and a horseshoe, all scales unknown.

TALLBAYES_DATA=... python -m experiments.insurance [--rows 50000] [--draws 1000] [--warmup 500] [--mgcv] [--write]

With --mgcv the rate ratios stand beside those of bam(..., discrete = TRUE) of R's mgcv, which has to be installed: the same splines with
penalties by fREML, random effects of brands and regions in place of ridge and horseshoe.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pandas import factorize
from pandas.api.types import is_numeric_dtype

import tallbayes as tb
from benchmarks.family_tools import through_r
from benchmarks.problems import data_folder
from benchmarks.report import show

FORMULA = (
    "ClaimNb ~ s(DrivAge) + s(VehAge, k=8) + s(log_BonusMalus, k=8) + s(log_Density, k=8) + VehGas + VehBrand + Region "
    "+ offset(log(Exposure))"
)

CONTRASTS = {"DrivAge": (45.0, 20.0), "VehAge": (5.0, 0.0), "log_BonusMalus": (np.log(50.0), np.log(100.0))}

BAM = """
suppressMessages(library(mgcv))
for (name in c("VehGas", "VehBrand", "Region")) rows[[name]] <- factor(rows[[name]])
fit <- bam(ClaimNb ~ s(DrivAge, bs = "ps", m = c(2, 2), k = 10) + s(VehAge, bs = "ps", m = c(2, 2), k = 8)
  + s(log_BonusMalus, bs = "ps", m = c(2, 2), k = 8) + s(log_Density, bs = "ps", m = c(2, 2), k = 8)
  + VehGas + s(VehBrand, bs = "re") + s(Region, bs = "re") + offset(log(Exposure)),
  data = rows, family = nb(), discrete = TRUE)
estimate <- c(); error <- c()
for (pair in list({pairs})) {{
  at <- rows[c(1, 1), ]
  at[[pair[[1]]]] <- c(pair[[2]], pair[[3]])
  gap <- predict(fit, at, type = "lpmatrix", discrete = FALSE)
  gap <- gap[2, ] - gap[1, ]
  estimate <- c(estimate, sum(gap * coef(fit)))
  error <- c(error, sqrt(drop(gap %*% vcov(fit, unconditional = TRUE) %*% gap)))
}}
estimate <- c(estimate, log(fit$family$getTheta(TRUE))); error <- c(error, 0)
"""


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


def beside(table: pa.Table) -> tuple[dict[str, dict[str, float]], float]:
    """Cells of mgcv by the beginnings of the lines: rate ratios with 90 % intervals, and the log size; its seconds."""
    frame = table.to_pandas()
    columns = {name: frame[name] if is_numeric_dtype(frame[name]) else factorize(frame[name])[0] for name in frame}
    pairs = ", ".join(f'list("{name}", {float(low)}, {float(high)})' for name, (low, high) in CONTRASTS.items())
    estimate, error, seconds = through_r(columns, BAM.format(pairs=pairs))
    found = {"log_size": {"mgcv": estimate[-1]}}
    for name, middle, sd in zip(CONTRASTS, estimate, error, strict=False):
        values = np.exp(middle + np.array([0.0, -1.645, 1.645]) * sd)
        found[f"rate ratio, {name}"] = dict(zip(("mgcv", "mgcv 5 %", "mgcv 95 %"), values, strict=True))
    return found, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--mgcv", action="store_true", help="put R's mgcv beside it")
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
    for variable, pair in CONTRASTS.items():
        line = fit.comparisons({variable: pair}, scale="ratio", prob=0.9, rows=20_000).iloc[0]
        label = f"rate ratio, {variable} {line['contrast']}"
        rows.append({"quantity": label, "mean": line["mean"], "5 %": line["lower"], "95 %": line["upper"]})
    peer = ""
    if options.mgcv:
        found, theirs = beside(table)
        for row in rows:
            row |= next((cells for name, cells in found.items() if row["quantity"].startswith(name)), {})
        peer = f" mgcv took {theirs:.0f} s."
    full, read = 100 * float(fit.stats["full_read"].mean()), float(fit.evals.mean()) / 2
    note = (
        f"n = {table.num_rows:,}, {len(fit.names)} parameters. {read:,.3g} rows per iteration, all rows in {full:.2g} % of "
        f"iterations; acceptance {float(fit.stats['accepted'].mean()):.2f}, smallest ESS {float(fit.ess.min()):,.0f} of "
        f"{2 * options.draws:,} draws, largest R-hat {float(fit.r_hat.max()):.3f}, {seconds:.0f} s from the call, compilation "
        f"included.{peer}"
    )
    show("Insurance", rows, note, "insurance" if options.write else None)
    if options.write:
        fit.plot(
            "effect", names=["DrivAge", "VehAge", "log_BonusMalus", "log_Density"], path="docs/figures/insurance_policies.png"
        )


if __name__ == "__main__":
    main()

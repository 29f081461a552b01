"""Figures 8 and 9 of Dang et al. (2019): what the order of the control variates does to HMC-ECS, on rows of HIGGS shape.

python -m experiments.control_variates [--n N] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.shapes import dataset
from tallbayes.diagnostics import subsample_pilot as pilots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    n, draws = (20_000, 100) if options.quick else (options.n, 4000)
    model = tb.models.logistic(dataset("higgs", n), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    exact = tb.sample(model, "exact-minibatch", 20 * draws, 500, 4, 1, mode=mode, progress=False)
    flat = exact.theta.reshape(-1, model.dim)
    rows, traces, results = [], {}, {}
    for order in (0, 1, 2):
        for scheme in ("uniform", "weighted"):
            _, _, samples, _ = pilots.prepare(mode, order, scheme, np.random.default_rng(0))
            gamma = float(np.median([s.cumulants()[0] for s in samples]))
            row = {
                "order": order,
                "rows": scheme,
                "gamma": gamma,
                "m for Var 1": math.ceil(gamma),
                "Var at m = 1300": gamma / 1300,
            }
            if scheme == "uniform":
                try:
                    fit = tb.sample(
                        model, tb.samplers.HMCECS(subsample=1300, order=order), draws, 500, 2, 2, mode=mode, progress=False
                    )
                    theta = fit.theta.reshape(-1, model.dim)
                    gap, ratio = (theta.mean(0) - flat.mean(0)) / flat.std(0), theta.var(0) / flat.var(0)
                    results[order], traces[order] = (gap, ratio), fit.stats["variance"][0]
                    row |= {
                        "largest mean error, sds": float(np.abs(gap).max()),
                        "variance ratios": f"{ratio.min():.2f} to {ratio.max():.2f}",
                    }
                    row |= {"smallest ESS": float(fit.ess.min())}
                except tb.ModelError as error:
                    row["largest mean error, sds"] = "stopped: " + str(error).split(":")[0]
            rows.append(row)
    note = f"n = {n:,}, d = {model.dim}, m = 1300 as in the paper; reference by exact minibatch."
    show("Control variates", rows, note, "control-variates" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        canvas, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.2), constrained_layout=True)
        for (order, trace), colour in zip(traces.items(), ("#1f77b4", "#d62728", "#2ca02c"), strict=False):
            left.plot(np.maximum(trace, 1e-9), color=colour, lw=0.5, label=f"order {order}")
            middle.plot(results[order][0], ".", color=colour, label=f"order {order}")
            right.plot(results[order][1], ".", color=colour)
        left.set_yscale("log")
        left.set_xlabel("iteration")
        left.set_ylabel("estimated Var log L-hat")
        left.legend(frameon=False, fontsize=8)
        middle.axhline(0.0, color="0.6", lw=0.8)
        middle.set_xlabel("parameter")
        middle.set_ylabel("difference of means, sds")
        right.axhline(1.0, color="0.6", lw=0.8)
        right.set_xlabel("parameter")
        right.set_ylabel("ratio of variances")
        folder = Path(__file__).parent.parent / "docs" / "figures"
        folder.mkdir(exist_ok=True)
        canvas.savefig(folder / "control-variates.png", dpi=80)


if __name__ == "__main__":
    main()

"""Figures 8 and 9 of Dang et al. (2019): what the order of the control variates does to HMC-ECS, on rows of HIGGS shape.

python -m experiments.control_variates [--n N] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.shapes import SHAPES, dataset
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.engine import passes
from tallbayes.mode.search import mode_at

SIZE = 1300  # m of the paper
COLOURS = {0: "#1f77b4", 1: "#d62728", 2: "#2ca02c"}


def references(model: tb.models.Model, mode: Any) -> dict[str, np.ndarray]:
    """theta* in the course of training: from 1 % of the rows, moved once (a Newton step on all rows), and the mode."""
    x, y, _, _ = passes.block(model.rows, 0, max(1000, model.data.n // 100))
    part = tb.models.logistic(tb.Dataset.from_arrays(x, y, columns=model.names), tb.priors.normal(10.0))
    first = mode_at(model, tb.find_mode(part, progress=False).reference)
    moved = first.reference + first.covariance @ first.gradient
    return {"from 1 % of the rows": first.reference, "moved once": moved, "mode": mode.reference}


def variance(model: tb.models.Model, star: np.ndarray, theta: np.ndarray, order: int, rows: int = 200_000) -> float:
    """n^2 / m Var_i(l_i - q_i), median over the draws `theta`, q_i of `order` at `star`; from some of the rows."""
    n = model.data.n
    x, y, _, _ = passes.block(model.rows, n - min(n, rows), n)
    base = x @ star
    chance, found = 1.0 / (1.0 + np.exp(-base)), []
    for point in theta:
        shift = x @ (point - star)
        gap = y * shift - (np.logaddexp(0.0, base + shift) - np.logaddexp(0.0, base))
        if order == 0:
            gap = y * (base + shift) - np.logaddexp(0.0, base + shift)
        if order >= 1:
            gap -= (y - chance) * shift
        if order == 2:
            gap += 0.5 * chance * (1.0 - chance) * shift * shift
        found.append(n * n / SIZE * gap.var())
    return float(np.median(found))


def rivals(draws: int) -> dict[str, tuple[int, Any, int]]:
    """Order, sampler and draws of the stochastic-gradient panels of Figure 9, with the settings of Table 1."""
    found: dict[str, tuple[int, Any, int]] = {}
    for order in (0, 1):
        momentum = tb.samplers.SGHMC(order=order, subsample=SIZE, step=0.06, steps=20, refresh=True)
        found[f"SG-HMC, order {order}"] = order, momentum, draws // 2
        found[f"SGLD, order {order}"] = order, tb.samplers.SGLD(order=order, subsample=SIZE), 3 * draws
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=SHAPES["higgs"][2])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    n, draws = (20_000, 100) if options.quick else (options.n, 4000)
    model = tb.models.logistic(dataset("higgs", n), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    exact = tb.sample(model, "exact-minibatch", 10 * draws, 500, 4, 1, mode=mode, progress=False)
    flat = exact.theta.reshape(-1, model.dim)
    at, thetas = references(model, mode), flat[:: len(flat) // 10][:10]
    rows: list[dict[str, Any]] = []
    traces, results = {}, {}
    for order in (0, 1, 2):
        for scheme in ("uniform", "weighted"):
            _, _, samples, _ = pilots.prepare(mode, order, scheme, np.random.default_rng(0))
            gamma = float(np.median([s.cumulants()[0] for s in samples]))
            row: dict[str, Any] = {"order": order, "rows": scheme, "gamma": gamma, "m for Var 1": math.ceil(gamma)}
            row[f"Var at m = {SIZE}"] = gamma / SIZE
            if scheme == "uniform":
                row |= {f"Var, reference {name}": variance(model, star, thetas, order) for name, star in at.items()}
            rows.append(row)
            print(row, flush=True)
    note = (
        f"n = {n:,}, d = {model.dim}. Var is that of the estimated log-likelihood at m = {SIZE:,}; its course during training "
        "by the reference, at draws of the posterior."
    )
    show("Control variates", rows, note, "control-variates" if options.write else None)
    lines = []
    runs = {f"HMC-ECS, order {k}": (k, tb.samplers.HMCECS(subsample=SIZE, order=k), draws) for k in (0, 1, 2)} | rivals(draws)
    for name, (order, sampler, length) in runs.items():
        row = {"sampler": name}
        try:
            fit = tb.sample(model, sampler, length, 500, 1, 2, mode=mode, progress=False)
            theta = fit.theta.reshape(-1, model.dim)
            gap, ratio = (theta.mean(0) - flat.mean(0)) / flat.std(0), theta.var(0) / flat.var(0)
            results[name] = order, gap, ratio
            if name.startswith("HMC-ECS"):
                traces[order] = fit.stats["variance"][0]
            row |= {"largest mean error, sds": float(np.abs(gap).max())}
            row |= {"variance ratios": f"{ratio.min():.3g} to {ratio.max():.3g}", "smallest ESS": float(fit.ess.min())}
            row |= {"iterations": length}
        except tb.ModelError as error:
            row["largest mean error, sds"] = "stopped: " + str(error).split(":")[0]
        lines.append(row)
        print(row, flush=True)
    note = f"n = {n:,}, m = {SIZE:,} as in the paper, one chain each from the mode; reference by exact minibatch, {len(flat):,} draws."
    show("Means and variances by order", lines, note, "control-variates-runs" if options.write else None)
    if options.write:
        draw(traces, results)


def draw(traces: dict[int, np.ndarray], results: dict[str, tuple[int, np.ndarray, np.ndarray]]) -> None:
    """Variance along the runs of HMC-ECS; means and variances of all samplers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    canvas, axes = plt.subplots(2, 3, figsize=(10, 6), constrained_layout=True)
    for order, trace in traces.items():
        axes[0, 0].plot(np.maximum(trace, 1e-9), color=COLOURS[order], lw=0.5, label=f"order {order}")
    axes[0, 0].set(yscale="log", xlabel="iteration", ylabel="estimated Var log L-hat")
    axes[0, 0].legend(frameon=False, fontsize=8)
    axes[1, 0].axis("off")
    for line, kind in zip(axes, (("HMC-ECS",), ("SG-HMC", "SGLD")), strict=True):
        for name, (order, gap, ratio) in results.items():
            if name.startswith(kind):
                marker = "x" if name.startswith("SGLD") else "."
                line[1].plot(gap, marker, color=COLOURS[order], label=name, ms=5)
                line[2].plot(ratio, marker, color=COLOURS[order], ms=5)
        line[1].axhline(0.0, color="0.6", lw=0.8)
        line[1].set(xlabel="parameter", ylabel="difference of means, sds")
        line[1].legend(frameon=False, fontsize=7)
        line[2].axhline(1.0, color="0.6", lw=0.8)
        line[2].set(xlabel="parameter", ylabel="ratio of variances", yscale="log")
    folder = Path(__file__).parent.parent / "docs" / "figures"
    folder.mkdir(exist_ok=True)
    canvas.savefig(folder / "control-variates.png", dpi=80)


if __name__ == "__main__":
    main()

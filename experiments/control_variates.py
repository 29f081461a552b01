"""Figures 8 and 9 of Dang et al. (2019): what the order of the control variates does to HMC-ECS, SG-HMC and SGLD, HIGGS shape.

Figure 8 follows the variance of the estimate through the paper's training: theta* begins at the posterior mean of 1 % of the rows, some
fifty posterior standard deviations from the mode, and moves to the mean of the later half of every 200 iterations of burn-in. The
sampler is the one of the library, but without the wall that keeps its chains near the reference. In Figure 9 theta* is the mode.

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
from experiments.hmc_ecs_published import PublishedMove
from experiments.shapes import SHAPES, dataset
from tallbayes.contract import Setup, advance_pilot
from tallbayes.diagnostics import subsample_pilot as pilots
from tallbayes.engine import passes
from tallbayes.mode.search import mode_at
from tallbayes.proxies.difference import PenaltyEstimator, difference
from tallbayes.samplers import HMCECS, SGHMC, SGLD
from tallbayes.samplers.hmc_ecs import SubsamplingPolicy

SIZE, BLOCKS = 1300, 100
PERIODS, LENGTH, AFTER = 5, 200, 2000  # of training, iterations of each, and iterations after burn-in
ORDERS = (0, 1, 2)
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
FOLDER = Path(__file__).parent.parent / "docs" / "figures"


def rough_mean(model: tb.models.Model, seed: int) -> np.ndarray:
    """Posterior mean of 1 % of the rows, by HMC."""
    first = int(np.random.default_rng(seed).integers(0, model.data.n - model.data.n // 100))
    x, y, _, _ = passes.block(model.rows, first, first + model.data.n // 100)
    part = tb.models.logistic(tb.Dataset.from_arrays(x, y, columns=model.names), tb.priors.normal(10.0))
    return tb.sample(part, "hmc", 200, 100, 1, seed, progress=False).theta.mean((0, 1))


def period(model: tb.models.Model, mode: Any, theta: np.ndarray, order: int, iterations: int, rng: Any) -> tuple[Any, Any]:
    """Iterations of perturbed HMC-ECS with the reference of `mode`, begun at theta: draws, and the variance at each of them."""
    pilot, scheme, _, _ = pilots.prepare(mode, order, "uniform", rng)
    policy = SubsamplingPolicy(PublishedMove(), mode.covariance, PenaltyEstimator(SIZE, BLOCKS), np.zeros((0, 0)), pilot)
    setup = Setup(model, policy, difference(mode, order, scheme, np.inf), "", {})
    options, columns = policy.options(policy.begin(), True), HMCECS().columns
    draws, info, made = advance_pilot(rng, setup.target(), options, policy.blank(theta), iterations, len(columns))
    return draws[:made], info[:made, columns.index("variance")]


def training(model: tb.models.Model, mode: Any, first: np.ndarray, order: int, after: int) -> dict[str, Any]:
    """Variance along training and the draws after it, and how far the reference of each period is from the mode."""
    rng, at, theta, traces, away, still = np.random.default_rng(3), first, first, [], [], True
    for number in range(PERIODS + 1):
        away.append(float(np.linalg.norm(np.linalg.solve(mode.factor, at - mode.reference))))
        draws, variance = period(model, mode_at(model, at), theta, order, LENGTH if number < PERIODS else after, rng)
        traces.append(variance)
        still = still and bool((draws == theta).all())
        if draws.shape[0] == 0:
            raise SystemExit(f"order {order}: the estimate is not finite in period {number + 1}")
        theta = draws[-1].copy()
        at = draws[draws.shape[0] // 2 :].mean(0)
    return {"trace": np.concatenate(traces), "parts": [np.median(t) for t in traces], "away": away, "still": still}


def training_rows(found: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Median variance in every period, and the distance of its reference from the mode."""
    rows = []
    for order, facts in found.items():
        row: dict[str, Any] = {"order": order}
        for k, (value, away) in enumerate(zip(facts["parts"], facts["away"], strict=True)):
            row["after training" if k == PERIODS else f"period {k + 1}"] = (
                "0, no proposal accepted" if facts["still"] else f"{value:.3g} (θ* at {away:.3g})"
            )
        rows.append(row)
    return rows


def methods(order: int) -> dict[str, Any]:
    """Samplers of Figure 9, with the paper's sizes, steps and lengths of trajectories."""
    return {
        "HMC-ECS, perturbed": HMCECS(subsample=SIZE, order=order, move=PublishedMove()),
        "HMC-ECS, signed": HMCECS(estimator="signed", products=100, batch=30, order=order, move=PublishedMove()),
        "SG-HMC": SGHMC(order=order, step=0.06, steps=20, subsample=SIZE, refresh=True),
        "SGLD, whitened": SGLD(order=order, subsample=SIZE),
    }


def compared(model: tb.models.Model, mode: Any, draws: int) -> tuple[list[dict[str, Any]], dict[tuple[int, str], Any]]:
    """Errors of means and variances of every method and order, and what a pilot says of the estimate."""
    exact = tb.sample(model, "exact-minibatch", 20 * draws, 500, 4, 1, mode=mode, progress=False)
    flat = exact.theta.reshape(-1, model.dim)
    rows, results = [], {}
    for order in ORDERS:
        _, _, samples, _ = pilots.prepare(mode, order, "uniform", np.random.default_rng(0))
        gamma = float(np.median([s.cumulants()[0] for s in samples]))
        for name, sampler in methods(order).items():
            row: dict[str, Any] = {"order": order, "method": name}
            if name == "HMC-ECS, perturbed":
                row |= {"m for Var 1": math.ceil(gamma), f"Var at m = {SIZE}": gamma / SIZE}
            long = 3 * draws if name.startswith("SGLD") else draws
            try:
                fit = tb.sample(model, sampler, long, 500, 2, 2, mode=mode, progress=False)
            except tb.ModelError as error:
                rows.append(row | {"largest mean error, sds": "stopped: " + str(error).split(":")[0]})
                continue
            w, theta = fit.weights.reshape(-1) / fit.weights.sum(), fit.theta.reshape(-1, model.dim)
            gap, ratio = (w @ theta - flat.mean(0)) / flat.std(0), w @ (theta - w @ theta) ** 2 / flat.var(0)
            results[order, name] = gap, ratio
            row |= {"largest mean error, sds": float(np.abs(gap).max()), "smallest ESS": float(fit.ess.min())}
            rows.append(row | {"variance ratios": f"{ratio.min():.3g} to {ratio.max():.3g}"})
            print(rows[-1], flush=True)
    return rows, results


def draw_training(found: dict[int, dict[str, Any]]) -> None:
    """Figure 8."""
    import matplotlib.pyplot as plt

    canvas, axis = plt.subplots(figsize=(7, 3.4), constrained_layout=True)
    for (order, facts), colour in zip(found.items(), COLOURS, strict=False):
        trace, label = facts["trace"], f"order {order}"
        if facts["still"]:  # at theta* the estimate has no variance
            axis.plot([], [], color=colour, label=label + ": no proposal accepted")
        else:
            axis.plot(np.arange(trace.size), np.maximum(trace, 1e-9), color=colour, lw=0.6, label=label)
    for k in range(1, PERIODS + 1):
        axis.axvline(k * LENGTH, color="0.3", lw=0.8, ls="-" if k == PERIODS else "--")
    axis.set_yscale("log")
    axis.set_xlabel("iteration; dashed: θ* moves, solid: end of burn-in")
    axis.set_ylabel("estimated variance of the log-likelihood")
    axis.legend(frameon=False, fontsize=8)
    canvas.savefig(FOLDER / "control-variates-training.png", dpi=80)
    plt.close(canvas)


def draw_errors(results: dict[tuple[int, str], Any]) -> None:
    """Figure 9: a row for each order."""
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(len(ORDERS), 2, figsize=(9, 8), sharex=True, constrained_layout=True)
    for order, (left, right) in zip(ORDERS, axes, strict=True):
        for name, colour in zip(methods(order), COLOURS, strict=True):
            if (order, name) in results:
                left.plot(results[order, name][0], ".", color=colour, label=name)
                right.plot(results[order, name][1], ".", color=colour)
        left.axhline(0.0, color="0.6", lw=0.8)
        right.axhline(1.0, color="0.6", lw=0.8)
        if order == 0:
            right.set_yscale("log")
        left.set_ylabel(f"order {order}: difference of means, sds", fontsize=8)
        right.set_ylabel("ratio of variances", fontsize=8)
        left.legend(frameon=False, fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("parameter")
    canvas.savefig(FOLDER / "control-variates.png", dpi=80)
    plt.close(canvas)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=SHAPES["higgs"][2])
    parser.add_argument("--part", choices=["training", "errors"], help="Figure 8 or Figure 9 alone")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    n, draws, after = (50_000, 100, 100) if options.quick else (options.n, 4000, AFTER)
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    model = tb.models.logistic(dataset("higgs", n), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    FOLDER.mkdir(exist_ok=True)
    if options.part in (None, "training"):
        first = rough_mean(model, 7)
        found = {order: training(model, mode, first, order, after) for order in ORDERS}
        note = (
            f"n = {n:,}, m = {SIZE}, perturbed HMC-ECS with steps of 0.2, six to a trajectory; periods of {LENGTH} iterations, "
            f"{after:,} after training. Median of the estimated variance of the log-likelihood, and the distance of θ* from the mode in "
            "posterior standard deviations."
        )
        show("Figure 8: training", training_rows(found), note, "control-variates-training" if options.write else None)
        if options.write:
            draw_training(found)
    if options.part in (None, "errors"):
        rows, results = compared(model, mode, draws)
        note = (
            f"n = {n:,}, d = {model.dim}, m = {SIZE}, {draws:,} draws of 2 chains each (SGLD {3 * draws:,}); θ* at the mode, exact "
            "minibatch as reference. SG-HMC with the paper's step of 0.06 and 20 steps; SGLD with the step at which its variances are "
            "predicted to be wrong by 2 %; HMC-ECS with steps of 0.2, six to a trajectory, signed with 100 products of 30 rows."
        )
        show("Figure 9: order of the control variates", rows, note, "control-variates" if options.write else None)
        if options.write:
            draw_errors(results)


if __name__ == "__main__":
    main()

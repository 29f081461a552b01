"""LWA-MCMC on an ARMA(1, 1) series: Maire, Friel and Alquier (2015), section 5.1, Table 2 and Figures 4 to 7.

python -m experiments.informed_arma --write
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.stats import gaussian_kde

import tallbayes as tb
from benchmarks.report import show
from experiments.block_walk import BlockWalk, adapted
from tallbayes.samplers import FullData, Informed

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
TRUTH = np.array([0.5, 0.7, 0.1])
LABELS = ("α", "β", "γ")
S0, S1, S2 = "quantiles-autocorrelations", "autocorrelations", "extremes"
PAPER = {"free": 1.0, "1": 0.81, "0.1": 0.34, "0.01": 0.05, "0.001": 0.001, "0.0001": 1e-4, "fixed": 0.0}


def simulate(rows: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(rows)
    return lfilter([1.0, TRUTH[1]], [1.0, -TRUTH[0]], noise + TRUTH[2] / (1.0 + TRUTH[1]))


def setups(size: int) -> dict[str, Informed]:
    common: dict[str, Any] = {"subsample": size, "statistics": S0, "scaled": False}
    named = {"free": Informed(**common, subset="free")}
    for bandwidth in (1.0, 1e-1, 1e-2, 1e-3, 1e-4):
        named[f"{bandwidth:g}"] = Informed(**common, bandwidth=bandwidth)
    return named | {"fixed": Informed(**common, subset="fixed")}


def run(model: Any, mode: Any, sampler: Any, runs: int, draws: int, thin: int = 10, init: str = "prior") -> Any:
    """`runs` chains of `draws` iterations; the first twentieth is burn-in, as in the paper (10,000 of 200,000)."""
    burn = draws // 20
    return tb.sample(model, sampler, (draws - burn) // thin, burn, runs, 1, init=init, thin=thin, mode=mode, progress=False)


def summary(fit: Any) -> dict[str, float]:
    means = fit.theta.mean(axis=1)
    row = {f"mean {name}": float(means[:, k].mean()) for k, name in enumerate(LABELS)}
    return row | {
        "largest bias, in sd of a run": float((np.abs(means.mean(0) - TRUTH) / fit.theta.std(axis=1).mean(0)).max()),
        "sd of the means of runs, largest": float(means.std(axis=0, ddof=1).max()),
    }


def densities(fits: dict[str, Any], path: Path, title: str) -> None:
    """One row per setup, one column per parameter: mean of the runs' densities, and their quantiles 0.2 and 0.8."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(fits), 3, figsize=(8, 1.45 * len(fits) + 0.4), sharex="col", squeeze=False)
    for row, (name, fit) in enumerate(fits.items()):
        for k in range(3):
            width = (0.55, 0.55, 1.0)[k]
            grid = np.linspace(TRUTH[k] - width, TRUTH[k] + width, 160)
            spread = [gaussian_kde(c[:: max(1, c.shape[0] // 1500), k])(grid) for c in fit.theta]
            low, high = np.quantile(spread, (0.2, 0.8), axis=0)
            axis = axes[row, k]
            axis.fill_between(grid, low, high, color="tab:blue", alpha=0.25, lw=0)
            axis.plot(grid, np.mean(spread, axis=0), color="tab:blue", lw=1.2)
            axis.axvline(TRUTH[k], color="tab:green", lw=1)
            axis.axvline(fit.theta[:, :, k].mean(), color="tab:red", lw=1, ls="--")
            axis.set_yticks([])
            if k == 0:
                axis.set_ylabel(name, fontsize=8)
            if row == 0:
                axis.set_title(LABELS[k], fontsize=9)
            axis.tick_params(labelsize=7)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def boxes(fits: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(8, 2.8))
    for k, axis in enumerate(axes):
        axis.boxplot([f.theta[:, :, k].ravel()[::7] for f in fits.values()], tick_labels=list(fits), showfliers=False)
        axis.axhline(TRUTH[k], color="tab:green", lw=1)
        axis.set_title(LABELS[k], fontsize=9)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("m", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def paths(fits: dict[str, Any], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(8, 2.8))
    for name, path in fits.items():
        kept = np.unique(np.geomspace(1, path.clock.size, 1500).astype(int)) - 1
        for k, axis in enumerate(axes):
            axis.plot(np.maximum(path.clock[kept], 1e-3), path.theta[kept, k], lw=0.9, label=name)
    for k, axis in enumerate(axes):
        axis.axhline(TRUTH[k], color="tab:green", lw=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xlabel("seconds", fontsize=8)
        axis.set_title(LABELS[k], fontsize=9)
        axis.tick_params(labelsize=7)
    axes[2].legend(fontsize=7, loc="upper right")
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def bandwidths(args: argparse.Namespace, model: Any, mode: Any) -> None:
    """Table 2, Figures 6 and 7."""
    rows, fits = [], {}
    for name, sampler in setups(100).items():
        fit = fits[name] = run(model, mode, sampler, args.runs, args.draws)
        facts = {"setup or bandwidth": name, "paper: refresh rate": PAPER[name], "refresh rate": fit.stats["refreshed"].mean()}
        rows.append(facts | {"mean distance Δ": fit.stats["distance"].mean()} | summary(fit))
        print(rows[-1], flush=True)
    note = (
        f"n = {args.rows:,}, m = 100, statistics S0, {args.runs} runs of {args.draws:,} iterations from the prior, the first "
        f"{args.draws // 20:,} discarded."
    )
    show("S4 Table 2", rows, note, "lwa-refresh" if args.write else None)

    others = {"S0": fits["0.01"]}
    for name, statistics in (("S1", S1), ("S2", S2)):
        sampler = Informed(100, statistics, bandwidth=1e-2, scaled=False)
        others[name] = run(model, mode, sampler, args.runs, args.draws)
    others["free"] = fits["free"]
    table = [{"statistics": k, "refresh rate": f.stats["refreshed"].mean()} | summary(f) for k, f in others.items()]
    show("S4 Figure 7", table, "m = 100, bandwidth 0.01.", "lwa-statistics" if args.write else None)
    if args.write:
        named = {k if k in ("free", "fixed") else f"ε = {k}": fits[k] for k in ("free", "1", "0.01", "0.0001", "fixed")}
        title = "LWA, m = 100: mean density of the runs (line), their quantiles 0.2 and 0.8 (band)"
        densities(named, FIGURES / "lwa-bandwidth.png", title)
        densities(others, FIGURES / "lwa-statistics.png", "LWA, m = 100, ε = 0.01: choice of statistics")


def window_sizes(args: argparse.Namespace, model: Any, mode: Any) -> None:
    """Figure 5."""
    sizes, table = {}, []
    for m in (10_000, 1_000, 100):
        draws = 100 * args.draws // m
        sampler = Informed(m, S0, bandwidth=1.0, scaled=False)
        sizes[str(m)] = fit = run(model, mode, sampler, args.runs, draws, 1 if m > 100 else 10, "laplace")
        spread = (fit.theta.reshape(-1, 3).std(0) / np.sqrt(np.diag(mode.covariance))).max()
        facts = {"m": m, "iterations": draws, "refresh rate": fit.stats["refreshed"].mean()}
        table.append(facts | summary(fit) | {"sd over posterior sd, largest": spread})
    show(
        "S4 Figure 5",
        table,
        f"n = {args.rows:,}, bandwidth 1, {args.runs} runs with the same number of evaluations, started near the mode.",
        "lwa-sizes" if args.write else None,
    )
    if args.write:
        boxes(sizes, FIGURES / "lwa-sizes.png")


def budgets(args: argparse.Namespace, model: Any, mode: Any) -> None:
    """Figure 4: every sampler adapts an isotropic step along its trajectory to accept 30 to 40 %."""
    begun = time.perf_counter()
    tb.find_mode(model, progress=False)
    search = time.perf_counter() - begun
    start, walk = np.array([-0.5, -0.5, 2.0]), BlockWalk(((0, 1, 2),), 0.1)
    budget: dict[str, Any] = {"M-H": FullData(walk)}
    budget |= {f"LWA, m = {m:,}": Informed(m, S0, bandwidth=1.0, scaled=False, move=walk) for m in (10_000, 1_000)}
    traces, table = {}, []
    for sampler in (FullData(walk), Informed(100, S0, bandwidth=1.0, scaled=False, move=walk)):
        sampler.setup(model, mode, 1, False)  # compiled code is loaded; a table for long windows takes a minute and a half
    for name, sampler in budget.items():
        thin = 1 if name == "M-H" else max(1, int(3e6 / sampler.subsample / 10))
        path = traces[name] = adapted(model, mode, sampler, start, args.seconds, (0.3, 0.4), thin, loaded=True)
        inside = np.flatnonzero((np.abs(path.theta - TRUTH) < 0.1).all(axis=1))
        at = int(inside[0]) if inside.size else None
        before = path.setup + (0.0 if name == "M-H" else search)
        stays = float((np.abs(path.theta[path.theta.shape[0] // 2 :] - TRUTH) < 0.1).all(axis=1).mean())
        table.append(
            {
                "sampler": name,
                "iterations": path.theta.shape[0] * thin,
                "evaluations": float(path.evals[-1]),
                "step at the end": path.step,
                "accepted": path.acceptance,
                "seconds to come within 0.1 of θ": "never" if at is None else float(path.clock[at]),
                "the same with mode search and window table": "never" if at is None else float(path.clock[at]) + before,
                "evaluations to come within 0.1": "never" if at is None else float(path.evals[at]),
                "share of the later half within 0.1": stays,
            }
        )
        print(table[-1], flush=True)
    note = (
        f"n = {args.rows:,}, {args.seconds:g} s each, started at (-0.5, -0.5, 2); isotropic steps, 0.1 at first, adapted along the "
        f"trajectory to accept 30 to 40 %. Search of the mode {search:.2g} s, tables of windows "
        f"{traces['LWA, m = 10,000'].setup:.2g} and {traces['LWA, m = 1,000'].setup:.2g} s."
    )
    show("S4 Figure 4", table, note, "lwa-budget" if args.write else None)
    if args.write:
        paths(traces, FIGURES / "lwa-budget.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--part", choices=["bandwidth", "size", "budget"], help="one part alone; all of them by default")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.runs, args.draws, args.seconds = 50_000, 3, 2_000, 1.0
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    model = tb.models.arma(simulate(args.rows), 1, 1, sigma=1.0, prior=tb.priors.normal(10.0), lead=40)
    mode = tb.find_mode(model, progress=False)
    print("mode", mode.reference, "passes", mode.passes, flush=True)
    FIGURES.mkdir(exist_ok=True)
    for name, part in {"bandwidth": bandwidths, "size": window_sizes, "budget": budgets}.items():
        if args.part in (None, name):
            part(args, model, mode)


if __name__ == "__main__":
    main()

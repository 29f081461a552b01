"""Bardenet, Doucet and Holmes (2017), Figs 11 and 12: covtype with logistic and gamma regression, as published and with our tests.

python -m experiments.confidence_covtype [--part weighted] [--published N] [--draws N] [--quick] [--write]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import (
    arguments,
    charged,
    covtype_gamma,
    covtype_logistic,
    isotropic_mode,
    percent,
    renewals,
    run,
    save,
    share_by_chain,
)
from experiments.scoreboard import cells
from tallbayes.results.classical_diagnostics import gelman_rubin
from tallbayes.results.cost import r_hats
from tallbayes.results.published_counts import AFTER_FULL_READ
from tallbayes.samplers import Confidence

PAPER = {
    "logistic": {"evaluations per iteration": "27 to 42 %", "median iteration": "below 5 %", "Gelman-Rubin": "1.01"},
    "gamma": {"evaluations per iteration": "33 to 54 %", "median iteration": "below 10 %", "Gelman-Rubin": "1.001"},
}
WEIGHTED = "weighted rows"
WARMUP = {"as published, isotropic proposals": 1000}  # of a walk that has no scale yet; 300 else


def evaluations(configuration: str, fit: Any, n: int) -> np.ndarray:
    """Of every iteration by the rule of section 6.4, (chains, draws).

    Draws with replacement that precede a full read are not among its n rows, so weighted rows are counted as they are read.
    """
    if configuration.startswith(WEIGHTED):
        counts: np.ndarray = fit.stats["evals_paper"]
        return counts
    published = configuration.startswith("as published")
    renewed = renewals(fit.theta.shape[1], WARMUP.get(configuration, 300), 10) if published else None
    return charged(fit, n, AFTER_FULL_READ, renewed)


def line(task: str, configuration: str, fit: Any, n: int) -> dict[str, Any]:
    evals, reduction = evaluations(configuration, fit, n), gelman_rubin(fit.theta)
    return {
        "task": task,
        "configuration": configuration,
        "evaluations per iteration": share_by_chain(evals, n),
        "after 2n only (8.1.3)": share_by_chain(fit.stats["evals_paper"], n),
        "median iteration": percent(float(np.median(evals)) / n),
        "median C n": fit.meta["notes"].get("median C n", ""),
        "no draw": percent(fit.meta["notes"]["iterations without a draw"]),
        "all rows": percent(fit.meta["notes"]["iterations that read all rows"]),
        "accepted": percent(float(fit.stats["acceptance_rate"].mean())),
        "Gelman-Rubin": f"{np.nanmax(reduction):.3f}",
        "Gelman-Rubin, first slope": f"{reduction[1]:.3f}",
        "rank-normalised R-hat": f"{np.nanmax(r_hats(fit.theta)):.3f}",
        "iterations": f"{fit.theta.shape[0]} x {fit.theta.shape[1]:,}",
    }


def study(
    task: str, model: tb.models.Model, published: int, other: int, draws: int, only: str = ""
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Five chains of every configuration: `published` iterations as published, `other` with T6, `draws` of those that cost less.

    With `only`, those configurations whose name begins so.
    """
    mode = tb.find_mode(model, progress=False)
    starts = mode.laplace().draw(np.random.default_rng(0), 5)
    isotropic = Confidence.published(move=tb.moves.random_walk(acceptance=0.5))
    configurations: dict[str, tuple[Any, int, Any]] = {
        "as published": (Confidence.published(), published, mode),
        "as published, isotropic proposals": (isotropic, draws, isotropic_mode(mode)),
        "as published, bound T6": (Confidence.published(bound="T6"), other, mode),
        "uniform rows, betting, delta = 0.1": (Confidence(rows="uniform", delta=0.1), draws, mode),
        "weighted rows, betting, delta = 0.1": (Confidence(delta=0.1), draws, mode),
        "weighted rows, betting, delta = 0.02": (Confidence(), draws, mode),
    }
    if task == "gamma":
        del configurations["as published, bound T6"]
    rows: list[dict[str, Any]] = []
    runs = {}
    for name, (sampler, iterations, at) in configurations.items():
        if not name.startswith(only):
            continue
        fit = run(model, sampler, iterations, 5, WARMUP.get(name, 300), mode=at, init=starts)
        runs[name] = fit
        rows.append(line(task, name, fit, model.data.n))
        print(f"{fit.seconds['total']:.0f} s", rows[-1], flush=True)
    paper = {**dict.fromkeys(rows[0], ""), "task": task, "configuration": "the paper", **PAPER[task]}
    return [paper, *rows], runs


def draw_means(axis: Any, task: str, runs: dict[str, Any], n: int, name: str) -> None:
    """Figs 11(a) and 12(a): running mean of the first slope of each chain against its budget, and against that of MH for as many draws."""
    styles = {
        "as published": "tab:orange",
        "as published, isotropic proposals": "tab:green",
        "weighted rows, betting, delta = 0.02": "tab:blue",
    }
    for label, colour in styles.items():
        fit = runs[label]
        length = fit.theta.shape[1]
        kept = np.unique(np.geomspace(1, length, 200).astype(int)) - 1
        means = (np.cumsum(fit.theta[:, :, 1], 1) / np.arange(1, length + 1))[:, kept]
        budget = np.cumsum(evaluations(label, fit, n), 1)[:, kept] / n
        for chain in range(fit.theta.shape[0]):
            seen = budget[chain] > 1e-3
            axis.plot(budget[chain][seen], means[chain][seen], "--", color=colour, lw=1, label=label if chain == 0 else None)
            if label == "as published":
                axis.plot(
                    kept + 1, means[chain], "-", color="0.6", lw=1, label="the same, budget of MH" if chain == 0 else None
                )
    axis.set(xscale="log", title=f"{task} regression", xlabel="evaluations so far / n", ylabel=f"running mean of {name}")
    axis.legend(frameon=False, fontsize=7)


def draw_costs(axis: Any, runs: dict[str, Any], n: int) -> None:
    """Figs 11(b) and 12(b): histograms of the evaluations per iteration."""
    styles = {
        "as published": "tab:orange",
        "as published, isotropic proposals": "tab:green",
        "uniform rows, betting, delta = 0.1": "tab:red",
        "weighted rows, betting, delta = 0.02": "tab:blue",
    }
    bins = np.linspace(0.0, 4.0, 81)
    for label, colour in styles.items():
        evals = evaluations(label, runs[label], n).ravel() / n
        heights, _ = np.histogram(evals, bins)
        axis.stairs(heights / evals.size, bins, color=colour, label=f"{label}: median {percent(float(np.median(evals)))}")
    axis.set(yscale="log", ylim=(1e-5, 300.0), xlabel="evaluations per iteration / n", ylabel="share of the iterations")
    axis.legend(frameon=False, fontsize=7)


def main() -> None:
    lengths = (
        ("--published", 4000, "iterations of each chain as published, logistic regression; half of that for gamma regression"),
        ("--draws", 10_000, "iterations of each chain of the others"),
    )
    options = arguments(__doc__, *lengths, parts=("weighted",))
    rows, published, draws = (400_000, options.published, options.draws) if not options.quick else (20_000, 40, 400)
    models = {"logistic": covtype_logistic(rows), "gamma": covtype_gamma(rows)}
    table, runs = [], {}
    for task, model in models.items():
        length = published if task == "logistic" else published // 2
        lines, runs[task] = study(task, model, length, published // 4, draws, WEIGHTED if options.part else "")
        table += lines
    if options.part:  # the others are as they are on the page
        new = {(row["task"], row["configuration"]): row for row in table}
        table = [new.get((row["task"], row["configuration"]), row) for row in cells("confidence-covtype")]
    logistic, gamma = models.values()
    note = (
        f"n = {logistic.data.n:,}, d = {logistic.dim} (logistic) and {gamma.dim} (gamma, shape {gamma.member.shape:.2f}). "
        "Evaluations by the papers' rule: T instead of 2 T after an iteration that read all rows (section 6.4), or only after one that "
        "was charged 2n (8.1.3 to the letter). Diagnostics: the largest of all coordinates. The paper has 5 x 10,000 iterations."
    )
    show("covtype: confidence samplers", table, note, "confidence-covtype" if options.write else None)
    if options.write and not options.part:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
        for k, (task, model) in enumerate(models.items()):
            draw_means(axes[0, k], task, runs[task], model.data.n, model.names[1])
            draw_costs(axes[1, k], runs[task], model.data.n)
        save(figure, "confidence_covtype.png")


if __name__ == "__main__":
    main()

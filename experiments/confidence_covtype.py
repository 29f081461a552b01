"""Bardenet, Doucet and Holmes (2017), Figs 11 and 12: covtype with logistic and gamma regression, as published and with our tests.

python -m experiments.confidence_covtype [--quick] [--write]
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
from tallbayes.results.classical_diagnostics import gelman_rubin
from tallbayes.results.cost import r_hats
from tallbayes.results.published_counts import AFTER_FULL_READ
from tallbayes.samplers import Confidence

PAPER = {
    "logistic": "27 to 42 % of n; half of the iterations below 5 %; Gelman-Rubin 1.01",
    "gamma": "33 to 54 % of n; half below 10 %; Gelman-Rubin 1.001",
}


def line(task: str, configuration: str, fit: Any, n: int, warmup: int) -> dict[str, Any]:
    every = 10 if configuration.startswith("as published") else None
    renewed = None if every is None else renewals(fit.theta.shape[1], warmup, every)
    evals = charged(fit, n, AFTER_FULL_READ, renewed)
    return {
        "task": task,
        "configuration": configuration,
        "evaluations per iteration": share_by_chain(evals, n),
        "after 2n only (8.1.3)": share_by_chain(fit.stats["evals_paper"], n),
        "median iteration": percent(float(np.median(evals)) / n),
        "median C n": fit.meta["notes"].get("median C n", ""),
        "no draw": percent(fit.meta["notes"]["iterations without a draw"]),
        "all rows": percent(fit.meta["notes"]["iterations that read all rows"]),
        "Gelman-Rubin": f"{np.nanmax(gelman_rubin(fit.theta)):.3f}",
        "rank-normalised R-hat": f"{np.nanmax(r_hats(fit.theta)):.3f}",
        "iterations": f"{fit.theta.shape[0]} x {fit.theta.shape[1]:,}",
    }


def study(task: str, model: tb.models.Model, slow: int, fast: int, walked: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    n = model.data.n
    warmups = {"as published": 150, "as published, bound T6": 150, "as published, isotropic proposals": 1000}
    runs: dict[str, Any] = {"as published": run(model, Confidence.published(), slow, 3, 150)}
    mode = tb.find_mode(model, progress=False)
    starts = mode.laplace().draw(np.random.default_rng(0), 5)
    walk = Confidence.published(move=tb.moves.random_walk(acceptance=0.5))
    runs["as published, isotropic proposals"] = run(model, walk, walked, 5, 1000, mode=isotropic_mode(mode), init=starts)
    if task == "logistic":
        runs["as published, bound T6"] = run(model, Confidence.published(bound="T6"), slow, 3, 150)
    runs["uniform rows, betting, delta = 0.1"] = run(model, Confidence(rows="uniform", delta=0.1), fast // 4, 5)
    runs["weighted rows, betting, delta = 0.1"] = run(model, Confidence(delta=0.1), fast, 5)
    runs["weighted rows, betting, delta = 0.02"] = run(model, Confidence(), fast, 5)
    rows: list[dict[str, Any]] = [{"task": task, "configuration": "the paper", "evaluations per iteration": PAPER[task]}]
    rows += [line(task, name, fit, n, warmups.get(name, 300)) for name, fit in runs.items()]
    runs["plain MH"] = run(model, "mh", slow, 3, 150)
    return rows, runs


def draw_means(axis: Any, title: str, runs: dict[str, Any], n: int, name: str) -> None:
    """Running mean of the first slope against the budget in passes over the rows, for each chain."""
    styles = {
        "plain MH": ("0.55", "-"),
        "as published": ("tab:orange", "--"),
        "weighted rows, betting, delta = 0.02": ("tab:blue", "-"),
    }
    for label, (colour, style) in styles.items():
        fit = runs[label]
        budget = np.cumsum(fit.stats["evals_paper"], 1) / n
        means = np.cumsum(fit.theta[:, :, 1], 1) / np.arange(1, fit.theta.shape[1] + 1)
        for chain in range(fit.theta.shape[0]):
            seen = budget[chain] > 1e-4
            axis.plot(budget[chain][seen], means[chain][seen], style, color=colour, lw=1, label=label if chain == 0 else None)
    axis.set(xscale="log", title=title, xlabel="evaluations so far / n", ylabel=f"running mean of {name}")
    axis.legend(frameon=False, fontsize=8)


def main() -> None:
    options = arguments(__doc__, ("--walked", 10_000, "iterations of each chain with isotropic proposals"))
    rows, slow, fast, walked = (400_000, 300, 10_000, options.walked) if not options.quick else (20_000, 40, 400, 200)
    logistic, gamma = covtype_logistic(rows), covtype_gamma(rows)
    table, runs = study("logistic", logistic, slow, fast, walked)
    more, gamma_runs = study("gamma", gamma, slow, fast, walked)
    note = (
        f"n = {logistic.data.n:,}, d = {logistic.dim} (logistic) and {gamma.dim} (gamma, shape {gamma.member.shape:.2f}). "
        "Evaluations by the papers' rule: T instead of 2 T after an iteration that read all rows (section 6.4), or only after one that "
        "was charged 2n (8.1.3 to the letter). The paper has five chains of 10,000 iterations."
    )
    show("covtype: confidence samplers", table + more, note, "confidence-covtype" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
        draw_means(axes[0], "logistic regression", runs, logistic.data.n, logistic.names[1])
        draw_means(axes[1], "gamma regression", gamma_runs, gamma.data.n, gamma.names[1])
        save(figure, "confidence_covtype.png")


if __name__ == "__main__":
    main()

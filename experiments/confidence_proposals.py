"""Which proposals give the costs of Bardenet, Doucet and Holmes (2017), Figs 11 and 12, which does not say how it proposes.

python -m experiments.confidence_proposals [--task logistic|gamma|isotropic] [--quick] [--write]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import (
    charged,
    covtype_gamma,
    covtype_logistic,
    isotropic_mode,
    percent,
    renewals,
    run,
    share_by_chain,
)
from experiments.confidence_covtype import PAPER
from experiments.scoreboard import cells
from tallbayes.mode.laplace import Mode
from tallbayes.results.classical_diagnostics import gelman_rubin
from tallbayes.samplers import Confidence

WARMUP = 500
LAPLACE, SEPARATE = "shape of the Laplace fit", "independent coordinates, each with its posterior sd"
WALKS = {
    "logistic": ((LAPLACE, 0.85), (LAPLACE, 0.93), (SEPARATE, 0.25)),
    "gamma": ((LAPLACE, 0.96), (SEPARATE, 0.25), (SEPARATE, 0.5)),
}


def separate(mode: Any) -> Any:
    """The same mode with proposals that ignore correlations."""
    precision = np.diag(1.0 / np.diag(mode.covariance))
    return Mode(mode.model, mode.reference, mode.log_posterior, mode.gradient, mode.hessian, precision, passes=0, evaluations=0)


def study(task: str, model: tb.models.Model, draws: dict[float, int]) -> list[dict[str, Any]]:
    """Five chains for each walk, all else as published; `draws` for each acceptance rate."""
    mode = tb.find_mode(model, progress=False)
    starts, n = mode.laplace().draw(np.random.default_rng(0), 5), model.data.n
    table = [{"task": task, "proposals": "the paper: not stated", **PAPER[task]}]
    for shape, acceptance in WALKS[task]:
        sampler = Confidence.published(move=tb.moves.random_walk(acceptance=acceptance))
        at = mode if shape == LAPLACE else separate(mode)
        fit = run(model, sampler, draws[acceptance], 5, WARMUP, mode=at, init=starts)
        evals = charged(fit, n, renewed=renewals(fit.theta.shape[1], WARMUP, 10))
        reduction = gelman_rubin(fit.theta)
        table.append(
            {
                "task": task,
                "proposals": shape,
                "evaluations per iteration": share_by_chain(evals, n),
                "median iteration": percent(float(np.median(evals)) / n),
                "Gelman-Rubin": f"{np.nanmax(reduction):.3f}",
                "its median over coordinates": f"{np.median(reduction):.3f}",
                "accepted": percent(float(fit.stats["acceptance_rate"].mean())),
                "iterations": f"5 x {fit.theta.shape[1]:,}",
            }
        )
        print(f"{fit.seconds['total']:.0f} s", table[-1], flush=True)
    return table


ISOTROPIC = {
    ("logistic", 0.25): 10_000,
    ("gamma", 0.25): 5000,
    ("gamma", 0.7): 4000,
    ("logistic", 0.08): 5000,
}  # task, acceptance aimed at: iterations


def isotropic(task: str, model: tb.models.Model, acceptance: float, draws: int, warmup: int) -> dict[str, Any]:
    """One scale for all coordinates, as in the paper's running examples, from starts three times as wide as the posterior."""
    mode = tb.find_mode(model, progress=False)
    starts = mode.reference + 3.0 * (mode.laplace().draw(np.random.default_rng(0), 5) - mode.reference)
    sampler = Confidence.published(move=tb.moves.random_walk(acceptance=acceptance))
    fit = run(model, sampler, draws, 5, warmup, mode=isotropic_mode(mode), init=starts)
    evals = charged(fit, model.data.n, renewed=renewals(fit.theta.shape[1], warmup, 10))
    reduction = gelman_rubin(fit.theta)
    row = {
        "task": task,
        "paper: evaluations per iteration": PAPER[task]["evaluations per iteration"],
        "evaluations per iteration": share_by_chain(evals, model.data.n),
        "paper: median iteration": PAPER[task]["median iteration"],
        "median iteration": percent(float(np.median(evals)) / model.data.n),
        "paper: Gelman-Rubin": PAPER[task]["Gelman-Rubin"],
        "Gelman-Rubin, first component": f"{reduction[0]:.3f}",
        "second": f"{reduction[1]:.3f}",
        "median of all": f"{np.median(reduction):.3f}",
        "largest": f"{np.nanmax(reduction):.3f}",
        "accepted": percent(float(fit.stats["acceptance_rate"].mean())),
        "iterations": f"5 x {fit.theta.shape[1]:,}",
    }
    print(f"{fit.seconds['total']:.0f} s", row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=(*WALKS, "isotropic"), default=None, help="one task alone")
    parser.add_argument(
        "--last", action="store_true", help="of the isotropic walks the last one alone, the others as they are on the page"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds on few rows")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    options = parser.parse_args()
    rows = 400_000 if not options.quick else 20_000
    lengths = {"logistic": {0.85: 2500, 0.93: 10_000, 0.25: 10_000}, "gamma": {0.96: 1000, 0.25: 500, 0.5: 500}}
    if options.task in (None, "isotropic"):
        models = {"logistic": covtype_logistic(rows), "gamma": covtype_gamma(rows)}
        warmup = 1000 if not options.quick else 100
        lengths = {case: 40 if options.quick else draws for case, draws in ISOTROPIC.items()}
        table = cells("confidence-isotropic")[: len(ISOTROPIC) - 1] if options.last else []
        for task, acceptance in list(lengths)[len(table) :]:
            table.append(isotropic(task, models[task], acceptance, lengths[task, acceptance], warmup))
        note = (
            f"n = {rows:,}; starts are draws of the Laplace fit with three times its standard deviations. Evaluations by the rule of 6.4. "
            "The paper has 5 x 10,000 iterations."
        )
        show("isotropic proposals", table, note, "confidence-isotropic" if options.write else None)
    for task in WALKS if options.task is None else {options.task} & set(WALKS):
        draws = lengths[task] if not options.quick else dict.fromkeys(lengths[task], 40)
        model = covtype_logistic(rows) if task == "logistic" else covtype_gamma(rows)
        note = f"n = {model.data.n:,}. Evaluations by the rule of 6.4, least and largest chain. The paper has 5 x 10,000 iterations."
        table = study(task, model, draws)
        show(f"proposals, {task}", table, note, f"confidence-proposals-{task}" if options.write else None)


if __name__ == "__main__":
    main()

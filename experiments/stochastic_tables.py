"""Dang et al. (2019), Tables 1 and 3: SG-HMC with two trajectory lengths and SGLD, relative to perturbed HMC-ECS, with their bias.

python -m experiments.stochastic_tables [--n N] [--folder DIR] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.hmc_ecs_figures import densities
from experiments.shapes import SHAPES, dataset
from tallbayes.results.classical_diagnostics import autoregressive_sizes
from tallbayes.samplers import SGHMC, SGLD

EVERYTHING = ("setup", "warmup", "draws")

PAPER = {
    "higgs": {"SG-HMC, time 1.2": "2.43 / 2.97 / 4.08", "SGLD": "3.58 / 12.46 / 326.8"},
    "bankruptcy": {
        "SG-HMC, time 1.2": "6.8 / 9.5 / 682.3",
        "SG-HMC, L = 7": "48.6 / 100.2 / 246.7",
        "SGLD": "53.9 / 230.1 / 2784",
    },
}


def samplers(step: float, length: int, subsample: int) -> dict[str, tuple[Any, int]]:
    """Name to sampler and iterations for 2,000 of HMC-ECS."""
    momentum: dict[str, Any] = {"subsample": subsample, "refresh": True}
    return {
        "SG-HMC, time 1.2": (SGHMC(step=step, steps=length, **momentum), 2000),
        "SG-HMC, L = 7": (SGHMC(step=step, steps=7, **momentum), 2000),
        "SG-HMC, time 1.2, no control variates": (SGHMC(order=0, step=step, steps=length, **momentum), 1000),
        "SGLD": (SGLD(subsample=subsample), 12_000),
        "SGLD, no control variates": (SGLD(order=0, subsample=subsample), 12_000),
    }


def evaluations(fit: tb.Fit, phases: tuple[str, ...]) -> float:
    """Evaluations of the phases of a run: setup (mode search and pilot), warmup, draws."""
    return float(sum(fit.cost()[phase]["evals"] for phase in phases))


def ratios(fit: tb.Fit, base: tb.Fit) -> dict[str, str]:
    """RCT against `base`, IF by an autoregression as in the paper, with three ways to charge what comes before the draws."""
    sizes, base_sizes = (np.maximum(autoregressive_sizes(f.theta), 1e-9) for f in (fit, base))
    accounts = {
        "RCT as the paper: HMC-ECS pays setup and warm-up, the other does not": (EVERYTHING, ("draws",)),
        "RCT, both pay": (EVERYTHING, EVERYTHING),
        "RCT, neither pays": (("draws",), ("draws",)),
    }
    found = {}
    for label, (theirs, own) in accounts.items():
        ratio = evaluations(fit, own) / sizes / (evaluations(base, theirs) / base_sizes)
        found[label] = f"{ratio.min():.3g} / {np.median(ratio):.3g} / {ratio.max():.3g}"
    return found


def table(
    name: str, model: tb.models.Model, step: float, length: int, subsample: int, share: float, write: bool
) -> tuple[list[dict[str, Any]], str]:
    """One row a method: RCT, and bias against a long exact run."""
    mode = tb.find_mode(model, progress=False)
    exact = tb.sample(
        model, "exact-minibatch", draws=int(20_000 * share), warmup=500, chains=2, seed=1, mode=mode, progress=False
    )
    mean, variance = exact.theta.mean((0, 1)), exact.theta.var((0, 1))
    sampler = tb.samplers.HMCECS(subsample=subsample)
    base = tb.sample(model, sampler, draws=int(2000 * share), warmup=1000, chains=1, seed=5, mode=mode, progress=False)
    print(name, "HMC-ECS", {k: v["evals"] for k, v in base.cost().items() if isinstance(v, dict)}, flush=True)
    rows, fits = [], {}
    for label, (sampler, draws) in samplers(step, length, subsample).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.TallbayesWarning)
            fit = tb.sample(model, sampler, draws=int(draws * share), warmup=500, chains=1, seed=2, mode=mode, progress=False)
        spread = fit.theta.var((0, 1)) / variance
        error = np.abs(fit.theta.mean((0, 1)) - mean) / np.sqrt(variance)
        fits[label] = fit
        sizes = autoregressive_sizes(fit.theta)
        rows.append(
            {
                "method": label,
                "step": float(fit.stats["step"][0, 0]),
                **ratios(fit, base),
                "paper": PAPER[name].get(label, ""),
                "ESS, smallest": float(sizes.min()),
                "largest error of a mean, in sd": float(error.max()),
                "variance ratios": f"{spread.min():.3g} to {spread.max():.3g}",
                "predicted error of variances": fit.meta["notes"]["predicted error of variances"],
            }
        )
        print(rows[-1], flush=True)
    note = (
        f"n = {model.data.n:,}, d = {model.dim}, m = {subsample}; {int(2000 * share):,} draws of HMC-ECS after "
        "1,000 of warm-up. RCT is min / "
        f"median / max over parameters of evaluations per effective draw relative to perturbed HMC-ECS, effective sizes by "
        f"spectrum0.ar of coda. That of HMC-ECS: {autoregressive_sizes(base.theta).min():,.0f} and more; setup of HMC-ECS "
        f"{evaluations(base, ('setup',)) / model.data.n:.1f} passes over the rows. Of the exact run {exact.ess.min():,.0f} and more."
    )
    if write:
        shown = {k: fits[k] for k in ("SG-HMC, time 1.2", "SG-HMC, L = 7", "SGLD")}
        densities(name, exact, shown, f"stochastic-{name}.png")
    return rows, note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--n", type=int, default=None, help="rows; those of the paper if left out")
    parser.add_argument("--folder", type=Path, default=None, help="keep rows on disk there")
    parser.add_argument("--shape", choices=SHAPES, default=None, help="one of the two alone")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    share, fewer = (0.05, 20_000) if given.quick else (1.0, given.n)
    settings = (("higgs", 0.06, 20, 1300), ("bankruptcy", 0.02, 60, 1000))
    for name, step, length, subsample in settings:
        if given.shape not in (None, name):
            continue
        data = dataset(name, fewer or SHAPES[name][2], folder=given.folder)
        model = tb.models.logistic(data, tb.priors.normal(10.0))
        lines, note = table(name, model, step, length, subsample, share, given.write)
        show(f"Tables of Dang et al. (2019): {name}", lines, note, mark=f"stochastic-{name}" if given.write else None)


if __name__ == "__main__":
    main()

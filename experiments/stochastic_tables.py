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
from experiments.shapes import SHAPES, dataset
from tallbayes.samplers import SGHMC, SGLD

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


def cost_per_draw(fit: tb.Fit) -> np.ndarray:
    """CT of each parameter: evaluations per effective draw."""
    return float(fit.evals.sum()) / np.maximum(fit.ess, 1e-9)


def baseline(model: tb.models.Model, mode: Any, draws: int, subsample: int) -> np.ndarray:
    """CT of perturbed HMC-ECS, warm-up included."""
    sampler = tb.samplers.HMCECS(subsample=subsample)
    fit = tb.sample(model, sampler, draws=draws, warmup=1000, chains=1, seed=5, mode=mode, progress=False)
    return (float(fit.evals.sum()) + float(fit.cost()["warmup"]["evals"])) / np.maximum(fit.ess, 1e-9)


def table(
    name: str, model: tb.models.Model, step: float, length: int, subsample: int, share: float
) -> tuple[list[dict[str, Any]], str]:
    """One row a method: RCT, and bias against a long exact run."""
    mode = tb.find_mode(model, progress=False)
    exact = tb.sample(
        model, "exact-minibatch", draws=int(20_000 * share), warmup=500, chains=2, seed=1, mode=mode, progress=False
    )
    mean, variance = exact.theta.mean((0, 1)), exact.theta.var((0, 1))
    reference = baseline(model, mode, int(2000 * share), subsample)
    rows = []
    for label, (sampler, draws) in samplers(step, length, subsample).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.TallbayesWarning)
            fit = tb.sample(model, sampler, draws=int(draws * share), warmup=500, chains=1, seed=2, mode=mode, progress=False)
        ratio, spread = cost_per_draw(fit) / reference, fit.theta.var((0, 1)) / variance
        error = np.abs(fit.theta.mean((0, 1)) - mean) / np.sqrt(variance)
        rows.append(
            {
                "method": label,
                "step": float(fit.stats["step"][0, 0]),
                "RCT min / median / max": f"{ratio.min():.3g} / {np.median(ratio):.3g} / {ratio.max():.3g}",
                "paper": PAPER[name].get(label, ""),
                "largest error of a mean, in sd": float(error.max()),
                "variance ratios": f"{spread.min():.3g} to {spread.max():.3g}",
                "predicted error of variances": fit.meta["notes"]["predicted error of variances"],
            }
        )
    note = (
        f"n = {model.data.n:,}, d = {model.dim}, m = {subsample}. RCT is relative to perturbed HMC-ECS, warm-up included; the effective "
        f"size of the exact run is {exact.ess.min():,.0f} and more."
    )
    return rows, note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--n", type=int, default=None, help="rows; those of the paper if left out")
    parser.add_argument("--folder", type=Path, default=None, help="keep rows on disk there")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    share, fewer = (0.05, 20_000) if given.quick else (1.0, given.n)
    settings = (("higgs", 0.06, 20, 1300), ("bankruptcy", 0.02, 60, 1000))
    for name, step, length, subsample in settings:
        data = dataset(name, fewer or SHAPES[name][2], folder=given.folder)
        model = tb.models.logistic(data, tb.priors.normal(10.0))
        lines, note = table(name, model, step, length, subsample, share)
        show(f"Tables of Dang et al. (2019): {name}", lines, note, mark=f"stochastic-{name}" if given.write else None)


if __name__ == "__main__":
    main()

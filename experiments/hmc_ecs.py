"""Tables 1 to 4 and figures 1 to 5 of Dang et al. (2019): perturbed and signed HMC-ECS on rows of HIGGS and bankruptcy shape.

python -m experiments.hmc_ecs [--shape higgs|bankruptcy] [--n N] [--folder DIR] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments import hmc_ecs_figures as figures
from experiments.shapes import BLOCK, SHAPES, dataset, unseen
from tallbayes.results.classical_diagnostics import autoregressive_sizes

PAPER = {
    "higgs": {
        "signed RCT, min / median / max": "0.8 / 1.15 / 1.95",
        "full-data HMC over perturbed": "642.8",
        "full-data HMC over signed": "554.1",
        "acceptance of theta": "0.980 / 0.979",
        "acceptance of u": "1 / 0.993",
        "steps L": "6 / 6",
        "IF (mean)": "2.185 / 2.192",
        "share of positive signs": "1",
        "percent of rows per estimate": "0.012 / 0.029",
        "IF of full-data HMC": "2.084",
    },
    "bankruptcy": {
        "signed RCT, min / median / max": "1.2 / 1.6 / 2.6",
        "full-data HMC over perturbed": "478.7",
        "full-data HMC over signed": "311.5",
        "acceptance of theta": "0.967 / 0.962",
        "acceptance of u": "0.994 / 0.964",
        "steps L": "6 / 6",
        "IF (mean)": "2.202 / 2.31",
        "share of positive signs": "1",
        "percent of rows per estimate": "0.021 / 0.126",
        "IF of full-data HMC": "2.195",
    },
}

PAPER_DRAWS = 2000  # after burn-in


def factors(fit: tb.Fit) -> np.ndarray:
    """Iterations per effective draw of each parameter by spectrum0.ar of coda, as in the paper; signs enter by (2 tau - 1)^2."""
    positive = float((fit.weights > 0).mean())
    sizes = autoregressive_sizes(fit.theta) * (2.0 * positive - 1.0) ** 2
    return fit.theta[..., 0].size / np.maximum(sizes, 1e-9)


def price(fit: tb.Fit, draws: int | None = None) -> float:
    """Evaluations of the whole run per draw, setup and warm-up included as in the paper, had it had so many draws."""
    cost, made = fit.cost(), fit.theta[..., 0].size
    before = sum(cost[phase]["evals"] for phase in ("setup", "warmup"))
    return before / (draws or made) + cost["draws"]["evals"] / made


def percent(fit: tb.Fit, n: int) -> float:
    notes = fit.meta["notes"]
    rows = notes["subsample"] if "subsample" in notes else notes["products"] * notes["batch"] + notes["pilot"]
    return 100.0 * rows / n


def pair(values: tuple[float, float], digits: str = ".3g") -> str:
    return " / ".join(format(v, digits) for v in values)


def kept(folder: Path | None, name: str, make: Callable[[], tb.Fit]) -> tb.Fit:
    """The fit of that name from the folder, or a new one that is kept there."""
    if folder is None:
        return make()
    path = folder / f"{name}.nc"
    if not path.exists():
        make().save(path)
    return tb.load(path)


def run(shape: str, n: int, draws: int, full: int, folder: Path | None, write: bool) -> None:
    model = tb.models.logistic(dataset(shape, n, folder=folder), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    warnings.simplefilter("ignore", tb.TallbayesWarning)

    def sample(name: str, sampler: str, draws: int, warmup: int, chains: int, seed: int, **options: Any) -> tb.Fit:
        def make() -> tb.Fit:
            return tb.sample(model, sampler, draws, warmup, chains, seed, mode=mode, progress=False, **options)

        return kept(folder, f"{shape}-{n}-{name}-{draws}", make)

    perturbed = sample("perturbed", "hmc-ecs", draws, 500, 2, 1)
    signed = sample("signed", "hmc-ecs-signed", draws, 500, 2, 2)
    everything = sample("full-data", "hmc", full, 50, 1, 3)
    reference = sample("exact", "auto", 10 * draws, 500, 4, 4, guarantee="exact")
    IF = {"perturbed": factors(perturbed), "signed": factors(signed), "full": factors(everything)}
    cost = {"perturbed": price(perturbed), "signed": price(signed), "full": float(everything.evals.mean())}
    ratio = IF["signed"] * cost["signed"] / (IF["perturbed"] * cost["perturbed"])
    typical = np.median(IF["perturbed"])  # IF of so few full-data draws is noise: that of HMC-ECS stands for it
    both = (perturbed, signed)
    truth = reference.theta.reshape(-1, model.dim)
    flat = [(fit.weights.reshape(-1) / fit.weights.sum(), fit.theta.reshape(-1, model.dim)) for fit in both]
    gaps = [np.abs(w @ theta - truth.mean(0)) / truth.std(0) for w, theta in flat]
    widths = [np.sqrt(w @ (theta - w @ theta) ** 2) / truth.std(0) for w, theta in flat]
    ours = {
        "signed RCT, min / median / max": f"{ratio.min():.2f} / {np.median(ratio):.2f} / {ratio.max():.2f}",
        "full-data HMC over perturbed": f"{cost['full'] * typical / np.median(IF['perturbed'] * cost['perturbed']):,.1f}",
        "full-data HMC over signed": f"{cost['full'] * typical / np.median(IF['signed'] * cost['signed']):,.1f}",
        f"full-data HMC over both, at the paper's {PAPER_DRAWS:,} draws": " / ".join(
            f"{cost['full'] * typical / np.median(IF[k] * price(fit, PAPER_DRAWS)):,.0f}"
            for k, fit in (("perturbed", perturbed), ("signed", signed))
        ),
        "the same without setup and warm-up": f"{everything.evals.mean() / perturbed.evals.mean():,.0f} / "
        f"{everything.evals.mean() / signed.evals.mean():,.0f}",
        "acceptance of theta": pair(tuple(f.stats["acceptance_rate"].mean() for f in both)),
        "acceptance of u": pair(tuple(f.stats["u_accepted"].mean() for f in both)),
        "steps L": pair(tuple(f.stats["n_steps"].mean() for f in both)),
        "IF (mean)": pair((IF["perturbed"].mean(), IF["signed"].mean())),
        "ESS (smallest)": pair((perturbed.ess.min(), signed.ess.min()), ",.0f"),
        "share of positive signs": f"{(signed.weights > 0).mean():.3f}",
        "percent of rows per estimate": pair((percent(perturbed, n), percent(signed, n))),
        "Var log L-hat": pair(tuple(float(f.stats["variance"].mean()) for f in both), ".2g"),
        "autocorrelation of its error after a round of blocks": pair(
            tuple(f.meta["notes"].get("renewal_autocorrelation", np.nan) for f in both), ".2f"
        ),
        "IF of full-data HMC": f"{IF['full'].mean():.2f}",
        "largest difference of a mean from the exact run, sds": pair((gaps[0].max(), gaps[1].max()), ".2f"),
        "standard deviations over those of the exact run": " / ".join(f"{w.min():.2f} to {w.max():.2f}" for w in widths),
    }
    fits = {"exact": reference, "perturbed": perturbed, "signed": signed, "full-data HMC": everything}
    if shape == "higgs":
        found, held = figures.scores(fits, *unseen(shape, n)), 2 * BLOCK
        ours[f"area under the ROC, {held:,} new rows"] = " / ".join(f"{figures.area(*found[k]):.5f}" for k in fits)
        ours["largest difference of a predicted probability"] = " / ".join(
            f"{np.abs(found[k][0] - found['exact'][0]).max():.1e}" for k in ("perturbed", "signed", "full-data HMC")
        )
    rows = [{"quantity (perturbed / signed)": k, "paper": PAPER[shape].get(k, ""), "ours": v} for k, v in ours.items()]
    note = (
        f"n = {n:,}, d = {model.dim} (paper: {SHAPES[shape][2]:,} real rows), 2 x {draws:,} draws; full-data HMC for {full} draws, "
        f"its warm-up not counted; exact run: {reference.meta['sampler_name']}, smallest effective size {reference.ess.min():,.0f}. "
        "IF by spectrum0.ar of coda."
    )
    if shape == "higgs":
        note += " Areas are of the exact run, perturbed, signed and full-data HMC; differences of the last three from the exact run."
    show(f"HMC-ECS, {shape} shape", rows, note, f"hmc-ecs-{shape}" if write else None)
    if write:
        figures.densities(shape, reference, {"perturbed": perturbed, "signed": signed})
        if shape == "higgs":
            figures.receiver(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default=None, help="one of the two alone")
    parser.add_argument("--n", type=int, default=None, help="rows; those of the paper if left out")
    parser.add_argument("--folder", type=Path, default=None, help="keep rows and fits on disk there; what is found is used")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table and the figure into docs/")
    options = parser.parse_args()
    for shape in SHAPES:
        if options.shape in (None, shape):
            n = options.n or (20_000 if options.quick else SHAPES[shape][2])
            run(shape, n, 200 if options.quick else 5000, 10 if options.quick else 200, options.folder, options.write)


if __name__ == "__main__":
    main()

"""Tables 1 to 4 of Dang et al. (2019): perturbed and signed HMC-ECS on rows of HIGGS and bankruptcy shape.

python -m experiments.hmc_ecs [--shape higgs|bankruptcy] [--n N] [--folder DIR] [--quick] [--write]
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
from tallbayes.results.cost import weighted_sizes

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
        "percent of rows an estimate": "0.012 / 0.029",
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
        "percent of rows an estimate": "0.021 / 0.126",
        "IF of full-data HMC": "2.195",
    },
}


def factors(fit: tb.Fit) -> np.ndarray:
    """Iterations for an effective draw of each parameter, signs included."""
    return fit.theta[..., 0].size / np.maximum(weighted_sizes(fit.theta, fit.weights), 1e-9)


def price(fit: tb.Fit) -> float:
    """Evaluations of the whole run per draw: setup and warm-up included, as in the paper."""
    cost = fit.cost()
    return sum(cost[phase]["evals"] for phase in ("setup", "warmup", "draws")) / fit.theta[..., 0].size


def percent(fit: tb.Fit, n: int) -> float:
    notes = fit.meta["notes"]
    rows = notes["subsample"] if "subsample" in notes else notes["products"] * notes["batch"] + notes["pilot"]
    return 100.0 * rows / n


def pair(values: tuple[float, float], digits: str = ".3g") -> str:
    return " / ".join(format(v, digits) for v in values)


def figure(shape: str, reference: tb.Fit, fits: dict[str, tb.Fit]) -> None:
    """Means and variances of all parameters against the exact run (figures 2 and 5), and densities of four (1 and 4)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    flat = reference.theta.reshape(-1, len(reference.names))
    sd = flat.std(0)
    canvas, axes = plt.subplots(2, 3, figsize=(10, 6), constrained_layout=True)
    shown = np.linspace(1, len(reference.names) - 1, 4).astype(int)
    for axis, j in zip((axes[0, 0], axes[0, 1], axes[1, 0], axes[1, 1]), shown, strict=True):
        grid = np.linspace(*np.quantile(flat[:, j], (0.0005, 0.9995)), 45)
        axis.hist(flat[:, j], grid, density=True, color="#d9d9d9", label="exact minibatch")
        for (name, fit), colour in zip(fits.items(), ("#1f77b4", "#d62728"), strict=True):
            height, _ = np.histogram(fit.theta[..., j].reshape(-1), grid, weights=fit.weights.reshape(-1), density=True)
            axis.step(grid[:-1], height, where="post", color=colour, lw=1.2, label=name)
        axis.set_xlabel(reference.names[j])
        axis.set_yticks([])
    axes[0, 0].legend(fontsize=8, frameon=False)
    for (name, fit), colour in zip(fits.items(), ("#1f77b4", "#d62728"), strict=True):
        w = fit.weights.reshape(-1) / fit.weights.sum()
        theta = fit.theta.reshape(-1, sd.size)
        mean = w @ theta
        axes[0, 2].plot((mean - flat.mean(0)) / sd, ".", color=colour, label=name)
        axes[1, 2].plot(w @ (theta - mean) ** 2 / sd**2, ".", color=colour, label=name)
    axes[0, 2].axhline(0.0, color="0.6", lw=0.8)
    axes[0, 2].set_ylabel("difference of means, posterior sds")
    axes[1, 2].axhline(1.0, color="0.6", lw=0.8)
    axes[1, 2].set_ylabel("ratio of variances")
    for axis in axes[:, 2]:
        axis.set_xlabel("parameter")
    axes[0, 2].legend(fontsize=8, frameon=False)
    folder = Path(__file__).parent.parent / "docs" / "figures"
    folder.mkdir(exist_ok=True)
    canvas.savefig(folder / f"hmc-ecs-{shape}.png", dpi=80)


def run(shape: str, n: int, draws: int, full: int, folder: Path | None, write: bool) -> None:
    model = tb.models.logistic(dataset(shape, n, folder=folder), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    common: dict[str, Any] = {"mode": mode, "progress": False}
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    perturbed = tb.sample(model, "hmc-ecs", draws, 500, 2, 1, **common)
    signed = tb.sample(model, "hmc-ecs-signed", draws, 500, 2, 2, **common)
    everything = tb.sample(model, "hmc", full, 50, 1, 3, **common)
    reference = tb.sample(model, "auto", 10 * draws, 500, 4, 4, guarantee="exact", **common)
    IF = {"perturbed": factors(perturbed), "signed": factors(signed), "full": factors(everything)}
    cost = {"perturbed": price(perturbed), "signed": price(signed), "full": float(everything.evals.mean())}
    ratio = IF["signed"] * cost["signed"] / (IF["perturbed"] * cost["perturbed"])
    typical = np.median(IF["perturbed"])  # IF of so few full-data draws is noise: that of HMC-ECS stands for it
    both = (perturbed, signed)
    truth = reference.theta.reshape(-1, model.dim)
    flat = [(fit.weights.reshape(-1) / fit.weights.sum(), fit.theta.reshape(-1, model.dim)) for fit in both]
    gaps = [np.abs(w @ theta - truth.mean(0)) / truth.std(0) for w, theta in flat]
    ours = {
        "signed RCT, min / median / max": f"{ratio.min():.2f} / {np.median(ratio):.2f} / {ratio.max():.2f}",
        "full-data HMC over perturbed": f"{cost['full'] * typical / np.median(IF['perturbed'] * cost['perturbed']):,.1f}",
        "full-data HMC over signed": f"{cost['full'] * typical / np.median(IF['signed'] * cost['signed']):,.1f}",
        "the same without setup and warm-up": f"{everything.evals.mean() / perturbed.evals.mean():,.0f} / "
        f"{everything.evals.mean() / signed.evals.mean():,.0f}",
        "acceptance of theta": pair(tuple(f.stats["acceptance_rate"].mean() for f in both)),
        "acceptance of u": pair(tuple(f.stats["u_accepted"].mean() for f in both)),
        "steps L": pair(tuple(f.stats["n_steps"].mean() for f in both)),
        "IF (mean)": pair((IF["perturbed"].mean(), IF["signed"].mean())),
        "ESS (smallest)": pair((perturbed.ess.min(), signed.ess.min()), ",.0f"),
        "share of positive signs": f"{(signed.weights > 0).mean():.3f}",
        "percent of rows an estimate": pair((percent(perturbed, n), percent(signed, n))),
        "Var log L-hat": pair(tuple(float(f.stats["variance"].mean()) for f in both), ".2g"),
        "IF of full-data HMC": f"{IF['full'].mean():.2f}",
        "largest difference of a mean from the exact run, sds": pair((gaps[0].max(), gaps[1].max()), ".2f"),
    }
    rows = [{"quantity (perturbed / signed)": k, "paper": PAPER[shape].get(k, ""), "ours": v} for k, v in ours.items()]
    note = (
        f"n = {n:,}, d = {model.dim} (paper: {SHAPES[shape][2]:,} real rows), 2 x {draws:,} draws; full-data HMC for {full} draws, "
        f"its warm-up not counted; exact "
        f"run: {reference.meta['sampler_name']}, smallest effective size {reference.ess.min():,.0f}."
    )
    show(f"HMC-ECS, {shape} shape", rows, note, f"hmc-ecs-{shape}" if write else None)
    if write:
        figure(shape, reference, {"perturbed": perturbed, "signed": signed})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="higgs")
    parser.add_argument("--n", type=int, default=None, help="rows; the paper's numbers are 10,500,000 and 4,748,089")
    parser.add_argument("--folder", type=Path, default=None, help="keep the rows on disk there")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table and the figure into docs/")
    options = parser.parse_args()
    n = options.n or (20_000 if options.quick else 1_000_000)
    run(options.shape, n, 200 if options.quick else 5000, 10 if options.quick else 100, options.folder, options.write)


if __name__ == "__main__":
    main()

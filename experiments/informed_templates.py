"""Templates of handwritten digits, LWA-MCMC against Metropolis-Hastings: Maire, Friel and Alquier (2015), sections 2 and 5.3.

Images of the digits 1 to 5 at 16 x 16. A template is an image theta in R^256; phi takes means of 2 x 2 neighbours, R^256 -> R^225,
and an image is phi(theta) plus noise, seen through the same map. TALLBAYES_DATA names the folder with mnist_all.parquet.

python -m experiments.informed_templates --write
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.block_walk import BlockWalk, adapted
from tallbayes.samplers import FullData, Informed

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DIGITS = (1, 2, 3, 4, 5)
BLOCKS = tuple(tuple(range(256 * k, 256 * k + 256)) for k in range(5))


def resampling(source: int, goal: int) -> np.ndarray:
    """Matrix of area-weighted means of `source` cells into `goal` cells."""
    edges = np.linspace(0.0, source, goal + 1)
    cells = np.arange(source)
    overlap = np.minimum(edges[1:, None], cells + 1.0) - np.maximum(edges[:-1, None], cells)
    return np.maximum(overlap, 0.0) * goal / source


def images(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """As many images of each digit, 16 x 16, between 0 and 1, and their classes 0 to 4."""
    import pyarrow.parquet as pq

    table = pq.read_table(Path(os.environ["TALLBAYES_DATA"]) / "mnist_all.parquet")
    label = table["label"].to_numpy()
    rng = np.random.default_rng(0)
    chosen = [rng.permutation(np.flatnonzero(label == digit))[: rows // 5] for digit in DIGITS]
    keep = rng.permutation(np.concatenate(chosen))
    pixels = table["pixels"].combine_chunks().flatten().to_numpy().reshape(-1, 28, 28)[keep] / 255.0
    shrink = resampling(28, 16)
    return np.einsum("ai,nij,bj->nab", shrink, pixels, shrink).reshape(-1, 256), label[keep].astype(int) - 1


def mapping() -> np.ndarray:
    """phi: means of 2 x 2 neighbours."""
    one = 0.5 * (np.eye(15, 16) + np.eye(15, 16, 1))
    return np.kron(one, one)


def shares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indicators of the classes: a subset like all rows has 20 images of each."""
    return (y[:, None] == np.arange(5)).astype(float)


def distances(theta: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Sum over classes of the distance between the running mean of the draws and the best templates, seen through phi."""
    running = np.cumsum(theta, axis=0) / np.arange(1, theta.shape[0] + 1)[:, None]
    gap = (running - best).reshape(theta.shape[0], 5, 256) @ mapping().T
    return np.linalg.norm(gap, axis=2).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.seconds = 1_500, 2.0
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    x, y = images(args.rows)
    phi = mapping()
    seen = x @ phi.T
    sigma = float(np.sqrt(np.mean([(seen[y == k] - seen[y == k].mean(0)).var() for k in range(5)])))
    data = tb.Dataset.from_arrays(seen, y)
    model = tb.models.class_gaussian(data, tb.priors.normal(1.0), classes=5, sigma=sigma, mapping=phi)
    mode = tb.find_mode(model, progress=False)
    print("sigma", sigma, "passes", mode.passes, flush=True)

    walk = BlockWalk(BLOCKS, 0.01)
    samplers: dict[str, Any] = {
        "M-H": FullData(walk),
        "LWA, m = 100": Informed(100, shares, bandwidth=1e-5, scaled=False, move=walk),
    }
    rows, fits = [], {}
    for name, sampler in samplers.items():
        thin = 5 if name == "M-H" else 200
        path = adapted(model, mode, sampler, np.zeros(model.dim), args.seconds, (0.22, 0.28), thin)
        gap = distances(path.theta, mode.reference)
        fits[name] = path, gap
        row: dict[str, Any] = {"sampler": name, "step at the end": path.step, "accepted": path.acceptance}
        row |= {"iterations": gap.size * thin, "evaluations": float(path.evals[-1]), "seconds of setup": path.setup}
        for at in (1.0, 5.0, 15.0, 60.0, 180.0, 3600.0):
            if at <= args.seconds:
                row[f"distance after {at:g} s"] = float(gap[min(np.searchsorted(path.clock, at), gap.size - 1)])
        rows.append(row)
        print(row, flush=True)
    budget = min(r["evaluations"] for r in rows)
    for row, (path, gap) in zip(rows, fits.values(), strict=True):
        row[f"distance after {budget:.2g} evaluations"] = float(gap[min(np.searchsorted(path.evals, budget), gap.size - 1)])
    start = float(distances(np.zeros((1, model.dim)), mode.reference)[0])
    note = (
        f"n = {args.rows:,}, noise {sigma:.3f}, one class per step, started at empty templates (distance {start:.3g}), the step "
        "0.01 at first and adapted along the trajectory to accept 25 %. The paper finds M-H's proposal "
        "variance 10 times smaller than LWA's."
    )
    ratio = (rows[1]["step at the end"] / rows[0]["step at the end"]) ** 2
    show("S4 Figure 1", rows, note + f" Here {ratio:.3g} times.", "lwa-templates" if args.write else None)
    if args.write:
        figure(fits, mode.reference, args.seconds)


def figure(fits: dict[str, Any], best: np.ndarray, seconds: float) -> None:
    import matplotlib.pyplot as plt

    canvas = plt.figure(figsize=(8, 6.2))
    times = (1.0, min(5.0, seconds / 2), seconds)
    grid = canvas.add_gridspec(5, 10, height_ratios=[1, 1, 1, 1, 2.8], hspace=0.12, wspace=0.05)

    def templates(theta: np.ndarray, row: int, first: int, title: str) -> None:
        for k in range(5):
            axis = canvas.add_subplot(grid[row, first + k])
            axis.imshow((mapping() @ theta[256 * k : 256 * k + 256]).reshape(15, 15), cmap="gray_r", vmin=0, vmax=0.7)
            axis.set_xticks([])
            axis.set_yticks([])
            if k == 2:
                axis.set_title(title, fontsize=7, pad=2)

    lower = canvas.add_subplot(grid[4, 1:9])
    for column, (name, (path, gap)) in enumerate(fits.items()):
        for row, at in enumerate(times):
            last = min(int(np.searchsorted(path.clock, at)) + 1, gap.size)
            templates(path.theta[:last].mean(0), row, 5 * column, f"{name}, {at:g} s")
        lower.plot(path.clock, gap, lw=1.2, label=name)
    templates(best, 3, 0, "best templates")
    lower.set_xscale("log")
    lower.set_yscale("log")
    lower.set_xlabel("seconds", fontsize=8)
    lower.set_ylabel("distance of the mean", fontsize=8)
    lower.tick_params(labelsize=7)
    lower.legend(fontsize=7)
    FIGURES.mkdir(exist_ok=True)
    canvas.savefig(FIGURES / "lwa-templates.png", dpi=80, bbox_inches="tight")
    plt.close(canvas)


if __name__ == "__main__":
    main()

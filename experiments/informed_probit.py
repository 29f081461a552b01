"""Sub-posteriors of a probit model: Maire, Friel and Alquier (2015), section 3.3, Table 1 and Figure 2.

python -m experiments.informed_probit --write
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

import tallbayes as tb
from benchmarks.report import show

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PAPER = {0.01: 1.13, 0.04: 1.39, 0.07: 1.87, 0.1: 2.76}
GRID = np.linspace(-1.0, 3.0, 8001)


def log_posterior(ones: float, rows: float) -> np.ndarray:
    """Normalised on the grid; two rows with weights stand for all, because the counts are sufficient."""
    data = tb.Dataset.from_arrays(np.ones((2, 1)), [1, 0], weights=[ones, rows - ones])
    model = tb.models.probit(data, tb.priors.normal(10.0))
    values = np.array([model.log_posterior(np.array([t])) for t in GRID])
    return values - logsumexp(values) - np.log(GRID[1] - GRID[0])


def divergence(log_p: np.ndarray, log_q: np.ndarray) -> float:
    return float(np.sum(np.exp(log_p) * (log_p - log_q)) * (GRID[1] - GRID[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer points of the grid")
    args = parser.parse_args()
    global GRID
    GRID = GRID[::10] if args.quick else GRID
    n = 10_000
    y = np.random.default_rng(0).normal(1.0, 1.0, n) > 0.0
    share = y.mean()
    full = log_posterior(y.sum(), n)
    best = divergence(full, log_posterior(100 * share, 100))
    rows = []
    for gap, paper in PAPER.items():
        up, down = (divergence(full, log_posterior(100 * (share + s * gap), 100)) / best for s in (1, -1))
        facts = {"r(U)": gap, "paper: KL ratio": paper, "more ones": up, "fewer ones": down}
        rows.append(facts | {"mean of both": 0.5 * (up + down)})
    note = f"n = 10,000, 100 rows in a subset, share of ones {share:.4f}; KL of the best subset {best:.3f}. By quadrature."
    show("S4 Table 1", rows, note, "lwa-probit" if args.write else None)
    if args.write:
        figure(full, share, n)


def figure(full: np.ndarray, share: float, n: int) -> None:
    import matplotlib.pyplot as plt

    canvas, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), sharex=True)
    for gap in (0.0, 0.01, 0.04, 0.07, 0.1):
        left.plot(GRID, np.exp(log_posterior(100 * (share - gap), 100)), lw=1.1, label=f"r = {gap:g}")
    left.plot(GRID, np.exp(full) / 8.0, "k", lw=1, label="all rows, / 8")
    left.set_title("100 rows, the share of ones smaller by r", fontsize=9)
    for size in (50, 100, 1000, 5000):
        right.plot(GRID, np.exp(log_posterior(size * share, size)), lw=1.1, label=f"m = {size:,}")
    right.plot(GRID, np.exp(full), "k", lw=1, label=f"n = {n:,}")
    right.set_title("subsets with the share of ones of all rows", fontsize=9)
    for axis in (left, right):
        axis.set_xlim(0.0, 1.8)
        axis.set_xlabel("θ", fontsize=8)
        axis.set_yticks([])
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=7)
    canvas.tight_layout()
    FIGURES.mkdir(exist_ok=True)
    canvas.savefig(FIGURES / "lwa-probit.png", dpi=80)
    plt.close(canvas)


if __name__ == "__main__":
    main()

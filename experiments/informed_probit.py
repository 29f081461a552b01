"""Sub-posteriors of a probit model: Maire, Friel and Alquier (2015), section 3.3, Table 1, Figure 2, and the bound
of Proposition 1.

The bound has the infimum of the likelihood over all theta in it, which is 0 on the real line. On a compact set it is finite: there it is
computed by quadrature, next to the divergence that it bounds.

python -m experiments.informed_probit --write
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, logsumexp

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


def bound(share: float, n: int, size: int, gap: float, low: float, high: float) -> dict[str, float]:
    """Both sides of equation 7, for a subset whose share of ones is off by `gap`; natural parameter log odds, statistic the label."""
    inside = slice(*np.searchsorted(GRID, (low, high + 1e-9)))
    theta, width = GRID[inside], GRID[1] - GRID[0]

    def posterior(rows: float, part: float) -> np.ndarray:
        log_density = log_posterior(rows * part, rows)[inside]
        return log_density - logsumexp(log_density) - np.log(width)

    full, sub = posterior(n, share), posterior(size, share + gap)
    mass = np.exp(full) * width
    likelihood = n * (share * log_ndtr(theta) + (1.0 - share) * log_ndtr(-theta))
    odds = log_ndtr(theta) - log_ndtr(-theta)
    away = odds - mass @ odds
    return {
        "KL": float(mass @ (full - sub)),
        "Ψ": float((1.0 - size / n) * (mass @ likelihood - likelihood.min())),
        "Ω": round(max(0.0, float(np.log(mass @ np.exp(size * gap * away)))), 9),
        "B": round(max(0.0, float(np.log(mass @ np.exp(size * abs(gap) * np.abs(away))))), 9),
    }


def bounds(share: float, n: int, write: bool) -> None:
    """Proposition 1 on three sets: four posterior standard deviations around the mode of all rows, [0, 2], and the whole grid."""
    peak = log_posterior(share * n, n)
    mass = np.exp(peak - logsumexp(peak))
    mean = float(mass @ GRID)
    sd = float(np.sqrt(mass @ (GRID - mean) ** 2))
    sets = {"mean ± 4 sd": (mean - 4.0 * sd, mean + 4.0 * sd), "[0, 2]": (0.0, 2.0), "[-1, 3]": (-1.0, 3.0)}
    rows = []
    for name, (low, high) in sets.items():
        least = bound(share, n, 100, 0.0, low, high)
        for gap in (0.0, *PAPER):
            up, down = bound(share, n, 100, gap, low, high), bound(share, n, 100, -gap, low, high)
            rows.append(
                {
                    "Θ": name,
                    "r(U)": gap,
                    "KL, more ones": up["KL"],
                    "KL, fewer ones": down["KL"],
                    "Ψ": up["Ψ"],
                    "Ω, the larger": max(up["Ω"], down["Ω"]),
                    "B": up["B"],
                    "bound Ψ + B": up["Ψ"] + up["B"],
                    "KL gained, the larger": max(up["KL"], down["KL"]) - least["KL"],
                }
            )
            if max(up["KL"], down["KL"]) > rows[-1]["bound Ψ + B"]:
                raise SystemExit(f"the bound does not hold on {name} at r = {gap}")
    note = f"n = {n:,}, 100 rows in a subset; posterior sd {sd:.4f}. The script stops where the bound does not hold. By quadrature."
    show("S4 Proposition 1", rows, note, "lwa-bound" if write else None)


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
    bounds(float(share), n, args.write)
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

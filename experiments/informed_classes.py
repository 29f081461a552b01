"""Two Gaussian classes, LWA-MCMC against MHSubLhd: Maire, Friel and Alquier (2015), section 5.2, Table 3, Figures 8 and 9.

MHSubLhd is written here for this model: the range of a row's log-ratio is exact (a quadratic on the box that holds the rows),
the interval is that of Bardenet, Doucet and Holmes (2014) with empirical Bernstein, 1000 l rows are added at look l.

python -m experiments.informed_classes --write
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numba
import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.block_walk import BlockWalk, tuned
from tallbayes.samplers import Informed

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PAPER = (2.4e6, 1.9e6, 2.35e6, 2.8e6)
MEANS, SIGMA, V = np.array([[-1.0, 0.0], [1.0, 0.0]]), 0.25, np.array([1.0, 0.5])
BLOCKS = ((0, 1, 4), (2, 3, 5))
TRUTH = np.array([-1.0, 0.0, 1.0, 0.0, np.log(SIGMA), np.log(SIGMA)])


def simulate(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    return MEANS[y] + SIGMA * np.sqrt(V) * rng.standard_normal((rows, 2)), y


def shares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indicators of the classes: their means over a subset are its proportions."""
    return np.column_stack([y == 0, y == 1]).astype(float)


@numba.njit(nogil=True, cache=False)
def _ratio(x, k, theta, other, v):
    a, b = theta[4 + k], other[4 + k]
    total = 2.0 * (a - b)
    for j in range(2):
        here, there = x[j] - theta[2 * k + j], x[j] - other[2 * k + j]
        total += 0.5 * here * here / v[j] * np.exp(-2.0 * a) - 0.5 * there * there / v[j] * np.exp(-2.0 * b)
    return total


@numba.njit(nogil=True, cache=False)
def _range(k, theta, other, v, low, high):
    """Range of the log-ratio of any row in the box; rows of the other class have 0."""
    least, most = 2.0 * (theta[4 + k] - other[4 + k]), 2.0 * (theta[4 + k] - other[4 + k])
    p, q = np.exp(-2.0 * theta[4 + k]), np.exp(-2.0 * other[4 + k])
    for j in range(2):
        m, w = theta[2 * k + j], other[2 * k + j]
        ends = np.empty(3)
        points = np.empty(3)
        points[0], points[1], points[2] = low[j], high[j], low[j]
        if p != q:
            points[2] = min(max((m * p - w * q) / (p - q), low[j]), high[j])
        for i in range(3):
            ends[i] = 0.5 * (p * (points[i] - m) ** 2 - q * (points[i] - w) ** 2) / v[j]
        least += ends.min()
        most += ends.max()
    return max(most, 0.0) - min(least, 0.0)


@numba.njit(nogil=True, cache=False)
def sublhd(rng, x, y, v, theta, step, delta, low, high, out, used):
    """MHSubLhd with a flat prior; rows are in random order already, and are read on from a random one."""
    n = y.size
    for iteration in range(out.shape[0]):
        k = min(int(rng.random() * 2), 1)
        other = theta.copy()
        for j in range(2):
            other[2 * k + j] += step * rng.standard_normal()
        other[4 + k] += step * rng.standard_normal()
        threshold = np.log(1.0 - rng.random()) / n
        span = _range(k, theta, other, v, low, high)
        first, t, look, total, squares = int(rng.random() * n), 0, 0, 0.0, 0.0
        while True:
            look += 1
            stop = min(n, t + 1000 * look)
            for i in range(t, stop):
                row = (first + i) % n
                if y[row] == k:
                    value = _ratio(x[row], k, theta, other, v)
                    total += value
                    squares += value * value
            t = stop
            mean = total / t
            spread = np.sqrt(max(0.0, squares / t - mean * mean))
            level = np.log(3.0 / (delta / (2.0 * look * look)))
            width = spread * np.sqrt(2.0 * level / t) + 3.0 * span * level / t
            if t == n or abs(mean - threshold) > width:
                break
        if mean > threshold:
            theta = other
        out[iteration] = theta
        used[iteration] = t
    return theta


def errors(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of test rows that each theta puts into the wrong class."""
    found = np.empty(theta.shape[0])
    for i, t in enumerate(theta):
        density = [
            -2.0 * t[4 + k] - 0.5 * ((x - t[2 * k : 2 * k + 2]) ** 2 / V).sum(1) * np.exp(-2.0 * t[4 + k]) for k in (0, 1)
        ]
        found[i] = ((density[1] > density[0]) != (y == 1)).mean()
    return found


def timed_sublhd(x: np.ndarray, y: np.ndarray, start: np.ndarray, step: float, seconds: float, seed: int) -> dict[str, Any]:
    """Its step is adapted all along to accept 25 to 35 %, as in the paper."""
    rng, theta = np.random.default_rng(seed), start.copy()
    low, high = x.min(0), x.max(0)
    times, draws, used, begun = [], [], [], time.perf_counter()
    while time.perf_counter() - begun < seconds:
        out, count, before = np.empty((20, 6)), np.empty(20), theta
        theta = sublhd(rng, x, y, V, theta, step, 0.1, low, high, out, count)
        moved = (np.diff(np.vstack([before, out]), axis=0) != 0.0).any(axis=1).mean()
        step *= 1.2 if moved > 0.35 else 1.0 / 1.2 if moved < 0.25 else 1.0
        times.append(np.linspace(times[-1][-1] if times else 0.0, time.perf_counter() - begun, 21)[1:])
        draws.append(out)
        used.append(count)
    return {"seconds": np.concatenate(times), "theta": np.concatenate(draws), "used": np.concatenate(used)}


def settled(seconds: np.ndarray, theta: np.ndarray) -> float:
    """Seconds until every coordinate is within 0.1 of the truth for the first time."""
    inside = np.flatnonzero((np.abs(theta - TRUTH) < 0.1).all(axis=1))
    return float(seconds[inside[0]]) if inside.size else np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.seconds = 100_000, 1.0
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    x, y = simulate(args.rows, 0)
    test_x, test_y = simulate(20_000, 1)
    model = tb.models.class_gaussian(tb.Dataset.from_arrays(x, y), tb.priors.flat(), classes=2, variances=V)
    mode = tb.find_mode(model, progress=False)  # compiled code is loaded
    begun = time.perf_counter()
    tb.find_mode(model, progress=False)
    search = time.perf_counter() - begun

    def light(step: float) -> Informed:
        return Informed(1000, shares, bandwidth=0.01, scaled=False, move=BlockWalk(BLOCKS, step))

    step = tuned(model, mode, light, 1e-4, 1.0)
    begun = time.perf_counter()
    light(step).setup(model, mode, 1, False)
    waited = time.perf_counter() - begun
    print("step", step, "search", search, "features", waited, flush=True)
    sublhd(np.random.default_rng(0), x[:5000], y[:5000], V, TRUTH, 0.01, 0.1, x.min(0), x.max(0), np.empty((1, 6)), np.empty(1))
    rows, curves = [], []
    for scenario in range(4):
        rng = np.random.default_rng(10 + scenario)
        start = np.concatenate([rng.normal(0.0, 1.5, 4), rng.normal(0.0, 0.7, 2)])
        options = {"init": start, "thin": 10, "mode": mode, "max_seconds": args.seconds, "progress": False}
        fit = tb.sample(model, light(step), 10_000_000, 0, 1, scenario, **options)
        other = timed_sublhd(x, y, start, 0.1, args.seconds, scenario)
        clock = np.linspace(0.0, fit.seconds["draws"], fit.theta.shape[1] + 1)[1:]
        first, second = settled(clock, fit.theta[0]), settled(other["seconds"], other["theta"])
        rows.append(
            {
                "scenario": scenario + 1,
                "LWA: rows a transition": 1000,
                "MHSubLhd: rows a transition": float(other["used"].mean()),
                "share of n": float(other["used"].mean() / args.rows),
                "share in the last quarter": float(other["used"][-other["used"].size // 4 :].mean() / args.rows),
                "paper: rows (of 1e7)": PAPER[scenario],
                "paper: share": PAPER[scenario] / 1e7,
                "LWA: seconds to within 0.1": first,
                "the same with mode search and features": first + search + waited,
                "MHSubLhd: seconds": "never" if not np.isfinite(second) else second,
                "MHSubLhd: transitions": other["used"].size,
                "LWA: largest sd over posterior sd": float(
                    (fit.theta[0, -2000:].std(0) / np.sqrt(np.diag(mode.covariance))).max()
                ),
            }
        )
        curves.append((clock, fit.theta[0], other["seconds"], other["theta"]))
        print(rows[-1], flush=True)
    note = (
        f"n = {args.rows:,}, δ = 0.1, {args.seconds:g} s each from the same start; LWA with step {step:.3g}, at which it accepts 30 % "
        "near the mode, MHSubLhd with a step adapted to accept as often. Search of the mode "
        f"{search:.2g} s, features of the rows {waited:.2g} s."
    )
    show("S4 Table 3", rows, note, "lwa-classes" if args.write else None)
    if args.write:
        figure(curves, test_x, test_y)
        scatter(x, y)


def scatter(x: np.ndarray, y: np.ndarray, shown: int = 4000) -> None:
    """Figure 8: some of the rows, with the ellipses that hold 95 % of each class."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Ellipse

    canvas, axis = plt.subplots(figsize=(6, 2.2), constrained_layout=True)
    for k, colour in enumerate(("tab:blue", "tab:red")):
        part = x[:shown][y[:shown] == k]
        axis.plot(part[:, 0], part[:, 1], ".", ms=2, color=colour, label=f"class {k + 1}")
        width, height = 2.0 * np.sqrt(-2.0 * np.log(0.05)) * SIGMA * np.sqrt(V)
        axis.add_patch(Ellipse(tuple(MEANS[k]), width, height, fill=False, lw=1))
    axis.set_aspect("equal")
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=7)
    FIGURES.mkdir(exist_ok=True)
    canvas.savefig(FIGURES / "lwa-classes-data.png", dpi=80)
    plt.close(canvas)


def figure(curves: list[Any], x: np.ndarray, y: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(4, 2, figsize=(8, 7.5), sharex=True)
    for (left, right), (clock, theta, other_clock, other) in zip(axes, curves, strict=True):
        at = np.unique(np.geomspace(1, clock.size, 120).astype(int)) - 1
        other_at = np.unique(np.geomspace(1, other_clock.size, 120).astype(int)) - 1
        for j, colour in ((0, "tab:blue"), (2, "tab:red")):
            left.plot(clock[at], theta[at, j], color=colour, lw=1)
            left.plot(other_clock[other_at], other[other_at, j], color=colour, lw=1, ls="--")
        right.plot(clock[at], errors(theta[at], x, y), color="k", lw=1, label="LWA")
        right.plot(other_clock[other_at], errors(other[other_at], x, y), color="k", lw=1, ls="--", label="MHSubLhd")
        right.set_yscale("symlog", linthresh=1e-3)
        right.set_ylim(bottom=0)
        left.set_xscale("log")
        left.set_ylabel("first coordinates\nof the means", fontsize=7)
        right.set_ylabel("test error", fontsize=7)
        for axis in (left, right):
            axis.tick_params(labelsize=7)
    axes[0, 1].legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("seconds", fontsize=8)
    canvas.tight_layout()
    FIGURES.mkdir(exist_ok=True)
    canvas.savefig(FIGURES / "lwa-classes.png", dpi=75)
    plt.close(canvas)


if __name__ == "__main__":
    main()

"""Bardenet, Doucet and Holmes (2014), Figs 5 to 7, and Proposition 3.3 beside measured numbers of rows.

python -m experiments.mhsublhd_scaling [--quick] [--write]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, covtype_columns, percent, save, standardised
from experiments.block_walk import adapted
from experiments.confidence_scaling import two_classes
from tallbayes.engine import passes
from tallbayes.samplers import FullData, MHSubLhd
from tallbayes.schemes import sequential_tests

DELTA, P, GAMMA = 0.01, 2.0, 2.0
CHECKED = 20_000  # rows on which errors of classification are measured
FIRST = 0.1  # first step over the distance of the start from the mode, both in posterior sds


def error_rate(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Share of wrong labels for each theta."""
    return ((x @ theta.T > 0.0) != (y[:, None] > 0.5)).mean(0)


def against_time(
    title: str, x: np.ndarray, y: np.ndarray, train: int, seconds: float, chains: int, acceptance: float
) -> tuple[dict[str, Any], Any]:
    """MH and MHSubLhd from the same far starts: error on the training rows and on others against seconds and evaluations."""
    model = tb.models.logistic(tb.Dataset.from_arrays(x[:train], y[:train]))
    mode = tb.find_mode(model, progress=False)
    starts = mode.reference + 0.5 * np.random.default_rng(1).standard_normal((chains, model.dim))
    walk, band = tb.moves.random_walk(acceptance=acceptance), (acceptance - 0.05, acceptance + 0.05)
    samplers = {"MH": FullData(walk), "MHSubLhd": MHSubLhd(range="lipschitz", move=walk)}
    distance = np.linalg.norm(mode.laplace().whiten(starts), axis=1)
    found: dict[str, Any] = {}
    for name, sampler in samplers.items():
        lines = []
        for c in range(chains):
            path = adapted(model, mode, sampler, starts[c], seconds, band, block=5, first=FIRST * distance[c], seed=c + 1)
            kept = np.unique(np.geomspace(1, path.clock.size, 60).astype(int)) - 1
            errors = [
                error_rate(*part, path.theta[kept]) for part in ((x[:CHECKED], y[:CHECKED]), (x[-CHECKED:], y[-CHECKED:]))
            ]
            lines.append((path, kept, errors))
        found[name] = lines
    arrived: dict[str, list[tuple[float, float]]] = {}
    for name, lines in found.items():
        arrived[name] = []
        for (path, _, _), far in zip(lines, distance, strict=True):
            near = np.linalg.norm(mode.laplace().whiten(path.theta), axis=1) <= 0.1 * far
            at = int(near.argmax())
            arrived[name].append((path.evals[at], path.clock[at]) if near.any() else (math.inf, math.inf))
    paths = [path for path, _, _ in found["MHSubLhd"]]
    late = np.mean([path.rows[path.rows.size // 2 :].mean() for path in paths]) / train
    row = {
        "task": title,
        "n": train,
        "iterations of MH and of MHSubLhd": " and ".join(
            f"{np.median([path.clock.size for path, _, _ in lines]):,.0f}" for lines in found.values()
        ),
        "rows read, first 50 iterations": percent(float(np.mean([path.rows[:50].mean() for path in paths])) / train),
        "rows read, second half": percent(float(late)),
        "evaluations of MH over those of MHSubLhd, to a tenth of the distance": _ratios(arrived, 0),
        "the same in seconds": _ratios(arrived, 1),
    }
    return row, found


def _ratios(arrived: dict[str, list[tuple[float, float]]], which: int) -> str:
    """Least and largest ratio over the starts from which both arrived."""
    pairs = [(a[which], b[which]) for a, b in zip(arrived["MH"], arrived["MHSubLhd"], strict=True)]
    gains = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not gains:
        return "not reached"
    return f"{min(gains):.2g} to {max(gains):.2g}" + (
        "" if len(gains) == len(pairs) else f" ({len(gains)} of {len(pairs)} starts)"
    )


def shares_at_equilibrium(n: float, iterations: int, rng: np.random.Generator, spread: float = 0.1) -> np.ndarray:
    """Share of the rows that each iteration reads.

    Section 4.3: the mean of N(theta, 1) from N(1/2, 0.1^2) data, batch sums drawn from their exact normal laws.

    log p(x|t')/p(x|t) is linear in x, so a batch enters by its sum and its sum of squares only. Given the total, the sum of the
    first t of n exchangeable normal values is a Brownian bridge.
    """
    top = 0.5 + spread * math.sqrt(2.0 * math.log(n))  # max |x_i|
    theta, used = 0.0, np.empty(iterations)  # theta in posterior sds n^(-1/2) from the mean of the data
    for iteration in range(iterations):
        other = theta + 2.0 * rng.standard_normal()  # half of the proposals are accepted
        gap = (other - theta) / math.sqrt(n)
        middle = 0.5 + 0.5 * (theta + other) / math.sqrt(n)
        psi, mean = math.log(rng.random()) / n, gap * (0.5 - middle)
        limit = abs(gap) * (top + abs(middle))  # (20) without its factor 2, which a largest modulus does not need
        t, total, look, size = 0.0, 0.0, 0, 1.0
        while True:
            left = n - t
            step = min(size, n) - t
            drift = -total * step / left if left > 0 else 0.0
            total += drift + spread * math.sqrt(max(0.0, step * (1.0 - step / left))) * rng.standard_normal()
            t, look = min(size, n), look + 1
            estimate = mean + gap * total / t
            if t >= n:
                break
            level = (P - 1.0) * DELTA / (P * look**P)
            deviation = abs(gap) * spread * math.sqrt(rng.chisquare(max(t - 1.0, 1.0)) / t) if t > 1 else 0.0
            width = sequential_tests.empirical_bernstein_serfling(deviation, 2.0 * limit, t, n, level)
            if abs(estimate - psi) >= width:
                break
            size = math.ceil(GAMMA * t)
        used[iteration] = t / n
        if estimate > psi:
            theta = other
    return used


def proposition(model: tb.models.Model, distances: list[float], pairs: int) -> list[dict[str, Any]]:
    """Measured T of Hoeffding's test beside (18), at pairs at given distances from the mode in posterior sds."""
    rng, n, mode = np.random.default_rng(3), model.data.n, tb.find_mode(model, progress=False)
    x, _, _, _ = passes.block(model.rows, 0, n)
    longest = float(np.sqrt((x**2).sum(1)).max())
    tests = [
        sequential_tests.make_test(f"{name}-serfling", DELTA, GAMMA, 2, P) for name in ("hoeffding", "empirical-bernstein")
    ]
    table = []
    for distance in distances:
        read, bounds = [], []
        for _ in range(pairs):
            direction = rng.standard_normal(model.dim)
            theta = mode.reference + mode.factor @ (distance * direction / np.linalg.norm(direction))
            other = theta + mode.factor @ (2.38 / math.sqrt(model.dim) * rng.standard_normal(model.dim))
            index = np.arange(n)
            gaps = passes.values_at(model.rows, index, other) - passes.values_at(model.rows, index, theta)
            psi = (math.log(rng.random()) + model.log_prior(theta) - model.log_prior(other)) / n
            limit = longest * float(np.linalg.norm(other - theta))
            relative = abs(gaps.mean() - psi) / (2.0 * limit)
            inner = P * math.log(4.0 * P / relative**2) + math.log(2.0 * P / (DELTA * (P - 1.0)))
            bounds.append(max(1.0, 4.0 / relative**2 * inner))
            read.append([sequential_tests.decide_values(rng, test, gaps, psi, -limit, limit, False)[1] for test in tests])
        (measured, tighter), limits = np.array(read).T, GAMMA * np.array(bounds)
        informative = limits < n
        within = np.mean(np.array(measured)[informative] <= limits[informative]) if informative.any() else math.nan
        table.append(
            {
                "distance from the mode, sds": distance,
                "median T / n": f"{np.median(measured) / n:.3g}",
                "median of gamma times (18) / n": f"{np.median(limits) / n:.3g}",
                "pairs at which it is below n": percent(float(informative.mean())),
                "of those, T within it": "" if math.isnan(within) else percent(float(within)),
                "median T over it": f"{np.median(np.array(measured) / limits):.3g}",
                "median T / n, empirical Bernstein": f"{np.median(tighter) / n:.3g}",
            }
        )
    return table


def main() -> None:
    rows_of_classes = ("--classes", 2_000_000, "rows of the two Gaussian classes; the paper has 10,000,000")
    options = arguments(__doc__, rows_of_classes, ("--seconds", 12, "of each chain"))
    quick = options.quick
    x, y, _ = covtype_columns()
    train, chains, seconds = (400_000, 4, float(options.seconds)) if not quick else (20_000, 1, 1.0)
    rng = np.random.default_rng(0)
    rows, figures = [], {}
    synthetic = two_classes(options.classes + CHECKED if not quick else 20_000 + CHECKED)
    design, labels = passes.block(synthetic.rows, 0, synthetic.data.n)[:2]
    tasks = {
        "covtype, 2 columns (Fig. 5; up to 3 times)": (standardised(x[:, :2]), y, train, 0.25),
        "covtype, 10 columns (Fig. 7a)": (standardised(x), y, train, 0.25),
        "two Gaussian classes (Fig. 6; up to 5 times)": (design, labels, design.shape[0] - CHECKED, 0.5),
    }
    for title, (features, response, size, acceptance) in tasks.items():
        row, figures[title] = against_time(title, features, response, size, seconds, chains, acceptance)
        rows.append(row)
        print(row, flush=True)
    sizes = [10.0**k for k in (5, 7, 9, 11, 13, 15)]
    curves = {n: shares_at_equilibrium(n, 2000 if not quick else 50, rng) for n in sizes}
    rows += [
        {
            "task": "Gaussian mean at equilibrium (Fig. 7b; 25 % for large n)",
            "n": f"{n:.0e}",
            "rows read, second half": percent(float(used.mean())),
        }
        for n, used in curves.items()
    ]
    note = (
        f"{chains} chains of {seconds:g} s each from starts with normal errors of 0.5 in each coordinate; proposals with the shape of the "
        "Laplace fit, a tenth of the distance to the mode long at first and adapted along the trajectory to the paper's rates, 25 % with "
        "more than two parameters and 50 % with two. A row read costs MHSubLhd two evaluations, one where that of the current state is "
        "known. The paper used n = 1e7 for the Gaussian classes. Gaussian means by exact simulation of batch sums, over all of 2,000 "
        "iterations."
    )
    show("MHSubLhd", rows, note, "mhsublhd-scaling" if options.write else None)
    table = proposition(
        two_classes(100_000 if not quick else 5000), [0.0, 100.0, 300.0, 1000.0, 2000.0, 4000.0], 200 if not quick else 5
    )
    show(
        "Proposition 3.3",
        table,
        f"Hoeffding-Serfling, delta = 0.01, p = gamma = 2; {200 if not quick else 5} pairs each, a proposal of "
        "the random walk from each point.",
        "mhsublhd-proposition" if options.write else None,
    )
    if options.write:
        draw(figures)
        draw_running(curves)


def draw_running(curves: dict[float, np.ndarray]) -> None:
    """Fig. 7(b): running share of the rows that are read."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.6, 3.4), constrained_layout=True)
    for n, used in curves.items():
        axis.plot(np.cumsum(used) / np.arange(1, used.size + 1), lw=1.2, label=f"n = {n:.0e}".replace("e+", "e"))
    axis.axhline(0.25, color="0.6", lw=1, ls=":", label="25 %, the paper's limit")
    axis.set(xlabel="iteration", ylabel="rows read so far / n", ylim=(0, 1), xscale="log")
    axis.legend(frameon=False, fontsize=7, ncols=2)
    save(figure, "mhsublhd_running.png")


def draw(figures: dict[str, Any]) -> None:
    """Figs 5, 6 and 7(a): error rates, 30 % quantile and mean of the chain against seconds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, len(figures), figsize=(11, 7.4), constrained_layout=True, sharex="col")
    for k, (title, found) in enumerate(figures.items()):
        for (name, lines), colour in zip(found.items(), ("0.5", "tab:blue"), strict=True):
            for c, (path, kept, (training, test)) in enumerate(lines):
                chain, seconds = path.theta[:, 1], path.clock[kept]
                label = name if c == 0 else None
                axes[0, k].plot(seconds, training, color=colour, lw=1, label=f"{name}, training" if c == 0 else None)
                axes[0, k].plot(seconds, test, ":", color=colour, lw=1, label=f"{name}, test" if c == 0 else None)
                axes[1, k].plot(seconds, [np.quantile(chain[: i + 1], 0.3) for i in kept], color=colour, lw=1, label=label)
                axes[2, k].plot(seconds, [chain[: i + 1].mean() for i in kept], color=colour, lw=1, label=label)
        axes[0, k].set(xscale="log", title=title.split(" (")[0], ylabel="error rate")
        axes[1, k].set(ylabel="30 % quantile of theta_1")
        axes[2, k].set(xlabel="seconds", ylabel="mean of theta_1")
        axes[0, k].legend(frameon=False, fontsize=7)
    save(figure, "mhsublhd_scaling.png")


if __name__ == "__main__":
    main()

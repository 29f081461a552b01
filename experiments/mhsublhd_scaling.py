"""Bardenet, Doucet and Holmes (2014), Figs 5 to 7, and Proposition 3.3 beside measured numbers of rows.

python -m experiments.mhsublhd_scaling [--part budgets|equilibrium|proposition] [--classes N] [--seconds S] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import covtype_columns, percent, save, standardised
from experiments.block_walk import adapted
from experiments.confidence_scaling import two_classes
from tallbayes.engine import passes
from tallbayes.samplers import FullData, MHSubLhd
from tallbayes.schemes import sequential_tests

DELTA, P, GAMMA = 0.01, 2.0, 2.0
CHECKED = 20_000  # rows on which errors of classification are measured
CLASSES_LONGER = 5.0  # times as many seconds for the classes, which have 25 times as many rows
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
    arrived: dict[str, list[tuple[float, float, float]]] = {}
    for name, lines in found.items():
        arrived[name] = []
        for (path, _, _), far in zip(lines, distance, strict=True):
            near = np.linalg.norm(mode.laplace().whiten(path.theta), axis=1) <= 0.1 * far
            at = int(near.argmax())
            arrived[name].append((path.evals[at], path.clock[at], at + 1.0) if near.any() else 3 * (math.inf,))
    paths = [path for path, _, _ in found["MHSubLhd"]]
    both = [(a[0], b[0]) for a, b in zip(found["MH"], found["MHSubLhd"], strict=True)]
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
        "the same in iterations": _ratios(arrived, 2),
        "the same in seconds": _ratios(arrived, 1),
        "n over evaluations per iteration of MHSubLhd, on that way": _spread(
            [train * iterations / evals for evals, _, iterations in arrived["MHSubLhd"] if math.isfinite(evals)]
        ),
        "seconds per evaluation, MHSubLhd over MH": _spread(
            [b.clock[-1] / b.evals[-1] / (a.clock[-1] / a.evals[-1]) for a, b in both]
        ),
    }
    return row, found


def _spread(values: list[float]) -> str:
    """Least and largest."""
    return f"{min(values):.2g} to {max(values):.2g}" if values else "not reached"


def _ratios(arrived: dict[str, list[tuple[float, float, float]]], which: int) -> str:
    """Least and largest ratio over the starts from which both arrived, with how many these are if not all."""
    pairs = [(a[which], b[which]) for a, b in zip(arrived["MH"], arrived["MHSubLhd"], strict=True)]
    gains = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    return _spread(gains) + ("" if len(gains) == len(pairs) else f" ({len(gains)} of {len(pairs)} starts)")


class Setting(NamedTuple):
    """What the paper may have had otherwise in section 4.3: steps in posterior sds, the inequality, and how levels are shared."""

    step: float = 2.0  # half of the proposals are accepted: (2 / pi) arctan(2 / step)
    delta: float = DELTA
    growth: float = GAMMA
    serfling: bool = True  # empirical Bernstein-Serfling; empirical Bernstein (9) else
    shared: bool = True  # level (p - 1) delta / (p j^p) at look j; delta at each else
    twice: bool = False  # range as in (20), twice a largest modulus


STATED = Setting()


def shares_at_equilibrium(
    n: float, iterations: int, rng: np.random.Generator, setting: Setting = STATED, spread: float = 0.1
) -> tuple[np.ndarray, float]:
    """Share of the rows that each iteration reads, and the share of proposals accepted.

    Section 4.3: the mean of N(theta, 1) from N(1/2, 0.1^2) data, batch sums drawn from their exact normal laws.

    log p(x|t')/p(x|t) is linear in x, so a batch enters by its sum and its sum of squares only. Given the total, the sum of the
    first t of n exchangeable normal values is a Brownian bridge.
    """
    top = 0.5 + spread * math.sqrt(2.0 * math.log(n))  # max |x_i|
    theta, used, accepted = 0.0, np.empty(iterations), 0  # theta in posterior sds n^(-1/2) from the mean of the data
    for iteration in range(iterations):
        other = theta + setting.step * rng.standard_normal()
        gap = (other - theta) / math.sqrt(n)
        middle = 0.5 + 0.5 * (theta + other) / math.sqrt(n)
        psi, mean = math.log(rng.random()) / n, gap * (0.5 - middle)
        limit = (
            abs(gap) * (top + abs(middle)) * (2.0 if setting.twice else 1.0)
        )  # a largest modulus does not need the factor of (20)
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
            level = sequential_tests.look_level(setting.delta, look, P) if setting.shared else setting.delta
            deviation = abs(gap) * spread * math.sqrt(rng.chisquare(max(t - 1.0, 1.0)) / t) if t > 1 else 0.0
            if setting.serfling:
                width = sequential_tests.empirical_bernstein_serfling(deviation, 2.0 * limit, t, n, level)
            else:
                width = sequential_tests.empirical_bernstein(deviation, 2.0 * limit, t, level)
            if abs(estimate - psi) >= width:
                break
            size = math.ceil(setting.growth * t)
        used[iteration] = t / n
        if estimate > psi:
            theta, accepted = other, accepted + 1
    return used, accepted / iterations


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


def budgets(quick: bool, write: bool, classes: int, seconds: float) -> None:
    """Figs 5, 6 and 7(a)."""
    x, y, _ = covtype_columns()
    train, chains, length = (400_000, 4, seconds) if not quick else (20_000, 1, 1.0)
    rows, figures = [], {}
    synthetic = two_classes(classes + CHECKED if not quick else 20_000 + CHECKED)
    design, labels = passes.block(synthetic.rows, 0, synthetic.data.n)[:2]
    tasks = {
        "covtype, 2 columns (Fig. 5; up to 3 times)": (standardised(x[:, :2]), y, train, length, 0.25),
        "covtype, 10 columns (Fig. 7a)": (standardised(x), y, train, length, 0.25),
        "two Gaussian classes (Fig. 6; up to 5 times)": (
            design,
            labels,
            design.shape[0] - CHECKED,
            CLASSES_LONGER * length,
            0.5,
        ),
    }
    for title, (features, response, size, duration, acceptance) in tasks.items():
        row, figures[title] = against_time(title, features, response, size, duration, chains, acceptance)
        rows.append(row)
        print(row, flush=True)
    note = (
        f"{chains} chains of {length:g} s each, {CLASSES_LONGER * length:g} s for the Gaussian classes, from starts with normal errors of "
        "0.5 in each coordinate; proposals with the shape of the Laplace fit, a tenth of the distance to the mode long at first, adapted "
        "along the trajectory to the paper's rates, 25 % with more than two parameters and 50 % with two. Ratios: least and largest of the "
        "starts. A row read costs MHSubLhd two evaluations, one where that of the current state is known."
    )
    show("MHSubLhd", rows, note, "mhsublhd-scaling" if write else None)
    if write:
        draw(figures, {title: task[2] for title, task in tasks.items()})


SETTINGS = {
    "as above: accepts half, delta = 0.01, gamma = 2": STATED,
    "accepts 25 %": Setting(step=4.8),
    "steps of 0.6 sd": Setting(step=0.6),
    "steps of 0.5 sd": Setting(step=0.5),
    "steps of 0.4 sd": Setting(step=0.4),
    "delta = 0.1": Setting(delta=0.1),
    "delta at each look instead of shared over looks": Setting(shared=False),
    "gamma = 1.1": Setting(growth=1.1),
    "accepts 25 %, delta = 0.1": Setting(step=4.8, delta=0.1),
    "range as in (20)": Setting(twice=True),
    "empirical Bernstein (9)": Setting(serfling=False),
}


def equilibrium(quick: bool, write: bool) -> None:
    """Fig. 7(b), and what would give the paper's share."""
    rng, iterations = np.random.default_rng(0), 5000 if not quick else 50
    curves = {10.0**k: shares_at_equilibrium(10.0**k, iterations, rng)[0] for k in (5, 7, 9, 11, 13, 15)}
    rows: list[dict[str, Any]] = [{"n": f"{n:.0e}", "rows read / n": percent(float(used.mean()))} for n, used in curves.items()]
    for row in rows:
        used, rate = shares_at_equilibrium(float(row["n"]), iterations, rng, SETTINGS["accepts 25 %"])
        row["with steps that accept 25 %"] = percent(float(used.mean()))
        used, _ = shares_at_equilibrium(float(row["n"]), iterations, rng, SETTINGS["steps of 0.5 sd"])
        row["with steps of 0.5 sd"] = percent(float(used.mean()))
    rows[-1]["the paper"] = "25 % for large n"
    note = f"Mean of a normal sample, {iterations:,} iterations at equilibrium, batch sums drawn from their exact laws."
    show("MHSubLhd at equilibrium", rows, note, "mhsublhd-equilibrium" if write else None)
    found = []
    for name, setting in SETTINGS.items():
        used, rate = shares_at_equilibrium(1e15, iterations, rng, setting)
        found.append({"setting": name, "rows read / n": percent(float(used.mean())), "accepted": percent(rate)})
    note = f"n = 1e15, {iterations:,} iterations at equilibrium each; the paper reports 25 %."
    show("What would give 25 %", found, note, "mhsublhd-quarter" if write else None)
    if write:
        draw_running(curves)


def rows_needed(quick: bool, write: bool) -> None:
    """Proposition 3.3."""
    n, pairs = (100_000, 100) if not quick else (5000, 5)
    table = proposition(two_classes(n), [0.0, 100.0, 300.0, 1000.0, 2000.0, 4000.0], pairs)
    note = f"n = {n:,}; Hoeffding-Serfling, delta = 0.01, p = gamma = 2; {pairs} pairs each, a proposal of the random walk from each point."
    show("Proposition 3.3", table, note, "mhsublhd-proposition" if write else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("budgets", "equilibrium", "proposition"), default=None, help="one part alone")
    parser.add_argument("--classes", type=int, default=10_000_000, help="rows of the two Gaussian classes")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each chain")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds on few rows")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results and the figures beside it")
    options = parser.parse_args()
    if options.part in (None, "equilibrium"):
        equilibrium(options.quick, options.write)
    if options.part in (None, "proposition"):
        rows_needed(options.quick, options.write)
    if options.part in (None, "budgets"):
        budgets(options.quick, options.write, options.classes, options.seconds)


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


def draw(figures: dict[str, Any], sizes: dict[str, int]) -> None:
    """Figs 5, 6 and 7(a): error rates, 30 % quantile and mean of the chain against seconds, and error rates against evaluations."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(4, len(figures), figsize=(11, 9.6), constrained_layout=True)
    for k, (title, found) in enumerate(figures.items()):
        for (name, lines), colour in zip(found.items(), ("0.5", "tab:blue"), strict=True):
            for c, (path, kept, (training, test)) in enumerate(lines):
                chain, seconds = path.theta[:, 1], path.clock[kept]
                label = [f"{name}, training", f"{name}, test"] if c == 0 else [None, None]
                axes[0, k].plot(seconds, training, color=colour, lw=1, label=label[0])
                axes[0, k].plot(seconds, test, ":", color=colour, lw=1, label=label[1])
                axes[1, k].plot(seconds, [np.quantile(chain[: i + 1], 0.3) for i in kept], color=colour, lw=1)
                axes[2, k].plot(seconds, [chain[: i + 1].mean() for i in kept], color=colour, lw=1)
                axes[3, k].plot(path.evals[kept] / sizes[title], training, color=colour, lw=1)
        if "classes" in title:  # centres at 1 and -1: Phi(-1)
            axes[0, k].axhline(0.5 * math.erfc(math.sqrt(0.5)), color="k", ls="-.", lw=0.8, label="Bayes classifier")
        for line, what in enumerate(("error rate", "30 % quantile of theta_1", "mean of theta_1", "error rate, training")):
            axes[line, k].set(xscale="log", xlabel="seconds" if line < 3 else "evaluations / n", ylabel=what)
        axes[0, k].set(title=title.split(" (")[0])
        axes[0, k].legend(frameon=False, fontsize=7)
    save(figure, "mhsublhd_scaling.png")


if __name__ == "__main__":
    main()

"""Bardenet, Doucet and Holmes (2014), Figs 5 to 7 in reduced size, and Proposition 3.3 beside measured numbers of rows.

python -m experiments.mhsublhd_scaling [--quick] [--write]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, charged, covtype_columns, percent, run, save, standardised
from experiments.confidence_scaling import two_classes
from tallbayes.engine import passes
from tallbayes.samplers import MHSubLhd
from tallbayes.schemes import sequential_tests

DELTA, P, GAMMA = 0.01, 2.0, 2.0
CHECKED = 20_000  # rows on which errors of classification are measured


def error_rate(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Share of wrong labels for each theta."""
    return ((x @ theta.T > 0.0) != (y[:, None] > 0.5)).mean(0)


def against_budget(title: str, x: np.ndarray, y: np.ndarray, train: int, draws: int, chains: int) -> tuple[dict[str, Any], Any]:
    """MH and MHSubLhd from the same far starts: error on the training rows and on others against evaluations."""
    model = tb.models.logistic(tb.Dataset.from_arrays(x[:train], y[:train]))
    mode = tb.find_mode(model, progress=False)
    starts = mode.reference + 0.5 * np.random.default_rng(1).standard_normal((chains, model.dim))
    found: dict[str, Any] = {}
    for name, sampler in (("MH", "mh"), ("MHSubLhd", MHSubLhd(range="lipschitz"))):
        fit = run(model, sampler, draws, chains, 0, init=starts)
        evals = fit.evals if name == "MH" else charged(fit, train)
        budget = np.cumsum(evals, 1) / train
        kept = np.unique(np.geomspace(1, draws, 60).astype(int)) - 1
        errors = [error_rate(part[0], part[1], fit.theta[c, kept]) for c in range(chains) for part in
                  ((x[:CHECKED], y[:CHECKED]), (x[-CHECKED:], y[-CHECKED:]))]  # fmt: skip
        found[name] = (fit, budget, kept, np.array(errors).reshape(chains, 2, -1))
    half, reached = 0.5 * np.linalg.norm(mode.laplace().whiten(starts), axis=1), {}
    for name, (fit, budget, _, _) in found.items():
        near = np.linalg.norm(mode.laplace().whiten(fit.theta), axis=2) <= half[:, None]
        reached[name] = [budget[c, near[c].argmax()] if near[c].any() else math.inf for c in range(chains)]
    gains = [a / b for a, b in zip(reached["MH"], reached["MHSubLhd"], strict=True) if math.isfinite(a) and math.isfinite(b)]
    fit = found["MHSubLhd"][0]
    late = fit.stats["rows"][:, draws // 2 :].mean() / train
    row = {
        "task": title,
        "n": train,
        "rows read, first 50 iterations": percent(float(fit.stats["rows"][:, :50].mean()) / train),
        "rows read, second half": percent(float(late)),
        "budget of MH over that of MHSubLhd, to half the distance": f"{min(gains):.1f} to {max(gains):.1f}"
        if gains
        else "not reached",
    }
    return row, found


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
    longest, test = float(np.sqrt((x**2).sum(1)).max()), sequential_tests.make_test("hoeffding-serfling", DELTA, GAMMA, 1, P)
    table = []
    for distance in distances:
        measured, bounds = [], []
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
            measured.append(sequential_tests.decide_values(rng, test, gaps, psi, -limit, limit, False)[1])
        limits = GAMMA * np.array(bounds)
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
            }
        )
    return table


def main() -> None:
    options = arguments(__doc__)
    quick = options.quick
    x, y, _ = covtype_columns()
    train, draws, chains = (200_000, 300, 2) if not quick else (20_000, 60, 1)
    rng = np.random.default_rng(0)
    rows, figures = [], {}
    synthetic = two_classes(400_000 + CHECKED if not quick else 20_000 + CHECKED)
    design, labels = passes.block(synthetic.rows, 0, synthetic.data.n)[:2]
    tasks = {
        "covtype, 2 columns (Fig. 5; up to 3 times)": (standardised(x[:, :2]), y, train),
        "covtype, 10 columns (Fig. 7a)": (standardised(x), y, train),
        "two Gaussian classes (Fig. 6; up to 5 times)": (design, labels, design.shape[0] - CHECKED),
    }
    for title, (features, response, size) in tasks.items():
        row, figures[title] = against_budget(title, features, response, size, draws, chains)
        rows.append(row)
    sizes = [10.0**k for k in (5, 7, 9, 11, 13, 15)]
    curves = {n: shares_at_equilibrium(n, 2000 if not quick else 50, rng) for n in sizes}
    shares = [float(used.mean()) for used in curves.values()]
    rows += [
        {
            "task": "Gaussian mean at equilibrium (Fig. 7b; 25 % for large n)",
            "n": f"{n:.0e}",
            "rows read, second half": percent(s),
        }
        for n, s in zip(sizes, shares, strict=True)
    ]
    note = (
        f"{chains} chains of {draws} iterations from starts with normal errors of 0.5 in each coordinate, without warm-up; budgets in "
        "evaluations (T instead of 2 T after an iteration that read all rows) until the distance to the mode "
        "in posterior sds is half of that at the start. The "
        "paper used n = 1e7 for the Gaussian classes and 400,000 rows of covtype. Gaussian means by exact simulation of batch sums."
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
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(figures), figsize=(11, 5.4), constrained_layout=True)
    for k, (title, found) in enumerate(figures.items()):
        for (name, (fit, budget, kept, errors)), colour in zip(found.items(), ("0.5", "tab:blue"), strict=True):
            running = np.array([[np.quantile(chain[: i + 1, 1], 0.3) for i in kept] for chain in fit.theta])
            for c in range(errors.shape[0]):
                axes[0, k].plot(
                    budget[c, kept], errors[c, 0], color=colour, lw=1, label=f"{name}, training" if c == 0 else None
                )
                axes[0, k].plot(
                    budget[c, kept], errors[c, 1], ":", color=colour, lw=1, label=f"{name}, test" if c == 0 else None
                )
                axes[1, k].plot(budget[c, kept], running[c], color=colour, lw=1, label=name if c == 0 else None)
        axes[0, k].set(xscale="log", title=title.split(" (")[0], ylabel="error rate")
        axes[1, k].set(xscale="log", xlabel="evaluations so far / n", ylabel="30 % quantile of theta_1")
        axes[0, k].legend(frameon=False, fontsize=7)
        axes[1, k].legend(frameon=False, fontsize=7)
    save(figure, "mhsublhd_scaling.png")


if __name__ == "__main__":
    main()

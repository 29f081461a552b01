"""Bardenet, Doucet and Holmes (2017), Fig. 10: evaluations per iteration for n = 1e3 ... 1e7, one proxy at the mode.

python -m experiments.confidence_scaling [--quick] [--write]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, percent, run, save
from tallbayes.engine import passes
from tallbayes.samplers import Confidence

DRAWS, CHAINS = 10_000, 5


def two_classes(n: int, seed: int = 0) -> tb.models.Model:
    """Two columns; given the label, a unit Gaussian around (1, 0) or (-1, 0)."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    x = rng.standard_normal((n, 2), dtype=np.float32)
    x[:, 0] += np.where(y, np.float32(1.0), np.float32(-1.0))
    return tb.models.logistic(tb.Dataset.from_arrays(x, y, columns=["x1", "x2"], dtype="float32"))


def count(value: float) -> str:
    """A number of evaluations: whole from a hundred on."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def main() -> None:
    options = arguments(__doc__)
    sizes = [10**k for k in (range(3, 8) if not options.quick else range(3, 5))]
    draws, warmup = (DRAWS, 1000) if not options.quick else (200, 200)
    walk = tb.moves.random_walk(acceptance=0.5)
    configurations = {
        "published": Confidence.published(refresh=None, move=walk),
        "betting, T6, uniform": Confidence(delta=0.1, bound="T6", rows="uniform", move=walk),
        "betting, T6, weighted": Confidence(delta=0.1, bound="T6", move=walk),
    }
    table: list[dict[str, Any]] = []
    costs: dict[str, list[np.ndarray]] = {name: [] for name in configurations}
    for n in sizes:
        model = two_classes(n)
        mode = tb.find_mode(model, progress=False)
        row: dict[str, Any] = {"n": n, "the paper": "about 1,000 rows" if n >= 10**5 else ""}
        for name, sampler in configurations.items():
            fit = run(model, sampler, draws, CHAINS, warmup, mode=mode, init=np.tile(mode.reference, (CHAINS, 1)))
            means = fit.evals.mean(1)
            row[name] = count(float(means.mean()))
            row[f"{name}: share of n"] = f"{means.mean() / n:.1e}"
            if name == "published":
                row["published: rows"] = count(float(fit.stats["rows"].mean()))
                row["of single chains"] = f"{means.min():,.0f} to {means.max():,.0f}"
                row["median iteration"] = count(float(np.median(fit.evals)))
                row["95 % quantile"] = count(float(np.quantile(fit.evals, 0.95)))
                row["all rows"] = percent(float(fit.stats["full_read"].mean()))
            costs[name].append(fit.evals.ravel())
        table.append(row)
        print(row, flush=True)
    note = (
        f"Likelihood evaluations per iteration, mean of {CHAINS} chains of {draws:,} iterations started at the mode, two per row read; "
        "random walk with the shape of the Laplace fit that accepts half; delta = 0.1; rows in float32. Published: empirical Bernstein, "
        "one range for all rows by the bound of section 8.1.1. The paper has one chain for each n."
    )
    show("evaluations per iteration", table, note, "confidence-scaling" if options.write else None)
    if options.write:
        draw(sizes, costs)


def draw(sizes: list[int], costs: dict[str, list[np.ndarray]]) -> None:
    """Fig. 10: some of the rows, and evaluations of single iterations and their mean against n."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    x, y = passes.block(two_classes(sizes[0]).rows, 0, sizes[0])[:2]
    for label, colour in ((1, "tab:blue"), (0, "tab:orange")):
        left.plot(*x[y == label].T, ".", ms=3, color=colour, label=f"y = {label}")
    left.axvline(0.0, color="k", ls="-.", lw=0.8, label="Bayes classifier")
    left.set(xlabel="x1", ylabel="x2", title=f"{sizes[0]:,} rows")
    left.legend(frameon=False, fontsize=8)
    right.plot(sizes, sizes, color="0.6", ls=":", label="plain MH: n")
    for (name, found), marker in zip(costs.items(), "osv", strict=True):
        right.plot(sizes, [max(float(evals.mean()), 1e-3) for evals in found], marker=marker, label=f"{name}: mean")
    boxes = {"widths": [0.5 * n for n in sizes], "whis": (5, 95), "showfliers": False, "manage_ticks": False}
    right.boxplot([np.maximum(evals, 1.0) for evals in costs["published"]], positions=sizes, **boxes)
    right.set(xscale="log", yscale="log", xlabel="n", ylabel="evaluations per iteration", title="boxes: published, 5 to 95 %")
    right.legend(frameon=False, fontsize=8)
    save(figure, "confidence_scaling.png")


if __name__ == "__main__":
    main()

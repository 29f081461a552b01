"""Bardenet, Doucet and Holmes (2017), Fig. 10(b): evaluations per iteration for n = 1e3 ... 1e7, one proxy at the mode.

python -m experiments.confidence_scaling [--quick] [--write]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, run, save
from tallbayes.samplers import Confidence

DRAWS = 10_000


def two_classes(n: int, seed: int = 0) -> tb.models.Model:
    """Two columns; given the label, a unit Gaussian around (1, 0) or (-1, 0)."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    x = rng.standard_normal((n, 2), dtype=np.float32)
    x[:, 0] += np.where(y, np.float32(1.0), np.float32(-1.0))
    return tb.models.logistic(tb.Dataset.from_arrays(x, y, columns=["x1", "x2"], dtype=np.float32))


def main() -> None:
    options = arguments(__doc__)
    sizes = [10**k for k in (range(3, 8) if not options.quick else range(3, 5))]
    configurations = {
        "published: EB, T1, uniform": Confidence.published(refresh=None),
        "betting, T6, uniform": Confidence(delta=0.1, bound="T6", rows="uniform"),
        "betting, T6, weighted": Confidence(delta=0.1, bound="T6"),
    }
    table: list[dict[str, Any]] = []
    for n in sizes:
        model = two_classes(n)
        row: dict[str, Any] = {"n": n, "the paper": "about 1,000" if n >= 10**5 else ""}
        for name, sampler in configurations.items():
            fit = run(model, sampler, DRAWS if not options.quick else 200, 1, 200)
            row[name] = float(fit.evals.mean())
            row[f"{name}: share of n"] = f"{fit.evals.mean() / n:.1e}"
        table.append(row)
    note = (
        f"Mean likelihood evaluations per iteration over {DRAWS:,} iterations, two per row read; delta = 0.1; rows in float32."
    )
    show("evaluations per iteration", table, note, "confidence-scaling" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(5.6, 3.6), constrained_layout=True)
        axis.plot(sizes, sizes, color="0.6", ls=":", label="plain MH: n")
        for name, marker in zip(configurations, "osv", strict=True):
            axis.plot(sizes, [max(row[name], 1e-3) for row in table], marker=marker, label=name)
        axis.set(xscale="log", yscale="log", xlabel="n", ylabel="evaluations per iteration")
        axis.legend(frameon=False, fontsize=8)
        save(figure, "confidence_scaling.png")


if __name__ == "__main__":
    main()

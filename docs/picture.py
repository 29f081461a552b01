"""Draw docs/figures/front.png, the picture of the README and of the front page, from real runs: about two minutes.

    python docs/picture.py

Left, likelihood evaluations per effective draw against the number of rows; right, the posterior of one coefficient, by a sampler that
reads a few rows per iteration and by one that reads them all. Evaluations are counted, so any machine draws the same picture.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

import tallbayes as tb

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
SIZES = (10_000, 100_000, 1_000_000)
COEFFICIENTS = np.array([-1.0, 0.8, -0.5, 0.3, 0.2])
SHOWN = "price"
FEW, ALL = "#d1495b", "#30638e"


def model_of(n: int) -> tb.models.Model:
    """A logistic regression of n simulated clicks on four columns."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 4))])
    y = rng.random(n) < 1 / (1 + np.exp(-X @ COEFFICIENTS))
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, columns=["Intercept", "age", "price", "visits", "hour"]))


def main() -> None:
    """Run both samplers at every size and draw."""
    cost: dict[str, list[float]] = {"exact-minibatch": [], "nuts": []}
    fits: dict[str, tb.Fit] = {}
    for n in SIZES:
        model = model_of(n)
        for name, costs in cost.items():
            draws, seed = (2500, 1) if name == "exact-minibatch" else (300, 2)
            fits[name] = tb.sample(model, name, draws=draws, warmup=200, seed=seed, progress=False)
            costs.append(fits[name].cost()["evals_per_ess"])
            print(f"{name}, n = {n:,}: {costs[-1]:,.3g} evaluations per effective draw")
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.loglog(SIZES, cost["nuts"], "o-", color=ALL, label="NUTS: every row, every gradient")
    left.loglog(SIZES, cost["exact-minibatch"], "o-", color=FEW, label="exact minibatch: a few random rows")
    left.set(xlabel="rows", ylabel="likelihood evaluations\nper effective draw", title="The more rows, the fewer are read")
    left.legend(frameon=False, loc="center left")
    values = {name: fit.draws(SHOWN).ravel() for name, fit in fits.items()}
    bins = np.linspace(*np.quantile(np.concatenate([*values.values()]), [0.0005, 0.9995]), 25)
    right.hist(values["nuts"], bins, density=True, color=ALL, alpha=0.35, label="NUTS")
    right.hist(values["exact-minibatch"], bins, density=True, histtype="step", color=FEW, linewidth=2, label="exact minibatch")
    right.set(xlabel=f"coefficient of {SHOWN}", yticks=[], title=f"The same posterior, {SIZES[-1]:,} rows")
    right.spines["left"].set_visible(False)
    right.locator_params(axis="x", nbins=5)
    right.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "figures" / "front.png", dpi=150)


if __name__ == "__main__":
    main()

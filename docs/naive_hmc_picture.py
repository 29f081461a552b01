"""Draw docs/figures/naive-hmc.png, the picture of docs/samplers/naive-hmc.md, from real runs: under a minute.

    python docs/naive_hmc_picture.py

Left, trajectories that start at the same position and momentum, in whitened coordinates; right, the draws of four samplers.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib
import numpy as np

import tallbayes as tb

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
ROWS, SUBSAMPLE, STEP = 10_000, 1_000, 0.1
COLOURS = {"all rows": "#30638e", "one minibatch": "#d1495b", "a fresh minibatch per step": "#edae49"}


def trajectory(y: np.ndarray, kind: str, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Leapfrog positions and momenta for the mean of normal rows, from (0, 2): w is the mean in posterior standard deviations."""
    batch = rng.choice(y, SUBSAMPLE)
    path = [np.array([0.0, 2.0])]

    def gradient(w: float) -> float:
        rows = y if kind == "all rows" else batch if kind == "one minibatch" else rng.choice(y, SUBSAMPLE)
        return np.sqrt(y.size) * (rows.mean() - y.mean()) - w

    slope = gradient(0.0)
    for _ in range(steps):
        w, r = path[-1]
        r += 0.5 * STEP * slope
        w += STEP * r
        slope = gradient(w)
        path.append(np.array([w, r + 0.5 * STEP * slope]))
    return np.array(path)


def main() -> None:
    """Run the samplers and draw."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal(ROWS)
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((ROWS, 1)), y), tb.priors.flat(), sigma=1.0)
    samplers = {
        "all rows": ("the posterior (HMC)", tb.samplers.FullData(tb.moves.hmc())),
        "one minibatch": ("naive, one minibatch", tb.samplers.NaiveHMC(subsample=SUBSAMPLE, test="subsample")),
        "a fresh minibatch per step": ("naive, fresh minibatches", tb.samplers.NaiveHMC(subsample=SUBSAMPLE, renew="step")),
        "hmc-ecs": ("HMC-ECS", tb.samplers.HMCECS(subsample=SUBSAMPLE)),
    }
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for kind, colour in COLOURS.items():
        path = trajectory(y, kind, 62, np.random.default_rng(1))
        left.plot(*path.T, color=colour, linewidth=2, label=kind)
    left.plot(0.0, 2.0, "ko", markersize=5)
    left.set(
        xlabel="position, in posterior sds",
        ylabel="momentum",
        title="Trajectories from the same start",
        aspect="equal",
        ylim=(-9, 5),
    )
    left.legend(frameon=False, loc="lower center")
    bins = np.linspace(-9, 9, 73)
    for kind, (label, sampler) in samplers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.TallbayesWarning)
            fit = tb.sample(model, sampler, draws=10_000, warmup=500, seed=1, progress=False)
        values = (fit.theta.ravel() - y.mean()) * np.sqrt(ROWS)
        print(f"{label}: standard deviation {values.std():.3f}, {fit.evals.mean():,.0f} rows per draw")
        style = {"histtype": "stepfilled", "alpha": 0.35} if kind == "all rows" else {"histtype": "step", "linewidth": 2}
        if kind == "hmc-ecs":
            style["linestyle"] = "--"
        text = f"{label}: sd {values.std():.2f}"
        right.hist(values, bins, density=True, color=COLOURS.get(kind, "#00798c"), label=text, **style)
    right.set(
        xlabel="position, in posterior sds", yticks=[], title=f"{SUBSAMPLE:,} of {ROWS:,} rows per gradient", ylim=(0, 0.62)
    )
    right.spines["left"].set_visible(False)
    right.legend(frameon=False, loc="upper left", fontsize=10)
    figure.savefig(ROOT / "docs" / "figures" / "naive-hmc.png", dpi=100)


if __name__ == "__main__":
    main()

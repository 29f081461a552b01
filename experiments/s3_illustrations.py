"""Figures 1 and 2 of Maclaurin and Adams (2014): a likelihood split into bound and remainder, and the joint chain on a toy problem.

python -m experiments.s3_illustrations [--quick] [--write]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.engine import passes
from tallbayes.proxies.lower_bounds import gaps_at, lower_bound
from tallbayes.run.chain import Chain

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
XI = 1.5  # of the paper's untuned bound
SHOWN = 3  # iterations of the toy problem


def single_rows() -> dict[str, Any]:
    """One logistic and one Student-t row as models of one coefficient, the row of the figure first."""
    flat = tb.priors.normal(3.0)
    x = np.ones((2, 1))
    return {
        "logistic": tb.models.logistic(tb.Dataset.from_arrays(x, [1.0, 0.0]), flat),
        "Student-t, 4 degrees of freedom": tb.models.student_t(tb.Dataset.from_arrays(x, [0.0, 0.0]), flat, nu=4.0, scale=1.0),
    }


def split(model: Any, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood and lower bound of the first row over the grid, the bound of one xi for all rows."""
    bound, _ = lower_bound(tb.find_mode(model, progress=False), "untuned", XI)
    first = model.rows._replace(records=model.rows.records[:1])
    likelihood = np.array([np.exp(passes.total_value(first, np.array([t]))) for t in grid])
    gap = np.array([gaps_at(model.rows, bound, np.array([t]))[0] for t in grid])
    return likelihood, likelihood * np.exp(-gap)


def joint_chain(model: Any, draws: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Draws of theta and of the light of the first row, by Firefly under the same bound."""
    mode = tb.find_mode(model, progress=False)
    sampler = tb.samplers.Firefly(bound="untuned", xi=XI, rate=0.3)
    setup = sampler.setup(model, mode, 1, False)
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference.copy(), 300, 1)
    chain.compile()
    while chain.warming:
        chain.chunk(1)
    theta, light = np.empty((draws, model.dim)), np.empty((draws, model.data.n), bool)
    for k in range(draws):
        chain.per_second = 0.0  # one iteration at a time
        chain.chunk(k + 1)
        theta[k] = chain.state.theta
        light[k] = np.asarray(chain.state.lights.place) < chain.state.lights.tally[0]
    return theta, light, mode


def figure1(quick: bool, write: bool) -> list[dict[str, Any]]:
    """The split of each likelihood; the share of draws with the light on, against what the law of z gives at the same draws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid, rows = np.linspace(-6.0, 6.0, 301), []
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 5.0), layout="constrained", sharex=True)
    for column, (name, model) in enumerate(single_rows().items()):
        likelihood, below = split(model, grid)
        theta, light, _ = joint_chain(model, 200 if quick else 20_000)
        top, bottom = axes[0][column], axes[1][column]
        top.fill_between(grid, 0.0, below, color="tab:blue", alpha=0.6, label="bound B")
        top.fill_between(grid, below, likelihood, color="tab:orange", alpha=0.6, label="remainder L - B")
        top.plot(grid, likelihood, color="black", lw=1.2, label="likelihood L")
        top.set_title(name, fontsize=10)
        few = slice(0, 120)
        bottom.plot(theta[few, 0], light[few, 0], color="0.6", lw=0.5)
        for on, colour in ((False, "tab:blue"), (True, "tab:orange")):
            bottom.plot(theta[few, 0][light[few, 0] == on], np.full((light[few, 0] == on).sum(), on), ".", color=colour, ms=5)
        bottom.set_yticks([0, 1], ["z = 0", "z = 1"])
        bottom.set_ylim(-0.4, 1.4)
        bottom.set_xlabel("theta")
        expected = float(np.mean(1.0 - np.interp(theta[:, 0], grid, below) / np.interp(theta[:, 0], grid, likelihood)))
        rows.append(
            {
                "likelihood": name,
                "least L - B": float((likelihood - below).min()),
                "largest (L - B) / L": float((1.0 - below / likelihood).max()),
                "draws with z = 1": float(light[:, 0].mean()),
                "expected at the same theta": expected,
            }
        )
    axes[0][0].legend(fontsize=8)
    if write:
        figure.savefig(FIGURES / "s3-figure1.png", dpi=90)
    return rows


def toy() -> Any:
    """A few points of two classes in the plane."""
    rng = np.random.default_rng(6)
    y = np.repeat([0.0, 1.0], 12)
    x = np.column_stack([np.ones(24), rng.standard_normal((24, 2)) + np.where(y > 0.0, 0.9, -0.9)[:, None]])
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.normal(3.0))


def figure2(quick: bool, write: bool) -> list[dict[str, Any]]:
    """Iterations of the toy: rows in the plane, bright ones ringed, with the line that theta draws; and theta over the iterations."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = toy()
    x, y = model.rows.records[:, 1:3], model.rows.records[:, 3]
    theta, light, mode = joint_chain(model, 300 if quick else 5000)
    figure, axes = plt.subplots(1, SHOWN + 1, figsize=(12.5, 3.2), layout="constrained")
    line = np.array([-3.5, 3.5])
    for k in range(SHOWN):
        axis, at = axes[k], 40 + 5 * k
        for label, colour in ((0.0, "tab:blue"), (1.0, "tab:red")):
            axis.plot(*x[y == label].T, "o", color=colour, ms=4)
        axis.plot(*x[light[at]].T, "o", mfc="none", mec="tab:orange", mew=2, ms=11)
        axis.plot(line, -(theta[at, 0] + theta[at, 1] * line) / theta[at, 2], color="black", lw=1)
        axis.set_xlim(-3.5, 3.5)
        axis.set_ylim(-3.5, 3.5)
        axis.set_title(f"iteration {at}, {int(light[at].sum())} of {y.size} bright", fontsize=9)
    axes[-1].plot(theta[:400, 1], lw=0.8, label="theta 1")
    axes[-1].plot(light[:400].sum(1), lw=0.8, color="tab:orange", label="bright rows")
    axes[-1].legend(fontsize=8)
    axes[-1].set_xlabel("iteration")
    if write:
        figure.savefig(FIGURES / "s3-figure2.png", dpi=90)
    bound, _ = lower_bound(mode, "untuned", XI)
    expected = float(np.mean([-np.expm1(-gaps_at(model.rows, bound, t)).sum() for t in theta[::10]]))
    return [{"rows": y.size, "iterations": theta.shape[0], "bright rows": float(light.sum(1).mean()), "expected": expected}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    note = f"Bounds with xi = {XI} for every row, implicit resampling with q = 0.3."
    show("Firefly, Figure 1", figure1(options.quick, options.write), note, "s3-figure1" if options.write else None)
    show("Firefly, Figure 2", figure2(options.quick, options.write), note, "s3-figure2" if options.write else None)


if __name__ == "__main__":
    main()

"""Figure 4 of Maclaurin and Adams (2014): five runs from the prior, log posterior and queries per iteration while chains burn in.

python -m experiments.s3_figure4 [--quick] [--write]

The step of each algorithm is tuned for its acceptance rate near the mode, as in the paper "optimized for each algorithm separately", and
kept while the chains burn in.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.s3_problems import PROBLEMS
from experiments.s3_table1 import MOVES, algorithms
from tallbayes.run.chain import Chain
from tallbayes.run.starting_points import starting_points

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "s3-figure4.png"
ITERATIONS = {"MNIST 7 v 9": 8000, "CIFAR-10, 3 classes": 1000, "CEP molecules": 1500}
TUNING = 400  # iterations near the mode
COLOURS = {"regular": "tab:blue", "untuned": "tab:green", "tuned": "tab:orange", "rows": "tab:red"}
POINTS = 60  # of a trace


def burn_in(mode: Any, sampler: Any, draws: int, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws (runs, draws, dim) of chains from the prior and their queries, with the options that warm-up near the mode chose."""
    setup = sampler.setup(mode.model, mode, 3, False)
    seeds = np.random.SeedSequence(3).spawn(runs + 1)
    near = Chain(0, sampler, setup, seeds[0], mode.laplace().draw(np.random.default_rng(3), 1)[0], TUNING, 1)
    near.compile()
    while near.warming:
        near.chunk(1)
    thetas, queries = [], []
    for number, start in enumerate(starting_points(mode.model, mode, "prior", runs, 3)):
        chain = Chain(number, sampler, setup, seeds[number + 1], start, 0, 1)
        chain.options = near.options
        while chain.draws < draws and not chain.failed:
            chain.chunk(draws)
        theta, info = chain.collected()
        thetas.append(theta)
        queries.append(info[:, sampler.columns.index("evals")])
    return np.stack(thetas), np.stack(queries)


def traces(name: str, quick: bool) -> dict[str, dict[str, Any]]:
    model, _ = PROBLEMS[name](quick)
    mode = tb.find_mode(model, progress=False)
    draws, out = 60 if quick else ITERATIONS[name], {}
    at = np.unique(np.geomspace(1, draws, POINTS).astype(int)) - 1
    for key, (label, sampler, _) in algorithms(name).items():
        if key == "several":
            continue
        thetas, queries = burn_in(mode, sampler, draws, 2 if quick else 5)
        log_posterior = np.array([[model.log_posterior(chain[k]) for k in at] for chain in thetas])
        smooth = [queries[:, a : b + 1].mean(1) for a, b in zip(np.append(0, at[:-1] + 1), at, strict=True)]
        gap = mode.log_posterior - log_posterior
        settled = [int(at[np.argmax(g < model.dim)] + 1) if (g < model.dim).any() else draws for g in gap]
        spent = [float(queries[c, : settled[c]].sum()) for c in range(len(settled))]
        out[key] = {"label": label, "at": at + 1, "lp": log_posterior, "evals": np.array(smooth).T, "top": mode.log_posterior}
        out[key] |= {"settled": float(np.mean(settled)), "spent": float(np.mean(spent)), "n": model.data.n, "draws": draws}
        out[key]["reached"] = float(np.mean([(g < model.dim).any() for g in gap]))
        print(name, label, {k: out[key][k] for k in ("reached", "settled", "spent")}, flush=True)
    return out


def draw(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(found), figsize=(3.7 * len(found), 5.2), sharex="col", layout="constrained")
    for column, (name, curves) in enumerate(found.items()):
        top, bottom = axes[0][column], axes[1][column]
        for key, curve in curves.items():
            for axis, values in ((top, curve["top"] - curve["lp"]), (bottom, curve["evals"])):
                mean, sd = values.mean(0), values.std(0)
                axis.plot(curve["at"], mean, color=COLOURS[key], label=curve["label"], lw=1.4)
                axis.fill_between(
                    curve["at"], np.maximum(mean - sd, 0.05 * mean), mean + sd, color=COLOURS[key], alpha=0.2, lw=0
                )
        for axis in (top, bottom):
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.grid(alpha=0.3)
        top.set_title(f"{name}\n{MOVES[name].name.replace('_', ' ')}", fontsize=10)
        bottom.set_xlabel("iteration")
    axes[0][0].set_ylabel("log posterior below its maximum")
    axes[1][0].set_ylabel("queries per iteration")
    axes[1][0].legend(fontsize=7)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {name: traces(name, options.quick) for name in ITERATIONS}
    rows = [
        {
            "data": name if key == "regular" else "",
            "algorithm": curve["label"],
            "runs that arrived": f"{100 * curve['reached']:.0f} %",
            "iterations run": curve["draws"],
            "iterations to arrive": curve["settled"],
            "queries to arrive / n": curve["spent"] / curve["n"],
            "queries of the first iterations": float(curve["evals"][:, :3].mean()),
            "queries of the last": float(curve["evals"][:, -3:].mean()),
        }
        for name, curves in found.items()
        for key, curve in curves.items()
    ]
    if options.write:
        draw(found)
    show(
        "Firefly: burn-in from the prior",
        rows,
        "Five runs each (means), the paper's isotropic walk (MNIST), isotropic MALA (CIFAR) and slice sampling (CEP), each with the step "
        "that suits it near the mode. A run has arrived when its log posterior is "
        "within d of the maximum; where not all did, the number of iterations is a lower bound.",
        "s3-figure4" if options.write else None,
    )


if __name__ == "__main__":
    main()

"""Figure 7 of Dang et al. (2019): step size and acceptance of HMC-ECS against the dimension, on Gaussian regression.

python -m experiments.hmc_ecs_scaling [--quick] [--write]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain


def tuned(model: tb.models.Model, mode: Any, sampler: Any, warmup: int, draws: int) -> dict[str, float]:
    """Step size after warm-up, and how a short run with it went."""
    setup = sampler.setup(model, mode, 1, False)
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference, warmup, 1)
    while chain.warming or chain.draws < draws:
        chain.chunk(draws)
    theta, info = chain.collected()
    table = dict(zip(sampler.columns, info.T, strict=True))
    return {
        "m": setup.notes.get("subsample", model.data.n),
        "step": chain.options.kernel.step,
        "acceptance": float(table["acceptance_rate"].mean()),
        "IF": draws / float(np.median(effective_sizes(theta[None]))),
        "Var log L-hat": float(table["variance"].mean()) if "variance" in table else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    dimensions = (2, 4) if options.quick else (2, 4, 8, 16, 32, 64, 128, 256)
    warmup, draws = (100, 50) if options.quick else (400, 400)
    samplers = {
        "full-data HMC": tb.samplers.FullData(tb.moves.hmc()),
        "HMC-ECS, order 2": tb.samplers.HMCECS(),
        "HMC-ECS, order 1": tb.samplers.HMCECS(order=1, mass="conditional"),
    }
    rows, steps = [], {name: [] for name in samplers}
    for d in dimensions:
        rng = np.random.default_rng(d)
        x = rng.standard_normal((10_000, d))
        data = tb.Dataset.from_arrays(x, x @ rng.standard_normal(d) + rng.standard_normal(10_000))
        model = tb.models.gaussian(data, tb.priors.normal(5.0), sigma=1.0)
        mode = tb.find_mode(model, progress=False)
        for name, sampler in samplers.items():
            found = tuned(model, mode, sampler, warmup, draws)
            steps[name].append((found["step"], found["acceptance"]))
            rows.append({"d": d, "sampler": name, **found})
    slopes = (
        {
            name: float(np.polyfit(np.log(dimensions[1:]), np.log([v[0] for v in values[1:]]), 1)[0])
            for name, values in steps.items()
        }
        if len(dimensions) > 2
        else {}
    )
    note = "Gaussian regression, n = 10,000, N(0, 25) prior; step size at acceptance 0.8. " + "; ".join(
        f"{name}: step ~ d^{slope:.2f}" for name, slope in slopes.items()
    )
    if slopes:
        note += ". Theory for HMC: d^-0.25, for Langevin d^-0.33."
    show("Scaling with d", rows, note, "hmc-ecs-scaling" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        canvas, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
        for (name, values), mark in zip(steps.items(), "os^", strict=True):
            left.plot(dimensions, [v[0] for v in values], f"{mark}-", label=name, ms=5, lw=1)
            right.plot(dimensions, [v[1] for v in values], f"{mark}-", label=name, ms=5, lw=1)
        grid = np.array(dimensions, float)
        start = steps["full-data HMC"][0][0]
        left.plot(grid, start * (grid / 2) ** -0.25, "k--", lw=0.8, label="d^(-1/4)")
        left.plot(grid, start * (grid / 2) ** (-1 / 3), "k:", lw=0.8, label="d^(-1/3)")
        left.set_xscale("log", base=2)
        left.set_yscale("log", base=2)
        left.set_ylabel("step size")
        left.legend(frameon=False, fontsize=8)
        right.set_xscale("log", base=2)
        right.set_ylim(0.0, 1.0)
        right.axhline(0.8, color="0.6", lw=0.8)
        right.set_ylabel("acceptance rate")
        for axis in (left, right):
            axis.set_xlabel("dimension d")
        folder = Path(__file__).parent.parent / "docs" / "figures"
        folder.mkdir(exist_ok=True)
        canvas.savefig(folder / "hmc-ecs-scaling.png", dpi=80)


if __name__ == "__main__":
    main()

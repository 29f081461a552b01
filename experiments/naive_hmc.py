"""Naive subsampled HMC, without control variates, beside full-data HMC and HMC-ECS: Dang et al. (2019), section 2.2.

python -m experiments.naive_hmc [--quick] [--write]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.problems import synthetic_rows
from benchmarks.report import show
from experiments.acceptance_tools import arguments, run
from tallbayes.samplers import HMCECS, FullData, NaiveHMC

COLUMNS = 10


def main() -> None:
    options = arguments(__doc__)
    n, draws, sizes = (100_000, 2000, (100, 1000, 10_000)) if not options.quick else (5000, 100, (100,))
    x, y = synthetic_rows(n, COLUMNS)
    model = tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.normal(3.0))
    mode = tb.find_mode(model, progress=False)
    exact = run(model, "exact-minibatch", 5 * draws, 4, 1000, mode=mode).theta.reshape(-1, model.dim)
    kinds = {
        "one minibatch per trajectory, no test": {"renew": "trajectory", "test": "none"},
        "one minibatch per trajectory, tested on it": {"renew": "trajectory", "test": "subsample"},
        "a fresh minibatch per step, no test": {"renew": "step", "test": "none"},
    }
    samplers: dict[tuple[str, Any], Any] = {("full-data HMC", n): FullData(tb.moves.hmc())}
    samplers |= {(f"naive, {kind}", m): NaiveHMC(subsample=m, **chosen) for m in sizes for kind, chosen in kinds.items()}
    samplers |= {("HMC-ECS", m): HMCECS(subsample=m) for m in sizes[:1]}
    table = []
    for (name, m), sampler in samplers.items():
        fit = run(model, sampler, draws, 4, 500, mode=mode)
        theta = fit.theta.reshape(-1, model.dim)
        ratio = theta.var(0) / exact.var(0)
        error = np.abs(theta.mean(0) - exact.mean(0)) / exact.std(0)
        predicted = fit.meta["notes"].get("predicted variance") if getattr(sampler, "test", "") == "none" else None
        table.append(
            {
                "sampler": name,
                "rows of a gradient": m,
                "variances over exact": f"{ratio.min():.3g} to {ratio.max():.3g}",
                "largest predicted": "" if predicted is None else float(predicted),
                "largest error of a mean, sds": float(error.max()),
                "smallest effective size": f"{fit.ess.min():,.0f}",
                "evaluations per iteration": float(fit.evals.mean()),
                "warned": "yes" if fit.meta["warnings"] else "",
            }
        )
        print(table[-1], flush=True)
    note = (
        f"Logistic regression, n = {n:,}, d = {model.dim}; four chains of {draws:,} iterations after 500 of warm-up; exact: "
        f"{exact.shape[0]:,} draws of exact minibatch."
    )
    show("Naive subsampled HMC", table, note, "naive-hmc" if options.write else None)


if __name__ == "__main__":
    main()

"""Real data beyond covtype: three million flights (logistic) and 678,013 motor policies (Poisson with exposure).

python -m benchmarks.real_data [--quick] [--write]
"""

from __future__ import annotations

import argparse

import numpy as np

import tallbayes as tb
from benchmarks.covtype import ours
from benchmarks.options import parsed
from benchmarks.problems import COVTYPE_ROWS, FEW, claims, covtype, flights
from benchmarks.report import show
from tallbayes.testing import importance_moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parsed(parser)
    draws = 1000 if options.quick else 50_000
    rows = []
    for label, make in (
        ("covtype", lambda quick: covtype(FEW if quick else COVTYPE_ROWS)),
        ("flights", flights),
        ("freMTPL2freq", claims),
    ):
        model = make(options.quick)
        ours(model, "exact-minibatch", 10, 0, 1, 1)
        row = {"data": label, "family": model.family.name, "n": model.data.n, "d": model.dim}
        row |= {k: v for k, v in ours(model, "exact-minibatch", draws, 1000, 2, 2).items() if k not in ("tool", "share of n")}
        fit = tb.sample(model, "exact-minibatch", draws=draws, chains=2, seed=2, progress=False)
        exact = importance_moments(model, draws=300)
        flat = fit.theta.reshape(-1, model.dim)
        z = (flat.mean(0) - exact.mean) / np.hypot(exact.mean_error, flat.std(0) / np.sqrt(fit.ess))
        row["bound"] = fit.why.split()[-1]
        row["largest |z| of means against importance sampling"] = float(np.abs(z).max())
        rows.append(row)
        print(row, flush=True)
    show(
        "Real data",
        rows,
        "Two chains on two cores; importance sampling from the Laplace fit, 300 full passes.",
        "real-data" if options.write else None,
    )


if __name__ == "__main__":
    main()

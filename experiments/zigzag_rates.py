"""Candidate rates of the Zig-Zag process: first-order residuals with uniform and weighted rows (published), second-order ones (ours).

Run with `python -m experiments.zigzag_rates --write`; `--quick` is a smoke run.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.problems import synthetic_rows
from benchmarks.report import show


def published(model: tb.models.Model, mode: Any) -> tuple[float, float]:
    """Candidates in a unit of time with rates (C_k + C0) |w|: C_k from the largest row, and from the sum over rows.

    |w| is taken as sqrt(d), that of a typical draw. a_i = L'x_i; sup |f''| = 1/4; C0 the norm of the prior's Hessian in w.
    """
    rows = np.asarray(model.data.records[:, : model.data.d], float) @ mode.factor
    size = np.linalg.norm(rows, axis=1)
    product = np.abs(rows) * size[:, None] / 4.0
    prior = np.linalg.norm(mode.factor.T @ mode.factor, 2) / 100.0  # normal(10)
    root = np.sqrt(model.dim)
    uniform, weighted = model.data.n * product.max(0) + prior, product.sum(0) + prior
    return float(uniform.sum() * root), float(weighted.sum() * root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    problems = [(2000, 3)] if given.quick else [(1000, 2), (100_000, 3), (100_000, 10), (100_000, 20)]
    rows: list[dict[str, Any]] = []
    for n, d in problems:
        model = tb.models.logistic(tb.Dataset.from_arrays(*synthetic_rows(n, d)), tb.priors.normal(10.0))
        mode = tb.find_mode(model, progress=False)
        uniform, weighted = published(model, mode)
        fits = {
            name: tb.sample(model, name, draws=2000, warmup=400, chains=2, seed=1, mode=mode, progress=False)
            for name in ("zigzag", "exact-minibatch")
        }
        path = fits["zigzag"]
        rows.append(
            {
                "n": n,
                "d": d,
                "order 1, uniform rows": uniform,
                "order 1, weighted rows": weighted,
                "order 2, weighted rows (ours)": float(path.stats["rate"].mean()),
                "largest gradient / bound": float(path.stats["largest_ratio"].max()),
                "zigzag: evaluations per effective draw": path.cost()["evals_per_ess"],
                "exact-minibatch: the same": fits["exact-minibatch"].cost()["evals_per_ess"],
                "zigzag: us per effective draw": 1e6 / path.cost()["ess_per_second"],
                "exact-minibatch: us": 1e6 / fits["exact-minibatch"].cost()["ess_per_second"],
            }
        )
    note = "Candidates in a unit of time, in which a coordinate moves by one posterior standard deviation."
    show("Candidate rates of the Zig-Zag process", rows, note, mark="zigzag" if given.write else None)


if __name__ == "__main__":
    main()

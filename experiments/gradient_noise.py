"""Noise of the gradient and the error of variances that it causes: predicted from a pilot, and measured over a long run.

Run with `python -m experiments.gradient_noise --write`; `--quick` is a smoke run.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.problems import synthetic_rows
from benchmarks.report import show
from tallbayes.samplers import SGHMC, SGLD, SGNHT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    n, share = (10_000, 0.02) if given.quick else (100_000, 1.0)
    model = tb.models.logistic(tb.Dataset.from_arrays(*synthetic_rows(n, 10)), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    exact = tb.sample(
        model, "exact-minibatch", draws=int(50_000 * share), warmup=500, chains=2, seed=1, mode=mode, progress=False
    )
    truth = mode.laplace().whiten(exact.theta).var((0, 1)).mean()
    rows: list[dict[str, Any]] = []
    for kind in (SGLD, SGHMC, SGNHT):
        for order in (0, 1, 2):
            sampler = kind(order=order, tolerance=0.2, **({"steps": 1} if kind is SGHMC else {}))
            draws = int(share * (300_000 if order == 0 else 150_000))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", tb.TallbayesWarning)
                fit = tb.sample(
                    model, sampler, draws=draws, warmup=500, chains=2, seed=2, mode=mode, progress=False, init=mode.reference
                )
            notes = fit.meta["notes"]
            white = mode.laplace().whiten(fit.theta[:, draws // 10 :])
            setup = sampler.setup(model, mode, 0, False)
            noise = setup.policy.noise.values * (notes["noise, mean"] / setup.policy.noise.values.mean())  # type: ignore[attr-defined]
            blocks = np.concatenate([[b.var(0).mean() for b in np.array_split(chain, 5)] for chain in white])
            rows.append(
                {
                    "sampler": sampler.name,
                    "order": order,
                    "V, largest": notes["noise, largest eigenvalue"],
                    "step": notes["step"],
                    "predicted mean variance": float(sampler.variances(noise, notes["step"]).mean()),
                    "measured mean variance": float(white.var((0, 1)).mean() / truth),
                    "error": float(blocks.std(ddof=1) / np.sqrt(blocks.size)),
                    "predicted evaluations per effective draw": notes["predicted evaluations per effective draw"],
                    "measured": float(fit.evals.sum() / fit.ess.mean()),
                }
            )
    note = (
        f"Logistic regression, n = {n:,}, d = 10, m = 100, tolerance 20 % so that the error can be seen. Variances are relative to the "
        "posterior's, averaged over ten whitened coordinates; the measured one to a long exact run."
    )
    show("Gradient noise and what it does to variances", rows, note, mark="gradient-noise" if given.write else None)


if __name__ == "__main__":
    main()

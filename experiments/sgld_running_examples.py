"""Bardenet, Doucet and Holmes (2017), Figure 4: SGLD on the Gaussian and lognormal running examples, and what control variates change.

Run with `python -m experiments.sgld_running_examples --write`; `--quick` is a smoke run. n = 100,000; steps go like k^(-1/3).
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import RESULTS, show
from tallbayes.samplers import SGLD


def settings(n: int, share: float) -> dict[str, tuple[SGLD, int]]:
    """Name to sampler and iterations: the two of the paper have the same budget, a tenth of that of full-data Metropolis."""
    slow: dict[str, Any] = {"order": 0, "decay": 1 / 3, "delay": 1.0, "step": 0.2}
    return {
        "10 % of rows, decreasing steps": (SGLD(subsample=n // 10, **slow), int(10_000 * share)),
        "1 % of rows, decreasing steps": (SGLD(subsample=n // 100, **slow), int(100_000 * share)),
        "100 rows, order 2": (SGLD(order=2, subsample=100), int(100_000 * share)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    n, share = (5000, 0.02) if given.quick else (100_000, 1.0)
    rng = np.random.default_rng(0)
    examples = {"gaussian": rng.standard_normal(n), "lognormal": np.exp(rng.standard_normal(n))}
    rows, drawn = [], {}
    for example, y in examples.items():
        model = tb.models.normal(y)
        mode = tb.find_mode(model, progress=False)
        exact = tb.sample(model, "exact-minibatch", draws=20_000, warmup=200, chains=2, seed=1, mode=mode, progress=False)
        mean, sd = exact.theta.mean((0, 1)), exact.theta.std((0, 1))
        drawn[example] = {"exact": (exact, mean, sd)}
        for label, (sampler, draws) in settings(n, share).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", tb.TallbayesWarning)
                fit = tb.sample(
                    model, sampler, draws=draws, warmup=0, chains=1, seed=2, mode=mode, init=mode.reference, progress=False
                )
            drawn[example][label] = (fit, mean, sd)
            centre = fit.expect(lambda theta: theta)
            spread = np.sqrt(fit.expect(lambda theta, centre=centre: (theta - centre) ** 2))
            rows.append(
                {
                    "data": example,
                    "SGLD": label,
                    "iterations": draws,
                    "evaluations / n": float(fit.evals.sum() / n),
                    "V, largest": fit.meta["notes"]["noise, largest eigenvalue"],
                    "error of mean mu, sd": float(abs(centre[0] - mean[0]) / sd[0]),
                    "error of mean log sigma, sd": float(abs(centre[1] - mean[1]) / sd[1]),
                    "sd ratio mu": float(spread[0] / sd[0]),
                    "sd ratio log sigma": float(spread[1] / sd[1]),
                    "farthest draw, sds": float(np.abs((fit.theta - mean) / sd).max()),
                    "share of draws beyond 5 sds": float((np.abs((fit.theta - mean) / sd) > 5.0).any(-1).mean()),
                    "ESS": float(fit.ess.min()),
                }
            )
    note = (
        f"n = {n:,}. Steps go like k^(-1/3), in units of the posterior covariance, order 2 with a constant one; "
        "the paper does not state its own. "
        "Weighted averages of one chain started at the mode, against 40,000 exact draws."
    )
    show("SGLD on the running examples", rows, note, mark="sgld-running" if given.write else None)
    if given.write:
        figure(drawn)


def figure(drawn: dict[str, dict[str, Any]]) -> None:
    """Joint draws in posterior standard deviations, with the exact posterior's one, two and three."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    labels = [k for k in drawn["gaussian"] if k != "exact"]
    fig, axes = plt.subplots(2, len(labels), figsize=(9.0, 5.6), constrained_layout=True)
    angle = np.linspace(0, 2 * np.pi, 200)
    for row, (example, runs) in enumerate(drawn.items()):
        for column, label in enumerate(labels):
            fit, mean, sd = runs[label]
            axis = axes[row, column]
            white = ((fit.theta - mean) / sd).reshape(-1, 2)
            kept = white[:: max(1, white.shape[0] // 2500)]
            reach = max(4.0, float(np.abs(kept).max()) * 1.1)
            axis.scatter(*kept.T, s=2, alpha=0.35, color="#3b6ea8", linewidths=0, rasterized=True)
            covariance = np.cov((runs["exact"][0].theta.reshape(-1, 2) - mean).T / sd[:, None])
            circle = np.linalg.cholesky(covariance) @ np.stack([np.cos(angle), np.sin(angle)])
            for k in (1, 2, 3):
                axis.plot(*(k * circle), color="#c0392b", linewidth=1.0)
            axis.set(xlim=(-reach, reach), ylim=(-reach, reach))
            axis.tick_params(labelsize=8)
            if row == 0:
                axis.set_title(label, fontsize=10)
            if column == 0:
                axis.set_ylabel(f"{example}: log σ, posterior sds", fontsize=9)
            if row == 1:
                axis.set_xlabel("μ, posterior sds", fontsize=9)
    path = RESULTS.parent / "figures" / "sgld-running.png"
    path.parent.mkdir(exist_ok=True)
    fig.savefig(path, dpi=90)
    Image.open(path).quantize(48).save(path, optimize=True)


if __name__ == "__main__":
    main()

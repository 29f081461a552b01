"""Bardenet, Doucet and Holmes (2017), Figs 7 and 8: normal and lognormal samples, n = 1e5, without and with a proxy.

python -m experiments.confidence_running [--quick] [--write]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, percent, run, save
from tallbayes.samplers import Confidence


def configurations(n: int) -> dict[str, tuple[Confidence, str]]:
    paper: dict[str, Any] = {"refresh": None, "test": "empirical-bernstein", "rows": "uniform"}
    vanilla = Confidence.published(**{**paper, "order": 0, "bound": "oracle", "first": n // 10, "growth": 1.5})
    proxy = Confidence.published(**{**paper, "bound": "extremes"})
    return {
        "vanilla, true range (Fig. 7)": (vanilla, "essentially the whole data set"),
        "proxy at the mode (Fig. 8)": (proxy, "almost none (normal)"),
        "proxy, betting, delta = 0.02": (Confidence(), ""),
    }


def main() -> None:
    options = arguments(__doc__)
    n, slow, fast = (100_000, 300, 10_000) if not options.quick else (5000, 30, 200)
    rng = np.random.default_rng(0)
    samples = {"N(0, 1)": rng.standard_normal(n), "logN(0, 1)": rng.lognormal(0.0, 1.0, n)}
    table: list[dict[str, Any]] = []
    drawn = []
    for data, values in samples.items():
        model = tb.models.normal(values)
        scatter = float(((values - values.mean()) ** 2).sum())
        sigma = np.sqrt(scatter / chi2.ppf([0.5, 0.159, 0.841], n - 1))
        sd = (sigma[1] - sigma[2]) / 2.0
        for name, (sampler, paper) in configurations(n).items():
            fit = run(model, sampler, slow if sampler.order == 0 else fast, 1)
            evals, drawn_sigma = fit.stats["evals_paper"], np.exp(fit.theta[0, :, 1])
            error = sd / np.sqrt(max(float(fit.ess.min()), 1.0))
            table.append(
                {
                    "data": data,
                    "sampler": name,
                    "evaluations per iteration": percent(float(evals.mean()) / n),
                    "median": percent(float(np.median(evals)) / n),
                    "the paper": paper,
                    "no draw": percent(fit.meta["notes"]["iterations without a draw"]),
                    "z of the mean of sigma": f"{(drawn_sigma.mean() - sigma[0]) / error:.1f}",
                    "sd over exact sd": f"{drawn_sigma.std() / sd:.2f}",
                }
            )
            drawn.append((data, name, fit, values, sigma[0], sd))
    note = (
        f"n = {n:,}; {slow:,} iterations without a proxy, {fast:,} with one, one chain from the mode. Evaluations by the papers' rule; the "
        "oracle's passes for the true range are not among them."
    )
    show("running examples", table, note, "confidence-running" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(2, 3, figsize=(10.5, 5.6), constrained_layout=True)
        angle = np.linspace(0, 2 * np.pi, 100)
        for axis, (data, name, fit, values, centre, sd) in zip(axes.flat, drawn, strict=True):
            mu, sigma = fit.theta[0, :, 0], np.exp(fit.theta[0, :, 1])
            axis.plot(mu[:3000], sigma[:3000], ".", ms=2, alpha=0.3, color="tab:blue")
            for radius in (1.0, 2.0):
                wide = radius * values.std() / np.sqrt(n)
                axis.plot(values.mean() + wide * np.cos(angle), centre + radius * sd * np.sin(angle), "r", lw=1)
            axis.set_title(f"{data}: {name}", fontsize=8)
            axis.tick_params(labelsize=7)
            axis.locator_params(nbins=4)
            axis.set(xlabel="mu", ylabel="sigma")
        save(figure, "confidence_running.png")


if __name__ == "__main__":
    main()

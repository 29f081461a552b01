"""Bardenet, Doucet and Holmes (2017), Figs 7 and 8: normal and lognormal samples, n = 1e5, without and with a proxy.

python -m experiments.confidence_running [--quick] [--write]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments, charged, isotropic_mode, percent, run, save
from tallbayes.bounds.uniform_ranges import extremes, gap_range
from tallbayes.samplers import Confidence


class TaylorLagrange(NamedTuple):
    """Normal samples: sup |third derivatives| / 6 (|h|_1^3 + |h'|_1^3), h = (mu - mu*, log sigma / sigma*) in units of sigma*."""

    smallest: float
    largest: float


@gap_range.register(TaylorLagrange)
def _taylor_lagrange_range(bound, reference, order, theta, other, white, other_white):
    """At z = (y - mu*) / sigma* the third derivatives are 0, 2 e, 4 (z - a) e and 4 (z - a)^2 e, e = exp(-2 b), h = (a, b)."""
    centre, scale = reference[0], math.exp(reference[1])
    reach = max(abs(bound.smallest - centre), abs(bound.largest - centre)) / scale
    limit = 0.0
    for point in (theta, other):
        a, b = abs(point[0] - centre) / scale, abs(point[1] - reference[1])
        furthest = max(1.0, reach + a)
        limit += 4.0 * furthest**2 * math.exp(2.0 * b) / 6.0 * (a + b) ** 3
    return -limit, limit


@dataclass(frozen=True, kw_only=True)
class TaylorLagrangeConfidence(Confidence):
    """With the range that section 7.2.1 has in general: one bound for all third derivatives and all rows."""

    def _certificate(self, model: Any, mode: Any, seed: int) -> tuple[Any, str]:
        return TaylorLagrange(*extremes(mode)), "Taylor-Lagrange"


def configurations(n: int) -> dict[str, tuple[Confidence, str]]:
    paper: dict[str, Any] = {"refresh": None, "test": "empirical-bernstein", "rows": "uniform"}
    vanilla = Confidence.published(**{**paper, "order": 0, "bound": "oracle", "first": n // 10, "growth": 1.5})
    proxy = TaylorLagrangeConfidence.published(**{**paper, "bound": "extremes"})
    narrow = Confidence.published(**{**paper, "bound": "extremes"})
    return {
        "vanilla, true range (Fig. 7)": (vanilla, "essentially the whole data set"),
        "proxy at the mode, Taylor-Lagrange range (Fig. 8)": (proxy, "almost none (normal)"),
        "proxy at the mode, exact range": (narrow, ""),
        "proxy, betting, delta = 0.02": (Confidence(), ""),
    }


def correlations(values: np.ndarray, lags: int = 50) -> np.ndarray:
    """Autocorrelations of a chain."""
    centred = values - values.mean()
    found = np.array([(centred[: centred.size - k] * centred[k:]).mean() for k in range(lags)])
    return found / found[0]


def main() -> None:
    options = arguments(__doc__)
    n, slow, fast = (100_000, 10_000, 10_000) if not options.quick else (5000, 30, 200)
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
            walk = tb.moves.random_walk(acceptance=0.5)
            mode = isotropic_mode(tb.find_mode(model, progress=False))
            draws = slow if sampler.order == 0 else fast
            fit = run(model, replace(sampler, move=walk), draws, 1, mode=mode, init=mode.reference)
            evals, drawn_sigma = charged(fit, n), np.exp(fit.theta[0, :, 1])
            error = sd / np.sqrt(max(float(fit.ess.min()), 1.0))
            table.append(
                {
                    "data": data,
                    "sampler": name,
                    "evaluations per iteration": percent(float(evals.mean()) / n),
                    "after 2n only (8.1.3)": percent(float(fit.stats["evals_paper"].mean()) / n),
                    "median": percent(float(np.median(evals)) / n),
                    "the paper": paper,
                    "no draw": percent(fit.meta["notes"]["iterations without a draw"]),
                    "effective draws": f"{fit.ess.min():,.0f}",
                    "z of the mean of sigma": f"{(drawn_sigma.mean() - sigma[0]) / error:.1f}",
                    "sd over exact sd": f"{drawn_sigma.std() / sd:.2f}",
                }
            )
            drawn.append((data, name, fit, evals, values, sigma[0], sd))
            print(table[-1], fit.meta["notes"].get("bound", ""), flush=True)
    note = (
        f"n = {n:,}; {slow:,} iterations without a proxy, {fast:,} with one, one chain started at the mode, isotropic random walk that "
        "accepts half. Evaluations by the papers' rule: T instead of 2 T after an iteration that read all rows (section 6.4), or only "
        "after one charged 2n (8.1.3 to the letter); the oracle's passes for the true range are not among them."
    )
    show("running examples", table, note, "confidence-running" if options.write else None)
    if options.write:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        shown = [item for item in drawn if "Fig." in item[1]]
        figure, axes = plt.subplots(len(shown), 4, figsize=(12.5, 2.4 * len(shown)), constrained_layout=True)
        angle = np.linspace(0, 2 * np.pi, 100)
        for line, (data, name, fit, evals, values, centre, sd) in zip(axes, shown, strict=True):
            mu, sigma = fit.theta[0, :, 0], np.exp(fit.theta[0, :, 1])
            line[0].plot(mu[:3000], sigma[:3000], ".", ms=2, alpha=0.3, color="tab:blue", rasterized=True)
            for radius in (1.0, 2.0):
                wide = radius * values.std() / np.sqrt(n)
                line[0].plot(values.mean() + wide * np.cos(angle), centre + radius * sd * np.sin(angle), "r", lw=1)
            line[0].set(xlabel="mu", ylabel="sigma")
            line[0].set_title(f"{data}: {name}", fontsize=8, loc="left")
            grid = np.linspace(centre - 4.5 * sd, centre + 4.5 * sd, 200)
            line[1].hist(sigma, 40, density=True, color="tab:blue", alpha=0.5)
            line[1].plot(grid, np.exp(-0.5 * ((grid - centre) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi)), "r", lw=1)
            line[1].set(xlabel="sigma", yticks=[])
            line[2].plot(correlations(fit.theta[0, :, 1]), color="tab:blue")
            line[2].axhline(0.0, color="0.6", lw=0.8)
            line[2].set(xlabel="lag", ylabel="autocorrelation of log sigma")
            line[3].hist(evals[0] / n, 40, color="tab:blue")
            line[3].set(xlabel="evaluations / n", ylabel="iterations", yscale="log")
            for axis in line:
                axis.tick_params(labelsize=7)
                axis.xaxis.label.set_size(8)
                axis.yaxis.label.set_size(8)
            for axis in line[:2]:
                axis.locator_params(axis="x", nbins=4)
        save(figure, "confidence_running.png")


if __name__ == "__main__":
    main()

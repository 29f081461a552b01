"""Dang et al. (2019), Tables 1 and 3: SG-HMC with two trajectory lengths and SGLD, relative to perturbed HMC-ECS, with their bias.

SGLD runs twice: whitened by the posterior covariance, as the library has it, and in the coordinates of theta, as the paper has it.
With --write also the panels of these methods in Figures 1, 2, 4 and 5, and Figure 6, for which HMC-ECS has the paper's m here.

python -m experiments.stochastic_tables [--shape higgs|bankruptcy] [--n N] [--folder DIR] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import tallbayes as tb
from benchmarks.report import show
from experiments.hmc_ecs_figures import densities, probabilities
from experiments.shapes import SHAPES, dataset
from tallbayes.results.classical_diagnostics import autoregressive_sizes
from tallbayes.samplers import SGHMC, SGLD

EVERYTHING = ("setup", "warmup", "draws")

PAPER = {
    "higgs": {"SG-HMC, time 1.2": "2.43 / 2.97 / 4.08", "SGLD, not whitened": "3.58 / 12.46 / 326.8"},
    "bankruptcy": {
        "SG-HMC, time 1.2": "6.8 / 9.5 / 682.3",
        "SG-HMC, L = 7": "48.6 / 100.2 / 246.7",
        "SGLD, not whitened": "53.9 / 230.1 / 2784",
    },
}


def samplers(step: float, length: int, subsample: int) -> dict[str, tuple[Any, int]]:
    """Name to sampler and iterations for 2,000 of HMC-ECS."""
    momentum: dict[str, Any] = {"subsample": subsample, "refresh": True}
    return {
        "SG-HMC, time 1.2": (SGHMC(step=step, steps=length, **momentum), 2000),
        "SG-HMC, L = 7": (SGHMC(step=step, steps=7, **momentum), 2000),
        "SG-HMC, time 1.2, no control variates": (SGHMC(order=0, step=step, steps=length, **momentum), 1000),
        "SGLD": (SGLD(subsample=subsample), 12_000),
        "SGLD, no control variates": (SGLD(order=0, subsample=subsample), 12_000),
    }


@dataclass
class Run:
    """Draws with what the table says of them: evaluations by phase, the step, and the error of variances predicted for it."""

    theta: np.ndarray
    evals: dict[str, float]
    step: float
    predicted: float
    names: tuple[str, ...]
    weights: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.ones(self.theta.shape[:2])


def from_fit(fit: tb.Fit) -> Run:
    """Evaluations of setup (mode search and pilot), warmup and draws; for HMC-ECS no step and no prediction."""
    cost, predicted = fit.cost(), fit.meta["notes"].get("predicted error of variances", np.nan)
    step = float(fit.stats["step"][0, 0]) if "step" in fit.stats else np.nan
    return Run(fit.theta, {k: float(cost[k]["evals"]) for k in EVERYTHING}, step, float(predicted), tuple(fit.names))


def in_theta(model: tb.models.Model, mode: Any, subsample: int, iterations: int, seed: int, share: float = 0.02) -> Run:
    """SGLD of the paper's section 6.2: one step for all coordinates of theta, control variates of order 2, started at the mode.

    On a Gaussian posterior with precisions lambda its variances are 1 / (1 - step lambda / 4) times too large. The step is the
    largest at which that is a share of 2 % for no direction, as for the whitened sampler. The paper found its step by trial.
    """
    rng, n, d = np.random.default_rng(seed), model.data.n, model.dim
    step = 4.0 * share / (1.0 + share) / float(np.linalg.eigvalsh(mode.precision)[-1])
    theta, out = mode.reference.copy(), np.empty((1, iterations, d))
    for i in range(iterations):
        x = model.data.records[rng.integers(0, n, subsample), :d].astype(np.float64)
        there = x @ mode.reference
        away, at = x @ (theta - mode.reference), expit(there)
        residual = x.T @ (at - expit(there + away) + at * (1.0 - at) * away) * (n / subsample)
        drift = mode.gradient - mode.precision @ (theta - mode.reference) + residual
        theta = theta + 0.5 * step * drift + np.sqrt(step) * rng.standard_normal(d)
        out[0, i] = theta
    evals = {"setup": float(mode.evaluations), "warmup": 0.0, "draws": float(subsample) * iterations}
    return Run(out, evals, step, share, tuple(model.names))


def ratios(run: Run, base: Run) -> dict[str, str]:
    """RCT against `base`, IF by an autoregression as in the paper, with three ways to charge what comes before the draws."""
    sizes, base_sizes = (np.maximum(autoregressive_sizes(r.theta), 1e-9) for r in (run, base))
    accounts = {
        "RCT as the paper: HMC-ECS pays setup and warm-up, the other does not": (EVERYTHING, ("draws",)),
        "RCT, both pay": (EVERYTHING, EVERYTHING),
        "RCT, neither pays": (("draws",), ("draws",)),
    }
    found = {}
    for label, (theirs, own) in accounts.items():
        ratio = sum(run.evals[k] for k in own) / sizes / (sum(base.evals[k] for k in theirs) / base_sizes)
        found[label] = f"{ratio.min():.3g} / {np.median(ratio):.3g} / {ratio.max():.3g}"
    return found


def table(
    name: str, model: tb.models.Model, step: float, length: int, subsample: int, share: float, write: bool
) -> tuple[list[dict[str, Any]], str]:
    """One row a method: RCT, and bias against a long exact run."""
    mode = tb.find_mode(model, progress=False)
    exact = tb.sample(
        model, "exact-minibatch", draws=int(20_000 * share), warmup=500, chains=2, seed=1, mode=mode, progress=False
    )
    mean, variance = exact.theta.mean((0, 1)), exact.theta.var((0, 1))
    sampler = tb.samplers.HMCECS(subsample=subsample)
    fit = tb.sample(model, sampler, draws=int(2000 * share), warmup=1000, chains=1, seed=5, mode=mode, progress=False)
    base = from_fit(fit)
    print(name, "HMC-ECS", base.evals, flush=True)
    rows, runs = [], {}
    for label, (sampler, draws) in samplers(step, length, subsample).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.TallbayesWarning)
            fit = tb.sample(model, sampler, draws=int(draws * share), warmup=500, chains=1, seed=2, mode=mode, progress=False)
        runs[label] = from_fit(fit)
    runs["SGLD, not whitened"] = in_theta(model, mode, subsample, int(12_000 * share), 2)
    for label, run in runs.items():
        spread = run.theta.var((0, 1)) / variance
        error = np.abs(run.theta.mean((0, 1)) - mean) / np.sqrt(variance)
        rows.append(
            {
                "method": label,
                "step": run.step,
                **ratios(run, base),
                "paper": PAPER[name].get(label, ""),
                "ESS, smallest": float(autoregressive_sizes(run.theta).min()),
                "largest error of a mean, in sd": float(error.max()),
                "variance ratios": f"{spread.min():.3g} to {spread.max():.3g}",
                "predicted error of variances": run.predicted,
            }
        )
        print(rows[-1], flush=True)
    spectrum = np.linalg.eigvalsh(mode.precision)
    note = (
        f"n = {model.data.n:,}, d = {model.dim}, m = {subsample}; {int(2000 * share):,} draws of HMC-ECS after "
        "1,000 of warm-up. RCT is min / "
        f"median / max over parameters of evaluations per effective draw relative to perturbed HMC-ECS, effective sizes by "
        f"spectrum0.ar of coda. That of HMC-ECS: {autoregressive_sizes(base.theta).min():,.0f} and more; setup of HMC-ECS "
        f"{base.evals['setup'] / model.data.n:.1f} passes over the rows. Of the exact run {exact.ess.min():,.0f} and more. The step of "
        f"SGLD that is not whitened is in units of theta squared; the posterior precision has eigenvalues of {spectrum[0]:.2g} to "
        f"{spectrum[-1]:.2g}."
    )
    if write:
        plain = {k: v for k, v in runs.items() if "no control" in k}
        densities(name, exact, {k: v for k, v in runs.items() if k not in plain}, f"stochastic-{name}.png")
        densities(name, exact, plain, f"stochastic-{name}-plain.png")
        if name == "bankruptcy":
            probabilities({f"perturbed HMC-ECS, m = {subsample:,}": base, "exact minibatch": exact}, model.data.n)
    return rows, note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--n", type=int, default=None, help="rows; those of the paper if left out")
    parser.add_argument("--folder", type=Path, default=None, help="keep rows on disk there")
    parser.add_argument("--shape", choices=SHAPES, default=None, help="one of the two alone")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    share, fewer = (0.05, 20_000) if given.quick else (1.0, given.n)
    settings = (("higgs", 0.06, 20, 1300), ("bankruptcy", 0.02, 60, 1000))
    for name, step, length, subsample in settings:
        if given.shape not in (None, name):
            continue
        data = dataset(name, fewer or SHAPES[name][2], folder=given.folder)
        model = tb.models.logistic(data, tb.priors.normal(10.0))
        lines, note = table(name, model, step, length, subsample, share, given.write)
        show(f"Tables of Dang et al. (2019): {name}", lines, note, mark=f"stochastic-{name}" if given.write else None)


if __name__ == "__main__":
    main()

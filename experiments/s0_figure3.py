"""Figure 3 of Bardenet, Doucet and Holmes (2017): Firefly on Normal(mu, sigma) fitted to normal and to lognormal samples.

python -m experiments.s0_figure3 [--quick] [--write]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import save
from tallbayes.results.cost import effective_sizes

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "s0-figure3.png"
WALK = tb.moves.random_walk(acceptance=0.5, isotropic=True)
SAMPLERS = {
    "MH, all rows": tb.samplers.FullData(WALK),
    "explicit, 10 %, uniform bound": tb.samplers.Firefly(WALK, "taylor-uniform", "explicit", fraction=0.1),
    "implicit, q = 0.001, uniform bound": tb.samplers.Firefly(WALK, "taylor-uniform", rate=0.001),
    "implicit, q and bound of each row": tb.samplers.Firefly(WALK, "taylor"),
}


def sample_of(kind: str, n: int) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal(n)
    return x if kind == "normal" else np.exp(x)


def exact_moments(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and standard deviations of mu and log sigma: (n - 1) s^2 / sigma^2 is chi-square, mu given sigma normal."""
    n, squares = y.size, float(((y - y.mean()) ** 2).sum())
    mean = np.array([y.mean(), 0.5 * (np.log(squares) - digamma(0.5 * (n - 1)) - np.log(2.0))])
    return mean, np.sqrt([squares / (n - 3) / n, 0.25 * polygamma(1, 0.5 * (n - 1))])


def run(kind: str, n: int, draws: int) -> list[dict[str, Any]]:
    model = tb.models.normal(sample_of(kind, n))
    centre, sd = exact_moments(model.data.y)
    out = []
    for label, sampler in SAMPLERS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", tb.errors.TallbayesWarning)
            fit = tb.sample(model, sampler, draws=draws, warmup=1000, chains=1, seed=2, progress=False)
        flat = fit.theta[0]
        notes = fit.meta["notes"]
        out.append(
            {
                "kind": kind,
                "label": label,
                "theta": (flat - centre) / sd,
                "evals": float(fit.evals.mean()) / n,
                "bright": float(fit.stats["bright"].mean()) if "bright" in fit.stats else float("nan"),
                "ess": effective_sizes(fit.theta),
                "bias": (flat.mean(0) - centre) / sd,
                "spread": flat.std(0) / sd,
                "stays": notes.get("iterations_bright", float("nan")),
                "factor": notes.get("bright_count_IF", float("nan")),
                "never": notes.get("rows_never_looked_at", float("nan")),
                "warned": any("stays bright" in str(w.message) for w in caught),
            }
        )
        print(kind, label, {k: v for k, v in out[-1].items() if k != "theta"}, flush=True)
    return out


def draw(found: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = ("normal", "lognormal")
    figure, axes = plt.subplots(len(SAMPLERS), 6, figsize=(15, 2.0 * len(SAMPLERS)), layout="constrained")
    angle = np.linspace(0, 2 * np.pi, 100)
    for column, kind in enumerate(kinds):
        for row, item in enumerate(f for f in found if f["kind"] == kind):
            trace, plane, lags = axes[row][3 * column : 3 * column + 3]
            centred = item["theta"][:, 1] - item["theta"][:, 1].mean()
            values = np.array([(centred[: centred.size - k] * centred[k:]).mean() for k in range(100)])
            lags.plot(values / values[0], color="tab:blue", lw=1.0)
            lags.axhline(0.0, color="0.6", lw=0.8)
            lags.set_ylim(-0.15, 1.05)
            lags.tick_params(labelsize=7)
            trace.plot(item["theta"][:, 0], lw=0.4, color="tab:blue")
            trace.set_ylim(-5, 5)
            plane.plot(item["theta"][::5, 0], item["theta"][::5, 1], ".", ms=1.0, alpha=0.4)
            plane.plot(2.45 * np.cos(angle), 2.45 * np.sin(angle), color="tab:red", lw=1.0)
            plane.set(xlim=(-5, 5), ylim=(-5, 5))
            trace.set_title(f"{kind}: {item['label']}", fontsize=8)
            plane.set_title(f"effective {item['ess'].min():.0f}", fontsize=8)
            trace.tick_params(labelsize=7)
            plane.tick_params(labelsize=7)
    for column in (0, 3):
        axes[-1][column].set_xlabel("iteration; mu in posterior sds", fontsize=8)
        axes[-1][column + 1].set_xlabel("mu, log sigma in posterior sds", fontsize=8)
        axes[-1][column + 2].set_xlabel("lag; autocorrelation of log sigma", fontsize=8)
    save(figure, FIGURE.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=10_000)
    options = parser.parse_args()
    n, draws = (2000, 300) if options.quick else (options.n, options.draws)
    found = [item for kind in ("normal", "lognormal") for item in run(kind, n, draws)]
    if options.write:
        draw(found)
    rows = [
        {
            "sample": f["kind"] if f["label"].startswith("MH") else "",
            "algorithm": f["label"],
            "evaluations / n": f["evals"],
            "paper": "1" if f["label"].startswith("MH") else "0.1" if "10 %" in f["label"] else "",
            "bright": "" if np.isnan(f["bright"]) else f["bright"],
            "effective draws": float(f["ess"].min()),
            "mean off, sds": float(np.abs(f["bias"]).max()),
            "sd / exact": float(f["spread"][np.argmax(np.abs(f["spread"] - 1))]),
            "iterations bright": "" if np.isnan(f["stays"]) else f["stays"],
            "rows never looked at": "" if np.isnan(f["never"]) else int(f["never"]),
            "warned": "yes" if f["warned"] else "",
        }
        for f in found
    ]
    show(
        "Firefly on the running examples",
        rows,
        f"n = {n:,}, {draws:,} iterations after 1,000 of warm-up, isotropic random walk that accepts half, exact first draw of z. "
        "The worse of mu and log sigma.",
        "s0-figure3" if options.write else None,
    )


if __name__ == "__main__":
    main()

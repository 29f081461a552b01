"""The two running examples of Bardenet, Doucet and Holmes (2017), Figs 2, 5 and 6: a normal model of normal and of lognormal data.

    python -m experiments.running_examples --write

n = 100,000, flat prior on (mu, log sigma), chains started at the mode, an isotropic random walk that accepts half of its proposals, as
in the paper. The posterior is known in closed form; a run of 50,000 iterations stands beside it as in the paper.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import charged, isotropic_mode
from tallbayes.diagnostics.pair_pilot import PairPilot, anderson_darling
from tallbayes.errors import ModelError, TallbayesWarning

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
WALK = tb.moves.random_walk(acceptance=0.5)
DATA = ("normal", "lognormal")
PAPER = {
    ("mh", "normal"): "coincides with a longer run",
    ("mh", "lognormal"): "coincides with a longer run",
    ("austerity", "normal"): "rightly centred, slightly too wide",
    ("austerity", "lognormal"): "sigma largely underestimated; half of the iterations below 4 % of n",
}
RIVALS: dict[str, Any] = {
    "delayed acceptance, 10 batches": tb.samplers.DelayedAcceptance(form="product", move=WALK),
    "delayed acceptance, quadratic proxy": tb.samplers.DelayedAcceptance(move=WALK),
    "penalty": tb.samplers.PenaltyMH(order=0, move=WALK),
    "penalty, quadratic proxy": tb.samplers.PenaltyMH(move=WALK),
    "minibatch Barker": tb.samplers.MinibatchBarker(order=0),
    "minibatch Barker, quadratic proxy": tb.samplers.MinibatchBarker(),
    "naive (17), lambda = 0.99997": tb.samplers.NaiveSubsampling(0.99997, "unbiased", tb.moves.random_walk()),
    "naive (17), lambda = 0.999997": tb.samplers.NaiveSubsampling(0.999997, "unbiased", tb.moves.random_walk()),
    "noise exchange, rows for beta = 1": tb.samplers.NoiseExchange(move=tb.moves.random_walk(acceptance=0.4)),
    "noise exchange, n rows": tb.samplers.NoiseExchange(subsample=10_000, move=tb.moves.random_walk(acceptance=0.4)),
    "austerity, quadratic proxy": tb.samplers.Austerity(batch=100, order=2, move=WALK),
}


def sample_data(kind: str, n: int) -> np.ndarray:
    """The data of a running example."""
    noise = np.random.default_rng(2017).standard_normal(n)
    return noise if kind == "normal" else np.exp(noise)


def exact(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and standard deviations of (mu, log sigma), to O(1/n): that of the normal law at the mode."""
    n, sd = x.size, float(x.std())
    return np.array([x.mean(), np.log(sd)]), np.array([sd / np.sqrt(n), 1.0 / np.sqrt(2.0 * n)])


def run(model: Any, sampler: Any, draws: int, warmup: int, seed: int, chains: int = 2, isotropic: bool = False) -> Any:
    """Chains from the mode; warnings go into the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TallbayesWarning)
        mode = tb.find_mode(model, progress=False)
        options: dict[str, Any] = {
            "init": np.tile(mode.reference, (chains, 1)),
            "mode": isotropic_mode(mode) if isotropic else mode,
        }
        return tb.sample(model, sampler, draws // chains, warmup, chains, seed, progress=False, **options)


def _published(fit: Any, n: int) -> np.ndarray:
    """Evaluations by the papers' rule; full-data runs and rules without looks have one count only."""
    return charged(fit, n) if "full_read" in fit.stats and "rows" in fit.stats else fit.stats["evals_paper"]


def _counted_by_the_authors(fit: Any, n: int) -> float | str:
    """Median over n of what the survey's published code counts for Austerity: it lets the number of rows grow once more, by a half,
    after the decision, and counts that."""
    if fit.meta["sampler_name"] != "austerity":
        return ""
    return float(np.median(np.minimum(1.5 * _published(fit, n), 2.0 * n)) / n)


def row(name: str, kind: str, x: np.ndarray, fit: Any) -> dict[str, Any]:
    """What is reported of a run: cost by both rules, and the error of the posterior in posterior standard deviations."""
    mean, sd = exact(x)
    draws = fit.theta.reshape(-1, 2)
    shift, spread = (draws.mean(0) - mean) / sd, draws.std(0) / sd
    return {
        "data": kind,
        "sampler": name,
        "evaluations / n": float(fit.evals.mean() / x.size),
        "median": float(np.median(fit.evals) / x.size),
        "median, counted as the authors do": _counted_by_the_authors(fit, x.size),
        "papers' rule, after a full read (6.4)": float(_published(fit, x.size).mean() / x.size),
        "papers' rule, after 2n (8.1.3)": float(fit.stats["evals_paper"].mean() / x.size),
        "effective draws": float(fit.cost()["ess_min"]),
        "accepted": float(fit.stats["acceptance_rate"].mean()),
        "shift of mu (sds)": float(shift[0]),
        "shift of log sigma (sds)": float(shift[1]),
        "sd of mu / exact": float(spread[0]),
        "sd of log sigma / exact": float(spread[1]),
        "warned": "yes" if fit.meta["warnings"] else "",
    }


def statistics(x: np.ndarray, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """1000 Student statistics at the mode and one proposal, and the skewness of the log ratios."""
    (mu, tau), sd = exact(x)
    other = np.array([mu, tau]) + 2.38 / np.sqrt(2.0) * 0.7 * sd * rng.standard_normal(2)
    gaps = -(other[1] - tau) - 0.5 * ((x - other[0]) * np.exp(-other[1])) ** 2 + 0.5 * ((x - mu) * np.exp(-tau)) ** 2
    found = PairPilot(gaps[None, :], 2 * x.size)
    return found.statistics(batch, rng, 1000)[0], found.skewness


def autocorrelation(chains: np.ndarray, lags: int) -> np.ndarray:
    """Of draws (chains, draws) around the common mean."""
    centred = chains - chains.mean()
    size = centred.shape[1]
    values = [(centred[:, : size - k] * centred[:, k:]).mean() for k in range(min(lags, size))]
    return np.array(values) / values[0]


def draw_chains(fits: dict[tuple[str, str], Any], data: dict[str, np.ndarray], path: Path) -> None:
    """Figs 2 and 5: draws in the plane of mu and sigma, the exact posterior over them; evaluations of Austerity."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 5, figsize=(16.5, 6.2), constrained_layout=True)
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    styles = {"mh": ("Metropolis-Hastings", "#27804a"), "austerity": ("Austerity", "#3b6ea5")}
    for line, kind in zip(axes, DATA, strict=True):
        mean, sd = exact(data[kind])
        for ax, name in zip(line, ("mh", "austerity"), strict=False):
            draws = fits[name, kind].theta.reshape(-1, 2)[::4]  # enough to see
            ax.plot(draws[:, 0], np.exp(draws[:, 1]), ".", ms=2.0, alpha=0.4, color="#3b6ea5", rasterized=True)
            for k in (1.0, 2.0, 3.0):
                sigma = np.exp(mean[1] + k * sd[1] * np.sin(angle))
                ax.plot(mean[0] + k * sd[0] * np.cos(angle), sigma, color="#c0392b", lw=1.0)
            ax.set(title=f"{styles[name][0]}, {kind} data", xlabel="mu", ylabel="sigma")
            ax.ticklabel_format(useOffset=False)
            ax.locator_params(nbins=5)
        reach = 6.0 if kind == "normal" else 25.0
        bins = np.exp(mean[1] + sd[1] * np.linspace(-reach, 6.0, 80))
        line[2].hist(
            np.exp(fits["reference", kind].theta[..., 1].ravel()), bins, density=True, color="0.8", label="50,000 iterations"
        )
        for name, (label, colour) in styles.items():
            height, _ = np.histogram(np.exp(fits[name, kind].theta[..., 1].ravel()), bins, density=True)
            line[2].stairs(height, bins, color=colour, label=label)
        line[2].set(title=f"marginal of sigma, {kind} data", xlabel="sigma", yticks=[])
        line[2].locator_params(axis="x", nbins=4)
        line[2].legend(frameon=False, fontsize=8)
        share = charged(fits["austerity", kind], data[kind].size).reshape(-1) / data[kind].size
        line[3].hist(share, bins=np.linspace(0, 2, 41), color="#3b6ea5")
        line[3].axvline(np.median(share), color="#c0392b", lw=1.2, label=f"median {np.median(share):.1%}")
        line[3].set(title=f"Austerity, {kind} data", xlabel="evaluations / n", ylabel="iterations")
        line[3].legend(frameon=False)
        for name, (label, colour) in styles.items():
            line[4].plot(autocorrelation(fits[name, kind].theta[:, :, 1], 60), color=colour, label=label)
        line[4].axhline(0.0, color="0.6", lw=0.8)
        line[4].set(title=f"log sigma, {kind} data", xlabel="lag", ylabel="autocorrelation")
        line[4].legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.3))
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """A small file: a palette is enough, by a method that keeps the colours of thin lines."""
    import matplotlib.pyplot as plt
    from PIL import Image

    figure.savefig(path, dpi=80)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def draw_statistics(found: dict[str, np.ndarray], batch: int, path: Path) -> None:
    """Fig. 6."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.2), constrained_layout=True)
    for ax, kind in zip(axes, DATA, strict=True):
        bins = np.linspace(min(-5.0, np.quantile(found[kind], 0.005)), max(5.0, np.quantile(found[kind], 0.995)), 60)
        ax.hist(found[kind], bins=bins, density=True, color="#3b6ea5")
        grid = np.linspace(bins[0], bins[-1], 400)
        ax.plot(grid, student.pdf(grid, batch - 1), color="#c0392b", label="Student's law")
        ax.set(title=f"{kind} data, {batch} rows", xlabel="Student statistic", ylabel="density")
        ax.legend(frameon=False)
    save(figure, path)


def chains(data: dict[str, np.ndarray], draws: int, warmup: int, write: bool) -> None:
    """Figs 2, 5 and 6."""
    models = {kind: tb.models.normal(x) for kind, x in data.items()}
    walk = tb.samplers.FullData(tb.moves.random_walk(acceptance=0.5, isotropic=True))
    published = {"reference": walk, "mh": walk, "austerity": tb.samplers.Austerity(batch=100, move=WALK)}
    fits = {}
    for s, sampler in published.items():
        for k in DATA:
            length = 5 * draws if s == "reference" else draws
            fits[s, k] = run(models[k], sampler, length, warmup, DATA.index(k), 1, s == "austerity")
            print(s, k, f"{fits[s, k].seconds['total']:.0f} s", flush=True)
    table = [{**row(s, k, data[k], fit), "the paper": PAPER.get((s, k), "")} for (s, k), fit in fits.items()]
    note = (
        f"{draws:,} iterations of one chain from the mode after {warmup:,} of warm-up, the reference {5 * draws:,}; n = "
        f"{data['normal'].size:,}; isotropic random walk; Austerity with epsilon = 0.05 and 100 rows at first. sds are those of the exact "
        "posterior."
    )
    show("S0 Figs 2 and 5", table, note, "running-examples" if write else None)

    rng, batch = np.random.default_rng(6), 100
    found, lines = {}, []
    for kind in DATA:
        found[kind], skewness = statistics(data[kind], batch, rng)
        distance, p = anderson_darling(student.cdf(found[kind], batch - 1))
        tails = (np.abs(found[kind]) > student.isf(0.025, batch - 1)).mean()
        line = {"data": kind, "skewness of log ratios": skewness, "Anderson-Darling distance": distance, "p": p}
        paper = "reasonable" if kind == "normal" else "inaccurate"
        lines.append({**line, "beyond the 5 % quantiles": float(tails), "the paper calls it": paper})
    show("S0 Fig. 6", lines, "1,000 resamples of 100 rows at the mode and one proposal.", "running-student" if write else None)
    if write:
        FIGURES.mkdir(exist_ok=True)
        draw_chains(fits, data, FIGURES / "running-examples.png")
        draw_statistics(found, batch, FIGURES / "running-student.png")


LONGER = {"delayed acceptance, 10": 6, "noise": 2, "naive": 2}  # times as many draws, of chains that mix slowly


def rivals(n: int, draws: int, warmup: int, write: bool) -> None:
    """Samplers that the paper describes and does not run, on fewer rows so that chains are long."""
    data = {kind: sample_data(kind, n) for kind in DATA}
    models = {kind: tb.models.normal(x) for kind, x in data.items()}
    table: list[dict[str, Any]] = []
    for name, sampler in RIVALS.items():
        longer = next((times for start, times in LONGER.items() if name.startswith(start)), 1)
        for k in DATA:
            try:
                fit = run(models[k], sampler, draws * longer, 0 if name.startswith("naive") else warmup, DATA.index(k))
            except ModelError as error:
                table.append({"data": k, "sampler": name, "outcome": "refused: " + str(error).split(", because")[0]})
                continue
            table.append({"data": k, "sampler": name, "outcome": "ran", "draws": fit.theta.shape[0] * fit.theta.shape[1]})
            table[-1].update({c: v for c, v in row(name, k, data[k], fit).items() if not c.startswith("papers' rule")})
            print(name, k, f"{fit.seconds['total']:.0f} s", table[-1]["effective draws"], flush=True)
    note = (
        f"n = {n:,}; two chains from the mode after {warmup} of warm-up, naive subsampling without: an adapted step shrinks "
        "where the noise alone rejects; random walk with the shape of the Laplace fit. The paper has no such runs."
    )
    show("Rivals on the running examples", table, note, "running-rivals" if write else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="2,000 rows and a few hundred iterations")
    parser.add_argument("--part", choices=("all", "chains", "rivals"), default="all")
    args = parser.parse_args()
    n, draws, few, warmup = (2_000, 400, 200, 100) if args.quick else (100_000, 10_000, 20_000, 500)
    data = {kind: sample_data(kind, n) for kind in DATA}
    if args.part != "rivals":
        chains(data, draws, 2 * warmup, args.write)
    if args.part != "chains":
        rivals(2_000 if args.quick else 10_000, few, warmup, args.write)


if __name__ == "__main__":
    main()

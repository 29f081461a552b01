"""Divide and conquer against the exact posterior: every combination for 2 to 64 shards, and passes on 1 and 2 workers.

python -m experiments.shards [--quick] [--write] [--part covtype | skewed | scaling]

Two posteriors: logistic regression of covtype (400,000 rows, 11 parameters, close to normal), and rare events (16,000 rows, one
in 200 positive, 3 parameters), whose sub-posteriors are skewed: with 64 shards some have no positive row at all. Accuracy is
the largest W1 distance of a marginal from a long exact run, in its standard deviations; beside it the same number of draws of
exact minibatch on all rows.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.problems import covtype
from benchmarks.report import RESULTS, block, show
from tallbayes.results.distances import between, noise_floor
from tallbayes.shards import (
    Consensus,
    Convention,
    Entropic,
    GaussianProduct,
    Importance,
    Median,
    MomentSharing,
    Nonparametric,
    Partitions,
    Semiparametric,
    SubPosteriors,
    Wasserstein,
    Weierstrass,
)

PRODUCTS = {
    "consensus": Consensus(),
    "consensus, scalar": Consensus("scalar"),
    "Gaussian product": GaussianProduct(),
    "nonparametric": Nonparametric(),
    "semiparametric": Semiparametric(),
    "Weierstrass, rejection": Weierstrass(),
    "Weierstrass, refinement": Weierstrass("refinement"),
}
AVERAGES = {
    "median": Median(),
    "Wasserstein, Gaussian": Wasserstein(),
    "Wasserstein, quantiles": Wasserstein("quantile"),
    "Wasserstein, discrete": Wasserstein("discrete"),
    "Wasserstein, entropic": Entropic(),
}
EXACT = "exact minibatch, all rows"
PARTS = {  # title, sampler of the shards, combined draws, rounds of moment sharing
    "covtype": ("covtype, 11 parameters", "exact-minibatch", 2000, 4),
    "skewed": ("rare events, 3 parameters", "nuts", 1000, 2),
}


def rare_events(rows: int) -> tb.models.Model:
    """Positive with probability 1/200 at the mean of two standard normal columns."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(rows), rng.standard_normal((rows, 2))])
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(-(x @ [-5.6, 0.7, -0.4])))
    return tb.models.logistic(
        tb.Dataset.from_arrays(x, y.astype(float), columns=["Intercept", "a", "b"]), tb.priors.normal(3.0)
    )


def near_normal(rows: int) -> tb.models.Model:
    """Covtype with a prior that can be split."""
    return tb.models.logistic(covtype(rows).data, tb.priors.normal(10.0))


def quietly(*arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        return tb.sample_shards(*arguments, progress=False, **options)


def accuracy(
    model: tb.models.Model, sampler: str, counts: list[int], draws: int, rounds: int, numpyro_at: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of the table, one a combination, and facts for its note; `sampler` is that of the shards."""
    long = tb.sample(model, "exact-minibatch", draws=4 * draws, warmup=1000, chains=4, seed=1, progress=False)
    begun = time.perf_counter()
    single = tb.sample(model, "exact-minibatch", draws=draws // 2, warmup=1000, chains=2, seed=2, progress=False)
    reference = long.theta.reshape(-1, model.dim)
    facts: dict[str, Any] = {"seconds": {EXACT: time.perf_counter() - begun}, "warned": {}, "bias": {}}
    facts["floor"] = noise_floor(long.theta, float(long.ess.min()), float(single.ess.min())).w1_largest
    table: dict[str, dict[str, Any]] = {}

    def record(name: str, count: int, theta: np.ndarray, weights: np.ndarray | None = None) -> None:
        table.setdefault(name, {"combination": name})[f"B = {count}"] = between(theta, reference, weights).w1_largest

    for count in counts:
        record(EXACT, count, single.theta.reshape(-1, model.dim))
        options = {"shards": count, "draws": draws // 2, "warmup": 500, "seed": 3}
        begun = time.perf_counter()
        product = quietly(model, sampler, combine="consensus", **options)
        facts["seconds"][count] = time.perf_counter() - begun
        facts["warned"][count] = len(product.meta["warnings"])
        facts["bias"][count] = product.diagnostics["predicted_bias"]
        average = quietly(model, sampler, combine="wasserstein", **options)
        for combiners, fit, convention in ((PRODUCTS, product, Convention.PRODUCT), (AVERAGES, average, Convention.AVERAGE)):
            sub = SubPosteriors(
                np.stack([f.theta.reshape(-1, model.dim) for f in fit.shards]),
                convention,
                np.array([s["ess"] for s in fit.meta["shards"]]),
            )
            for name, combiner in combiners.items():
                try:
                    record(name, count, combiner(sub, seed=4).theta)
                except tb.DataError:
                    table.setdefault(name, {"combination": name})[f"B = {count}"] = "refused"
            if convention is Convention.PRODUCT and count == numpyro_at:
                facts["numpyro"] = numpyro_consensus(sub, reference)
        again = {"importance": (Importance(), draws // 4), "moment sharing": (MomentSharing(rounds=rounds), draws // 2)}
        for name, (combiner, length) in again.items():
            try:
                fit = quietly(model, sampler, combine=combiner, **{**options, "draws": length})
                record(name, count, fit.theta[0], fit.weights[0])
            except tb.DataError:
                table.setdefault(name, {"combination": name})[f"B = {count}"] = "refused"
        print(f"{count} shards done", flush=True)
    return list(table.values()), facts


def numpyro_consensus(sub: SubPosteriors, reference: np.ndarray) -> dict[str, float] | None:
    """NumPyro's own consensus on the same draws, beside ours; None where it is not installed."""
    try:
        import jax
        from numpyro.infer import hmc_util
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    begun = time.perf_counter()
    theirs = np.asarray(hmc_util.consensus([np.asarray(p) for p in sub.draws], rng_key=jax.random.PRNGKey(0)))
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    ours = Consensus()(sub).theta
    return {
        "theirs": between(theirs, reference).w1_largest,
        "ours": between(ours, reference).w1_largest,
        "their seconds": seconds,
        "our seconds": time.perf_counter() - begun,
    }


def written(mark: str) -> tuple[list[dict[str, Any]], float]:
    """A table of docs/results, and the noise floor in its note."""
    text = block(mark)
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
    numbers = [{k: float(v) if k != "combination" and v != "refused" else v for k, v in row.items()} for row in rows]
    return numbers, float(re.search(r"at (\S+) by chance", text)[1])  # type: ignore[index]


def figure(tables: dict[str, list[dict[str, Any]]], floors: dict[str, float], counts: list[int], path: Path) -> None:
    """What docs/results holds, as lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made, axes = plt.subplots(1, len(tables), figsize=(11, 4.4), sharey=True)
    tab10, dark, solid = plt.get_cmap("tab10"), plt.get_cmap("Dark2"), [*PRODUCTS, "importance", "moment sharing"]
    for axis, (title, rows) in zip(axes, tables.items(), strict=True):
        for row in rows:
            values = [row.get(f"B = {b}", np.nan) for b in counts]
            values = [v if isinstance(v, float) else np.nan for v in values]
            exact = row["combination"] == EXACT
            average = row["combination"] in AVERAGES
            colour = (
                "black"
                if exact
                else dark(list(AVERAGES).index(row["combination"]))
                if average
                else tab10(solid.index(row["combination"]))
            )
            style, dashed = {"color": colour, "linewidth": 2.5 if exact else 1.4}, "--" if average else "-"
            axis.plot(counts, values, dashed, marker="o", markersize=3, label=row["combination"], **style)
        axis.axhline(floors[title], color="grey", linestyle=":", linewidth=1)
        axis.text(
            0.99,
            floors[title] * 0.94,
            "noise floor",
            color="grey",
            fontsize=8,
            va="top",
            ha="right",
            transform=axis.get_yaxis_transform(),
        )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(counts, [str(b) for b in counts])
        axis.set_xlabel("shards")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("largest W1 of a marginal, in posterior sds")
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, frameon=False)
    made.tight_layout()
    path.parent.mkdir(exist_ok=True)
    made.savefig(path, dpi=95)
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} KB")


def scaling(rows: int, repeats: int) -> list[dict[str, Any]]:
    """Time of a pass for value, gradient and Hessian over eight Parquet files, on threads here and on 1 and 2 workers."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from distributed import Client, LocalCluster

    data = covtype(rows).data
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for k, part in enumerate(np.array_split(np.arange(data.n), 8)):
            block = np.asarray(data.records[part])
            columns = {f"x{j}": block[:, j] for j in range(1, data.d)}
            pq.write_table(pa.table({"y": block[:, data.d], **columns}), f"{folder}/{k}.parquet")
        theta = np.zeros(data.d)

        def timed(client: Any, where: str) -> None:
            parts = Partitions.open(folder, "y ~ .", "logistic", tb.priors.normal(10.0), client=client)
            parts.total_hessian(theta)  # compiled
            seconds = []
            for _ in range(repeats):
                begun = time.perf_counter()
                parts.total_hessian(theta)
                seconds.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            mode = parts.find_mode(progress=False)
            out.append(
                {
                    "where": where,
                    "seconds per pass (least)": min(seconds),
                    "speed-up": out[0]["seconds per pass (least)"] / min(seconds) if out else 1.0,
                    "mode": time.perf_counter() - begun,
                    "passes of the mode": mode.passes,
                    "partitions held": max(parts.held),
                }
            )

        for workers in (1, 2):
            with (
                LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
                ) as local,
                Client(local) as client,
            ):
                timed(client, f"{workers} worker{'s' * (workers > 1)}")
        timed(None, "this process, no cluster")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, few shards: a smoke run")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    parser.add_argument("--part", choices=("covtype", "skewed", "scaling"), help="only this part")
    options = parser.parse_args()
    counts = [2, 4] if options.quick else [2, 4, 8, 16, 32, 64]
    peer_at = counts[min(2, len(counts) - 1)]
    for part, (title, sampler, draws, rounds) in PARTS.items():
        if options.part in (None, part):
            model = near_normal(20_000 if options.quick else 400_000) if part == "covtype" else rare_events(16_000)
            rows, facts = accuracy(model, sampler, counts, 400 if options.quick else draws, rounds, peer_at)
            show(title, rows, note(model, sampler, facts, counts, peer_at), f"shards-{part}" if options.write else None)
    if options.write and options.part != "scaling":
        found = {title: written(f"shards-{part}") for part, (title, *_) in PARTS.items()}
        figure(
            {k: v[0] for k, v in found.items()},
            {k: v[1] for k, v in found.items()},
            counts,
            RESULTS.parent / "figures" / "shards.png",
        )
    if options.part in (None, "scaling"):
        rows = scaling(40_000 if options.quick else 400_000, 2 if options.quick else 5)
        text = "Eight Parquet files, read and packed again in every pass: a process keeps one partition. Other work shared the two cores."
        show("Passes over a cluster", rows, text, "shards-scaling" if options.write else None)


def note(model: tb.models.Model, sampler: str, facts: dict[str, Any], counts: list[int], peer_at: int) -> str:
    """What stands below a table."""
    seconds, bias, warned, (few, many) = facts["seconds"], facts["bias"], facts["warned"], (counts[0], counts[-1])
    text = (
        f"n = {model.data.n:,}, shards by {sampler}. Largest W1 of a marginal in posterior standard deviations; an exact run of this "
        f"size would be at {facts['floor']:.2g} by chance. Exact minibatch on all rows took {seconds[EXACT]:.1f} s, setup included; "
        f"sampling and combining {many} shards {seconds[many]:.1f} s on the same {os.cpu_count()} cores. Predicted bias of consensus "
        f"from the skewness of the shards: {bias[few]:.2g} for {few} shards, {bias[many]:.2g} for {many}; warnings: {warned[few]} and "
        f"{warned[many]}."
    )
    if facts.get("numpyro"):
        peer = facts["numpyro"]
        text += (
            f" NumPyro's consensus of the same draws ({peer_at} shards): {peer['theirs']:.3g}, ours {peer['ours']:.3g}; "
            f"{peer['their seconds']:.2g} s against {peer['our seconds']:.2g} s."
        )
    return text


if __name__ == "__main__":
    main()

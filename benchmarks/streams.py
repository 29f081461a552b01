"""Rows that live elsewhere, and rows that arrive later: streams on a Dask cluster beside a packed store and consensus shards.

    python -m benchmarks.streams [--rows 10000000] [--partitions 20] [--batches 100] [--folder DIR] [--write] [streams update]

The cluster is `LocalCluster(processes=True, n_workers=2)` on this machine. Partitions are Parquet files of float32, generated one by
one and kept for the next run. A worker is killed in a pass and in the pass that draws rows; the draws must be the same.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.report import show
from tallbayes.remote import partition_passes, pool

D = 10
NAMES = [f"x{j}" for j in range(1, D)]
FORMULA = "y ~ " + " + ".join(NAMES)
EFFECTS = np.linspace(-0.5, 0.5, D)
PRIOR = tb.priors.normal(5.0)
RUN: dict[str, Any] = {"draws": 500, "warmup": 200, "chains": 4, "seed": 1, "progress": False}


def arrays(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Design rows without the intercept, and responses."""
    rng = np.random.default_rng(seed)
    x = 0.8 * rng.standard_normal((rows, D - 1), np.float32) + 0.6 * rng.standard_normal(rows, np.float32)[:, None]
    return x, (rng.random(rows) < 1 / (1 + np.exp(-(EFFECTS[0] + x @ EFFECTS[1:])))).astype(np.float32)


def make_partitions(folder: Path, rows: int, count: int) -> Path:
    """Parquet files of equal size."""
    folder = folder / f"rows-{rows}-{count}"
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        path = folder / f"{k:04d}.parquet"
        if not path.exists():
            x, y = arrays(rows // count, k)
            pq.write_table(pa.table({"y": y, **{name: x[:, j] for j, name in enumerate(NAMES)}}), path, compression="none")
    return folder


def peak() -> float:
    """Largest resident memory of this process, in GB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1e6


def row_of(name: str, fit: Any, seconds: float, **facts: Any) -> dict[str, Any]:
    """A line of the table: seconds to 1,000 effective draws are those before the chains plus their share of the chains'."""
    ess = float(np.nanmin(fit.ess))
    return {"method": name, "guarantee": fit.guarantee.kind, "seconds": seconds, "ess": ess, **facts}


def distance(fit: Any, exact: Any) -> float:
    """Largest difference of means, in posterior standard deviations, and of log standard deviations."""
    sd = exact.theta.std((0, 1))
    shift = np.abs(fit.theta.mean((0, 1)) - exact.theta.mean((0, 1))) / sd
    return float(max(shift.max(), np.abs(np.log(fit.theta.std((0, 1)) / sd)).max()))


def streams(folder: Path, rows: int, count: int, write: bool) -> None:
    """Streams with and without a cluster, a killed worker, the packed store and consensus shards."""
    from distributed import Client, LocalCluster

    parts = make_partitions(folder, rows, count)
    lines = []
    begun = time.perf_counter()
    local = tb.fit(
        FORMULA,
        str(parts),
        prior=PRIOR,
        sampler="exact-minibatch",
        memory="disk",
        store=folder / "stores",
        dtype="float32",
        **RUN,
    )
    lines.append(
        row_of("packed store", local, time.perf_counter() - begun, moved="", passes=local.setup["passes"] + 2, memory=peak())
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as cluster,
            Client(cluster) as client,
        ):
            plain = _streamed(parts, client, lines, "streams, 2 workers", local)
            killed, original = [], pool.run

            def deadly(task: Any, arguments: Any, client: Any = None, **given: Any) -> Any:
                moment = arguments[0][0] in (partition_passes.hessian, partition_passes.requested_rows)
                for k, result in enumerate(original(task, arguments, client, **given)):
                    if moment and k == 0 and arguments[0][0] not in killed:
                        killed.append(arguments[0][0])
                        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
                    yield result

            pool.run = deadly
            again = _streamed(parts, client, lines, "the same, a worker killed in a pass and a refill", local)
            pool.run = original
            same = bool((again.theta == plain.theta).all()) and len(killed) == 2
            begun = time.perf_counter()
            shards = tb.sample_shards(
                str(parts),
                "exact-minibatch",
                formula=FORMULA,
                prior=PRIOR,
                combine="consensus",
                client=client,
                dtype="float32",
                **RUN,
            )
            facts = {"off": distance(shards, local), "memory": max(client.run(peak).values())}
            lines.append(
                row_of(f"consensus of {count} shards", shards, time.perf_counter() - begun, moved="", passes="", **facts)
            )
    alone = _streamed(parts, None, lines, "streams, one partition at a time on this machine", local)
    same &= bool((alone.theta == plain.theta).all())
    assert same, "the draws depend on the workers"
    note = (
        f"Logistic regression, n = {rows:,}, d = {D}, float32, {count} Parquet files; {RUN['chains']} chains of {RUN['warmup']} + "
        f"{RUN['draws']} iterations; seconds from the call of `fit` to the fit, both cores shared with other work. `off`: largest "
        "difference from the packed store's posterior, in means (posterior sds) or log sds; Monte Carlo error of both is about "
        f"{4.0 / np.sqrt(np.nanmin(local.ess)):.2f} at most. `memory`: largest of a worker, or of the process where there are none, in GB. "
        "The draws of all three stream runs are the same, bit for bit."
    )
    show("Rows that live elsewhere", lines, note, "streams" if write else None)


def _streamed(parts: Path, client: Any, lines: list[dict[str, Any]], name: str, exact: Any) -> Any:
    begun = time.perf_counter()
    rows = tb.shards.Partitions.open(str(parts), FORMULA, prior=PRIOR, client=client, dtype="float32")
    fit = tb.sample(rows, "exact-minibatch", **RUN)
    sent = fit.meta["notes"]["streams"]
    memory = peak() if client is None else max(client.run(peak).values())
    facts = {
        "moved": f"{sent['rows']:,} rows, {sent['bytes'] / 1e6:.2f} MB",
        "passes": rows.passes + 1,
        "off": distance(fit, exact),
    }
    lines.append(row_of(name, fit, time.perf_counter() - begun, memory=memory, **facts))
    rows.close()
    return fit


def update(batches: int, size: int, write: bool) -> None:
    """A series of batches: cost of every update, and the last posterior beside a fit of all rows."""

    def batch(seed: int) -> tb.Dataset:
        x, y = arrays(size, seed)
        return tb.Dataset.from_arrays(np.column_stack([np.ones(size), x]), y, columns=["Intercept", *NAMES], dtype="float32")

    fit = tb.sample(tb.models.logistic(batch(0), PRIOR), "exact-minibatch", **RUN)
    seconds, reads, searched = [], [], []
    for k in range(1, batches):
        new, begun = batch(k), time.perf_counter()
        fit = fit.update(new, seed=k, progress=False)
        seconds.append(time.perf_counter() - begun)
        reads.append(fit.meta["history"][-1]["evals"] / size)
        searched.append(fit.meta["history"][-1]["recentred"])
    begun = time.perf_counter()
    whole = tb.sample(tb.models.logistic(fit.data, PRIOR), "exact-minibatch", **{**RUN, "draws": 2000})
    anew = time.perf_counter() - begun
    error = np.sqrt(sum(f.theta.var((0, 1)) / f.ess for f in (fit, whole)))
    score = float(np.abs((fit.theta.mean((0, 1)) - whole.theta.mean((0, 1))) / error).max())
    lines = []
    for first in range(0, batches - 1, max(1, (batches - 1) // 5)):
        part = slice(first, first + max(1, (batches - 1) // 5))
        plain = [s for s, again in zip(seconds[part], searched[part], strict=True) if not again]
        lines.append(
            {
                "batches": f"{first + 1} to {first + len(seconds[part])}",
                "rows then": (first + 1 + len(seconds[part])) * size,
                "median seconds of an update": float(np.median(seconds[part])),
                "without a new reference": float(np.median(plain)) if plain else "",
                "new references": int(np.sum(searched[part])),
                "rows read per new row": float(np.mean(reads[part])),
            }
        )
    note = (
        f"{batches} batches of {size:,} rows, d = {D}, {RUN['chains']} chains of {RUN['warmup']} + {RUN['draws']} iterations after each. A "
        f"fit of all {fit.meta['rows']:,} rows takes {anew:.3g} s with the rows in memory; its means differ from those of the last update "
        f"by at most {score:.2g} Monte Carlo standard errors, over {D} coefficients."
    )
    show("Rows that arrive later", lines, note, "update" if write else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["streams", "update"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tallbayes-streams")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if "streams" in given.parts:
        streams(given.folder, given.rows, given.partitions, given.write)
    if "update" in given.parts:
        update(given.batches, given.size, given.write)


if __name__ == "__main__":
    main()

"""Rows that live elsewhere, and rows that arrive later: streams on a Dask cluster beside a packed store and consensus shards.

    python -m benchmarks.streams [--rows 10000000] [--partitions 20] [--batches 100] [--folder DIR] [--quick] [--write]
                                [streams large update]

The cluster is `LocalCluster(processes=True, n_workers=2)` on this machine. Partitions are Parquet files of float32, generated one by
one and kept for the next run. Workers are killed in a pass, in the one that draws rows and in a refill; the draws must be the same.
`large` is `streams` without killed workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.report import show
from tallbayes.remote import partition_passes, pool, supply

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
    folder /= f"rows-{rows}-{count}"
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        path = folder / f"{k:04d}.parquet"
        if not path.exists():
            x, y = arrays(rows // count, k)
            pq.write_table(pa.table({"y": y, **{name: x[:, j] for j, name in enumerate(NAMES)}}), path, compression="none")
    return folder


def peak(reset: bool = False) -> float:
    """Largest resident memory of this process since the last reset, in GB."""
    with open("/proc/self/status") as file:
        most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1e6
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return most


def processor(client: Any) -> dict[Any, float]:
    """Processor time of this process and of every worker."""
    return {"driver": time.process_time(), **({} if client is None else client.run(time.process_time))}


def distance(fit: Any, exact: Any) -> float:
    """Largest difference of means, in posterior standard deviations, and of log standard deviations."""
    sd = exact.theta.std((0, 1))
    shift = np.abs(fit.theta.mean((0, 1)) - exact.theta.mean((0, 1))) / sd
    return float(max(shift.max(), np.abs(np.log(fit.theta.std((0, 1)) / sd)).max()))


def measured(name: str, run: Any, client: Any, lines: list[dict[str, Any]]) -> Any:
    """A line of the table. Seconds to 1,000 effective draws: those before the chains, and the chains' by the effective draws made."""
    peak(reset=True)
    if client is not None:
        client.run(peak, reset=True)
    begun, spent = time.perf_counter(), processor(client)
    fit, facts = run()
    seconds, later = time.perf_counter() - begun, processor(client)
    chains, ess = fit.seconds["total"] - fit.setup["seconds"], float(np.nanmin(fit.ess))
    if fit.guarantee.kind == "HEURISTIC":
        chains = 0.0  # of shards on workers: nearly all of the time goes to reading rows, and does not depend on the draws
    lines.append(
        {
            "method": name,
            "guarantee": fit.guarantee.kind,
            "passes": facts.get("passes", ""),
            "rows moved": facts.get("rows", ""),
            "MB moved": facts.get("bytes", 0.0) / 1e6 or "",
            "driver GB": peak(),
            "worker GB": "" if client is None else max(client.run(peak).values()),
            "seconds": seconds,
            "processor seconds": sum(later.values()) - sum(spent.values()) if later.keys() == spent.keys() else "",
            "ESS": ess,
            "seconds to 1,000 effective draws": seconds - chains + chains * 1000.0 / ess,
            "fit": fit,
        }
    )
    print({k: v for k, v in lines[-1].items() if k != "fit"}, flush=True)  # a later one may fail
    return fit


def streams(folder: Path, rows: int, count: int, kill: bool, write: bool) -> None:
    """Streams with and without a cluster, killed workers, the packed store and consensus shards."""
    lines: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = make_partitions(folder, 4000, 2)  # what is compiled is not measured
        with workers() as client:
            _streamed(small, client, None)
            sharded(small, client)
        with tempfile.TemporaryDirectory(dir=folder) as store:
            packed(small, Path(store))
        parts = make_partitions(folder, rows, count)
        with workers() as client:
            plain, same = measured("streams, 2 workers", lambda: _streamed(parts, client, None), client, lines), True
            if kill:
                with killing(client, partition_passes.hessian, partition_passes.requested_rows) as killed:
                    name = "the same, workers killed in a pass of the mode and in the one that draws rows"
                    again = measured(name, lambda: _streamed(parts, client, None), client, lines)
                same = len(killed) == 2 and bool((again.theta == plain.theta).all())
        if kill:
            with workers() as client:
                with killing(client, partition_passes.requested_rows, calls=2) as killed:  # a refill
                    name = "streams in smaller blocks, a worker killed in a refill"
                    measured(name, lambda: _streamed(parts, client, 0.25), client, lines)
                same &= len(killed) == 1
        with workers() as client:
            measured(f"consensus of {count} shards, 2 workers", lambda: sharded(parts, client), client, lines)
        alone = measured("streams, one partition at a time here", lambda: _streamed(parts, None, None), None, lines)
        same &= bool((alone.theta == plain.theta).all())
        with tempfile.TemporaryDirectory(dir=folder) as store:
            local = measured("packed store here", lambda: packed(parts, Path(store)), None, lines)
            exact = measured("the same store, four times the draws", lambda: packed(parts, Path(store), 4), None, lines)
    assert same, "the draws depend on the workers"
    for line in lines:
        line["off"] = distance(line.pop("fit"), exact)
    lines.pop()
    cores = "one core" if len(os.sched_getaffinity(0)) == 1 else "two cores"
    note = (
        f"Logistic regression, n = {rows:,}, d = {D}, float32, {count} Parquet files; `LocalCluster(processes=True, n_workers=2)` of one "
        f"thread each; {RUN['chains']} chains of {RUN['warmup']} + {RUN['draws']} iterations; seconds from the call to the fit, all "
        f"processes on {cores} shared with other work, compiled code in its cache. `off`: largest difference of a mean (in posterior "
        "standard deviations) or of a log standard deviation from a packed run of four times the draws; for exact draws of this number "
        f"{4.0 / np.sqrt(np.nanmin(local.ess)):.2f} would be much. Memory: largest resident size, in which files that are mapped count "
        "as long as they are cached. The draws of the stream runs with the same blocks are the same, bit for bit."
    )
    show("Rows that live elsewhere", lines, note, ("streams" if kill else "streams-large") if write else None)


@contextmanager
def workers() -> Iterator[Any]:
    """A client of two worker processes of one thread."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def killing(client: Any, *tasks: Any, calls: int = 1) -> Iterator[list[Any]]:
    """Kill a worker when the first result of a pass of each of these tasks has come, the first pass or a later one; yields those done."""
    done: list[Any] = []
    seen: Counter[Any] = Counter()
    original = pool.run

    def deadly(task: Any, arguments: Any, client: Any = None, **given: Any) -> Any:
        kind = arguments[0][0]
        for k, result in enumerate(original(task, arguments, client, **given)):
            if k == 0 and kind in tasks:
                seen[kind] += 1
                if seen[kind] == calls:
                    done.append(kind)
                    kill_one(client)
            yield result

    pool.run = deadly
    try:
        yield done
    finally:
        pool.run = original


def kill_one(client: Any) -> None:
    """Kill one of two workers, both of which must be up, and wait until the scheduler knows: a second death is another event."""
    client.wait_for_workers(2, timeout=60)
    address, number = next(iter(client.run(os.getpid).items()))
    os.kill(number, signal.SIGKILL)
    while address in client.scheduler_info(n_workers=-1)["workers"]:
        time.sleep(0.05)


def _streamed(parts: Path, client: Any, share: float | None) -> tuple[Any, dict[str, Any]]:
    """Exact minibatch on row streams, in blocks of the predicted size; or of a share of it, at least 12 rows, which need refills."""
    predicted = supply.predict

    def smaller(*given: Any) -> supply.Demand:
        blocks = predicted(*given).blocks
        return supply.Demand(np.minimum(blocks, np.maximum(12, np.ceil(share * blocks))).astype(np.int64))

    if share is not None:
        supply.predict = smaller
    try:
        rows = tb.shards.Partitions.open(str(parts), FORMULA, prior=PRIOR, client=client, dtype="float32")
        fit = tb.sample(rows, "exact-minibatch", **RUN)
    finally:
        supply.predict = predicted
    facts = {**fit.meta["notes"]["streams"], "passes": rows.passes}
    facts["rows"], facts["bytes"] = facts["rows"] + len(rows.sample), facts["bytes"] + rows.sample.nbytes
    rows.close()
    return fit, facts


def packed(parts: Path, folder: Path, times: int = 1) -> tuple[Any, dict[str, Any]]:
    """Exact minibatch on a store packed on this machine, or left there by a run before."""
    options = {**RUN, "draws": times * RUN["draws"], "sampler": "exact-minibatch", "memory": "disk", "dtype": "float32"}
    return tb.fit(FORMULA, str(parts), prior=PRIOR, store=folder / "store", **options), {}


def sharded(parts: Path, client: Any) -> tuple[Any, dict[str, Any]]:
    """Consensus of one shard per partition."""
    options = {"formula": FORMULA, "family": "logistic", "prior": PRIOR, "combine": "consensus", "dtype": "float32"}
    return tb.sample_shards(str(parts), "exact-minibatch", client=client, **options, **RUN), {}


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
    given = parsed(parser, rows=8000, partitions=4, batches=4, size=1000)
    for part in {"streams", "large"} & set(given.parts):
        streams(given.folder, given.rows, given.partitions, part == "streams", given.write)
    if "update" in given.parts:
        update(given.batches, given.size, given.write)


if __name__ == "__main__":
    main()

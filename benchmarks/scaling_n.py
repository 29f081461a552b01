"""Rows and time per iteration against n = 1e4 ... 1e8 (synthetic logistic, d = 10, float32 records, memory-mapped).

    python -m benchmarks.scaling_n [--largest 100000000] [--folder DIR] [--quick] [--write]

Every size runs in its own process, which reports its own growth of anonymous memory (RssAnon). Stores are made by chunks in
the folder and kept for the next run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.report import show
from tallbayes.data import records
from tallbayes.data.dataset import Packer
from tallbayes.data.packed_store import StoreWriter, open_store

D = 10
CHUNK = 1 << 20


def make_store(path: Path, n: int) -> None:
    rng = np.random.default_rng(7)
    names = ("Intercept", *(f"x{j}" for j in range(1, D)))
    effect = np.linspace(-0.5, 0.5, D)
    kind = np.dtype("f4")
    writer, packer = StoreWriter(path, names, "y", kind), Packer(names, "y")
    for start in range(0, n, CHUNK):
        m = min(CHUNK, n - start)
        x = np.empty((m, D))
        x[:, 0] = 1.0
        x[:, 1:] = 0.8 * rng.standard_normal((m, D - 1)) + 0.6 * rng.standard_normal(m)[:, None]
        y = (rng.random(m) < 1 / (1 + np.exp(-x @ effect))).astype(float)
        chunk = np.zeros((m, records.width_of(D, kind)), kind)
        packer.pack(chunk, x, y, None, None)
        writer.write(chunk)
    writer.finish(packer.moments, False, False, {})


def anonymous() -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024**2
    return float("nan")


def measure(path: Path, iterations: int) -> dict[str, float]:
    model = tb.models.logistic(open_store(path))
    model.data.records.sum(dtype=np.float64)  # page cache warm
    start = time.perf_counter()
    mode = tb.find_mode(model, progress=False, tolerance=1e-3)
    passes, mode_seconds = mode.passes, time.perf_counter() - start
    sampler = tb.samplers.ExactMinibatch(bound="T6")
    tb.sample(model, sampler, draws=10, warmup=0, chains=1, seed=0, mode=mode, progress=False)  # compiles
    start = time.perf_counter()
    fit = tb.sample(model, sampler, draws=iterations, warmup=1000, chains=2, cores=1, seed=1, mode=mode, progress=False)
    total = time.perf_counter() - start
    cost = fit.cost()
    return {
        "n": model.data.n,
        "passes before the chains": passes + 1,
        "mode (s)": mode_seconds,
        "setup (s)": total - fit.seconds["draws"] - fit.warmup["seconds"],
        "rows per iteration": float(fit.stats["rows"].mean()),
        "us per iteration": 1e6 * fit.seconds["draws"] / cost["draws"]["iterations"],
        "evaluations per effective draw": cost["evals_per_ess"],
        "RssAnon (GiB)": anonymous(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=10**8)
    parser.add_argument("--iterations", type=int, default=50_000)
    parser.add_argument("--folder", default=str(Path(tempfile.gettempdir()) / "tallbayes-bench"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parsed(parser, largest=10_000, iterations=500)
    if options.one:
        print(json.dumps(measure(Path(options.one), options.iterations)))
        return
    rows = []
    for exponent in range(4, 9):
        n = 10**exponent
        if n > options.largest:
            break
        path = Path(options.folder) / f"logistic-{n}"
        if not path.exists():
            make_store(path, n)
        command = [sys.executable, "-m", "benchmarks.scaling_n", "--one", str(path), "--iterations", str(options.iterations)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print(rows[-1], flush=True)
    note = "Logistic, d = 10, float32 records of 64 bytes, memory-mapped, page cache warm, bound T6, 80 % independence."
    show("Exact minibatch against n", rows, note, "scaling-n" if options.write else None)


if __name__ == "__main__":
    main()

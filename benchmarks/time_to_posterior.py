"""What a user waits for: from the call of `tb.sample` to 1,000 effective draws on covtype (n = 400,000).

    python -m benchmarks.time_to_posterior [--peers] [--quick] [--write] [--pairs 3]

Each measurement runs in a fresh process: with an empty Numba cache (a machine that never ran the package), alternately on one
process and with the second one that compiles ahead, and once with the cache that such a run left. Medians; seconds of the processor
are those of both processes. The second process is not started where fewer than two cores are idle: the table says how many runs had
it, and how many cores were in use by others meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import psutil

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.problems import COVTYPE_ROWS, FEW, covtype
from benchmarks.report import show
from tallbayes.compile_ahead import VARIABLE
from tallbayes.contract import advance

ALONE, AHEAD, WARM = "empty cache, one process", "empty cache, compiled ahead in a second process", "warm cache"


def one(quick: bool) -> dict[str, Any]:
    model = covtype(FEW if quick else COVTYPE_ROWS)
    start, used, all_used = time.perf_counter(), _processor(), _machine()
    fit = tb.sample(model, draws=1000, warmup=200, chains=2, until_ess=1000, seed=1, progress=False)
    seconds, used, all_used = time.perf_counter() - start, _processor() - used, _machine() - all_used
    return {
        "seconds": seconds,
        "processor seconds": used,
        "cores in use by others": max(all_used - used, 0.0) / seconds,
        "from the cache": sum(advance.stats.cache_hits.values()) > 0,
        "min ESS": float(fit.cost()["ess_min"]),
        "sampler": fit.meta["sampler_name"],
    }


def _processor() -> float:
    """Seconds of the processor of this process and of those it started, once they have ended."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def _machine() -> float:
    """Seconds of the processors of the machine that were used by anybody."""
    t = psutil.cpu_times()
    return t.user + t.system


def numpyro(quick: bool) -> dict[str, Any]:
    from benchmarks import peers

    model = covtype(FEW if quick else COVTYPE_ROWS)
    mode = tb.find_mode(model, progress=False)
    start, used, all_used = time.perf_counter(), _processor(), _machine()
    draws = 20 if quick else 300
    result = peers.numpyro_nuts(model, mode, draws, draws)
    seconds, used, all_used = time.perf_counter() - start, _processor() - used, _machine() - all_used
    return {
        "seconds": result["seconds from call"],
        "processor seconds": used,
        "cores in use by others": max(all_used - used, 0.0) / seconds,
        "min ESS": result["min ESS"],
        "sampler": "NumPyro NUTS, 300 + 300",
    }


def measured(what: str, cache: str, ahead: bool, quick: bool) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.time_to_posterior", "--one", what, *(["--quick"] if quick else [])]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, VARIABLE: str(int(ahead))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def row(label: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table: medians, and in how many runs code came from the second process."""
    out = {
        "run": label,
        **{k: median(r[k] for r in runs) for k in ("seconds", "processor seconds", "cores in use by others", "min ESS")},
    }
    helped = sum(bool(r.get("from the cache")) for r in runs)
    return {**out, "sampler": runs[0]["sampler"], "second process": f"{helped} of {len(runs)}" if label == AHEAD else ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--pairs", type=int, default=3, help="runs with an empty cache, of each kind")
    parser.add_argument("--one", choices=("ours", "numpyro"), help=argparse.SUPPRESS)
    options = parsed(parser, pairs=1, peers=True)
    if options.one:
        print(json.dumps((one if options.one == "ours" else numpyro)(options.quick)))
        return
    runs: dict[str, list[dict[str, Any]]] = {ALONE: [], AHEAD: [], WARM: []}
    with tempfile.TemporaryDirectory() as folder:
        for k in range(options.pairs):
            runs[ALONE].append(measured("ours", f"{folder}/alone{k}", False, options.quick))
            runs[AHEAD].append(measured("ours", f"{folder}/ahead{k}", True, options.quick))
            runs[WARM].append(measured("ours", f"{folder}/ahead{k}", True, options.quick))
        rows = [row(label, part) for label, part in runs.items()]
        if options.peers and installed("numpyro"):
            rows.append(row("NumPyro NUTS, compile included", [measured("numpyro", f"{folder}/ahead0", True, options.quick)]))
    note = f"n = 400,000, d = 11. Medians of {options.pairs} runs of ours, taken in turn; {os.cpu_count()} cores."
    show("Time to 1,000 effective draws on covtype", rows, note, "time-to-posterior" if options.write else None)


if __name__ == "__main__":
    main()

"""What a user waits for: from the call of `tb.sample` to 1,000 effective draws on covtype (n = 400,000).

    python -m benchmarks.time_to_posterior [--peers] [--write]

Each measurement runs in a fresh process: once with an empty Numba cache (a machine that never ran the package) and once with
the cache that run left.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import tallbayes as tb
from benchmarks.problems import covtype
from benchmarks.report import show


def one() -> dict[str, Any]:
    model = covtype()
    start = time.perf_counter()
    fit = tb.sample(model, draws=1000, warmup=200, chains=2, until_ess=1000, seed=1, progress=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "min ESS": fit.cost()["ess_min"], "sampler": fit.meta["sampler_name"]}


def numpyro() -> dict[str, Any]:
    from benchmarks import peers

    model = covtype()
    mode = tb.find_mode(model, progress=False)
    result = peers.numpyro_nuts(model, mode, 300, 300)
    return {"seconds": result["seconds from call"], "min ESS": result["min ESS"], "sampler": "NumPyro NUTS, 300 + 300"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", choices=("ours", "numpyro"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one() if options.one == "ours" else numpyro()))
        return
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for label, what in (("empty cache", "ours"), ("warm cache", "ours"), ("NumPyro NUTS, compile included", "numpyro")):
            if what == "numpyro" and not options.peers:
                continue
            command = [sys.executable, "-m", "benchmarks.time_to_posterior", "--one", what]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache}
            )
            rows.append({"run": label, **json.loads(done.stdout.strip().splitlines()[-1])})
    show(
        "Time to 1,000 effective draws on covtype", rows, "n = 400,000, d = 11.", "time-to-posterior" if options.write else None
    )


if __name__ == "__main__":
    main()

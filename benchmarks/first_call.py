"""Seconds of the first call on a new machine: what a user waits for the compiler.

    python -m benchmarks.first_call [--cases logistic probit ...] [--after] [--alone] [--quick]

Every case is a new process with an empty compile cache, which makes 100 draws of one chain over 20,000 rows, search for the mode included,
imports and data not. With `--after`, the cache holds what the calls of logistic regression by exact minibatch and by HMC-ECS left there.
`--alone` compiles in one process; otherwise a second one helps where there are idle cores, as in any first call.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CASES = {
    "logistic": "exact-minibatch",
    "probit": "exact-minibatch",
    "poisson": "exact-minibatch",
    "gamma": "exact-minibatch",
    "negbin": "exact-minibatch",
    "student_t": "hmc-ecs",
    "expression": "exact-minibatch",
    "JAX": "hmc-ecs",
    "(1 | g)": "minibatch-gibbs",
    "crossed": "minibatch-gibbs",
}
BEFORE = (("logistic", "exact-minibatch"), ("logistic", "hmc-ecs"))  # the calls of `--after`
QUICK = ("probit",)  # of the baseline
ROWS = 20_000


def call(case: str, sampler: str, n: int) -> float:
    """Seconds of one call, in this process."""
    import tallbayes as tb
    from benchmarks import standard

    model = standard.make(case, n)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tb.sample(model, sampler, draws=100, warmup=100, chains=1, seed=1, progress=False)
    return time.perf_counter() - begun


def seconds(source: Path, cache: Path, case: str, sampler: str, alone: bool, n: int = ROWS) -> float:
    """The same in a new process, with the package in `source` and the compile cache in `cache`."""
    environment = {name: value for name, value in os.environ.items() if name != "TALLBAYES_COMPILE_AHEAD"}
    environment |= {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    if alone:
        environment["TALLBAYES_COMPILE_AHEAD"] = "0"
    command = [sys.executable, "-m", "benchmarks.first_call", "--one", case, sampler, str(n)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the first call of {case} with {source} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def lines(
    source: Path, cases: list[str], kinds: tuple[str, ...] = ("empty", "after"), alone: bool = False, n: int = ROWS
) -> Iterator[tuple[str, str, str, str, float]]:
    """Measurements, as `measures.Line`: with an empty cache, and with one that has logistic regression."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled = folder / "filled"
        if "after" in kinds:
            for case, sampler in BEFORE:
                seconds(source, filled, case, sampler, alone, n)
        for case in cases:
            for kind in kinds:
                if kind == "after" and case == "logistic":
                    continue
                cache = folder / "cache"
                if kind == "after":
                    shutil.copytree(filled, cache)
                what = "empty cache" if kind == "empty" else "after logistic"
                yield "first_call", case, what, "s", seconds(source, cache, case, CASES[case], alone, n)
                shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_call", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--after", action="store_true", help="also with the code of logistic regression in the cache")
    parser.add_argument("--alone", action="store_true", help="without a second process that compiles ahead")
    parser.add_argument("--quick", action="store_true", help="logistic alone, few rows: to see that it works")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        case, sampler, n = options.one
        print(json.dumps(call(case, sampler, int(n))))
        return
    from benchmarks.baseline import source
    from benchmarks.report import show

    kinds = ("empty", "after") if options.after else ("empty",)
    cases, n = (["logistic"], 2000) if options.quick else (options.cases, ROWS)
    table: dict[str, dict[str, Any]] = {}
    for _, case, what, _, value in lines(source(), cases, kinds, options.alone, n):
        table.setdefault(case, {"model": case, "sampler": CASES[case]})[f"{what}, s"] = value
        print(f"{case}, {what}: {value:.1f} s", flush=True)
    show("First calls", list(table.values()), f"n = {n:,}, 100 draws of one chain, each in a new process.")


if __name__ == "__main__":
    main()

"""Where an iteration of Firefly on MNIST goes: instructions of its parts, as callgrind of valgrind counts them, or their time without it.

The parts are called one after the other on the state of a chain, the whole as the chain calls it.

python -m experiments.firefly_profile [--quick] [--write]
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import arguments
from experiments.s3_problems import mnist
from experiments.s3_table1 import MOVES, SEVERAL
from tallbayes.engine import passes
from tallbayes.moves.random_walk import _propose_all
from tallbayes.run.chain import Chain
from tallbayes.schemes.bright_posterior import pseudo_prior, sum_of_odds
from tallbayes.schemes.lights import lower_gaps, marked_rows

SCALE = 0.3  # of the prior, which the log score of the test digits chooses
BRIGHT = 50  # of the state of the parts: the mean of a long run
NOTHING = "nothing"  # whose instructions, those of the caller, are taken off
CHILD = "TALLBAYES_PROFILE"
FEATURES = (
    "+avx,+avx2,+fma,+bmi,+bmi2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+lzcnt,+f16c,+movbe,+cx16"  # those that valgrind knows
)


@numba.njit(nogil=True, cache=True)
def normals(rng, factor, theta, times):
    """Normal variates of a proposal."""
    total = 0.0
    for _ in range(times):
        for _ in range(theta.size):
            total += rng.standard_normal()
    return total


@numba.njit(nogil=True, cache=True)
def proposals(rng, factor, theta, times):
    """Proposals of the isotropic walk, normal variates among them."""
    total = 0.0
    for _ in range(times):
        total += _propose_all(rng, factor, theta)[0]
    return total


@numba.njit(nogil=True, cache=True)
def bounds(target, theta, times):
    """The sum of all bounds, and the prior."""
    total = 0.0
    for _ in range(times):
        theta[0] += 1e-12
        total += pseudo_prior(target, theta)
    return total


@numba.njit(nogil=True, cache=True)
def rows(target, lit, theta, gap, times):
    """The gaps of the bright rows."""
    for _ in range(times):
        theta[0] += 1e-12
        lower_gaps(target, lit, theta, gap)
    return gap[0]


@numba.njit(nogil=True, cache=True)
def odds(gap, times):
    """The sum over bright rows of log(L/B - 1)."""
    total = 0.0
    for _ in range(times):
        gap[0] *= 1.0 + 1e-12
        total += sum_of_odds(gap)
    return total


@numba.njit(nogil=True, cache=True)
def marks(rng, scheme, times):
    """The rows that are proposed to brighten."""
    total = 0
    for _ in range(times):
        total += marked_rows(rng, scheme).size
    return total


def cases() -> tuple[dict[str, Callable[[int], Any]], dict[str, float]]:
    """What is measured: functions of the number of moves of theta; and facts on the state."""
    rows_file = Path(os.environ[CHILD].split()[2])  # principal components take long under valgrind
    if not rows_file.exists():
        model, _ = mnist()
        x, y = passes.block(model.rows, 0, model.data.n)[:2]
        np.savez(rows_file, x=x, y=y)
    stored = np.load(rows_file)
    model = tb.models.logistic(tb.Dataset.from_arrays(stored["x"], stored["y"]), tb.priors.normal(SCALE))
    mode = tb.find_mode(model, progress=False)
    sampler = tb.samplers.Firefly(MOVES["MNIST 7 v 9"], "tuned", excess=0.8, theta_moves=SEVERAL)
    chain = Chain(0, sampler, sampler.setup(model, mode, 1, False), np.random.SeedSequence(1), mode.reference, 2000, 1)
    while chain.warming:
        chain.chunk(2000)
    while chain.state.lights.tally[0] != BRIGHT:
        chain.chunk(chain.draws + 1)
    state, target, options, rng = chain.state, chain.target, chain.options, chain.rng
    lit = state.lights.order[: state.lights.tally[0]].copy()
    gap, theta = np.zeros(lit.size), state.theta.copy()
    lower_gaps(target, lit, theta, gap)
    seen: dict[str, float] = {"bright": float(lit.size), "rows": float(model.data.n), "columns": float(model.dim)}

    def whole(count: int) -> None:
        draws = count // SEVERAL
        info = np.zeros((draws, len(sampler.columns)))
        out = np.empty((draws, model.dim))
        chain.state, _, chain.target = chain.setup.advance(
            0, chain.rng, chain.target, chain.options, chain.state, False, out, info, 1
        )
        seen["mean bright"] = float(info[:, sampler.columns.index("bright")].mean())

    return {
        "a move of theta in all, with an eighth of a resampling": whole,
        NOTHING: lambda count: None,
        "normal variates": lambda count: normals(rng, options.kernel.factor, theta, count),
        "proposals, normal variates among them": lambda count: proposals(rng, options.kernel.factor, theta, count),
        "gaps of the bright rows": lambda count: rows(target, lit, theta, gap, count),
        "sum of log(L/B - 1)": lambda count: odds(gap, count),
        "sum of the bounds, prior": lambda count: bounds(target, theta, count),
        "rows proposed to brighten, an eighth": lambda count: marks(rng, options.scheme, count // SEVERAL),
    }, seen


def child(times: int, valgrind: bool) -> None:
    """Measure here, and print a line of JSON; under valgrind leave a file of counts per part."""
    found, seen = cases()
    seconds = {}
    for run in found.values():
        run(SEVERAL)  # compiled code is loaded
    for number, (name, run) in enumerate(found.items()):
        if valgrind:
            control("-z"), control("-i", "on")
        best = np.inf
        for _ in range(1 if valgrind else 5):
            begun = time.perf_counter()
            run(times)
            best = min(best, time.perf_counter() - begun)
        seconds[name] = best / times
        if valgrind:
            control("-i", "off"), control(f"--dump=part{number}")
    print(json.dumps({"seconds": seconds, "seen": seen}), flush=True)


def control(*words: str) -> None:
    """Tell callgrind, in whose process this runs."""
    subprocess.run(
        ["callgrind_control", *words, str(os.getpid())], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def measured(times: int, folder: str, valgrind: bool) -> dict[str, Any]:
    """A child in which the processor is one that valgrind knows."""
    settings = {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": FEATURES,
        "NUMBA_CACHE_DIR": folder,
        CHILD: f"{times} {int(valgrind)} {folder}/rows.npz",
    }
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"] if valgrind else []
    done = subprocess.run(
        [*tool, sys.executable, "-m", "experiments.firefly_profile"],
        env={**os.environ, "TALLBAYES_COMPILE_AHEAD": "0", **settings},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def counts(folder: str) -> dict[int, float]:
    """Instructions of each part, by the name of its dump."""
    found = {}
    for file in Path(folder).glob("counts*"):
        text = file.read_text()
        part = re.search(r"desc: Trigger: .*part(\d+)", text)
        total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if part and total:
            found[int(part[1])] = float(total[1])
    return found


def main() -> None:
    if CHILD in os.environ:
        child(*map(int, os.environ[CHILD].split()[:2]))
        return
    options = arguments(__doc__)
    times = 80_000 if not options.quick else 800
    with tempfile.TemporaryDirectory() as folder:
        timed = measured(times, folder, False)
        few = 8000
        instructions: dict[int, float] = {}
        if shutil.which("valgrind") and not options.quick:
            timed["seen"] = measured(few, folder, True)["seen"]
            instructions = counts(folder)
    table: list[dict[str, Any]] = []
    names = list(timed["seconds"])
    caller = instructions.get(names.index(NOTHING), 0.0)
    for number, name in enumerate(names):
        if name == NOTHING:
            continue
        if instructions:
            table.append({"part": name, "instructions": round((instructions[number] - caller) / few)})
        else:
            table.append({"part": name, "us": 1e6 * timed["seconds"][name]})
    disjoint = [row for row in table[1:] if row["part"] != "normal variates"]
    rest: dict[str, Any] = {"part": "rest: acceptance, copies, the rest of the resampling"}
    rest |= {k: table[0][k] - sum(row[k] for row in disjoint) for k in ("us", "instructions") if k in table[0]}
    table.append(rest)
    for row in table:
        unit = "instructions" if instructions else "us"
        row["share"] = f"{100 * row[unit] / table[0][unit]:.0f} %"
    seen = timed["seen"]
    counted = f"instructions of {few:,} moves by callgrind" if instructions else f"least of five runs of {times:,} moves"
    note = (
        f"MNIST, n = {seen['rows']:,.0f}, d = {seen['columns']:.0f}, isotropic walk, a rate for each row, {SEVERAL} moves per resampling; "
        f"{seen['bright']:.0f} bright rows in the parts, {seen['mean bright']:.0f} on average in the whole; {counted}. Code for a "
        "processor with AVX2, which valgrind knows."
    )
    show("An iteration of Firefly", table, note, "firefly-profile" if options.write else None)


if __name__ == "__main__":
    main()

"""Table 1 of Maclaurin and Adams (2014): queries, effective samples and speed-up of Firefly against the same move on all rows.

python -m experiments.s3_table1 [--quick] [--write] [--only MNIST]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.s3_problems import PROBLEMS
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain

MOVES = {
    "MNIST 7 v 9": tb.moves.random_walk(acceptance=0.234),
    "CIFAR-10, 3 classes": tb.moves.mala(),
    "CEP molecules": tb.moves.slice(),
    "QM9 molecules": tb.moves.slice(),
    "flights": tb.moves.slice(),
    "synthetic logistic": tb.moves.random_walk(acceptance=0.234),
}
ITERATIONS = {  # of each of two chains after warm-up: regular, untuned, tuned
    "MNIST 7 v 9": (8000, 8000, 30_000),
    "CIFAR-10, 3 classes": (400, 400, 2000),
    "CEP molecules": (2500, 2500, 20_000),
    "QM9 molecules": (500, 500, 20_000),
    "flights": (500, 500, 20_000),
    "synthetic logistic": (800, 0, 40_000),
}
MARKS = {name: f"s3-{name.split()[0].split('-')[0].lower()}" for name in ITERATIONS}
PAPER = {
    "MNIST 7 v 9": {"regular": (12_214, 3.7, 1), "untuned": (6252, 1.3, 0.7), "tuned": (207, 1.4, 22)},
    "CIFAR-10, 3 classes": {"regular": (18_000, 8.0, 1), "untuned": (8058, 4.2, 1.2), "tuned": (654, 3.3, 11)},
    "OPV": {"regular": (18_182_764, 1.3, 1), "untuned": (2_753_428, 1.1, 5.7), "tuned": (575_528, 1.2, 29)},
}


def algorithms(name: str) -> dict[str, tuple[str, Any, int]]:
    """Label, sampler and column of iterations; q = 0.1 and 0.01 are the paper's."""
    move = MOVES[name]
    return {
        "regular": ("regular", tb.samplers.FullData(move), 0),
        "untuned": ("untuned, q = 0.1", tb.samplers.Firefly(move, "untuned", rate=0.1), 1),
        "tuned": ("tuned, q = 0.01", tb.samplers.Firefly(move, "tuned", rate=0.01), 2),
        "rows": ("tuned, q of each row", tb.samplers.Firefly(move, "tuned"), 2),
    }


def measure(mode: Any, sampler: Any, draws: int, warmup: int, chains: int = 2) -> dict[str, float]:
    """Queries, effective samples and processor seconds per iteration, of chains after warm-up, one after the other."""
    setup, thetas, seconds = sampler.setup(mode.model, mode, 1, False), [], 0.0
    queries, bright = [], []
    for number, seed in enumerate(np.random.SeedSequence(1).spawn(chains)):
        chain = Chain(number, sampler, setup, seed, mode.laplace().draw(np.random.default_rng(number), 1)[0], warmup, 1)
        chain.compile()
        while chain.warming:
            chain.chunk(draws)
        begun = time.thread_time()
        while chain.draws < draws:
            chain.chunk(draws)
        seconds += time.thread_time() - begun
        theta, info = chain.collected()
        thetas.append(theta)
        queries.append(info[:, sampler.columns.index("evals")].mean())
        bright.append(info[:, sampler.columns.index("bright")].mean() if "bright" in sampler.columns else np.nan)
    iterations = chains * draws
    return {
        "queries": float(np.mean(queries)),
        "per 1000": float(np.median(effective_sizes(np.stack(thetas)))) / iterations * 1000.0,
        "seconds": seconds / iterations,
        "bright": float(np.mean(bright)),
    }


def problem(name: str, quick: bool) -> list[dict[str, Any]]:
    begun = time.perf_counter()
    model, prior = PROBLEMS[name](quick)
    mode = tb.find_mode(model, progress=False)
    print(name, f"mode after {time.perf_counter() - begun:.0f} s", flush=True)
    paper = PAPER.get(name, PAPER["OPV"] if MOVES[name].name == "slice" else {})
    rows, base = [], {}
    for key, (label, sampler, column) in algorithms(name).items():
        draws = ITERATIONS[name][column]
        if draws == 0:
            continue
        found = measure(mode, sampler, 100 if quick else draws, 100 if quick else max(300, draws // 10))
        base = base or found
        queries = found["per 1000"] / found["queries"] / (base["per 1000"] / base["queries"])
        wall = found["per 1000"] / found["seconds"] / (base["per 1000"] / base["seconds"])
        published = paper.get("tuned" if key == "rows" else key, ("", "", ""))
        rows.append(
            {
                "data": f"{name} (n = {model.data.n:,}, d = {model.dim}, {MOVES[name].name}, {prior})"
                if key == "regular"
                else "",
                "algorithm": label,
                "bright": "" if np.isnan(found["bright"]) else found["bright"],
                "queries per iteration": found["queries"],
                "paper": published[0],
                "effective per 1000": found["per 1000"],
                "paper ": published[1],
                "CPU us per iteration": 1e6 * found["seconds"],
                "speed-up in queries": queries,
                "paper  ": published[2],
                "speed-up in CPU time": wall,
            }
        )
        print(name, rows[-1], f"{time.perf_counter() - begun:.0f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    for name in PROBLEMS:
        if options.only is not None and not name.startswith(options.only):
            continue
        rows = problem(name, options.quick)
        title, rows[0]["data"] = rows[0]["data"], ""
        for row in rows:
            del row["data"]
        note = (
            f"{title}. Two chains, processor time of one thread; effective samples are the median over coordinates of arviz's bulk "
            "effective size."
        )
        show(f"Firefly, Table 1: {name}", rows, note, MARKS[name] if options.write else None)


if __name__ == "__main__":
    main()

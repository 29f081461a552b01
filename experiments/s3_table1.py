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
from tallbayes.engine.ledger import counting
from tallbayes.results.classical_diagnostics import autoregressive_sizes
from tallbayes.run.chain import Chain

MOVES = {  # of the paper: random walk and MALA with one scale for all coordinates; slices have one form only
    "MNIST 7 v 9": tb.moves.random_walk(acceptance=0.234, isotropic=True),
    "CIFAR-10, 3 classes": tb.moves.mala(isotropic=True),
    "CEP molecules": tb.moves.slice(),
    "QM9 molecules": tb.moves.slice(),
    "flights": tb.moves.slice(),
    "synthetic logistic": tb.moves.random_walk(acceptance=0.234, isotropic=True),
}
SHAPED = {  # the same with the shape of the Laplace fit; slice sampling has no such choice, its directions have that shape
    "MNIST 7 v 9": tb.moves.random_walk(acceptance=0.234),
    "CIFAR-10, 3 classes": tb.moves.mala(),
    "synthetic logistic": tb.moves.random_walk(acceptance=0.234),
}
ONLY_SHAPED = [
    "CIFAR-10, 3 classes"
]  # isotropic MALA has about 8 effective draws in 2,000 iterations as in 5,000: too few to tell
SEVERAL = 8  # moves of theta per resampling of z in the last row of each half
ITERATIONS = {  # of each of two chains after warm-up: regular, untuned, tuned
    "MNIST 7 v 9": (20_000, 10_000, 120_000),
    "CIFAR-10, 3 classes": (1500, 200, 8000),
    "CEP molecules": (5000, 4000, 40_000),
    "QM9 molecules": (800, 500, 20_000),
    "flights": (200, 100, 10_000),
    "synthetic logistic": (1200, 0, 12_000),
}
MARKS = {name: f"s3-{name.split()[0].split('-')[0].lower()}" for name in ITERATIONS}
PAPER = {
    "MNIST 7 v 9": {"regular": (12_214, 3.7, 1), "untuned": (6252, 1.3, 0.7), "tuned": (207, 1.4, 22)},
    "CIFAR-10, 3 classes": {"regular": (18_000, 8.0, 1), "untuned": (8058, 4.2, 1.2), "tuned": (654, 3.3, 11)},
    "OPV": {"regular": (18_182_764, 1.3, 1), "untuned": (2_753_428, 1.1, 5.7), "tuned": (575_528, 1.2, 29)},
}


def algorithms(name: str, move: Any = None) -> dict[str, tuple[str, Any, int]]:
    """Label, sampler and column of iterations; q = 0.1 and 0.01 are the paper's."""
    move = MOVES[name] if move is None else move
    return {
        "regular": ("regular", tb.samplers.FullData(move), 0),
        "untuned": ("untuned, q = 0.1", tb.samplers.Firefly(move, "untuned", rate=0.1), 1),
        "tuned": ("tuned, q = 0.01", tb.samplers.Firefly(move, "tuned", rate=0.01), 2),
        "rows": ("tuned, q of each row", tb.samplers.Firefly(move, "tuned"), 2),
        "several": (
            f"the same, {SEVERAL} moves per resampling",
            tb.samplers.Firefly(move, "tuned", excess=0.8, theta_moves=SEVERAL),
            2,
        ),
    }


def measure(mode: Any, sampler: Any, draws: int, warmup: int, chains: int = 2) -> dict[str, float]:
    """Queries, effective samples and processor seconds per move of theta, of chains after warm-up, one after the other.

    `draws` is the number of moves: a sampler with several per iteration makes fewer draws, and as many moves.
    """
    moves = getattr(sampler, "theta_moves", 1)
    draws, warmup = max(draws // moves, 20), max(warmup // moves, 100)
    with counting() as account:
        setup = sampler.setup(mode.model, mode, 1, False)
    thetas, seconds = [], 0.0
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
        queries.append(info[:, sampler.columns.index("evals")].mean() / moves)
        bright.append(info[:, sampler.columns.index("bright")].mean() if "bright" in sampler.columns else np.nan)
    iterations = chains * draws * moves
    effective = float(np.median(autoregressive_sizes(np.stack(thetas))))
    return {
        "queries": float(np.mean(queries)),
        "per 1000": effective / iterations * 1000.0,
        "effective": effective,
        "setup": float(account.rows),
        "seconds": seconds / iterations,
        "bright": float(np.mean(bright)),
    }


def problem(name: str, quick: bool) -> tuple[str, list[dict[str, Any]]]:
    """Rows of the table: every algorithm with the paper's isotropic proposals, then with those shaped by the Laplace fit."""
    begun = time.perf_counter()
    model, prior = PROBLEMS[name](quick)
    mode = tb.find_mode(model, progress=False)
    print(name, f"mode after {time.perf_counter() - begun:.0f} s", flush=True)
    paper = PAPER.get(name, PAPER["OPV"] if MOVES[name].name == "slice" else {})
    rows: list[dict[str, Any]] = []
    shapes = {"isotropic": MOVES[name], "Laplace fit": SHAPED[name]} if name in SHAPED else {"": MOVES[name]}
    for shape, move in shapes.items():
        if shape == "isotropic" and name in ONLY_SHAPED:
            continue
        base: dict[str, float] = {}
        for key, (label, sampler, column) in algorithms(name, move).items():
            draws = ITERATIONS[name][column]
            if draws == 0:
                continue
            warmup = (
                100 if quick else 20 if name == "flights" and column < 2 else max(300, min(draws // 10, 3000))
            )  # a slice needs none
            found = measure(mode, sampler, 100 if quick else draws, warmup)
            base = base or found
            queries = found["per 1000"] / found["queries"] / (base["per 1000"] / base["queries"])
            wall = found["per 1000"] / found["seconds"] / (base["per 1000"] / base["seconds"])
            published = (
                paper.get("tuned" if key in ("rows", "several") else key, ("", "", ""))
                if shape != "Laplace fit" or name in ONLY_SHAPED
                else ("", "", "")
            )
            rows.append(
                {
                    **({"proposals": shape if key == "regular" else ""} if shape else {}),
                    "algorithm": label,
                    "bright": "" if np.isnan(found["bright"]) else found["bright"],
                    "queries per iteration": found["queries"],
                    "paper": published[0],
                    "effective per 1000": found["per 1000"],
                    "paper ": published[1],
                    "effective draws": round(found["effective"]),
                    "setup, passes": found["setup"] / model.data.n,
                    "CPU us per iteration": 1e6 * found["seconds"],
                    "speed-up in queries": queries,
                    "paper  ": published[2],
                    "speed-up in CPU time": wall,
                }
            )
            print(name, rows[-1], f"{time.perf_counter() - begun:.0f} s", flush=True)
    return (
        f"{name} (n = {model.data.n:,}, d = {model.dim}, {MOVES[name].name}, {prior}; mode search {mode.passes} passes)",
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    for name in PROBLEMS:
        if options.only is not None and not name.startswith(options.only):
            continue
        title, rows = problem(name, options.quick)
        note = (
            f"{title}. Two chains, processor time of one thread; effective samples are the median over coordinates of the "
            "effective size by spectrum0.ar of coda; the paper names R-CODA and does not say how it combines coordinates. An iteration "
            "is a move of theta. Setup, of the sampler after the mode, and warm-up are in no speed-up."
        )
        show(f"Firefly, Table 1: {name}", rows, note, MARKS[name] if options.write else None)


if __name__ == "__main__":
    main()

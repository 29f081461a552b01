"""Table 1 of Maclaurin and Adams (2014) again, with what the paper leaves open set as its numbers suggest.

MNIST: effective sizes by R-CODA of chains of several lengths. CIFAR: the paper's isotropic MALA. Robust regression: slices along
isotropic directions from an interval of fixed width without stepping out, as in the authors' published implementation; the width is the
one at which the regular chain evaluates the likelihood of every row as often per iteration as in the paper. Bounds "off the mode" are
tight at a point so far from it that as many rows are bright as the paper's queries tell.

python -m experiments.s3_published [--quick] [--write] [--only MNIST|CIFAR|CEP]
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.acceptance_tools import isotropic_mode
from experiments.s3_problems import PROBLEMS
from experiments.s3_table1 import MOVES, PAPER
from tallbayes.mode.laplace import Mode
from tallbayes.results.classical_diagnostics import autoregressive_sizes
from tallbayes.run.chain import Chain

LENGTHS = (1000, 2000, 5000, 10_000, 20_000)
LENGTH = 5000  # at which the regular chain of MNIST has the paper's number
OPV_ROWS = 1.8e6  # of the paper's robust regression
TASKS = {"MNIST": "MNIST 7 v 9", "CIFAR": "CIFAR-10, 3 classes", "CEP": "CEP molecules"}


class Drawn(NamedTuple):
    """Draws of one chain, likelihood queries and acceptance rate per iteration, bright rows."""

    theta: np.ndarray
    queries: float
    accepted: float
    bright: float


def draw(mode: Any, sampler: Any, draws: int, warmup: int, start: np.ndarray, seed: int = 1) -> Drawn:
    """One chain after warm-up."""
    chain = Chain(0, sampler, sampler.setup(mode.model, mode, 1, False), np.random.SeedSequence(seed), start, warmup, 1)
    while chain.warming:
        chain.chunk(draws)
    while chain.draws < draws:
        chain.chunk(draws)
    theta, info = chain.collected()
    mean = dict(zip(sampler.columns, info.mean(axis=0), strict=True))
    return Drawn(theta, mean["evals"], mean["acceptance_rate"], mean.get("bright", math.nan))


def per_thousand(theta: np.ndarray, length: int) -> float:
    """Effective samples per 1,000 iterations of chains this long: the median over coordinates, mean over consecutive pieces."""
    starts = range(0, theta.shape[0] - length + 1, length)
    return float(np.mean([np.median(autoregressive_sizes(theta[None, a : a + length])) for a in starts])) / length * 1000.0


def line(label: str, found: Drawn, base: tuple[float, float] | None, paper: tuple[Any, ...], length: int) -> dict[str, Any]:
    """What the tables have in common; `base` is queries and effective samples of the regular chain."""
    effective = per_thousand(found.theta, length)
    queries, first = base or (found.queries, effective)
    return {
        "algorithm": label,
        "bright": "" if math.isnan(found.bright) else found.bright,
        "queries per iteration": found.queries,
        "paper": paper[0],
        "effective per 1000": effective,
        "paper ": paper[1],
        "speed-up in queries": effective / found.queries / (first / queries),
        "paper  ": paper[2],
    }


def off(mode: Any, move: Any, start: np.ndarray, goal: float, draws: int) -> tuple[Any, float]:
    """The mode with a reference at which tuned bounds leave `goal` rows bright, and its distance in posterior standard deviations."""
    direction = np.random.default_rng(1).standard_normal(mode.model.dim)
    path = mode.factor @ (direction / np.linalg.norm(direction))

    def moved(distance: float) -> Any:
        return Mode(
            mode.model,
            mode.reference + distance * path,
            mode.log_posterior,
            mode.gradient,
            mode.hessian,
            mode.precision,
            passes=0,
            evaluations=0,
        )

    low, high = 0.1, 1e4
    for _ in range(12):
        middle = math.sqrt(low * high)
        bright = draw(moved(middle), tb.samplers.Firefly(move, "tuned", rate=0.01), draws, 100, start).bright
        low, high = (middle, high) if bright < goal else (low, middle)
    return moved(math.sqrt(low * high)), math.sqrt(low * high)


def bright_of(queries: float, rows: float, times: float) -> float:
    """Bright rows of the paper from its queries: those, `times` per iteration, and a hundredth of the dark ones."""
    return (queries - 0.01 * rows) / (times - 0.01)


def mnist(mode: Any, quick: bool) -> tuple[list[dict[str, Any]], str]:
    """Effective samples by length of the chain."""
    move, paper = MOVES[TASKS["MNIST"]], PAPER[TASKS["MNIST"]]
    draws = 100_000 if not quick else 2000
    samplers = {
        "regular": (tb.samplers.FullData(move), paper["regular"]),
        "untuned, q = 0.1": (tb.samplers.Firefly(move, "untuned", rate=0.1), paper["untuned"]),
        "tuned, q = 0.01": (tb.samplers.Firefly(move, "tuned", rate=0.01), paper["tuned"]),
        "tuned, q = 0.001": (tb.samplers.Firefly(move, "tuned", rate=0.001), ("", "", "")),
        "tuned, q = 0.1": (tb.samplers.Firefly(move, "tuned", rate=0.1), ("", "", "")),
    }
    lengths = [length for length in LENGTHS if length <= draws]
    rows: list[dict[str, Any]] = []
    start = mode.laplace().draw(np.random.default_rng(0), 1)[0]
    goal = bright_of(paper["tuned"][0], mode.model.data.n, 1.0)
    away, distance = off(mode, move, start, goal, 2000 if not quick else 50)
    samplers["tuned off the mode, q = 0.01"] = (tb.samplers.Firefly(move, "tuned", rate=0.01), paper["tuned"])
    base = None
    for label, (sampler, published) in samplers.items():
        found = draw(away if "off" in label else mode, sampler, draws, 3000 if not quick else 300, start)
        at = min(LENGTH, draws)
        row = line(label, found, base, published, at)
        base = base or (found.queries, row["effective per 1000"])
        lead = {
            "algorithm": label,
            "accepted": found.accepted,
            "bright": row["bright"],
            "queries per iteration": found.queries,
            "paper": published[0],
        }
        sizes = {f"effective per 1000, chains of {k:,}": per_thousand(found.theta, k) for k in (*lengths, draws)}
        tail = {
            "paper ": published[1],
            f"speed-up in queries, chains of {at:,}": row["speed-up in queries"],
            "paper  ": published[2],
        }
        rows.append(lead | sizes | tail)
        print(rows[-1], flush=True)
    return rows, (
        f"One chain of {draws:,} iterations each, isotropic random walk; shorter chains are consecutive pieces of it. Off the mode: bounds "
        f"tight {distance:.3g} posterior standard deviations from it, in a random direction."
    )


def cifar(mode: Any, quick: bool) -> tuple[list[dict[str, Any]], str]:
    """Isotropic MALA."""
    move, paper = MOVES[TASKS["CIFAR"]], PAPER[TASKS["CIFAR"]]
    length = LENGTH if not quick else 50
    samplers = {
        "regular": (tb.samplers.FullData(move), "regular"),
        "untuned, q = 0.1": (tb.samplers.Firefly(move, "untuned", rate=0.1), "untuned"),
        "tuned, q = 0.01": (tb.samplers.Firefly(move, "tuned", rate=0.01), "tuned"),
    }
    rows: list[dict[str, Any]] = []
    base = None
    for label, (sampler, key) in samplers.items():
        start = mode.laplace().draw(np.random.default_rng(0), 1)[0]
        found = draw(mode, sampler, length * (4 if key == "tuned" and not quick else 1), 1000 if not quick else 100, start)
        rows.append(line(label, found, base, paper[key], length) | {"accepted": found.accepted})
        base = base or (found.queries, rows[0]["effective per 1000"])
        print(rows[-1], flush=True)
    return rows, f"Isotropic MALA, one chain of {length:,} iterations each, the tuned one mean of four."


def width_of(mode: Any, start: np.ndarray, goal: float, draws: int) -> float:
    """The width of the first interval at which the regular chain evaluates the log-likelihood `goal` times per iteration."""
    low, high = 1.0, 1e6
    for _ in range(10):
        middle = math.sqrt(low * high)
        sampler = tb.samplers.FullData(tb.moves.slice(width=middle, steps=1))
        times = draw(mode, sampler, draws, 0, start).queries / mode.model.data.n
        low, high = (middle, high) if times < goal else (low, middle)
    return math.sqrt(low * high)


def cep(mode: Any, quick: bool) -> tuple[list[dict[str, Any]], str]:
    """Slices without stepping out."""
    paper, narrow = PAPER["OPV"], isotropic_mode(mode)
    start = mode.laplace().draw(np.random.default_rng(0), 1)[0]
    goal = PAPER["OPV"]["regular"][0] / OPV_ROWS
    width = width_of(narrow, start, goal, 300 if not quick else 20)
    unit = 1.0 / math.sqrt(narrow.precision[0, 0])
    length, rows, base = LENGTH if not quick else 50, [], None
    move = tb.moves.slice(width=width, steps=1)
    samplers = {
        "regular": (tb.samplers.FullData(move), "regular"),
        "untuned, q = 0.1": (tb.samplers.Firefly(move, "untuned", rate=0.1), "untuned"),
        "tuned, q = 0.01": (tb.samplers.Firefly(move, "tuned", rate=0.01), "tuned"),
    }
    bright = bright_of(paper["tuned"][0], OPV_ROWS, goal) / OPV_ROWS * mode.model.data.n
    away, distance = off(mode, move, start, bright, 200 if not quick else 20)
    away = isotropic_mode(away)
    samplers["tuned off the mode, q = 0.01"] = (tb.samplers.Firefly(move, "tuned", rate=0.01), "tuned")
    for label, (sampler, key) in samplers.items():
        found = draw(
            away if "off" in label else narrow, sampler, length * (10 if key == "tuned" and not quick else 2), 300, start
        )
        rows.append(line(label, found, base, paper[key], length))
        base = base or (found.queries, rows[0]["effective per 1000"])
        print(rows[-1], flush=True)
    spread = np.sqrt(np.diag(mode.covariance))
    return rows, (
        f"Interval {width * unit:.3g} wide, posterior standard deviations {spread.min():.2g} to {spread.max():.2g}; the regular chain then "
        f"evaluates each row {rows[0]['queries per iteration'] / mode.model.data.n:.3g} times per iteration (the paper {goal:.3g}). "
        f"Chains of {length:,} iterations, means of two, tuned of ten. Off the mode: bounds tight {distance:.3g} posterior standard "
        "deviations from it, in a random direction."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; MNIST alone unless --only says otherwise")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", choices=tuple(TASKS))
    options = parser.parse_args()
    for name, part in {"MNIST": mnist, "CIFAR": cifar, "CEP": cep}.items():
        if options.only not in (None, name) or (options.quick and options.only is None and name != "MNIST"):
            continue
        begun = time.perf_counter()
        model, prior = PROBLEMS[TASKS[name]](options.quick)
        rows, note = part(tb.find_mode(model, progress=False), options.quick)
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
        title = f"{TASKS[name]} (n = {model.data.n:,}, d = {model.dim}, {prior}). {note}"
        note = f"{title} Effective samples: the median over coordinates, by spectrum0.ar of coda."
        show(f"Firefly, Table 1 as published: {name}", rows, note, f"s3-published-{name.lower()}" if options.write else None)


if __name__ == "__main__":
    main()

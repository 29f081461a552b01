"""Hierarchical models: setup, rows and time per sweep of minibatch Gibbs, and effective draws per second over all parameters.

    python -m benchmarks.hierarchical [--cases name ...] [--largest rows] [--keep FILE] [--quick] [--write]

Ten coefficients, an intercept for each level unless said otherwise; one chain after a warm-up of 500 sweeps. Times are those of the
CPU of the process, compilation not included. With `--keep`, measurements stay in FILE, so that a run that was cut short continues. Other
tools are in `benchmarks.hierarchical_peers`, real data in `benchmarks.hierarchical_real`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import MinibatchGibbs

WARMUP, COLUMNS, SCALE = 500, 10, 0.5


class Case(NamedTuple):
    """A made-up data set."""

    rows: int
    levels: int
    family: str = "logistic"
    sizes: str = "even"  # or "zipf"
    terms: tuple[str, ...] = ("1",)
    second: int = 0  # levels of a crossed factor, or of one that the first is nested in
    nested: bool = False
    draws: int = 4000


CASES = {
    "1e5, 100": Case(100_000, 100),
    "1e5, 1,000": Case(100_000, 1000),
    "1e5, 10,000": Case(100_000, 10_000),
    "1e6, 100": Case(1_000_000, 100),
    "1e6, 1,000": Case(1_000_000, 1000),
    "1e6, 10,000": Case(1_000_000, 10_000),
    "1e6, 100,000": Case(1_000_000, 100_000, draws=1000),
    "1e6, 1,000, Zipf": Case(1_000_000, 1000, sizes="zipf"),
    "1e6, 1,000, Poisson": Case(1_000_000, 1000, family="poisson"),
    "1e6, 10,000, Poisson": Case(1_000_000, 10_000, family="poisson"),
    "1e6, 1,000, slopes": Case(1_000_000, 1000, terms=("1", "x1"), draws=2000),
    "1e6, 1,000 x 500": Case(1_000_000, 1000, second=500, draws=1500),
    "1e6, 1,000 in 100": Case(1_000_000, 1000, second=100, nested=True, draws=1500),
    "1e7, 1,000": Case(10_000_000, 1000),
}


def rows(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Design matrix, response and groups of made-up rows."""
    rng, n = np.random.default_rng(seed), case.rows
    share = 1.0 / np.arange(1, case.levels + 1) if case.sizes == "zipf" else np.ones(case.levels)
    codes = rng.choice(case.levels, n, p=share / share.sum()) if case.sizes == "zipf" else rng.integers(0, case.levels, n)
    codes[: case.levels] = np.arange(case.levels)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, COLUMNS - 1))])
    eta = X @ np.concatenate([[-0.5], np.full(COLUMNS - 1, 0.3)]) + (SCALE * rng.standard_normal(case.levels))[codes]
    groups: dict[str, Any] = {"g": codes if case.terms == ("1",) else (codes, list(case.terms))}
    if "x1" in case.terms:
        eta += (0.3 * rng.standard_normal(case.levels))[codes] * X[:, 1]
    if case.second:
        groups["h"] = codes % case.second if case.nested else rng.integers(0, case.second, n)
        eta += (0.3 * rng.standard_normal(case.second))[groups["h"]]
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-eta)) if case.family == "logistic" else rng.poisson(np.exp(eta))
    return X, y.astype(float), groups


def model_of(case: Case) -> tb.models.Model:
    """The model of a case."""
    X, y, groups = rows(case)
    return getattr(tb.models, case.family)(tb.Dataset.from_arrays(X, y, groups=groups), tb.priors.normal(5.0))


def measure(name: str, case: Case) -> dict[str, Any]:
    """One chain: what it cost and how well it mixed."""
    model = model_of(case)
    begun = time.process_time()
    mode = tb.find_mode(model, progress=False)
    found = time.process_time()
    sampler = MinibatchGibbs()
    setup = sampler.setup(model, mode, 0, False)
    prepared = time.process_time()
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference, WARMUP, 1)
    chain.compile()
    while chain.warming:
        chain.chunk(case.draws)
    start = time.process_time()
    while chain.draws < case.draws:
        chain.chunk(case.draws)
    seconds = time.process_time() - start
    theta, info = chain.collected()
    shown = np.unique(np.concatenate([np.arange(model.dim), np.linspace(model.dim, theta.shape[1] - 1, 200).astype(int)]))
    sizes = effective_sizes(theta[None][:, :, shown])
    columns = dict(zip(sampler.columns, info.T, strict=True))
    return {
        "case": name,
        "family": case.family,
        "parameters": theta.shape[1],
        "passes of the mode": mode.passes,
        "mode, s": found - begun,
        "tables, s": prepared - found,
        "rows per sweep": float(columns["evals"].mean() / 2),
        "ms per sweep": 1e3 * seconds / case.draws,
        "accepted, coefficients": float(columns["accepted"].mean()),
        "accepted, levels": float(columns["level_acceptance"].mean()),
        "sweeps per effective draw, parameters": float(case.draws / sizes[: model.dim].min()),
        "sweeps per effective draw, levels": float(case.draws / sizes[model.dim :].min()),
        "min ESS/s, parameters": float(sizes[: model.dim].min() / seconds),
        "min ESS/s": float(sizes.min() / seconds),
        "anonymous memory, MB": anonymous_memory(),
    }


def anonymous_memory() -> float:
    """Memory of the process that is not a mapped file."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((float(line.split()[1]) / 1024.0 for line in lines if line.startswith("RssAnon")), float("nan"))


def main() -> None:
    """Print the table; one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--largest", type=float, default=1e6, help="leave out cases with more rows")
    parser.add_argument("--keep", metavar="FILE", help="keep measurements there, and take those that are there")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results")
    options = parsed(parser, cases=["1e5, 100", "1e6, 1,000, slopes", "1e6, 1,000 x 500", "1e6, 1,000 in 100"])
    chosen = {name: CASES[name] for name in options.cases if CASES[name].rows <= options.largest}
    if options.quick:
        chosen = {name: c._replace(rows=4000, levels=40, second=min(c.second, 20), draws=50) for name, c in chosen.items()}
    kept = Path(options.keep) if options.keep else None
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    table, compiled = [], set()
    for name, case in chosen.items():
        shape = case.family, case.terms, case.second > 0
        if name not in known and shape not in compiled:
            measure("", Case(4000, 20, shape[0], terms=shape[1], second=10 if shape[2] else 0, draws=100))
            compiled.add(shape)
        table.append(known[name] if name in known else measure(name, case))
        if kept is not None:
            known[name] = table[-1]
            kept.write_text(json.dumps(known))
        print(", ".join(f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in table[-1].items()), flush=True)
    note = "One chain, CPU seconds of the process; levels: 200 of them. Sizes are rows and levels."
    show("Hierarchical models", table, note, mark="hierarchical" if options.write else None)


if __name__ == "__main__":
    main()

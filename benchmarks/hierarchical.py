"""Hierarchical models: rows and time per sweep of minibatch Gibbs, and effective draws per second over all parameters.

    python -m benchmarks.hierarchical [rows ...]

Logistic regression with ten coefficients and an intercept for each of 1,000 levels; times are those of one process' CPU.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import tallbayes as tb
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import MinibatchGibbs

DRAWS, WARMUP, COLUMNS, SCALE = 2000, 500, 10, 0.5


def rows(n: int, levels: int, family: str = "logistic", seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Design matrix, response and level of made-up rows."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, levels, n)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, COLUMNS - 1))])
    eta = X @ np.concatenate([[-0.5], np.full(COLUMNS - 1, 0.3)]) + (SCALE * rng.standard_normal(levels))[codes]
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-eta)) if family == "logistic" else rng.poisson(np.exp(eta))
    return X, y.astype(float), codes


def measure(n: int, levels: int, family: str = "logistic") -> dict[str, float]:
    """One chain: what it cost and how well it mixed."""
    X, y, codes = rows(n, levels, family)
    begun = time.process_time()
    model = getattr(tb.models, family)(tb.Dataset.from_arrays(X, y, groups={"g": codes}), tb.priors.normal(5.0))
    packed = time.process_time()
    mode = tb.find_mode(model, progress=False)
    found = time.process_time()
    sampler = MinibatchGibbs()
    setup = sampler.setup(model, mode, 0, False)
    prepared = time.process_time()
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference, WARMUP, 1)
    chain.compile()
    while chain.warming:
        chain.chunk(DRAWS)
    start = time.process_time()
    while chain.draws < DRAWS:
        chain.chunk(DRAWS)
    seconds = time.process_time() - start
    theta, info = chain.collected()
    shown = np.concatenate([np.arange(model.dim), np.linspace(model.dim, theta.shape[1] - 1, 200).astype(int)])
    sizes = effective_sizes(theta[None][:, :, shown])
    columns = dict(zip(sampler.columns, info.T, strict=True))
    return {
        "rows": n,
        "levels": levels,
        "pack seconds": packed - begun,
        "mode seconds": found - packed,
        "mode passes": mode.passes,
        "table seconds": prepared - found,
        "rows per sweep": float(columns["evals"].mean() / 2),
        "microseconds per sweep": 1e6 * seconds / DRAWS,
        "acceptance of coefficients": float(columns["accepted"].mean()),
        "acceptance of levels": float(columns["level_acceptance"].mean()),
        "ess per sweep, parameters": float(sizes[: model.dim].min() / DRAWS),
        "ess per sweep, levels": float(sizes[model.dim :].min() / DRAWS),
        "min ess per second": float(sizes.min() / seconds),
    }


def main() -> None:
    """Print a line for each number of rows."""
    sizes = [int(float(a)) for a in sys.argv[1:]] or [100_000, 1_000_000]
    measure(5_000, 20)  # compiles
    for n in sizes:
        print(", ".join(f"{k} {v:,.4g}" for k, v in measure(n, 1000).items()), flush=True)


if __name__ == "__main__":
    main()

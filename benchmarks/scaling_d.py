"""Exact minibatch against the dimension, d = 2 ... 300 at n = 1e6: predicted and measured rate, and what auto picks.

python -m benchmarks.scaling_d [--rows 1000000] [--quick] [--write]
"""

from __future__ import annotations

import argparse

import numpy as np

import tallbayes as tb
from benchmarks.options import parsed
from benchmarks.problems import synthetic
from benchmarks.report import show
from tallbayes import auto
from tallbayes.bounds.tables import rate_count, total_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, rows=2000)
    rows = []
    for d in (2, 5) if options.quick else (2, 5, 10, 30, 100, 200, 300):
        model = synthetic(options.rows, d)
        mode = tb.find_mode(model, progress=False, tolerance=1e-3)
        sampler = tb.samplers.ExactMinibatch()
        setup = sampler.setup(model, mode, 0, False)
        rng, bound = np.random.default_rng(0), setup.proxy.bound
        rates = np.zeros(rate_count(bound))
        predicted = np.mean([total_rate(bound, a, b, rates) for a, b in rng.standard_normal((200, 2, d))])
        del setup, bound
        iterations = int(np.clip(5e6 / max(predicted, 1.0), 100, 200 if options.quick else 20_000))
        fit = tb.sample(model, sampler, draws=iterations, warmup=100, chains=2, seed=1, mode=mode, progress=False)
        cost = fit.cost()
        chosen, *_ = auto.choose(model, mode, None, 0, False)
        rows.append(
            {
                "d": d,
                "predicted rows": float(predicted),
                "measured rate after stage one": float(fit.stats["rate"][fit.stats["stage_one"] == 1].mean()),
                "rows per iteration": float(fit.stats["rows"].mean()),
                "acceptance": float(fit.stats["accepted"].mean()),
                "evaluations per effective draw": cost["evals_per_ess"],
                "ESS/s": cost["ess_per_second"],
                "NUTS predicted evaluations": options.rows * 3.0 * d**0.25,
                "auto picks": chosen.name,
            }
        )
        print(rows[-1], flush=True)
    show(
        "Exact minibatch against d",
        rows,
        f"n = {options.rows:,}, logistic, correlated columns.",
        "scaling-d" if options.write else None,
    )


if __name__ == "__main__":
    main()

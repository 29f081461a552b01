"""Third-order proxies against second-order ones in exact minibatch: rows, acceptance and time on eight problems.

    python -m experiments.third_order [--quick] [--write]

Both orders on one mode, two chains of 5,000 draws after 300 of warm-up; compilation is done before. Times per iteration are those of the
processor. Setup is the certificate and the tensor, in elapsed time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.contract import advance


def logistic(n: int, d: int, intercept: float = 0.0, heavy: bool = False) -> tb.models.Model:
    rng = np.random.default_rng(0)
    columns = rng.standard_t(4.0, (n, d - 1)) if heavy else rng.standard_normal((n, d - 1))
    eta = intercept + 0.5 * columns[:, : min(4, d - 1)] @ np.array([1.0, -1.0, 0.5, -0.5])[: min(4, d - 1)]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return tb.models.logistic(tb.Dataset.from_arrays(np.column_stack([np.ones(n), columns]), y), tb.priors.normal(5.0))


def counts(n: int, d: int) -> tb.models.Model:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
    y = rng.poisson(np.exp(0.3 * x[:, 1] - 1.0)).astype(float)
    return tb.models.poisson(tb.Dataset.from_arrays(x, y), tb.priors.normal(5.0))


PROBLEMS: dict[str, Callable[[], tb.models.Model]] = {
    "n = 2,000, d = 10": lambda: logistic(2_000, 10),
    "n = 300,000, d = 10, 0.6 % positives": lambda: logistic(300_000, 10, -5.8),
    "n = 300,000, d = 30": lambda: logistic(300_000, 30),
    "n = 300,000, d = 30, 0.06 % positives": lambda: logistic(300_000, 30, -8.2),
    "n = 300,000, d = 30, t4 columns, 3 % positives": lambda: logistic(300_000, 30, -4.2, heavy=True),
    "n = 200,000, d = 100": lambda: logistic(200_000, 100),
    "poisson, n = 50,000, d = 10": lambda: counts(50_000, 10),
    "poisson, n = 300,000, d = 30": lambda: counts(300_000, 30),
}


VARIANTS = {
    "2": tb.samplers.ExactMinibatch(),
    "3": tb.samplers.ExactMinibatch(order=3),
    "3, surrogate()": tb.samplers.ExactMinibatch(order=3, move=tb.moves.surrogate()),
}


def processor_time(setup: Any, sampler: tb.samplers.ExactMinibatch, theta: np.ndarray) -> float:
    """Microseconds of the processor per iteration: the median of seven pieces, of a tenth of a second or more."""
    policy, rng, target = setup.policy, np.random.default_rng(0), setup.target()
    options, state, count, found = policy.options(policy.begin(), True), policy.blank(theta), 50, []
    while len(found) < 7:
        draws, info = np.empty((count, theta.size)), np.zeros((count, len(sampler.columns)))
        begun = time.process_time()
        state, _ = advance(rng, target, options, state, True, draws, info, 1)
        elapsed = time.process_time() - begun
        if elapsed < 0.1:
            count *= 2
        else:
            found.append(1e6 * elapsed / count)
    return float(np.median(found))


def measured(model: tb.models.Model, mode: Any, sampler: tb.samplers.ExactMinibatch, draws: int) -> dict[str, float]:
    tb.sample(model, sampler, draws=5, warmup=10, chains=1, seed=0, mode=mode, progress=False)  # compiles
    fit = tb.sample(model, sampler, draws=draws, warmup=300, chains=2, cores=1, seed=1, mode=mode, progress=False)
    iteration = processor_time(sampler.setup(model, mode, 1, False), sampler, fit.theta[0, -1])
    return {
        "rows per iteration": float(fit.evals.mean()) / 2.0,
        "acceptance": float(fit.stats["accepted"].mean()),
        "us per iteration": iteration,
        "min ESS": float(fit.ess.min()),
        "us per effective draw": iteration * 2 * draws / float(fit.ess.min()),
        "setup, s": float(fit.setup["seconds"]),
    }


def choice_of_auto(model: tb.models.Model, mode: Any) -> str:
    fit = tb.sample(model, draws=5, warmup=10, chains=1, seed=1, mode=mode, guarantee="exact", progress=False)
    return fit.meta["sampler_name"] + ", order 3" * ("third-order" in fit.why.partition(";")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first two problems, fewer draws")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tb.TallbayesWarning)
    rows = []
    for label, make in list(PROBLEMS.items())[: 2 if options.quick else None]:
        model = make()
        mode = tb.find_mode(model, progress=False)
        for order, sampler in VARIANTS.items():
            first = {"problem": label, "order": order}
            rows.append(first | measured(model, mode, sampler, 500 if options.quick else 5000))
            print(rows[-1], flush=True)
        rows[-3]["auto takes"] = choice_of_auto(model, mode)
        print(rows[-3]["auto takes"], flush=True)
    note = "Logistic where nothing else is said. `surrogate()` makes eight steps on the surrogate before rows decide. "
    note += "Microseconds of the processor; setup in elapsed time."
    show("Third-order proxies", rows, note, "third-order" if options.write else None)


if __name__ == "__main__":
    main()

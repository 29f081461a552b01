"""Families from one expression: exact minibatch on a million rows, the same posterior as NUTS, and the speed of generated code.

Three models that are in no list of families, complementary log-log regression, a zero-inflated count and Student-t errors of
unknown scale, each written in one line. Then the logistic family from its expression beside the built-in one, kernel by kernel.

    python -m experiments.expression_families [--quick] [--write]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks import report
from tallbayes.engine import passes
from tallbayes.results.cost import effective_sizes

CLOGLOG = "y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)"
ZERO_INFLATED = "where(y == 0, log(p + (1 - p)*exp(-exp(eta))), log(1 - p) + y*eta - exp(eta))"
STUDENT = "-log_scale - (nu + 1)/2*log(1 + ((y - eta)/exp(log_scale))**2/nu)"
LOGISTIC = "y*eta - log(1 + exp(eta))"
COLUMNS = 5


def design(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, COLUMNS - 1))])
    return X, X @ np.array([-0.3, 0.5, -0.3, 0.2, 0.0]), rng


def cloglog(n: int) -> tuple[str, tb.Dataset, dict[str, Any]]:
    X, eta, rng = design(n, 1)
    return CLOGLOG, tb.Dataset.from_arrays(X, rng.random(n) < -np.expm1(-np.exp(eta))), {"support": "binary"}


def zero_inflated(n: int) -> tuple[str, tb.Dataset, dict[str, Any]]:
    X, eta, rng = design(n, 2)
    y = np.where(rng.random(n) < 0.3, 0, rng.poisson(np.exp(eta + 0.5)))
    return ZERO_INFLATED, tb.Dataset.from_arrays(X, y), {"support": "count", "constants": {"p": 0.3}}


def unknown_scale(n: int) -> tuple[str, tb.Dataset, dict[str, Any]]:
    X, eta, rng = design(n, 4)
    return STUDENT, tb.Dataset.from_arrays(X, eta + 0.5 * rng.standard_t(4.0, n)), {"constants": {"nu": 4.0}}


def sampled(name: str, make: Callable, n: int, checked: int, draws: int) -> dict[str, Any]:
    """One model: its cost on n rows, and its agreement with NUTS on `checked` rows."""
    text, data, options = make(n)
    begun = time.perf_counter()
    model = tb.models.family(text, data, tb.priors.normal(2.0), **options)
    built = time.perf_counter() - begun
    sampler = tb.samplers.ExactMinibatch()
    tb.sample(model, sampler, draws=5, warmup=10, chains=1, seed=0, progress=False)  # compiles
    fit = tb.sample(model, sampler, draws=draws, warmup=500, chains=2, seed=1, progress=False)
    cost = fit.cost()

    text, data, options = make(checked)
    small = tb.models.family(text, data, tb.priors.normal(2.0), **options)
    exact = tb.sample(small, sampler, draws=draws, warmup=500, chains=2, seed=2, progress=False)
    nuts = tb.sample(small, "nuts", draws=150, warmup=100, chains=2, seed=3, progress=False)
    return {
        "model": name,
        "n": n,
        "d": model.dim,
        "build and certify, s": built,
        "rows per iteration": float(fit.stats["rows"].mean()),
        "us per iteration": 1e6 * fit.seconds["draws"] / (2 * draws),
        "evaluations per effective draw": cost["evals_per_ess"],
        "min ESS": cost["ess_min"],
        f"largest z against NUTS, n = {checked:,}": largest_z(exact.theta, nuts.theta),
    }


def largest_z(first: np.ndarray, second: np.ndarray) -> float:
    """Of the differences of means and of squares between two fits, in standard errors."""
    centre, worst = second.mean((0, 1)), 0.0
    for power in (1, 2):
        parts = [(theta - centre) ** power for theta in (first, second)]
        error = np.sqrt(sum(p.var((0, 1)) / effective_sizes(p) for p in parts))
        worst = max(worst, float(np.abs((parts[0].mean((0, 1)) - parts[1].mean((0, 1))) / error).max()))
    return worst


def speeds(n: int, repetitions: int) -> list[dict[str, Any]]:
    """Nanoseconds per row of the logistic family, built in and from its expression, in processor time; the fastest counts."""
    X, eta, rng = design(n, 3)
    data = tb.Dataset.from_arrays(X, rng.random(n) < 1.0 / (1.0 + np.exp(-eta)))
    models = {"built-in": tb.models.logistic(data), "expression": tb.models.family(LOGISTIC, data)}
    theta = rng.standard_normal((3, COLUMNS)) * 0.1
    index = rng.permutation(n)
    kernels: dict[str, Callable[[Any], Any]] = {
        "value, full pass": lambda rows: passes.total_value(rows, theta[0], 1),
        "gradient, full pass": lambda rows: passes.total_gradient(rows, theta[0], 1),
        "Hessian, full pass": lambda rows: passes.total_hessian(rows, theta[0], 1),
        "residuals of random rows": lambda rows: passes.residuals_at(rows, index, theta[0], theta[1], theta[2]),
    }
    table = []
    for name, kernel in kernels.items():
        best = dict.fromkeys(models, np.inf)
        for model in models.values():
            kernel(model.rows)
        for _ in range(repetitions):
            for key in rng.permutation(list(models)):
                begun = time.process_time_ns()
                kernel(models[key].rows)
                best[key] = min(best[key], (time.process_time_ns() - begun) / n)
        table.append({"kernel": name, **{f"{k}, ns per row": v for k, v in best.items()}})
    iteration = {"kernel": "exact minibatch, bound T10, ns per iteration"}
    best = dict.fromkeys(models, np.inf)
    for k in range(3):
        for key, model in models.items():
            fit = tb.sample(
                model, tb.samplers.ExactMinibatch(bound="T10"), draws=20_000, warmup=50, chains=1, seed=k, progress=False
            )
            best[key] = min(best[key], 1e9 * fit.seconds["draws"] / 20_000)
    table.append({**iteration, **{f"{k}, ns per row": v for k, v in best.items()}})
    for row in table:
        row["ratio"] = row["expression, ns per row"] / row["built-in, ns per row"]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/results")
    parser.add_argument("--part", default="all", choices=("all", "models", "speed"))
    arguments = parser.parse_args()
    n, checked, draws = (20_000, 5_000, 500) if arguments.quick else (1_000_000, 100_000, 5_000)
    rows: list[dict[str, Any]] = []
    examples = {"cloglog": cloglog, "zero-inflated count": zero_inflated, "Student-t, unknown scale": unknown_scale}
    for name, make in examples.items():
        if arguments.part in ("all", "models"):
            rows.append(sampled(name, make, n, checked, draws))
            report.show("Models written as one expression", rows, mark="expressions" if arguments.write else None)
    if arguments.part in ("all", "speed"):
        table = speeds(min(n, 200_000), 3 if arguments.quick else 15)
        report.show("Logistic regression from its expression", table, mark="expression-speed" if arguments.write else None)


if __name__ == "__main__":
    main()

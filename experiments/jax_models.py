"""Models written in JAX: three examples by HMC-ECS on a million rows, checked against NUTS, and the speed of the interpreted samplers.

    python -m experiments.jax_models --write [--quick]

Each example is sampled on all rows by HMC-ECS, and on its first 100,000 rows by HMC-ECS and by full-data NUTS; the two must agree.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallbayes as tb
from benchmarks.report import show
from experiments.shapes import dataset


def first(data: tb.Dataset, count: int) -> tb.Dataset:
    x = np.asarray(data.records[:count, : data.d])
    return tb.Dataset.from_arrays(x, np.asarray(data.y[:count]), columns=data.columns)


def psychometric(n: int) -> tuple[tb.Dataset, Callable[[tb.Dataset], Any]]:
    rng = np.random.default_rng(1)
    stimulus = rng.uniform(-3, 3, n)
    p = 0.1 + 0.85 / (1 + np.exp(-1.5 * (stimulus - 0.4)))

    def log_lik(theta: Any, row: Any) -> Any:
        curve = jax.nn.sigmoid(theta["slope"] * (row["stimulus"] - theta["threshold"]))
        p = theta["guess"] + (1 - theta["guess"] - theta["lapse"]) * curve
        return row["y"] * jnp.log(p) + (1 - row["y"]) * jnp.log1p(-p)

    half = tb.models.interval(0, 0.5)
    params = {"threshold": (), "slope": "positive", "guess": half, "lapse": half}
    data = tb.Dataset.from_arrays(stimulus[:, None], rng.random(n) < p, columns=["stimulus"])
    return data, lambda rows: tb.models.from_jax(log_lik, rows, tb.priors.normal(3.0), params=params)


def robust(n: int) -> tuple[tb.Dataset, Callable[[tb.Dataset], Any]]:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, 4))])
    y = x @ [1.0, 0.5, -0.5, 0.2, 0.0] + 0.7 * rng.standard_t(5.0, n)

    def log_lik(theta: Any, row: Any) -> Any:
        nu, z = theta["nu"], (row["y"] - row["x"] @ theta["beta"]) / theta["scale"]
        constant = jax.lax.lgamma(0.5 * (nu + 1)) - jax.lax.lgamma(0.5 * nu) - 0.5 * jnp.log(nu)
        return constant - jnp.log(theta["scale"]) - 0.5 * (nu + 1) * jnp.log1p(z * z / nu)

    params = {"beta": 5, "scale": "positive", "nu": "positive"}
    return tb.Dataset.from_arrays(x, y), lambda rows: tb.models.from_jax(log_lik, rows, tb.priors.normal(5.0), params=params)


def converted(n: int) -> tuple[tb.Dataset, Callable[[tb.Dataset], Any]]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, 3))])
    y = rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(x @ [0.5, 0.3, -0.2, 0.1])))

    def program(x: Any, y: Any) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 5).expand([4]).to_event(1))
        size = numpyro.sample("size", dist.HalfNormal(10.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("obs", dist.NegativeBinomial2(jnp.exp(x @ beta), size), obs=y)

    return tb.Dataset.from_arrays(x, y), lambda rows: tb.models.from_numpyro(program, rows)


EXAMPLES = {
    "psychometric curve": psychometric,
    "robust regression, unknown scale and df": robust,
    "NumPyro negative binomial": converted,
}


def example(name: str, n: int, check: int, draws: int) -> dict[str, Any]:
    data, build = EXAMPLES[name](n)
    options = {"draws": draws, "warmup": draws, "chains": 2, "seed": 1, "progress": False}
    start = time.perf_counter()
    whole = tb.sample(build(data), "hmc-ecs", **options)
    seconds = time.perf_counter() - start
    part = build(first(data, check))
    ours = tb.sample(part, "hmc-ecs", **options)
    exact = tb.sample(part, "nuts", **{**options, "draws": draws // 2, "warmup": draws // 4})
    return {
        "model": name,
        "n": n,
        "dimension": whole.theta.shape[2],
        "rows m": whole.meta["notes"]["subsample"],
        "evaluations an iteration": float(whole.evals.mean()),
        "ms an iteration": 1e3 * whole.seconds["draws"] / whole.evals.size,
        "seconds in all": seconds,
        "min ESS": whole.cost()["ess_min"],
        f"largest z against NUTS, n = {check:,}": largest_z(ours, exact),
    }


def largest_z(ours: tb.Fit, exact: tb.Fit) -> float:
    """Means and standard deviations of all coordinates, in standard errors."""
    worst = 0.0
    for j in range(ours.theta.shape[2]):
        a, b = ours.theta[:, :, j], exact.theta[:, :, j]
        spread, sizes = b.std(), 1 / ours.ess[j] + 1 / exact.ess[j]
        worst = max(worst, abs(a.mean() - b.mean()) / (spread * math.sqrt(sizes)))
        worst = max(worst, abs(a.std() / b.std() - 1) / math.sqrt(0.5 * sizes))
    return worst


def speed(n: int, draws: int) -> list[dict[str, Any]]:
    """HMC-ECS on logistic regression of HIGGS shape, d = 29: the built-in family, and the same likelihood in JAX."""
    data = dataset("higgs", n)

    def log_lik(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta
        return row["y"] * eta - jax.nn.softplus(eta)

    prior = tb.priors.normal(10.0)
    models = {"built-in": tb.models.logistic(data, prior), "in JAX": tb.models.from_jax(log_lik, data, prior, dim=data.d)}
    mode = tb.find_mode(models["built-in"], progress=False)
    rows = []
    for name, model in models.items():
        own = tb.models.mode.Mode(
            model, mode.reference, mode.log_posterior, mode.gradient, mode.hessian, mode.precision, passes=mode.passes
        )
        sampler = tb.samplers.HMCECS(subsample=1300, move=tb.moves.hmc(acceptance=0.98))
        fit = tb.sample(model, sampler, draws=draws, warmup=100, chains=1, seed=1, progress=False, mode=own)
        rows.append(
            {
                "likelihood": name,
                "n": n,
                "rows m": 1300,
                "gradients an iteration": float(fit.stats["n_steps"].mean()),
                "ms an iteration": 1e3 * fit.seconds["draws"] / draws,
            }
        )
    for row in rows:
        row["times the built-in"] = row["ms an iteration"] / rows[0]["ms an iteration"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tb.errors.TallbayesWarning)
    n, check, draws = (20_000, 10_000, 100) if options.quick else (1_000_000, 100_000, 240)
    table = [example(name, n, check, draws) for name in EXAMPLES]
    show("models in JAX", table, mark="jax-models" if options.write else None)
    show("speed", speed(n, 50 if options.quick else 200), mark="jax-speed" if options.write else None)


if __name__ == "__main__":
    main()

"""Models written in JAX: three examples by HMC-ECS on a million rows, checked against NUTS, and the speed of samplers that call them.

    python -m experiments.jax_models --write [--quick] [--part speed]

Each example is sampled on all rows by HMC-ECS, and on its first 100,000 rows by HMC-ECS and by full-data NUTS; the two must agree.
The speed is that of HMC-ECS on one logistic regression, built in and in JAX, in turns, and of NumPyro's HMCECS after them.
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
from benchmarks import hmc_ecs as peer
from benchmarks.report import show
from experiments.shapes import dataset
from tallbayes.mode.laplace import Mode
from tallbayes.run.chain import Chain


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
        "evaluations per iteration": float(whole.evals.mean()),
        "ms per iteration": 1e3 * whole.seconds["draws"] / whole.evals.size,
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


def clocks() -> np.ndarray:
    """Seconds elapsed, and seconds of processor time over all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def speed(n: int, rounds: int, peer_draws: int) -> list[dict[str, Any]]:
    """HMC-ECS on logistic regression of HIGGS shape, d = 29: the built-in family, the same likelihood in JAX, and NumPyro.

    Both of ours have the same reference and seed, so the same draws; twenty iterations of each in turns, medians of the rounds.
    """
    data = dataset("higgs", n)

    def log_lik(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta
        return row["y"] * eta - jax.nn.softplus(eta)

    prior = tb.priors.normal(10.0)
    models = {"built-in": tb.models.logistic(data, prior), "in JAX": tb.models.from_jax(log_lik, data, prior, dim=data.d)}
    mode = tb.find_mode(models["built-in"], progress=False)
    move = tb.moves.hmc(acceptance=0.98)
    samplers = {
        "perturbed, m = 1300": tb.samplers.HMCECS(subsample=1300, move=move),
        "signed, 40 products": tb.samplers.HMCECS(estimator="signed", products=40, move=move),
    }
    table = []
    for estimator, sampler in samplers.items():
        chains, times = {}, {name: [] for name in models}
        for name, model in models.items():
            own = Mode(
                model,
                mode.reference,
                mode.log_posterior,
                mode.gradient,
                mode.hessian,
                mode.precision,
                mode.passes,
                mode.evaluations,
            )
            setup = sampler.setup(model, own, 1, False)
            chains[name] = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference.copy(), 100, 1)
            while chains[name].warming:
                chains[name].chunk(0)
        for k in range(1, rounds + 1):
            for name, chain in chains.items():
                begun = clocks()
                while chain.draws < 20 * k:
                    chain.chunk(20 * k)
                times[name].append(clocks() - begun)
        gap = np.abs(chains["built-in"].collected()[0] - chains["in JAX"].collected()[0]).max()
        medians = {name: 1e3 * np.median(found, axis=0) / 20 for name, found in times.items()}
        for name, (elapsed, processor) in medians.items():
            info = dict(zip(sampler.columns, chains[name].collected()[1].T, strict=True))
            table.append(
                {
                    "likelihood": name,
                    "estimator": estimator,
                    "gradients per iteration": float(info["n_steps"].mean()),
                    "ms per iteration": elapsed,
                    "processor ms": processor,
                    "times the built-in": elapsed / medians["built-in"][0],
                    "largest difference of draws": gap,
                }
            )
    peer.clock = clocks
    found = peer.numpyro_hmcecs(models["built-in"], mode, peer_draws, peer_draws)
    elapsed, processor = found["ms per iteration"]
    table.append(
        {
            "likelihood": "NumPyro HMCECS",
            "estimator": "perturbed, m = 1300",
            "gradients per iteration": found["gradients per iteration"],
            "ms per iteration": elapsed,
            "processor ms": processor,
            "times the built-in": elapsed / table[0]["ms per iteration"],
            "largest difference of draws": "",
        }
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", default="all", choices=("all", "models", "speed"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", tb.errors.TallbayesWarning)
    n, check, draws = (20_000, 10_000, 100) if options.quick else (1_000_000, 100_000, 240)
    if options.part != "speed":
        table = [example(name, n, check, draws) for name in EXAMPLES]
        show("models in JAX", table, mark="jax-models" if options.write else None)
    if options.part != "models":
        found = speed(n, *((3, 5) if options.quick else (15, 50)))
        note = f"n = {n:,}, d = 29."
        show("speed", found, note, mark="jax-speed" if options.write else None)


if __name__ == "__main__":
    main()

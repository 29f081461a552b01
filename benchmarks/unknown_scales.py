"""Priors with unknown scales: surrogate transitions beside NumPyro's NUTS on the same posteriors.

python -m benchmarks.unknown_scales [--part horseshoe|smooth] [--rows 100000] [--columns 100] [--smooth-rows 1000000] [--quick] [--write]

A horseshoe over 100 columns, 95 of them without effect, and a smooth s(x, k=20). NumPyro's models are not centred, as its users would
write them, with an acceptance of 0.95 for the horseshoe; one chain, stopped after --peer-seconds, warm-up included. Seconds from the call
include setup, compilation and warm-up of both; our two chains run one after the other. Agreement: differences of posterior means in
posterior standard deviations, also on --small-rows rows, which NumPyro finishes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes

SCALE = 0.01


def horseshoe_rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    effect = np.zeros(d)
    effect[:5] = [1.0, -0.8, 0.5, -0.3, 0.2]
    return x, (rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - x @ effect))).astype(float)


def horseshoe_model(x: np.ndarray, y: np.ndarray) -> tb.models.Model:
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(y.size), x]), y)
    return tb.models.logistic(data, {"x0": tb.priors.normal(5.0), "default": tb.priors.horseshoe(SCALE, standardise=False)})


def smooth_table(n: int) -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, n)
    eta = -1.0 + np.sin(7.0 * x) * (1.0 - 0.5 * x)
    return pa.table({"x": x, "y": (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)})


def smooth_model(table: Any) -> tb.models.Model:
    data = tb.read(table, "y ~ s(x, k=20)", progress=False)
    ridge = tb.priors.ridge(tb.priors.half_cauchy(1.0), standardise=False)
    return tb.models.logistic(data, {"s(x)": ridge, "default": tb.priors.normal(5.0)})


def smooth_design(table: Any) -> tuple[np.ndarray, np.ndarray]:
    data = smooth_model(table).data
    return data.records[:, : data.d], data.records[:, data.d]


def ours(make: Callable[[], tb.models.Model], draws: int) -> tuple[np.ndarray, dict[str, Any], tb.models.Model]:
    begun = time.perf_counter()
    model = make()
    fit = tb.sample(model, draws=draws, warmup=500, chains=2, cores=1, seed=1, progress=False)
    seconds, least = time.perf_counter() - begun, float(fit.ess.min())
    return (
        fit.theta,
        {
            "tool": "tallbayes surrogate-transition",
            "rows per draw": float(fit.evals.mean()) / 2.0,
            "draws": fit.theta.shape[0] * draws,
            "min ESS": least,
            "R-hat": float(fit.r_hat.max()),
            "ESS/s after warm-up": least / fit.seconds["draws"],
            "seconds from call": seconds,
            "seconds to 1,000 effective draws": seconds - fit.seconds["draws"] + 1000.0 * fit.seconds["draws"] / least,
        },
        model,
    )


def horseshoe_peer(x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    d = x.shape[1]
    columns, response = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def model() -> None:
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(SCALE))
        own = numpyro.sample("own", dist.HalfCauchy(jnp.ones(d)))
        beta = numpyro.sample("z", dist.Normal(jnp.zeros(d), 1.0)) * tau * own
        numpyro.deterministic("theta", jnp.concatenate([jnp.array([intercept]), beta, jnp.array([tau])]))
        numpyro.sample("y", dist.Bernoulli(logits=intercept + columns @ beta), obs=response)

    return model


def smooth_peer(x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """`x` has the columns of our design: intercept, line, penalised columns."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    d = x.shape[1]
    columns, response = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def model() -> None:
        free = numpyro.sample("free", dist.Normal(jnp.zeros(2), 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
        beta = jnp.concatenate([free, tau * numpyro.sample("z", dist.Normal(jnp.zeros(d - 2), 1.0))])
        numpyro.deterministic("theta", jnp.concatenate([beta, jnp.array([tau])]))
        numpyro.sample("y", dist.Bernoulli(logits=columns @ beta), obs=response)

    return model


def numpyro_nuts(
    model: Callable[[], None], n: int, warmup: int, seconds: float, acceptance: float
) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Draws of one chain until the time is over, and what they cost; no draws where warm-up took all of it."""
    import jax
    from numpyro.infer import NUTS

    begun = time.perf_counter()
    kernel = NUTS(model, target_accept_prob=acceptance)
    state = kernel.init(jax.random.PRNGKey(0), warmup, None, (), {})
    step, constrained = jax.jit(lambda s: kernel.sample(s, (), {})), jax.jit(kernel.postprocess_fn((), {}))
    middle, done, parts, steps = begun, 0, [], []
    while time.perf_counter() - begun < seconds:
        state = jax.block_until_ready(step(state))
        done += 1
        steps.append(int(state.num_steps))
        if done == warmup:
            middle, steps = time.perf_counter(), []
        elif done > warmup:
            parts.append(np.asarray(constrained(state.z)["theta"]))
    end = time.perf_counter()
    cost = {"tool": "NumPyro NUTS", "n": n, "rows per draw": float(np.mean(steps)) * n, "seconds from call": end - begun}
    if len(parts) < 10:
        return None, {**cost, "draws": f"none: {min(done, warmup)} of {warmup} iterations of warm-up in {seconds:.0f} s"}
    theta = np.array(parts)[None]
    least = float(effective_sizes(theta).min())
    return theta, {
        **cost,
        "draws": theta.shape[1],
        "min ESS": least,
        "ESS/s after warm-up": least / (end - middle),
        "seconds to 1,000 effective draws": middle - begun + 1000.0 * (end - middle) / least,
    }


def agreement(theta: np.ndarray, other: np.ndarray | None, n: int) -> str:
    if other is None:
        return f"n = {n:,}: NumPyro has no draws to compare with."
    difference = np.abs(theta.mean((0, 1)) - other.mean((0, 1))) / theta.std((0, 1))
    error = np.sqrt(1.0 / effective_sizes(theta) + 1.0 / effective_sizes(other))
    return (
        f"n = {n:,}: posterior means differ by at most {difference.max():.2g} posterior standard deviations, "
        f"{(difference / error).max():.2g} standard errors, over {difference.size} parameters."
    )


def compared(title: str, mark: str | None, subject: str, problems: list[tuple[int, Any, Any]], options: Any) -> None:
    """A table of both tools on problems of several sizes: rows, our draws and model, and NumPyro's model."""
    rows, notes = [], []
    for n, mine, peer in problems:
        theta, first, acceptance, second = *mine(), *peer
        print(first, flush=True)
        rows.append({**first, "n": n})
        if not installed("numpyro"):
            continue
        other, cost = numpyro_nuts(second(), n, options.peer_warmup, options.peer_seconds, acceptance)
        print(cost, flush=True)
        rows.append(cost)
        notes.append(agreement(theta, other, n))
    columns = list(dict.fromkeys(key for row in rows for key in ("tool", "n", *row)))
    note = f"{subject} NumPyro in float32, one chain with {options.peer_warmup} iterations of warm-up, stopped after "
    note += f"{options.peer_seconds:.0f} s in all. " + " ".join(notes)
    show(title, [{key: row[key] for key in columns if key in row} for row in rows], note, mark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("horseshoe", "smooth"), default=None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--small-rows", type=int, default=5_000, help="of a problem that NumPyro finishes")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--smooth-rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--peer-warmup", type=int, default=150)
    parser.add_argument("--peer-seconds", type=float, default=240.0)
    parser.add_argument("--write", action="store_true")
    options = parsed(
        parser, rows=3000, small_rows=1000, columns=10, smooth_rows=3000, draws=100, peer_warmup=10, peer_seconds=5.0
    )
    if options.part in (None, "horseshoe"):
        problems = []
        for n in (options.small_rows, options.rows):
            x, y = horseshoe_rows(n, options.columns)
            mine = lambda x=x, y=y: ours(lambda: horseshoe_model(x, y), options.draws)[:2]  # noqa: E731
            problems.append((n, mine, (0.95, lambda x=x, y=y: horseshoe_peer(x, y))))
        subject = f"{options.columns} columns, 5 with an effect."
        compared("Horseshoe", "horseshoe" if options.write else None, subject, problems, options)
    if options.part in (None, "smooth"):
        problems = []
        for n in (options.small_rows, options.smooth_rows):
            table = smooth_table(n)
            mine = lambda table=table: ours(lambda: smooth_model(table), options.draws)[:2]  # noqa: E731
            problems.append((n, mine, (0.8, lambda table=table: smooth_peer(*smooth_design(table)))))
        compared("Smooth", "smooth" if options.write else None, "s(x, k=20), logistic.", problems, options)


if __name__ == "__main__":
    main()

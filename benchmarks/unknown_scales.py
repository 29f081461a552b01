"""Priors with unknown scales: surrogate transitions beside NumPyro's NUTS on the same posteriors.

python -m benchmarks.unknown_scales [--part horseshoe|smooth] [--rows 100000] [--columns 100] [--smooth-rows 1000000] [--write]

A horseshoe over 100 columns, 95 of them without effect, and a smooth s(x, k=20). NumPyro's models are not centred, as its users would
write them, with an acceptance of 0.95 for the horseshoe; one chain, stopped after --peer-seconds. Seconds from the call include setup,
compilation and warm-up of both; our two chains run one after the other. Agreement: differences of posterior means in posterior
standard deviations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes

SCALE = 0.01
BLOCK = 20  # draws of NumPyro between two looks at the clock


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


def ours(make: Callable[[], tb.models.Model], draws: int) -> tuple[np.ndarray, dict[str, Any], tb.models.Model]:
    begun = time.perf_counter()
    model = make()
    fit = tb.sample(model, draws=draws, warmup=500, chains=2, cores=1, seed=1, progress=False)
    seconds, least = time.perf_counter() - begun, float(fit.ess.min())
    return (
        fit.theta,
        {
            "tool": "tallbayes surrogate-transition",
            "draws": fit.theta.shape[0] * draws,
            "rows per draw": float(fit.evals.mean()) / 2.0,
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
) -> tuple[np.ndarray, dict[str, Any]]:
    import jax
    from numpyro.infer import MCMC, NUTS

    begun = time.perf_counter()
    kernel = NUTS(model, target_accept_prob=acceptance)
    chain = MCMC(kernel, num_warmup=warmup, num_samples=BLOCK, num_chains=1, progress_bar=False)
    chain.warmup(jax.random.PRNGKey(0))
    middle, parts, steps = time.perf_counter(), [], []
    while not parts or time.perf_counter() - begun < seconds:
        chain.run(chain.post_warmup_state.rng_key, extra_fields=("num_steps",))
        chain.post_warmup_state = chain.last_state
        parts.append(np.asarray(chain.get_samples()["theta"]))
        steps.append(np.asarray(chain.get_extra_fields()["num_steps"]))
    end, theta = time.perf_counter(), np.concatenate(parts)[None]
    least = float(effective_sizes(theta).min())
    return theta, {
        "tool": "NumPyro NUTS",
        "draws": theta.shape[1],
        "rows per draw": float(np.concatenate(steps).mean()) * n,
        "min ESS": least,
        "ESS/s after warm-up": least / (end - middle),
        "seconds from call": end - begun,
        "seconds to 1,000 effective draws": middle - begun + 1000.0 * (end - middle) / least,
    }


def compared(title: str, mark: str | None, subject: str, mine: Any, theirs: Any) -> None:
    theta, first = mine
    other, second = theirs
    difference = np.abs(theta.mean((0, 1)) - other.mean((0, 1))) / theta.std((0, 1))
    error = np.sqrt(1.0 / effective_sizes(theta) + 1.0 / effective_sizes(other))
    note = (
        f"{subject} Posterior means differ by at most {difference.max():.2g} posterior standard deviations, "
        f"{(difference / error).max():.2g} standard errors. NumPyro in float32, stopped after {second['draws']} draws; its effective "
        "size is that of so few."
    )
    show(title, [first, second], note, mark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("horseshoe", "smooth"), default=None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--smooth-rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--peer-warmup", type=int, default=150)
    parser.add_argument("--peer-seconds", type=float, default=360.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    peer = (options.peer_warmup, options.peer_seconds)
    if options.part in (None, "horseshoe"):
        x, y = horseshoe_rows(options.rows, options.columns)
        theta, first, _ = ours(lambda: horseshoe_model(x, y), options.draws)
        print(first, flush=True)
        theirs = numpyro_nuts(horseshoe_peer(x, y), options.rows, *peer, 0.95)
        subject = f"n = {options.rows:,}, {options.columns} columns, 5 with an effect."
        compared("Horseshoe", "horseshoe" if options.write else None, subject, (theta, first), theirs)
    if options.part in (None, "smooth"):
        table = smooth_table(options.smooth_rows)
        theta, first, model = ours(lambda: smooth_model(table), options.draws)
        print(first, flush=True)
        design, y = model.data.records[:, : model.data.d], model.data.records[:, model.data.d]
        theirs = numpyro_nuts(smooth_peer(design, y), options.smooth_rows, *peer, 0.8)
        subject = f"n = {options.smooth_rows:,}, s(x, k=20), logistic."
        compared("Smooth", "smooth" if options.write else None, subject, (theta, first), theirs)


if __name__ == "__main__":
    main()

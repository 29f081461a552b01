"""A horseshoe over 100 columns, 95 of them without effect: surrogate transitions beside NumPyro's NUTS on the same posterior.

python -m benchmarks.unknown_scales [--rows 100000] [--columns 100] [--peer-rows 100000] [--write]

NumPyro's model is not centred, with an acceptance of 0.95, as its users would write it; one chain. Seconds from the call include
setup, compilation and warm-up of both. Agreement: differences of posterior means in posterior standard deviations.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes

SCALE = 0.01


def rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    effect = np.zeros(d)
    effect[:5] = [1.0, -0.8, 0.5, -0.3, 0.2]
    return x, (rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - x @ effect))).astype(float)


def ours(x: np.ndarray, y: np.ndarray, draws: int) -> tuple[np.ndarray, dict[str, Any]]:
    begun = time.perf_counter()
    data = tb.Dataset.from_arrays(np.column_stack([np.ones(y.size), x]), y)
    model = tb.models.logistic(data, {"x0": tb.priors.normal(5.0), "default": tb.priors.horseshoe(SCALE, standardise=False)})
    fit = tb.sample(model, draws=draws, warmup=500, chains=2, seed=1, progress=False)
    seconds, least = time.perf_counter() - begun, float(fit.ess.min())
    return fit.theta, {
        "tool": "tallbayes surrogate-transition",
        "draws": fit.theta.shape[0] * draws,
        "rows per draw": float(fit.evals.mean()) / 2.0,
        "min ESS": least,
        "R-hat": float(fit.r_hat.max()),
        "ESS/s after warm-up": least / fit.seconds["draws"],
        "seconds from call": seconds,
        "seconds to 1,000 effective draws": seconds - fit.seconds["draws"] + 1000.0 * fit.seconds["draws"] / least,
    }


def numpyro_nuts(x: np.ndarray, y: np.ndarray, draws: int, warmup: int) -> tuple[np.ndarray, dict[str, Any]]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    d = x.shape[1]
    columns, response = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def model() -> None:
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 5.0))
        tau = numpyro.sample("tau", dist.HalfCauchy(SCALE))
        own = numpyro.sample("own", dist.HalfCauchy(jnp.ones(d)))
        beta = numpyro.deterministic("beta", numpyro.sample("z", dist.Normal(jnp.zeros(d), 1.0)) * tau * own)
        numpyro.sample("y", dist.Bernoulli(logits=intercept + columns @ beta), obs=response)

    begun = time.perf_counter()
    chain = MCMC(NUTS(model, target_accept_prob=0.95), num_warmup=warmup, num_samples=draws, num_chains=1, progress_bar=False)
    chain.warmup(jax.random.PRNGKey(0))
    middle = time.perf_counter()
    chain.run(jax.random.PRNGKey(1), extra_fields=("num_steps",))
    found = chain.get_samples()
    theta = np.column_stack([np.asarray(found["intercept"]), np.asarray(found["beta"]), np.asarray(found["tau"])])[None]
    end = time.perf_counter()
    least = float(effective_sizes(theta).min())
    steps = float(np.asarray(chain.get_extra_fields()["num_steps"]).mean())
    return theta, {
        "tool": "NumPyro NUTS",
        "draws": draws,
        "rows per draw": steps * y.size,
        "min ESS": least,
        "ESS/s after warm-up": least / (end - middle),
        "seconds from call": end - begun,
        "seconds to 1,000 effective draws": middle - begun + 1000.0 * (end - middle) / least,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--peer-draws", type=int, default=150)
    parser.add_argument("--peer-warmup", type=int, default=150)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    x, y = rows(options.rows, options.columns)
    mine, first = ours(x, y, options.draws)
    print(first, flush=True)
    theirs, second = numpyro_nuts(x, y, options.peer_draws, options.peer_warmup)
    print(second, flush=True)
    sd = mine.std((0, 1))
    difference = np.abs(mine.mean((0, 1)) - theirs.mean((0, 1))) / sd
    error = np.sqrt(1.0 / effective_sizes(mine) + 1.0 / effective_sizes(theirs))
    note = (
        f"n = {options.rows:,}, {options.columns} columns, 5 with an effect. Posterior means differ by at most {difference.max():.2g} "
        f"posterior standard deviations, {(difference / error).max():.2g} standard errors. NumPyro in float32."
    )
    show("Horseshoe", [first, second], note, "horseshoe" if options.write else None)


if __name__ == "__main__":
    main()

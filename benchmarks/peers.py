"""Other tools on the same posterior: NumPyro NUTS and nutpie, through a JAX log-density in float64.

Both are whitened by the Laplace fit, as our own NUTS is, so that they are seen at their best.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import tallbayes as tb
from tallbayes.priors import NORMAL, STUDENT

clock = time.perf_counter  # or time.process_time, where other work competes for the cores


def jax_log_density(model: tb.models.Model, mode: Any) -> Any:
    """Log posterior of a logistic, Poisson or Student-t model in whitened coordinates."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    d, records, prior = model.data.d, model.data.records, model.prior_terms
    x, y, offset = (jnp.asarray(np.asarray(v, float)) for v in (records[:, :d], records[:, d], records[:, d + 1]))
    reference, factor = jnp.asarray(mode.reference), jnp.asarray(mode.factor)
    kind, location, scale, df = (jnp.asarray(v) for v in (prior.kind, prior.location, prior.scale, prior.df))
    centre, intercept = jnp.asarray(prior.centre), prior.intercept

    def log_density(white: Any) -> Any:
        theta = reference + factor @ white
        eta = x @ theta + offset
        if model.family.name == "logistic":
            likelihood = jnp.sum(y * eta - jnp.logaddexp(0.0, eta))
        elif model.family.name == "student_t":
            nu, spread = model.options["nu"], model.options["scale"]
            likelihood = -0.5 * (nu + 1.0) * jnp.sum(jnp.log1p(((y - eta) / spread) ** 2 / nu))
        else:
            likelihood = jnp.sum(y * eta - jnp.exp(eta))
        judged = theta.at[intercept].set(centre @ theta) if intercept >= 0 else theta
        z = (judged - location) / scale
        normal, student = -0.5 * z**2, -0.5 * (df + 1) * jnp.log1p(z**2 / df)
        return likelihood + jnp.sum(jnp.where(kind == NORMAL, normal, jnp.where(kind == STUDENT, student, 0.0)))

    return log_density


def numpyro_nuts(model: tb.models.Model, mode: Any, draws: int, warmup: int) -> dict[str, float]:
    """One chain of NumPyro's NUTS; seconds with and without compilation and warm-up."""
    import jax
    from numpyro.infer import MCMC, NUTS

    log_density = jax_log_density(model, mode)
    kernel = NUTS(potential_fn=lambda white: -log_density(white), dense_mass=False)
    sampler = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=1, progress_bar=False)
    start = clock()
    sampler.run(jax.random.PRNGKey(0), init_params=np.zeros(model.dim))
    theta = np.asarray(sampler.get_samples())
    total = clock() - start
    sampler.post_warmup_state = sampler.last_state  # the same draws again, now compiled and warm
    sampler.run(jax.random.PRNGKey(1))
    np.asarray(sampler.get_samples())
    middle = clock()
    sampler.post_warmup_state = sampler.last_state
    sampler.run(jax.random.PRNGKey(2))
    theta = np.asarray(sampler.get_samples())
    return _account("NumPyro NUTS", theta, clock() - middle, total)


def nutpie_nuts(model: tb.models.Model, mode: Any, draws: int, warmup: int) -> dict[str, float]:
    """One chain of nutpie."""
    import jax
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    value_and_gradient = jax.jit(jax.value_and_grad(jax_log_density(model, mode)))

    def make_logp() -> Any:
        def logp(white: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = value_and_gradient(white)
            return float(value), np.asarray(gradient)

        return logp

    def make_expand(*_: Any) -> Any:
        return lambda white: {"white": np.asarray(white, np.float64)}

    start = clock()
    compiled = from_pyfunc(
        ndim=model.dim,
        make_logp_fn=make_logp,
        make_expand_fn=make_expand,
        expanded_dtypes=[np.dtype("float64")],
        expanded_shapes=[(model.dim,)],
        expanded_names=["white"],
        make_initial_point_fn=lambda seed: np.zeros(model.dim),
    )
    value_and_gradient(np.zeros(model.dim))
    middle = clock()
    trace = nutpie.sample(compiled, draws=draws, tune=warmup, chains=1, cores=1, seed=1, progress_bar=False)
    elapsed = clock() - middle
    theta = np.asarray(trace.posterior["white"])[0]
    sampling = elapsed * draws / (draws + warmup)
    return _account("nutpie", theta, sampling, clock() - start)


def _account(name: str, theta: np.ndarray, sampling: float, total: float) -> dict[str, Any]:
    from tallbayes.results.cost import effective_sizes

    ess = float(effective_sizes(theta[None]).min())
    return {
        "tool": name,
        "min ESS": ess,
        "ESS/s after warm-up": ess / sampling,
        "seconds from call": total,
        "ESS/s from call": ess / total,
    }

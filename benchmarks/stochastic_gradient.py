"""Stochastic-gradient samplers against BlackJAX in one run: processor time of an iteration at m = 1300, d = 29, and of
an effective draw. Processor time, because a busy machine gives a program that starts more threads a larger share.

`python -m benchmarks.stochastic_gradient --write`. BlackJAX runs in one compiled scan, in float64 and float32, on rows whitened
beforehand, which spares it a product with the factor; its minibatches are gathered inside the scan, as ours are.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.problems import synthetic_rows
from benchmarks.report import show
from tallbayes.samplers import SGHMC, SGLD, advance

SUBSAMPLE, DIMENSION, STEPS = 1300, 29, 10
TOLERANCE = 0.02
REPEATS = 6


def ours(sampler: Any, mode: Any, iterations: int) -> float:
    """Processor seconds of an iteration in compiled code."""
    setup = sampler.setup(mode.model, mode, 0, False)
    options, target = setup.policy.options(setup.policy.begin(), True), setup.target()
    rng, state = np.random.default_rng(0), setup.policy.blank(mode.reference)

    def run(count: int, fresh: bool) -> float:
        nonlocal state
        theta, info = np.empty((count, DIMENSION)), np.zeros((count, len(sampler.columns)))
        begun = time.process_time()
        state, _ = advance(rng, target, options, state, fresh, theta, info, 1)
        return (time.process_time() - begun) / count

    run(1, True)
    return min(run(iterations, False) for _ in range(REPEATS))


def blackjax_runs(mode: Any, iterations: int, dtype: str, step: float) -> dict[str, float]:
    """Processor seconds, of all threads, of an iteration of BlackJAX's SGLD, SGLD with control variates and SGHMC."""
    import jax
    import jax.numpy as jnp
    from blackjax.sgmcmc import gradients, sghmc, sgld

    jax.config.update("jax_enable_x64", dtype == "float64")
    records, n = mode.model.data.records, mode.model.data.n
    x = np.asarray(records[:, :DIMENSION], float)
    rows = (
        jnp.asarray(x @ mode.factor, dtype),
        jnp.asarray(records[:, DIMENSION], dtype),
        jnp.asarray(x @ mode.reference, dtype),
    )
    reference, factor = jnp.asarray(mode.reference, dtype), jnp.asarray(mode.factor, dtype)

    def log_prior(white: Any) -> Any:
        return -0.005 * jnp.sum((reference + factor @ white) ** 2)

    def log_likelihood(white: Any, row: Any) -> Any:
        a, y, base = row
        eta = base + a @ white
        return y * eta - jnp.logaddexp(0.0, eta)

    plain = gradients.grad_estimator(log_prior, log_likelihood, n)
    controlled = gradients.control_variates(plain, jnp.zeros(DIMENSION, dtype), rows)
    kernels = {
        "SGLD": (sgld.build_kernel(), plain, {}),
        "SGLD-CV": (sgld.build_kernel(), controlled, {}),
        "SGHMC": (sghmc.build_kernel(0.06, 0.0), controlled, {"num_integration_steps": STEPS}),
    }
    seconds = {}
    for name, (kernel, gradient, extra) in kernels.items():

        def one(position: Any, key: Any, kernel: Any = kernel, gradient: Any = gradient, extra: Any = extra) -> Any:
            first, second = jax.random.split(key)
            index = jax.random.randint(first, (SUBSAMPLE,), 0, n)
            batch = tuple(column[index] for column in rows)
            moved = kernel(second, position, gradient, batch, step, **extra)
            return moved, moved

        run = jax.jit(lambda position, keys, one=one: jax.lax.scan(one, position, keys))
        keys = jax.random.split(jax.random.PRNGKey(0), iterations)
        start = jnp.zeros(DIMENSION, dtype)
        run(start, keys)[1].block_until_ready()
        times = []
        for _ in range(REPEATS):
            begun = time.process_time()
            run(start, keys)[1].block_until_ready()
            times.append((time.process_time() - begun) / iterations)
        seconds[name] = min(times)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    given = parsed(parser)
    n, iterations = (20_000, 50) if given.quick else (500_000, 300)
    arrays = synthetic_rows(n, DIMENSION)
    model, single = (
        tb.models.logistic(tb.Dataset.from_arrays(*arrays, dtype=dtype), tb.priors.normal(10.0))
        for dtype in ("float64", "float32")
    )
    mode, single_mode = tb.find_mode(model, progress=False), tb.find_mode(single, progress=False)
    noise = {}
    for order in (0, 1, 2):
        noise[order] = (
            SGLD(order=order, subsample=SUBSAMPLE).setup(model, mode, 0, False).notes["pilot noise, largest eigenvalue"]
        )
    steps = {order: SGLD(tolerance=TOLERANCE).step_for(np.array([noise[order]])) for order in noise}
    rows: list[dict[str, Any]] = []

    def add(tool: str, name: str, order: int, seconds: float, gradients: int, per_draw: float | None) -> None:
        rows.append(
            {
                "tool": tool,
                "sampler": name,
                "order": order,
                "us per iteration": 1e6 * seconds,
                "us per gradient": 1e6 * seconds / gradients,
                "ms per effective draw at 2 % error": "" if per_draw is None else 1e3 * seconds / gradients * per_draw,
            }
        )

    momentum = SGHMC(order=1, subsample=SUBSAMPLE, steps=STEPS, step=0.06)
    per_sghmc = momentum.steps_per_draw(np.zeros(1), momentum.step_within(np.array([noise[1]])))
    for order in (0, 1, 2):
        sampler = SGLD(order=order, subsample=SUBSAMPLE, step=steps[order])
        add("tallbayes float64 rows", "SGLD", order, ours(sampler, mode, iterations), 1, 4.0 / steps[order])
    add("tallbayes float64 rows", "SGHMC", 1, ours(momentum, mode, max(1, iterations // STEPS)), STEPS, per_sghmc)
    for order in (0, 1, 2):
        sampler = SGLD(order=order, subsample=SUBSAMPLE, step=steps[order])
        add("tallbayes float32 rows", "SGLD", order, ours(sampler, single_mode, iterations), 1, 4.0 / steps[order])
    for dtype in ("float64", "float32") if installed("blackjax") else ():
        found = blackjax_runs(mode, iterations, dtype, steps[1])
        add(f"BlackJAX {dtype}", "SGLD", 0, found["SGLD"], 1, 4.0 / steps[0])
        add(f"BlackJAX {dtype}", "SGLD-CV", 1, found["SGLD-CV"], 1, 4.0 / steps[1])
        add(f"BlackJAX {dtype}", "SGHMC, CV", 1, found["SGHMC"], STEPS, None)
    count = len(os.sched_getaffinity(0))
    cores = "one core" if count == 1 else f"{count} cores"
    note = (
        f"n = {n:,}, d = {DIMENSION}, m = {SUBSAMPLE}; {STEPS} steps per iteration of SGHMC, for which BlackJAX uses one minibatch and we "
        "a new one per step. Effective draws from the measured noise of each order and the autocorrelation 4 / step (SGLD) or 2 / step "
        f"(SGHMC). Processor time of all threads, the best of {REPEATS} runs, on {cores}; other work kept the machine and its memory "
        "busy."
    )
    show("Stochastic gradients against BlackJAX", rows, note, mark="stochastic-peers" if given.write else None)


if __name__ == "__main__":
    main()

"""HMC-ECS beside NumPyro's HMCECS, and NUTS on all rows by NumPyro and nutpie, on rows of HIGGS shape, in one run.

python -m benchmarks.hmc_ecs [--n 1000000] [--peers] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.report import show
from experiments.shapes import dataset
from tallbayes.api import REFERENCE_TOLERANCE
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain

clock = time.process_time  # seconds of processor time, over all threads: other work does not count


def ours(model: tb.models.Model, sampler: Any, label: str, draws: int, warmup: int = 500) -> dict[str, Any]:
    """One chain, in seconds of processor time: mode, setup and warm-up apart from the draws."""
    start = clock()
    mode = tb.find_mode(model, progress=False, cores=1, tolerance=REFERENCE_TOLERANCE)
    chosen = tb.samplers.resolve(sampler)
    setup = chosen.setup(model, mode, 1, False)
    chain = Chain(0, chosen, setup, np.random.SeedSequence(1), mode.laplace().draw(np.random.default_rng(1), 1)[0], warmup, 1)
    while chain.warming:
        chain.chunk(draws)
    middle = clock()
    while chain.draws < draws:
        chain.chunk(draws)
    end = clock()
    theta, info = chain.collected()
    table = dict(zip(chosen.columns, info.T, strict=True))
    ess = float(effective_sizes(theta[None], table["weight"][None] if "weight" in table else None).min())
    return {
        "tool": label,
        "ms per iteration": 1e3 * (end - middle) / draws,
        "gradients per iteration": float(table["n_steps"].mean()) if "n_steps" in table else 0.0,
        "min ESS": ess,
        "ESS/s after warm-up": ess / (end - middle),
        "seconds from call": end - start,
        "ESS/s from call": ess / (end - start),
        "evaluations per effective draw": float(table["evals"].sum()) / ess,
    }


def numpyro_hmcecs(model: tb.models.Model, mode: Any, draws: int, warmup: int, m: int = 1300, steps: int = 6) -> dict[str, Any]:
    """NumPyro's HMCECS with Taylor proxies at the same reference, in the same whitened coordinates, the same m and L."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import HMC, HMCECS, MCMC

    jax.config.update("jax_enable_x64", True)
    start = clock()
    d, n = model.dim, model.data.n
    records = np.asarray(model.data.records[:, : d + 1], np.float64)
    x, y = jnp.asarray(records[:, :d] @ mode.factor), jnp.asarray(records[:, d])
    base = jnp.asarray(records[:, :d] @ mode.reference)
    reference, factor = jnp.asarray(mode.reference), jnp.asarray(mode.factor)

    def program(x: Any, base: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 100.0).expand([d]).to_event(1))
        numpyro.factor("prior", dist.Normal(0.0, 10.0).log_prob(reference + factor @ w).sum())
        with numpyro.plate("rows", n, subsample_size=m):
            rows = numpyro.subsample(x, event_dim=1)
            shift, labels = numpyro.subsample(base, event_dim=0), numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Bernoulli(logits=rows @ w + shift), obs=labels)

    proxy = HMCECS.taylor_proxy({"w": jnp.zeros(d)}, degree=2)
    inner = HMC(program, step_size=1.2 / steps, trajectory_length=1.2, adapt_step_size=False, adapt_mass_matrix=False)
    sampler = MCMC(
        HMCECS(inner, num_blocks=100, proxy=proxy), num_warmup=warmup, num_samples=draws, num_chains=1, progress_bar=False
    )
    sampler.run(jax.random.PRNGKey(0), x, base, y)
    np.asarray(sampler.get_samples()["w"])
    total = clock() - start
    sampler.post_warmup_state = sampler.last_state
    middle = clock()
    sampler.run(jax.random.PRNGKey(1), x, base, y)
    white = np.asarray(sampler.get_samples()["w"])
    elapsed = clock() - middle
    ess = float(effective_sizes(white[None]).min())
    return {
        "tool": f"NumPyro HMCECS, m = {m}",
        "ms per iteration": 1e3 * elapsed / draws,
        "gradients per iteration": float(steps),
        "min ESS": ess,
        "ESS/s after warm-up": ess / elapsed,
        "seconds from call": total,
        "ESS/s from call": ess / total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--peers", action="store_true", help="also NumPyro and nutpie (extra 'bench')")
    parser.add_argument("--peer-draws", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results")
    options = parsed(parser, n=20_000, peers=True, peer_draws=5)
    model = tb.models.logistic(dataset("higgs", options.n), tb.priors.normal(10.0))
    mode = tb.find_mode(model, progress=False)
    same = tb.samplers.HMCECS(subsample=130 if options.quick else 1300, move=tb.moves.hmc(acceptance=0.98))
    table = []
    for label, sampler, draws in (
        ("tallbayes hmc-ecs, m = 1300, short steps", same, 1000),
        ("tallbayes hmc-ecs", "hmc-ecs", 10_000),
        ("tallbayes hmc-ecs-signed", "hmc-ecs-signed", 10_000),
        ("tallbayes exact-minibatch", "exact-minibatch", 30_000),
        ("tallbayes nuts", "nuts", 20),
    ):
        ours(model, sampler, label, 10, 0)  # compiled and cached
        draws = min(draws, 100) if options.quick else draws
        table.append(ours(model, sampler, label, draws, 20 if label.endswith("nuts") else 500))
        print(table[-1], flush=True)
    if options.peers:
        from benchmarks import peers

        peers.clock = clock
        few = options.peer_draws
        tools = [("numpyro", numpyro_hmcecs), ("numpyro", peers.numpyro_nuts), ("nutpie", peers.nutpie_nuts)]
        for name, tool in tools:
            if installed(name):
                table.append(tool(model, mode, few, few))
                print(table[-1], flush=True)
    note = (
        f"n = {options.n:,}, d = {model.dim}, one chain each; seconds of processor time; ours with a filled compile cache, mode and "
        "pilot included."
    )
    peer = {row["tool"].split(",")[0]: row for row in table}
    if "NumPyro HMCECS" in peer:
        speed = "ESS/s after warm-up"
        gain = table[1][speed] / max(peer[name][speed] for name in ("NumPyro NUTS", "nutpie") if name in peer)
        note += (
            f" The time per iteration is {peer['NumPyro HMCECS']['ms per iteration'] / table[0]['ms per iteration']:,.0f} times less "
            f"than that of NumPyro's HMCECS at m = 1300; ESS/s after warm-up is {gain:,.0f} times that of the peers' better full-data NUTS."
        )
    show("HMC-ECS", table, note, "hmc-ecs-peers" if options.write else None)


if __name__ == "__main__":
    main()

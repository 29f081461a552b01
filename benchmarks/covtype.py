"""Exact minibatch on real covtype beside NumPyro NUTS, nutpie and our own NUTS, in one run.

python -m benchmarks.covtype [--peers] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import tallbayes as tb
from benchmarks.options import installed, parsed
from benchmarks.problems import FEW, covtype
from benchmarks.report import show

PUBLISHED = "27-42 % of n"  # Bardenet, Doucet and Holmes (2017), Fig. 11: confidence sampler, proxies dropped along the way


def ours(model: tb.models.Model, name: str, draws: int, warmup: int, chains: int, cores: int) -> dict[str, Any]:
    start = time.perf_counter()
    fit = tb.sample(model, name, draws=draws, warmup=warmup, chains=chains, cores=cores, seed=1, progress=False)
    total, cost = time.perf_counter() - start, fit.cost()
    out = {
        "tool": f"tallbayes {name}",
        "min ESS": cost["ess_min"],
        "ESS/s after warm-up": cost["ess_min"] / fit.seconds["draws"],
        "seconds from call": total,
        "ESS/s from call": cost["ess_min"] / total,
        "evaluations per effective draw": cost["evals_per_ess"],
        "us per iteration": 1e6 * fit.seconds["draws"] / cost["draws"]["iterations"],
    }
    if "rows" in fit.stats:
        out["rows per iteration"] = float(fit.stats["rows"].mean())
        out["share of n"] = f"{100 * out['rows per iteration'] / model.data.n:.2g} %"
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="also NumPyro and nutpie (extra 'bench')")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    options = parsed(parser, peers=True)
    few = 20 if options.quick else 300
    for rows in (FEW,) if options.quick else (400_000, None):
        model = covtype(rows)
        ours(model, "exact-minibatch", 10, 0, 1, 1)  # compiled and cached
        draws = 1000 if options.quick else 100_000
        table = [ours(model, "exact-minibatch", draws, 1000, 1, 1), ours(model, "nuts", few, few, 1, 1)]
        if options.peers and rows is not None:
            from benchmarks import peers

            mode = tb.find_mode(model, progress=False)
            tools = {"numpyro": peers.numpyro_nuts, "nutpie": peers.nutpie_nuts}
            table += [run(model, mode, few, few) for name, run in tools.items() if installed(name)]
        base = table[0]
        best = max(
            (r for r in table if not r["tool"].startswith("tallbayes")), key=lambda r: r["ESS/s after warm-up"], default=None
        )
        note = f"n = {model.data.n:,}, d = {model.dim}, one chain on one core each."
        if best is not None:
            note += (
                f" Exact minibatch over {best['tool']}: {base['ESS/s after warm-up'] / best['ESS/s after warm-up']:,.0f} times in ESS/s "
                f"after warm-up, {base['ESS/s from call'] / best['ESS/s from call']:,.0f} times from the call (100,000 draws)."
            )
        note += f" The published confidence sampler read {PUBLISHED} on this task (TV-BOUND); exact minibatch {base['share of n']} (EXACT)."
        show("covtype", table, note, f"covtype-{model.data.n}" if options.write else None)


if __name__ == "__main__":
    main()

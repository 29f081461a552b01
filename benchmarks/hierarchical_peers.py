"""Hierarchical models beside other tools, in one run: NumPyro and nutpie draw, lme4, gpboost and statsmodels estimate.

    python -m venv peers && peers/bin/pip install numpyro bambi nutpie gpboost statsmodels pandas pyarrow "matplotlib<3.10"
    apt-get install -y --no-install-recommends r-cran-lme4
    python -m benchmarks.hierarchical_peers --peer-python peers/bin/python [--rows 1e5] [--seconds 300] [--write]

A logistic model with ten coefficients and an intercept for each of 1,000 levels, the same rows and priors for all that have priors:
normal(5) for coefficients, half-normal(2.5) for the standard deviation. One chain, seconds of the processor over all threads. Compilation
is in a column of its own and in no other number. NUTS has 500 iterations of warm-up, then draws until the time is spent; the seconds to
1,000 effective draws are those of warm-up plus 1,000 over the effective draws per second, a projection where fewer were drawn.

A second table has groups of five rows, where an estimate by Laplace's approximation differs from the likelihood (lme4 with 25 points of
quadrature) and from the posterior.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.hierarchical import COLUMNS, Case, rows
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import MinibatchGibbs

LEVELS, WANTED = 1000, 1000
FEWEST = 100  # draws from which effective sizes are taken
LABELS = {
    "numpyro": "NumPyro NUTS, non-centred",
    "numpyro-centred": "NumPyro NUTS, centred",
    "nutpie": "nutpie through bambi",
    "lme4": "lme4, Laplace",
    "lme4-quadrature": "lme4, 25 points",
    "gpboost": "gpboost, Laplace",
    "statsmodels": "statsmodels, variational",
}
EXACT = ("numpyro", "numpyro-centred", "nutpie")


def write_task(
    folder: Path, table: dict[str, np.ndarray], family: str, formula: str, columns: list[str], factors: list[str], **more: Any
) -> None:
    """Rows and task for the other tools; factors as codes, an offset as a column of that name."""
    pq.write_table(pa.table(table), folder / "rows.parquet")
    np.column_stack(list(table.values())).T.astype(float).tofile(folder / "rows.bin")
    task = {
        "family": family,
        "formula": formula,
        "columns": columns,
        "factors": factors,
        "stored": list(table),
        **more,
    }
    (folder / "task.json").write_text(json.dumps(task))


def answer_of(tool: str, folder: Path, interpreter: str, limit: float) -> dict[str, Any]:
    """What a tool answered, or why it did not."""
    script = Path(__file__).with_name("mixed_peers.py")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        subprocess.run([interpreter, script, tool, folder], env=environment, timeout=limit, check=True, capture_output=True)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {limit:,.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"failed": error.stderr.decode()[-300:]}
    return json.loads((folder / f"{tool}.json").read_text())


def table_of(X: np.ndarray, y: np.ndarray, codes: np.ndarray) -> tuple[dict[str, np.ndarray], list[str]]:
    """Columns by name, and those of the design matrix."""
    names = ["Intercept", *(f"x{j}" for j in range(1, X.shape[1]))]
    return {**dict(zip(names, X.T, strict=True)), "y": y, "g": codes.astype(np.int64)}, names


def logistic(X: np.ndarray, y: np.ndarray, codes: np.ndarray) -> tb.models.Model:
    """The model of this package with the priors of the peers."""
    prior = {"default": tb.priors.normal(5.0), "1|g_sigma": tb.priors.half_normal(2.5)}
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, groups={"g": codes}), prior)


def ours(X: np.ndarray, y: np.ndarray, codes: np.ndarray, draws: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws of minibatch Gibbs, and what setup and draws cost."""
    begun = time.process_time()
    model = logistic(X, y, codes)
    mode = tb.find_mode(model, progress=False)
    sampler = MinibatchGibbs()
    setup = sampler.setup(model, mode, 0, False)
    chain = Chain(0, sampler, setup, np.random.SeedSequence(1), mode.reference, 500, 1)
    while chain.warming:
        chain.chunk(draws)
    warm = time.process_time()
    while chain.draws < draws:
        chain.chunk(draws)
    return chain.collected()[0], {"setup": warm - begun, "drawing": time.process_time() - warm}


def line(label: str, draws: np.ndarray, answer: dict[str, Any]) -> dict[str, Any]:
    """A line of the table for draws of all parameters."""
    enough = len(draws) >= FEWEST
    smallest = float(np.nan_to_num(effective_sizes(draws[None])).min()) if enough else float(len(draws))
    rate = smallest / answer["drawing"] if len(draws) else 0.0
    how = ("measured" if smallest >= WANTED else "projected") if enough else "at best, as if every draw were effective"
    sigma = draws[:, COLUMNS] if len(draws) else np.full(1, np.nan)
    return {
        "tool": label,
        "answer": "posterior",
        "compilation, s": answer.get("compilation", ""),
        "setup, s": answer["setup"],
        "draws": len(draws),
        "gradients per draw": answer.get("gradients", ""),
        "min ESS": smallest if enough else "",
        "min ESS/s after setup": rate,
        "s from the call to 1,000 effective draws": answer["setup"] + WANTED / rate if rate > 0 else "",
        "how": how if len(draws) else "no draw",
        "1|g_sigma": f"{sigma.mean():.4f} ± {sigma.std():.4f}",
        "x1": f"{draws[:, 1].mean():.4f} ± {draws[:, 1].std():.4f}" if len(draws) else "",
    }


def estimate(label: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A line of the table for a point estimate."""
    return {
        "tool": label,
        "answer": "estimate",
        "setup, s": answer["setup"],
        "1|g_sigma": f"{answer['sds'][0]:.4f}",
        "x1": f"{answer['beta'][1]:.4f}",
    }


def compare(
    n: int, interpreter: str, tools: list[str], seconds: float, draws: int, warmup: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """All tools on n rows; lines of the table, and what could not be run."""
    X, y, groups = rows(Case(n, LEVELS))
    codes = groups["g"]
    ours(X[:4000], y[:4000], codes[:4000] % 20, 50)  # compiles
    theta, spent = ours(X, y, codes, draws)
    table, absent = [line("tallbayes, minibatch Gibbs", theta, spent)], []
    print(table[-1], flush=True)
    named, columns = table_of(X, y, codes)
    formula = f"y ~ {' + '.join(columns[1:])} + (1 | g)"
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        more = {"levels": LEVELS, "warmup": warmup, "draws": 2000, "seconds": seconds, "fewest": 200}
        write_task(folder, named, "logistic", formula, columns, ["g"], **more)
        for tool in tools:
            answer = answer_of(tool, folder, interpreter, 2.0 * seconds + 120.0)
            if reason := answer.get("missing") or answer.get("failed"):
                absent.append(f"{LABELS[tool]} ({reason.strip().splitlines()[-1]})")
                print(absent[-1], flush=True)
                continue
            label = f"{LABELS[tool]} ({answer['version']})"
            if tool in EXACT:
                table.append(line(label, np.load(folder / f"{tool}.npz")["draws"], answer))
            else:
                table.append(estimate(label, answer))
            print(table[-1], flush=True)
    return [{"n": n, **row} for row in ratios(table)], absent


def ratios(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add how many times faster the first line is than every other that draws."""
    first = table[0]
    for row in table[1:]:
        total = "s from the call to 1,000 effective draws"
        if row["answer"] == "posterior" and row[total]:
            row["ours faster, from the call"] = row[total] / first[total]
            row["ours faster, after setup"] = first["min ESS/s after setup"] / row["min ESS/s after setup"]
    return table


def few_rows(interpreter: str, tools: list[str], each: int = 5, levels: int = 1000) -> tuple[list[dict[str, Any]], list[str]]:
    """Five rows per group and a standard deviation of 1.5: estimates beside the posterior."""
    rng, n = np.random.default_rng(3), each * levels
    codes = np.repeat(np.arange(levels), each)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    eta = X @ [-1.0, 0.5, -0.5] + (1.5 * rng.standard_normal(levels))[codes]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    model, begun = logistic(X, y, codes), time.process_time()
    fit = tb.sample(model, "minibatch-gibbs", draws=4000, chains=2, seed=1, cores=1, progress=False)
    flat = fit.theta.reshape(-1, fit.theta.shape[-1])
    table = [
        {
            "tool": "tallbayes, minibatch Gibbs",
            "answer": "posterior",
            "seconds": time.process_time() - begun,
            **{
                name: f"{v.mean():.3f} ± {v.std():.3f}"
                for name, v in zip(("Intercept", "x1", "x2", "1|g_sigma"), flat.T, strict=True)
            },
        }
    ]
    absent = []
    named, columns = table_of(X, y, codes)
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        write_task(folder, named, "logistic", "y ~ x1 + x2 + (1 | g)", columns, ["g"], levels=levels)
        for tool in tools:
            answer = answer_of(tool, folder, interpreter, 300.0)
            if reason := answer.get("missing") or answer.get("failed"):
                absent.append(f"{LABELS[tool]} ({reason.strip().splitlines()[-1]})")
                continue
            values = dict(zip(("Intercept", "x1", "x2", "1|g_sigma"), [*answer["beta"], answer["sds"][0]], strict=True))
            row = {"tool": f"{LABELS[tool]} ({answer['version']})", "answer": "estimate", "seconds": answer["setup"]}
            table.append({**row, **{k: f"{v:.3f}" for k, v in values.items()}})
    for row in table:
        print(row, flush=True)
    return table, absent


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("TALLBAYES_PEER_PYTHON", sys.executable), metavar="PATH")
    parser.add_argument("--rows", type=float, nargs="*", default=[1e5])
    parser.add_argument("--seconds", type=float, default=300.0, help="processor time of each NUTS after compilation")
    parser.add_argument("--draws", type=int, default=5000, help="of minibatch Gibbs")
    parser.add_argument("--warmup", type=int, default=500, help="iterations of NUTS")
    parser.add_argument("--tools", nargs="*", default=list(LABELS), choices=list(LABELS))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    options = parser.parse_args()
    estimates = [tool for tool in options.tools if tool not in EXACT]
    table: list[dict[str, Any]] = []
    for n in options.rows:
        part, absent = compare(
            int(n),
            options.peer_python,
            [t for t in options.tools if t != "lme4-quadrature"],
            options.seconds,
            options.draws,
            options.warmup,
        )
        table += part
    note = (
        f"Ten coefficients, {LEVELS:,} levels, one chain, seconds of the processor over all threads; compilation is in its own column "
        f"only (ours is kept on disk after the first run). NUTS: {options.warmup} iterations of warm-up, then draws until "
        f"{options.seconds:,.0f} s are spent. ESS is the smallest of all parameters and levels."
    )
    if options.rows:
        show(
            "Hierarchical models beside other tools",
            table,
            note + said(absent),
            "hierarchical-peers" if options.write else None,
        )
    table, absent = few_rows(options.peer_python, estimates)
    note = "1,000 groups of five rows, true standard deviation 1.5, intercept -1, slopes 0.5 and -0.5; ± posterior standard deviations."
    show("Few rows per group", table, note + said(absent), "hierarchical-few-rows" if options.write else None)


def said(absent: list[str]) -> str:
    """What was not run, for the note."""
    return f" Not run: {'; '.join(absent)}." if absent else ""


if __name__ == "__main__":
    main()

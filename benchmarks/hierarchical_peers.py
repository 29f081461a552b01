"""Hierarchical models beside other tools, in one run: NumPyro and nutpie draw, lme4, gpboost and statsmodels estimate.

    python -m venv peers && peers/bin/pip install numpyro bambi nutpie gpboost statsmodels pandas pyarrow "matplotlib<3.10"
    apt-get install -y --no-install-recommends r-cran-lme4
    python -m benchmarks.hierarchical_peers --peer-python peers/bin/python [--rows 1e5 1e6] [--seconds 120 240] [--keep FOLDER]
                                            [--quick] [--write]

A logistic model with ten coefficients and an intercept for each of 1,000 levels, the same rows and priors for all that have priors:
normal(5) for coefficients, half-normal(2.5) for the standard deviation. One chain, seconds of the processor over all threads. Compilation
is in a column of its own and in no other number. Every other tool has the seconds of `--seconds`, one number for each of `--rows`: NUTS
warms up, then draws until they are spent; an estimate that is not there by then is cut off. The seconds to 1,000 effective draws are those
of setup (for NUTS, of warm-up) plus 1,000 over the effective draws per second, a projection where fewer were drawn. Where NUTS has few
draws or none when its time is over, they are a bound in its favour: as if warm-up ended there, every draw were effective, and a draw took
as many gradients as on the smaller data. One line hands NUTS the posterior means and variances as start and mass matrix, with a warm-up
of the step size alone.

With `--keep`, the answers of other tools stay in FOLDER and are not asked for again.

A second table has groups of five rows, where an estimate by Laplace's approximation differs from the likelihood (lme4 with 25 points of
quadrature) and from the posterior.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb
from benchmarks.hierarchical import COLUMNS, Case, rows
from benchmarks.options import parsed
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import MinibatchGibbs

LEVELS, WANTED = 1000, 1000
FEWEST = 100  # draws from which effective sizes are taken
LABELS = {
    "numpyro": "NumPyro NUTS, non-centred",
    "numpyro-centred": "NumPyro NUTS, centred",
    "numpyro-centred-handed": "NumPyro NUTS, centred, posterior variances handed to it",
    "nutpie": "nutpie through bambi, non-centred",
    "nutpie-centred": "nutpie through bambi, centred",
    "lme4": "lme4, Laplace",
    "lme4-quadrature": "lme4, 25 points",
    "gpboost": "gpboost, Laplace",
    "statsmodels": "statsmodels, variational",
}
EXACT = ("numpyro", "numpyro-centred", "numpyro-centred-handed", "nutpie", "nutpie-centred")
QUICK = ["numpyro", "lme4", "gpboost", "statsmodels"]
BEST = "at best: as if every draw were effective"
TOTAL, RATE = "s from the call to 1,000 effective draws", "min ESS/s after setup"


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


@contextlib.contextmanager
def workspace(keep: str | None, name: str) -> Iterator[Path]:
    """A folder for rows and answers: of this run only, or one that stays."""
    if keep is None:
        with tempfile.TemporaryDirectory() as where:
            yield Path(where)
        return
    folder = Path(keep) / name
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def answer_of(tool: str, folder: Path, interpreter: str, limit: float) -> dict[str, Any]:
    """What a tool answered within some seconds of the processor, or why it did not; an answer that is there already is taken."""
    answer = folder / f"{tool}.json"
    if answer.exists():
        return json.loads(answer.read_text())
    script = Path(__file__).with_name("mixed_peers.py")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command, log = [interpreter, str(script), tool, str(folder)], folder / f"{tool}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, env=environment, stderr=errors, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None:
            time.sleep(0.2)
            if processor_seconds(process.pid) > limit:
                os.killpg(process.pid, signal.SIGKILL)  # with what it started, such as R
                process.wait()
                answer.write_text(json.dumps({"cut off": limit}))
    return json.loads(answer.read_text()) if answer.exists() else {"failed": log.read_text()[-300:]}


def processor_seconds(session: int) -> float:
    """Seconds of the processor that the living processes of a session have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # of processes that have just ended
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def why_not(answer: dict[str, Any]) -> str:
    """Why there is no answer, in a line; empty if there is one."""
    if "cut off" in answer:
        return f"no answer within {answer['cut off']:,.0f} s"
    reason = answer.get("missing") or answer.get("failed") or ""
    return reason.strip().splitlines()[-1] if reason else ""


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


def line(label: str, draws: np.ndarray, answer: dict[str, Any], gradients: float | None = None) -> dict[str, Any]:
    """A line of the table for draws of all parameters; `gradients` is how many a draw takes on the smaller data, if that is known."""
    row = {
        "tool": label,
        "answer": "posterior",
        "compilation, s": answer.get("compilation", ""),
        "setup, s": answer["setup"],
        "warm-up done": answer.get("warm-up", ""),
        "draws": len(draws),
        "gradients per draw": answer["gradients"] if answer.get("gradients") else "",
        "s per gradient": answer.get("per gradient", ""),
    }
    if len(draws) >= FEWEST:
        smallest = float(np.nan_to_num(effective_sizes(draws[None])).min())
        row["min ESS"], rate = smallest, smallest / answer["drawing"]
        how = "measured" if smallest >= WANTED else "projected"
    elif len(draws):
        rate, how = len(draws) / answer["drawing"], BEST
    elif gradients:
        rate, how = 1.0 / (gradients * answer["per gradient"]), f"{BEST}, and took {gradients:.0f} gradients"
    else:
        return {**row, TOTAL: f"> {answer['spent']:.0f}", "how": "no draw"}
    sigma, slope = (f"{v.mean():.4f} ± {v.std():.4f}" for v in draws[:, [COLUMNS, 1]].T) if len(draws) >= FEWEST else ("", "")
    return {**row, RATE: rate, TOTAL: answer["setup"] + WANTED / rate, "how": how, "1|g_sigma": sigma, "x1": slope}


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
    n: int, interpreter: str, tools: list[str], seconds: float, options: argparse.Namespace, gradients: dict[str, float]
) -> tuple[list[dict[str, Any]], list[str]]:
    """All tools on n rows; lines of the table, and what could not be run. Notes the gradients per draw of each tool in `gradients`."""
    X, y, groups = rows(Case(n, LEVELS))
    codes = groups["g"]
    ours(X[:4000], y[:4000], codes[:4000] % 20, 50)  # compiles
    theta, spent = ours(X, y, codes, options.draws)
    table, absent = [line("tallbayes, minibatch Gibbs", theta, spent)], []
    print(table[-1], flush=True)
    named, columns = table_of(X, y, codes)
    formula = f"y ~ {' + '.join(columns[1:])} + (1 | g)"
    with workspace(options.keep, f"{n}") as folder:
        more = {
            "levels": LEVELS,
            "warmup": options.warmup,
            "handed_warmup": options.warmup // 4,
            "draws": 2000,
            "seconds": seconds,
        }
        write_task(folder, named, "logistic", formula, columns, ["g"], **more)
        known = theta.copy()
        known[:, COLUMNS] = np.log(known[:, COLUMNS])
        np.savez(folder / "handed.npz", mean=known.mean(0), variance=known.var(0))
        for tool in tools:
            answer = answer_of(tool, folder, interpreter, 2.0 * seconds + 60.0 if tool in EXACT else seconds)
            label = LABELS[tool] + (f" ({answer['version']})" if "version" in answer else "")
            if "cut off" in answer:
                table.append({"tool": label, "answer": "cut off", "setup, s": f"> {answer['cut off']:.0f}"})
            elif reason := why_not(answer):
                absent.append(f"{label} ({reason})")
                print(absent[-1], flush=True)
                continue
            elif tool in EXACT:
                draws = np.load(folder / f"{tool}.npz")["draws"]
                table.append(line(label, draws, answer, gradients.get(tool)))
                if len(draws):
                    gradients[tool] = answer["gradients"]
            else:
                table.append(estimate(label, answer))
            print(table[-1], flush=True)
    return [{"n": n, **row} for row in ratios(table)], absent


def ratios(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add how many times faster the first line is than every other that draws."""
    first = table[0]
    for row in table[1:]:
        if RATE in row:
            row["ours faster, from the call"] = row[TOTAL] / first[TOTAL]
            row["ours faster, after setup"] = first[RATE] / row[RATE]
    return table


def few_rows(
    interpreter: str, tools: list[str], keep: str | None, each: int = 5, levels: int = 1000
) -> tuple[list[dict[str, Any]], list[str]]:
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
    with workspace(keep, "few-rows") as folder:
        write_task(folder, named, "logistic", "y ~ x1 + x2 + (1 | g)", columns, ["g"], levels=levels)
        for tool in tools:
            answer = answer_of(tool, folder, interpreter, 300.0)
            if reason := why_not(answer):
                absent.append(f"{LABELS[tool]} ({reason})")
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
    parser.add_argument("--rows", type=float, nargs="*", default=[1e5, 1e6])
    parser.add_argument("--seconds", type=float, nargs="*", default=[120.0, 240.0], help="of each tool, for each of --rows")
    parser.add_argument("--draws", type=int, default=5000, help="of minibatch Gibbs")
    parser.add_argument("--warmup", type=int, default=200, help="iterations of NUTS")
    parser.add_argument("--tools", nargs="*", default=list(LABELS), choices=list(LABELS))
    parser.add_argument("--tools-large", nargs="*", default=None, choices=list(LABELS), help="for all but the first of --rows")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the answers of other tools, and take those that are there")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    options = parsed(parser, rows=[8000.0], seconds=[10.0], draws=200, warmup=10, tools=QUICK)
    if len(options.seconds) != len(options.rows) and options.rows:
        parser.error("--seconds has one number for each of --rows")
    table: list[dict[str, Any]] = []
    absent: list[str] = []
    gradients: dict[str, float] = {}
    for place, (n, seconds) in enumerate(zip(options.rows, options.seconds, strict=False)):
        tools = options.tools if not place or options.tools_large is None else options.tools_large
        tools = [t for t in tools if t != "lme4-quadrature"]
        part, missing = compare(int(n), options.peer_python, tools, seconds, options, gradients)
        table, absent = table + part, absent + missing
    limits = " and ".join(f"{s:,.0f} s ({n:,.0f} rows)" for n, s in zip(options.rows, options.seconds, strict=False))
    note = (
        f"Ten coefficients, {LEVELS:,} levels, one chain, seconds of the processor over all threads; compilation is in its own column "
        f"only (ours is kept on disk after the first run). Every other tool has {limits}; NUTS: {options.warmup} iterations of warm-up "
        f"({options.warmup // 4} where variances are handed to it). ESS is the smallest of all parameters and levels."
    )
    if options.rows:
        show(
            "Hierarchical models beside other tools",
            table,
            note + said(absent),
            "hierarchical-peers" if options.write else None,
        )
    estimates = [tool for tool in options.tools if tool not in EXACT]
    table, absent = few_rows(options.peer_python, estimates, options.keep, levels=100 if options.quick else 1000)
    note = "1,000 groups of five rows, true standard deviation 1.5, intercept -1, slopes 0.5 and -0.5; ± posterior standard deviations."
    show("Few rows per group", table, note + said(absent), "hierarchical-few-rows" if options.write else None)


def said(absent: list[str]) -> str:
    """What was not run, for the note."""
    return f" Not run: {'; '.join(absent)}." if absent else ""


if __name__ == "__main__":
    main()

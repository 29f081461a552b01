"""Time to the first answer: seconds from a file to a summary, for tallbayes and for what people use today, on three real data sets.

    python -m benchmarks.first_answer [--peer-python PATH] [--limit 200] [--only covtype] [--quick] [--write]

Every measurement is a process of its own, from its start to its end: imports, reading the file, fitting and the summary are all in it.
Peers run in the Python of `--peer-python`, an environment with bambi, nutpie, glum, scikit-learn and statsmodels. Each tool is used as its
users would: the same columns from the same pandas frame, default options, scikit-learn behind a StandardScaler. tallbayes runs twice,
because the first run on a machine compiles; both are shown. What takes more than `--limit` processor seconds, summed over threads, is
stopped: unlike elapsed time, these hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FEW = 2000
SETS = ("freMTPL2freq", "covtype", "flights")
ANSWERS = {
    "tallbayes": "exact posterior: intervals, effects, predictions, diagnostics",
    "statsmodels": "maximum likelihood, standard errors",
    "scikit-learn": "penalised point estimates",
    "glum": "maximum likelihood, standard errors",
    "bambi": "posterior: intervals, diagnostics",
}


class Problem(NamedTuple):
    """A frame and a regression on it."""

    frame: Any
    response: str
    columns: list[str]
    family: str
    exposure: str | None = None

    @property
    def formula(self) -> str:
        """Response and columns."""
        return f"{self.response} ~ {' + '.join(self.columns)}"


def problem(name: str, quick: bool = False) -> Problem:
    """One of the data sets; a random few of its rows for a quick run."""
    whole = all_rows(name)
    return whole._replace(frame=whole.frame.sample(FEW, random_state=0)) if quick else whole


def all_rows(name: str) -> Problem:
    import pandas as pd

    folder = Path(os.environ["TALLBAYES_DATA"])
    if name == "covtype":
        columns = [
            "Elevation",
            "Aspect",
            "Slope",
            "Horizontal_Distance_To_Hydrology",
            "Vertical_Distance_To_Hydrology",
            "Horizontal_Distance_To_Roadways",
            "Hillshade_9am",
            "Hillshade_Noon",
            "Hillshade_3pm",
            "Horizontal_Distance_To_Fire_Points",
        ]
        frame = pd.read_parquet(folder / "covtype.parquet", columns=[*columns, "Cover_Type"])
        frame["lodgepole"] = (frame.pop("Cover_Type") == 2).astype(int)
        return Problem(frame.astype({name: float for name in columns}), "lodgepole", columns, "binomial")
    if name == "flights":
        frame = pd.read_parquet(folder / "flights3m_2001.parquet", columns=["delay", "distance", "minute_of_day", "month"])
        hour, month = 2 * np.pi * frame["minute_of_day"] / 1440, 2 * np.pi * frame["month"] / 12
        made = {"late": (frame["delay"] > 15).astype(int), "distance": frame["distance"] / 1000}
        made |= {"sin_hour": np.sin(hour), "cos_hour": np.cos(hour), "sin_month": np.sin(month), "cos_month": np.cos(month)}
        return Problem(pd.DataFrame(made), "late", [*made][1:], "binomial")
    numbers = ["VehPower", "VehAge", "DrivAge", "BonusMalus"]
    frame = pd.read_parquet(folder / "freMTPL2freq.parquet", columns=[*numbers, "Density", "ClaimNb", "Exposure"])
    frame["log_density"] = np.log(frame.pop("Density"))
    frame = frame.astype(float)
    return Problem(frame, "ClaimNb", [*numbers, "log_density"], "poisson", "Exposure")


def tallbayes(given: Problem) -> None:
    import tallbayes as tb

    family = {"binomial": "logistic"}.get(given.family, given.family)
    offset = None if given.exposure is None else f"log({given.exposure})"
    fit = tb.fit(given.formula, given.frame, family=family, offset=offset, seed=1, progress=False)
    print(fit.summary())
    print("min ESS", fit.ess.min())


def statsmodels(given: Problem) -> None:
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    family = sm.families.Binomial() if given.family == "binomial" else sm.families.Poisson()
    exposure = None if given.exposure is None else given.frame[given.exposure]
    print(smf.glm(given.formula, given.frame, family=family, exposure=exposure).fit().summary())


def scikit_learn(given: Problem) -> None:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = given.frame[given.columns], given.frame[given.response]
    if given.exposure is None:
        pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    else:
        exposure = given.frame[given.exposure]
        pipeline = make_pipeline(StandardScaler(), PoissonRegressor())
        pipeline.fit(X, y / exposure, poissonregressor__sample_weight=exposure)
    print(pipeline[-1].intercept_, pipeline[-1].coef_)


def glum(given: Problem) -> None:
    from glum import GeneralizedLinearRegressor

    X, y = given.frame[given.columns], given.frame[given.response]
    options: dict[str, Any] = {}
    if given.exposure is not None:
        options["offset"] = np.log(given.frame[given.exposure].to_numpy())
    regressor = GeneralizedLinearRegressor(family=given.family, alpha=0).fit(X, y, **options)
    print(regressor.coef_table(X=X, y=y, **options))


def bambi(given: Problem) -> None:
    import arviz as az
    import bambi as bmb

    formula = given.formula + ("" if given.exposure is None else f" + offset(log({given.exposure}))")
    model = bmb.Model(formula, given.frame, family="bernoulli" if given.family == "binomial" else given.family)
    print(az.summary(model.fit(inference_method="nutpie", random_seed=1, progressbar=False)))


TOOLS: dict[str, Callable[[Problem], None]] = {
    "tallbayes": tallbayes,
    "statsmodels": statsmodels,
    "scikit-learn": scikit_learn,
    "glum": glum,
    "bambi": bambi,
}


def measured(python: str, tool: str, name: str, limit: float, cache: str, quick: bool) -> dict[str, Any]:
    """Wall-clock seconds, processor seconds and peak memory of a process that does the work; it is stopped at the limit."""
    import psutil

    command = [python, "-m", "benchmarks.first_answer", "--one", tool, "--only", name, *(["--quick"] if quick else [])]
    begun = time.perf_counter()
    environment = {**os.environ, **({"NUMBA_CACHE_DIR": cache} if tool == "tallbayes" else {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    stopped = False
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        if not stopped and sum(psutil.Process(process.pid).cpu_times()[:2]) > limit:
            process.kill()
            stopped = True
        time.sleep(0.02)
    seconds = time.perf_counter() - begun
    assert process.stdout is not None
    print(process.stdout.read(), flush=True)
    failed = status != 0 and not stopped
    return {
        "seconds": f"more than {seconds:.0f}" if stopped else "failed" if failed else seconds,
        "processor seconds": f"more than {limit:g}" if stopped else usage.ru_utime + usage.ru_stime,
        "peak memory (GiB)": usage.ru_maxrss / 1024**2,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer-python", help="Python of an environment with the peers; without it, tallbayes alone is measured."
    )
    parser.add_argument("--limit", type=float, default=200.0, help="Processor seconds after which a tool is stopped.")
    parser.add_argument("--only", choices=SETS, help="One of the data sets.")
    parser.add_argument("--keep", help="File for the measurements, so that a run that was cut short continues.")
    parser.add_argument("--one", choices=list(TOOLS), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument(
        "--quick", action="store_true", help="a few rows of one of them, to see that it works; nothing is written"
    )
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("--quick measures too little to be kept: leave out --quick or --write.")
    if options.quick and options.only is None:
        options.only = SETS[0]
    if options.one:
        TOOLS[options.one](problem(options.only, options.quick))
        return
    from benchmarks.report import show  # peers do not need it

    kept = Path(options.keep) if options.keep else None
    rows = json.loads(kept.read_text()) if kept and kept.exists() else []
    rows = [row for row in rows if row["seconds"] != "failed"]
    for name in [options.only] if options.only else SETS:
        n = len(problem(name, options.quick).frame)
        for tool in TOOLS if options.peer_python else ["tallbayes"]:
            if any((row["data"], row["tool"]) == (name, tool) for row in rows):
                continue
            python = sys.executable if tool == "tallbayes" else options.peer_python
            with tempfile.TemporaryDirectory() as cache:  # of compiled code: empty at first
                for label in ("tallbayes, first run", tool) if tool == "tallbayes" else (tool,):
                    rows.append(
                        {
                            "data": name,
                            "rows": n,
                            "tool": label,
                            **measured(python, tool, name, options.limit, cache, options.quick),
                        }
                    )
                    rows[-1]["the answer includes"] = ANSWERS[tool]
                    print(rows[-1], flush=True)
            if kept:
                kept.write_text(json.dumps(rows))
    order = ["tallbayes, first run", *TOOLS]
    rows.sort(key=lambda row: (SETS.index(row["data"]), order.index(row["tool"])))
    note = "One run on a machine with two cores, from the start of a process to its end; processor seconds are summed over threads."
    show("Time to the first answer", rows, note, "first-answer" if options.write else None)


if __name__ == "__main__":
    main()

"""Hierarchical models of real data: three million flights, motor claims, and the example data of lme4.

    python -m benchmarks.hierarchical_real [--cases flights claims delays examples] [--peer-python PATH] [--draws 1000] [--quick] [--write]

* flights: delay of more than 15 minutes, origin and destination crossed, logistic;
* claims: claim counts of motor policies with exposure as offset, region and vehicle brand crossed, Poisson;
* delays: minutes of delay between -30 and 120, origin and destination crossed, a linear mixed model;
* examples: sleepstudy, Penicillin and Pastes of lme4, posterior means beside REML estimates of lme4 and statsmodels.

TALLBAYES_DATA names the folder of the first three. For the other tools see `benchmarks.hierarchical_peers`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv

import tallbayes as tb
from benchmarks.hierarchical_peers import answer_of, said, why_not, workspace, write_task
from benchmarks.options import installed, parsed
from benchmarks.problems import claims, flights, real_table
from benchmarks.report import show
from tallbayes.results.cost import effective_sizes, r_hats

CHAINS = 2
EXAMPLES = {
    "sleepstudy": ("Reaction", "Days", {"Subject": ["1", "Days"]}, "y ~ Days + (1 + Days | Subject)"),
    "Penicillin": ("diameter", "", {"plate": ["1"], "sample": ["1"]}, "y ~ 1 + (1 | plate) + (1 | sample)"),
    "Pastes": ("strength", "", {"batch": ["1"], "sample": ["1"]}, "y ~ 1 + (1 | batch) + (1 | sample)"),
}


class Real:
    """Rows of a real data set: design matrix, response, factors as codes with their names, and an offset."""

    def __init__(
        self, family: str, model: tb.models.Model, factors: dict[str, Any], response: np.ndarray | None = None
    ) -> None:
        records, d = model.data.records, len(model.data.columns)
        self.family, self.columns = family, model.data.columns
        self.X, self.y = records[:, :d], records[:, d] if response is None else response
        self.offset = records[:, d + 1] if model.data.has_offset else None
        self.factors = factors

    def model(self, most: int | None = None) -> tb.models.Model:
        """The hierarchical model of all rows or of the first few, normal(5) for coefficients."""
        part = slice(most)
        offset = None if self.offset is None else self.offset[part]
        factors = {name: values[part] for name, values in self.factors.items()}
        data = tb.Dataset.from_arrays(self.X[part], self.y[part], offset, columns=self.columns, groups=factors)
        return getattr(tb.models, self.family)(data, tb.priors.normal(100.0 if self.family == "gaussian" else 5.0))


def codes(file: str, quick: bool, *names: str) -> dict[str, np.ndarray]:
    """Text columns of a file."""
    table = real_table(file, quick, list(names))
    return {name: table[name].to_numpy(zero_copy_only=False).astype(str) for name in names}


def case(name: str, quick: bool) -> Real:
    """One of the first three cases."""
    if name == "claims":
        return Real("poisson", claims(quick), codes("freMTPL2freq", quick, "Region", "VehBrand"))
    airports = codes("flights3m_2001", quick, "origin", "destination")
    if name == "flights":
        return Real("logistic", flights(quick), airports)
    delay = real_table("flights3m_2001", quick, ["delay"])["delay"].to_numpy()
    return Real("gaussian", flights(quick), airports, np.clip(delay, -30, 120).astype(float))


def measure(name: str, real: Real, draws: int) -> tuple[dict[str, Any], tb.Fit]:
    """What the search for the mode, setup and draws cost, and how well all parameters and levels mixed."""
    tb.sample(real.model(20_000), "minibatch-gibbs", 50, 50, 1, 1, progress=False)  # compiles
    model = real.model()
    begun = time.process_time()
    mode = tb.find_mode(model, progress=False)
    found = time.process_time()
    fit = tb.sample(model, "minibatch-gibbs", draws, 500, CHAINS, 1, cores=1, mode=mode, progress=False)
    spent = time.process_time() - found
    whole = np.concatenate([fit.theta, *(fit.draws(f"1|{factor}") for factor in real.factors)], axis=2)
    smallest = float(effective_sizes(whole).min())
    seconds = fit.seconds["draws"] * spent / fit.seconds["total"]  # of the processor
    row = {
        "data": name,
        "family": real.family,
        "n": model.data.n,
        "levels": " x ".join(f"{f.levels}" for f in model.data.groups),
        "mode, s": found - begun,
        "whole run, s": spent,
        "rows per sweep": float(fit.evals.mean() / 2),
        "ms per sweep": 1e3 * seconds / (CHAINS * draws),
        "min ESS": smallest,
        "min ESS/s": smallest / seconds,
        "largest R-hat": float(r_hats(whole).max()),
        "audit": "passed" if fit.audit(model).passed else "failed",
    }
    return row, fit


def parameter(fit: tb.Fit, name: str) -> np.ndarray:
    """Draws of a parameter; the residual standard deviation is drawn as its logarithm."""
    names = list(fit.names)
    return fit.theta[:, :, names.index(name)] if name in names else np.exp(fit.theta[:, :, names.index(f"log_{name}")])


def estimates(
    name: str, real: Real, fit: tb.Fit, seconds: float, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Standard deviations of factors: the posterior beside the estimates of other tools."""
    names = [f"1|{factor}_sigma" for factor in real.factors]
    names += ["sigma"] if real.family == "gaussian" else []
    drawn = {name: parameter(fit, name) for name in names}
    table = [{"tool": "tallbayes", **{name: f"{v.mean():.4f} ± {v.std():.4f}" for name, v in drawn.items()}}]
    absent = []
    table[0]["seconds"] = seconds
    numbered = {name: np.unique(values, return_inverse=True)[1] for name, values in real.factors.items()}
    columns = dict(zip(real.columns, real.X.T, strict=True))
    named = {**columns, "y": real.y, **numbered, **({} if real.offset is None else {"offset": real.offset})}
    terms = [c for c in real.columns if c != "Intercept"] + [f"(1 | {factor})" for factor in real.factors]
    formula = "y ~ " + " + ".join(terms) + ("" if real.offset is None else " + offset(offset)")
    with workspace(options.keep, name) as folder:
        write_task(folder, named, real.family, formula, list(real.columns), list(real.factors))
        for tool in ("lme4", "gpboost"):
            answer = answer_of(tool, folder, options.peer_python, options.seconds)
            if "cut off" in answer:
                table.append({"tool": tool, "seconds": f"> {answer['cut off']:.0f}"})
                continue
            if reason := why_not(answer):
                absent.append(f"{tool} ({reason})")
                continue
            sds = dict(zip(names, answer["sds"], strict=True))
            if labels := answer.get("labels"):  # lme4 orders factors by their numbers of levels
                order = {label.split()[-1]: sd for label, sd in zip(labels, answer["sds"], strict=True)}
                sds = {n: order["Residual" if n == "sigma" else n[2:-6]] for n in names}
            table.append(
                {"tool": f"{tool} {answer['version']}", **{k: f"{v:.4f}" for k, v in sds.items()}, "seconds": answer["setup"]}
            )
    for row in table:
        print(row, flush=True)
    return table, absent


def example(name: str, interpreter: str) -> list[dict[str, Any]]:
    """Posterior means and standard deviations of one of lme4's data sets beside REML estimates."""
    response, column, factors, formula = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        code = f'library(lme4); write.csv({name}, "{folder}/rows.csv", row.names = FALSE)'
        subprocess.run(["Rscript", "-e", code], check=True, capture_output=True)
        table = csv.read_csv(folder / "rows.csv")
        y = table[response].to_numpy().astype(float)
        columns = {"Intercept": np.ones(y.size), **({column: table[column].to_numpy().astype(float)} if column else {})}
        levels = {f: np.unique(table[f].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1] for f in factors}
        X = np.column_stack(list(columns.values()))
        groups = {f: (levels[f], terms) if len(terms) > 1 else levels[f] for f, terms in factors.items()}
        data = tb.Dataset.from_arrays(X, y, columns=list(columns), groups=groups)
        fit = tb.sample(tb.models.gaussian(data, tb.priors.normal(1000.0)), "minibatch-gibbs", 5000, 1000, 4, 1, progress=False)
        write_task(
            folder, {**columns, "y": y, **levels}, "gaussian", formula, list(columns), list(factors), slopes=list(columns)
        )
        tools = ["lme4", *(["statsmodels"] if len(factors) == 1 else [])]
        found = {tool: answer_of(tool, folder, interpreter, 120.0) for tool in tools}
    reml = found["lme4"]
    where_is = dict(zip(columns, reml["beta"], strict=True))
    for label, value in zip(reml["labels"], reml["sds"], strict=True):
        *terms, factor = label.split()
        term = "1" if terms[0] in ("(Intercept)", "NA") else terms[0]
        where_is["sigma" if factor == "Residual" else f"{factor}_corr" if len(terms) == 2 else f"{term}|{factor}_sigma"] = value
    other: dict[str, float] = {}
    if len(found) > 1:
        factor = next(iter(factors))
        keys = [*columns, *(f"{t}|{factor}_sigma" for t in factors[factor]), "sigma"]
        other = dict(zip(keys, [*found["statsmodels"]["beta"], *found["statsmodels"]["sds"]], strict=True))
    rows = []
    for key in ["sigma" if own == "log_sigma" else own for own in fit.names]:
        draws = parameter(fit, key)
        mid = np.quantile(draws, [0.05, 0.95])
        rows.append(
            {
                "data": name,
                "parameter": key,
                "posterior mean": f"{draws.mean():.3f}",
                "sd": f"{draws.std():.3f}",
                "5 % to 95 %": f"{mid[0]:.3f} to {mid[1]:.3f}",
                "REML, lme4": f"{where_is[key]:.3f}",
                "REML, statsmodels": f"{other[key]:.3f}" if key in other else "",
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=["claims", "flights", "delays", "examples"])
    parser.add_argument("--peer-python", default=os.environ.get("TALLBAYES_PEER_PYTHON", sys.executable), metavar="PATH")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each of the other tools")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the answers of other tools, and take those that are there")
    parser.add_argument("--write", action="store_true")
    options = parsed(parser, draws=100, seconds=20.0)
    table, beside, absent, fits = [], [], [], {}
    for name in [c for c in options.cases if c != "examples"]:
        real = case(name, options.quick)
        row, fit = measure(name, real, options.draws)
        table.append(row)
        fits[name] = real, fit, row["mode, s"] + row["whole run, s"]
        note = (
            f"{CHAINS} chains of {options.draws:,} sweeps after 500 of warm-up, seconds of the processor; ESS is the smallest of all "
            "parameters and levels."
        )
        show("Real data with group effects", table, note, "hierarchical-real" if options.write else None)
    for name, (real, fit, seconds) in fits.items():
        lines, missing = estimates(name, real, fit, seconds, options)
        beside += [{"data": name, **line} for line in lines]
        absent += [f"{name}: {what}" for what in missing]
        note = f"± posterior sd. Every other tool had {options.seconds:,.0f} s of the processor.{said(absent)}"
        show("Standard deviations", beside, note, "hierarchical-real-sds" if options.write else None)
    if "examples" in options.cases and installed("Rscript"):
        rows = [row for name in EXAMPLES for row in example(name, options.peer_python)]
        note = "Coefficients have a normal(1000) prior, standard deviations the default one; 4 chains of 5,000 draws."
        show("Example data of lme4", rows, note, "hierarchical-examples" if options.write else None)


if __name__ == "__main__":
    main()

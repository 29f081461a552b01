"""Survival models beside lifelines, negative binomial and ordinal models beside R's MASS, smooths beside R's mgcv.

    python -m benchmarks.family_tools [--rows 100000] [--quick] [--only lifelines|mass|mgcv] [--write]

Modes and Laplace standard deviations under flat priors are compared with estimates and standard errors. The curve of a smooth is compared
at 50 places on the scale of the linear predictor: posterior means and standard deviations with mgcv's, whose penalised spline has
the same number of columns and a penalty estimated by REML. R (with MASS and mgcv) and lifelines have to be installed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tallbayes as tb
from benchmarks import families
from benchmarks.options import installed, parsed
from benchmarks.report import show

R_SCRIPT = """
arguments <- commandArgs(trailingOnly = TRUE)
columns <- strsplit(arguments[2], ",")[[1]]
size <- file.info(arguments[1])$size / 8
rows <- as.data.frame(matrix(readBin(arguments[1], "double", size), ncol = length(columns)))
names(rows) <- columns
begun <- proc.time()
{code}
cat("\\n", (proc.time() - begun)[["elapsed"]], "\\n", sep = "")
cat(format(as.numeric(estimate), digits = 17), "\\n")
cat(format(as.numeric(error), digits = 17), "\\n")
"""

GLM_NB = """
fit <- MASS::glm.nb(y ~ x1 + x2 + x3, data = rows, control = glm.control(epsilon = 1e-12, maxit = 100))
estimate <- c(coef(fit), log(fit$theta))
error <- c(sqrt(diag(vcov(fit))), fit$SE.theta / fit$theta)
"""
POLR = """
rows$y <- factor(rows$y)
fit <- MASS::polr(y ~ x1 + x2 + x3, data = rows, method = "{link}", Hess = TRUE, control = list(reltol = 1e-14, maxit = 1000))
estimate <- c(coef(fit), fit$zeta)
error <- sqrt(diag(vcov(fit)))
"""
GAM = """
suppressMessages(library(mgcv))
fit <- gam(y ~ s(x, bs = "ps", m = c(2, 2), k = 20), data = rows, family = {family}, method = "REML")
curve <- predict(fit, rows[1:50, ], type = "link", se.fit = TRUE, unconditional = TRUE)
estimate <- curve$fit
error <- curve$se.fit
"""


def through_r(columns: dict[str, np.ndarray], code: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Estimates, standard errors and seconds of some R code that makes `estimate` and `error` from `rows`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.concatenate([np.asarray(v, float) for v in columns.values()]).tofile(folder / "rows.bin")
        (folder / "run.R").write_text(R_SCRIPT.replace("{code}", code))
        command = ["Rscript", str(folder / "run.R"), str(folder / "rows.bin"), ",".join(columns)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-600:])
    seconds, estimate, error = done.stdout.strip().splitlines()[-3:]
    return np.array(estimate.split(), float), np.array(error.split(), float), float(seconds)


def by_lifelines(name: str, n: int) -> tuple[tb.models.Model, np.ndarray, np.ndarray, float]:
    import lifelines
    import pandas as pd

    X, seen, event = families.survival_rows(name, n)
    frame = pd.DataFrame(X[:, 1:], columns=["x1", "x2", "x3"]).assign(time=seen, event=event.astype(int))
    makers = {
        "weibull": (lifelines.WeibullAFTFitter, "lambda_", "rho_", -1.0),
        "loglogistic": (lifelines.LogLogisticAFTFitter, "alpha_", "beta_", -1.0),
        "lognormal": (lifelines.LogNormalAFTFitter, "mu_", "sigma_", 1.0),
    }
    make, location, scale, sign = makers[name]
    begun = time.perf_counter()
    fit = make().fit(frame, "time", "event")
    seconds, order = time.perf_counter() - begun, ["Intercept", "x1", "x2", "x3"]
    found = [np.append(v[location][order], v[scale]["Intercept"]) for v in (fit.params_, fit.standard_errors_)]
    return families.survival(name, n)[0], found[0] * [1.0, 1.0, 1.0, 1.0, sign], found[1], seconds


def by_mass(name: str, n: int) -> tuple[tb.models.Model, np.ndarray, np.ndarray, float]:
    model = families.negbin(n)[0] if name == "negbin" else families.ordinal(n, name)[0]
    x, y = families.design(n)[1], model.data.records[:, model.data.d]
    code = GLM_NB if name == "negbin" else POLR.replace("{link}", {"logit": "logistic"}.get(name, name))
    return model, *through_r({"y": y, "x1": x[:, 1], "x2": x[:, 2], "x3": x[:, 3]}, code)


def modes(n: int, part: str | None) -> list[dict[str, Any]]:
    tasks = [("lifelines", name) for name in ("weibull", "loglogistic", "lognormal")] * (part in (None, "lifelines"))
    tasks += [("MASS", name) for name in ("negbin", "logit", "probit")] * (part in (None, "mass"))
    functions = {"negbin": "glm.nb", "logit": "polr", "probit": "polr"}
    missing = [tool for tool, needed in (("lifelines", "lifelines"), ("MASS", "Rscript")) if not installed(needed)]
    rows = []
    for tool, name in tasks:
        if tool in missing:
            continue
        model, estimate, error, theirs = (by_lifelines if tool == "lifelines" else by_mass)(name, n)
        tb.find_mode(model, progress=False)  # compiled
        begun = time.perf_counter()
        mode = tb.find_mode(model, progress=False)
        ours = time.perf_counter() - begun
        family = model.family.name
        label = family + ", censored" * (tool == "lifelines") + f", {name}" * (family == "ordinal")
        reference = tool if tool == "lifelines" else f"MASS {functions[name]}"
        rows.append(families.beside(label, reference, mode, (estimate, error), (ours, theirs)))
        print(rows[-1], flush=True)
    return rows


def smooths(n: int, draws: int = 4000) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows = []
    for family, name in {"logistic": "binomial", "poisson": "poisson", "gaussian": "gaussian"}.items():
        rng = np.random.default_rng(0)
        x = rng.uniform(0.0, 1.0, n)
        x[:50] = np.linspace(0.01, 0.99, 50)
        eta = -1.0 + np.sin(7.0 * x) * (1.0 - 0.5 * x)
        laws = {
            "logistic": lambda eta=eta, rng=rng: rng.random(n) < 1.0 / (1.0 + np.exp(-eta)),
            "poisson": lambda eta=eta, rng=rng: rng.poisson(np.exp(eta)),
            "gaussian": lambda eta=eta, rng=rng: eta + rng.standard_normal(n),
        }
        y = np.asarray(laws[family](), float)
        data = tb.read(pa.table({"x": x, "y": y}), "y ~ s(x, k=20)", progress=False)
        model = tb.models.build(family, data, {"default": tb.priors.normal(100.0)})
        begun = time.perf_counter()
        fit = tb.sample(model, draws=draws, warmup=500, chains=2, seed=1, progress=False)
        ours = time.perf_counter() - begun
        curve = fit.theta[:, :, : data.d].reshape(-1, data.d) @ data.records[:50, : data.d].T
        estimate, error, theirs = through_r({"x": x, "y": y}, GAM.replace("{family}", name))
        ratio = curve.std(0) / error
        rows.append(
            {
                "family": family,
                "largest difference of the curve, in standard errors": float(np.abs((curve.mean(0) - estimate) / error).max()),
                "ratio of standard deviations to standard errors": f"{ratio.min():.3f} to {ratio.max():.3f}",
                "rows per iteration": float(fit.evals.mean()) / 2.0,
                "smallest ESS": float(fit.ess.min()),
                "seconds from call": ours,
                "seconds of mgcv": theirs,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", choices=("lifelines", "mass", "mgcv"))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results")
    options = parsed(parser, rows=2000)
    n = options.rows
    if options.only != "mgcv":
        note = f"n = {n:,}, three columns and an intercept. Flat priors. Seconds of find_mode after compilation."
        write = "family-tools" if options.write and options.only is None else None
        show("Families beside lifelines and MASS", modes(n, options.only), note, write)
    if options.only in (None, "mgcv") and installed("Rscript"):
        note = f"n = {n:,}, y ~ s(x, k=20). Two chains of 4,000 draws, compilation included; gam of mgcv with method='REML', bs='ps'."
        show("Smooths beside mgcv", smooths(n, 200 if options.quick else 4000), note, "smooth-mgcv" if options.write else None)


if __name__ == "__main__":
    main()

"""Other tools on one hierarchical model: NumPyro and nutpie draw, lme4, gpboost and statsmodels estimate.

    python benchmarks/mixed_peers.py TOOL FOLDER
    python benchmarks/mixed_peers.py --quick        every tool that is installed, on a few made-up rows

Meant to be started by `benchmarks.hierarchical_peers`, with an interpreter that has the tool:

    python -m venv peers && peers/bin/pip install numpyro bambi nutpie gpboost statsmodels pandas pyarrow "matplotlib<3.10"

lme4 is called through Rscript. FOLDER has the rows (`rows.parquet`, and `rows.bin` for R) and `task.json`; the answer goes to `TOOL.npz`
(draws) and `TOOL.json`. Nothing of this package is imported. Seconds are those of the processor, over all threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

R_SCRIPT = """
library(lme4)
arguments <- commandArgs(trailingOnly = TRUE)
columns <- strsplit(arguments[3], ",")[[1]]
size <- file.info(arguments[1])$size / 8
rows <- as.data.frame(matrix(readBin(arguments[1], "double", size), ncol = length(columns)))
names(rows) <- columns
for (name in strsplit(arguments[4], ",")[[1]]) rows[[name]] <- factor(rows[[name]])
family <- arguments[5]
tall <- nrow(rows) >= 50000  # lme4's own advice for large data: this optimiser, and no derivatives to check convergence
begun <- proc.time()
fit <- if (family == "gaussian") {
    lmer(as.formula(arguments[2]), rows, control = lmerControl(calc.derivs = !tall))
} else {
    control <- if (tall) glmerControl(optimizer = "nloptwrap", calc.derivs = FALSE) else glmerControl()
    glmer(as.formula(arguments[2]), rows, family = family, nAGQ = as.integer(arguments[6]), control = control)
}
spent <- proc.time() - begun
sds <- as.data.frame(VarCorr(fit))
cat(spent[["user.self"]] + spent[["sys.self"]], "\\n")
cat(fixef(fit), "\\n")
cat(sqrt(diag(as.matrix(vcov(fit)))), "\\n")
cat(sds$sdcor, "\\n")
cat(ifelse(is.na(sds$var2), paste(sds$var1, sds$grp), paste(sds$var1, sds$var2, sds$grp)), sep = ";")
cat("\\n")
cat(packageDescription("lme4")$Version, "\\n")
"""


def rows_of(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The rows as a table, and the task."""
    import pandas as pd

    return pd.read_parquet(folder / "rows.parquet"), json.loads((folder / "task.json").read_text())


def numpyro(folder: Path, centred: bool = False, handed: bool = False) -> dict[str, Any]:
    """NUTS of NumPyro, iteration by iteration until the processor time is spent.

    With `handed` it starts from the posterior means and has the posterior variances as its mass matrix (`handed.npz`); what is left of the
    warm-up adapts the step size.
    """
    import jax
    import jax.numpy as jnp
    import numpyro as library
    from numpyro import distributions as dist

    jax.config.update("jax_enable_x64", True)
    rows, task = rows_of(folder)
    begun = time.process_time()
    design, response = jnp.asarray(rows[task["columns"]].to_numpy()), jnp.asarray(rows["y"].to_numpy())
    codes, levels, d = jnp.asarray(rows["g"].to_numpy()), task["levels"], len(task["columns"])

    def program() -> None:
        beta = library.sample("beta", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
        tau = library.sample("tau", dist.HalfNormal(2.5))
        z = library.sample("z", dist.Normal(0.0, tau if centred else 1.0).expand([levels]).to_event(1))
        effects = z if centred else tau * z
        score = design @ beta + effects[codes]
        law = dist.Poisson(jnp.exp(score)) if task["family"] == "poisson" else dist.Bernoulli(logits=score)
        library.sample("y", law.to_event(1), obs=response)

    known = np.load(folder / "handed.npz") if handed else None  # of beta, log tau and the levels, in this order
    warmup = task["handed_warmup"] if handed else task["warmup"]
    if known is None:
        kernel = library.infer.NUTS(program)
    else:
        mean = known["mean"]
        values = {"beta": mean[:d], "tau": np.exp(mean[d]), "z": mean[d + 1 :]}
        start = library.infer.init_to_value(values=values)
        kernel = library.infer.NUTS(
            program, inverse_mass_matrix=jnp.asarray(known["variance"]), adapt_mass_matrix=False, init_strategy=start
        )
    state = kernel.init(jax.random.key(1), warmup, None, (), {})
    step = jax.jit(lambda at: kernel.sample(at, (), {}))
    step(state).potential_energy.block_until_ready()
    compiled = time.process_time()
    left, warm_gradients = warmup, 0
    while left and time.process_time() - compiled < task["seconds"]:
        state = step(state)
        warm_gradients += int(state.num_steps)
        left -= 1
    warm = time.process_time()
    draws, gradients = [], 0
    while not left and len(draws) < task["draws"] and time.process_time() - compiled < task["seconds"]:
        state = step(state)
        z = {k: np.asarray(v) for k, v in state.z.items()}
        gradients += int(state.num_steps)
        tau = np.exp(z["tau"])
        draws.append(np.concatenate([z["beta"], [tau], z["z"] if centred else tau * z["z"]]))
    done = time.process_time()
    return saved(folder, "numpyro" + "-centred" * centred + "-handed" * handed, draws, warmup - left, done - compiled) | {
        "version": library.__version__,
        "compilation": compiled - begun,
        "setup": warm - compiled,
        "drawing": done - warm,
        "gradients": gradients / max(1, len(draws)),
        "per gradient": (done - compiled) / max(1, gradients + warm_gradients),
    }


def saved(folder: Path, name: str, draws: Any, iterations: int, spent: float) -> dict[str, Any]:
    """Save the draws; how far the warm-up came, and the time that was spent in all."""
    np.savez(folder / f"{name}.npz", draws=np.asarray(draws))
    return {"warm-up": iterations, "spent": spent}


def nutpie(folder: Path, centred: bool = False) -> dict[str, Any]:
    """NUTS of nutpie on a model of bambi, non-centred unless told otherwise, as in bambi; stopped when the time is spent."""
    import bambi
    import nutpie as library

    rows, task = rows_of(folder)
    begun = time.process_time()
    names = [c for c in task["columns"] if c != "Intercept"]
    wide = bambi.Prior("Normal", mu=0.0, sigma=5.0)
    levels = bambi.Prior("Normal", mu=0.0, sigma=bambi.Prior("HalfNormal", sigma=2.5))
    priors = {"Intercept": wide, **dict.fromkeys(names, wide), "1|g": levels}
    family = {"logistic": "bernoulli"}.get(task["family"], task["family"])
    formula = f"y ~ {' + '.join(names)} + (1|g)"
    model = bambi.Model(formula, rows, family=family, priors=priors, center_predictors=False, noncentered=not centred)
    model.build()
    compiled_model = library.compile_pymc_model(model.backend.model)
    compiled = time.process_time()
    sampler = library.sample(
        compiled_model, draws=task["draws"], tune=task["warmup"], chains=1, cores=1, seed=1, blocking=False, progress_bar=False,
        save_warmup=True,
    )  # fmt: skip
    while True:
        try:
            trace = sampler.wait(timeout=2.0)
            break
        except TimeoutError:
            if time.process_time() - compiled > task["seconds"]:
                trace = sampler.abort()
                break
    spent = time.process_time() - compiled
    steps, warm_steps = (
        np.asarray(part["n_steps"])[0].astype(float) for part in (trace.sample_stats, trace.warmup_sample_stats)
    )
    gradients, warm_gradients = np.nansum(steps), np.nansum(warm_steps)
    warm = spent * warm_gradients / max(1.0, gradients + warm_gradients)
    posterior = trace.posterior
    parts = [np.asarray(posterior[name])[0] for name in [*task["columns"], "1|g_sigma"]]
    effects = np.asarray(posterior["1|g"])[0]
    values = np.concatenate([np.stack(parts, axis=1), effects], axis=1)
    values = values[np.isfinite(values).all(1)]
    return saved(folder, "nutpie" + "-centred" * centred, values, int(np.isfinite(warm_steps).sum()), spent) | {
        "version": f"{library.__version__}, bambi {bambi.__version__}",
        "compilation": compiled - begun,
        "setup": warm,
        "drawing": spent - warm,
        "gradients": float(np.nanmean(steps)) if len(values) else 0.0,
        "per gradient": spent / max(1.0, gradients + warm_gradients),
    }


def lme4(folder: Path, points: int = 1) -> dict[str, Any]:
    """lmer (REML), or glmer with Laplace's approximation (one point) or adaptive quadrature."""
    task = json.loads((folder / "task.json").read_text())
    script = folder / "lme4.R"
    script.write_text(R_SCRIPT)
    family = {"logistic": "binomial"}.get(task["family"], task["family"])
    columns = ",".join(task["stored"])
    command = ["Rscript", script, folder / "rows.bin", task["formula"], columns, ",".join(task["factors"]), family, points]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-600:])
    seconds, beta, errors, sds, labels, version = done.stdout.strip().splitlines()[-6:]
    return {
        "version": version.strip(),
        "setup": float(seconds),
        "beta": [float(v) for v in beta.split()],
        "errors": [float(v) for v in errors.split()],
        "sds": [float(v) for v in sds.split()],
        "labels": labels.strip().split(";"),
    }


def gpboost(folder: Path) -> dict[str, Any]:
    """Laplace's approximation, default optimiser; with crossed factors its default tolerance stops close to where it started."""
    import gpboost as library

    rows, task = rows_of(folder)
    begun = time.process_time()
    likelihood = {"logistic": "bernoulli_logit"}.get(task["family"], task["family"])
    model = library.GPModel(group_data=rows[task["factors"]].to_numpy(), likelihood=likelihood)
    offset = {"offset": rows["offset"].to_numpy()} if "offset" in rows else {}
    design = rows[task["columns"]].to_numpy(dtype=float)
    tolerance = {"delta_rel_conv": 1e-10} if len(task["factors"]) > 1 else {}
    model.fit(y=rows["y"].to_numpy(dtype=float), X=design, params=tolerance, **offset)
    seconds = time.process_time() - begun
    beta, variances = np.asarray(model.get_coef()), np.asarray(model.get_cov_pars())
    sds = np.sqrt(variances.ravel())
    sds = np.append(sds[1:], sds[0]) if task["family"] == "gaussian" else sds  # as lme4: the residual one last
    return {"version": library.__version__, "setup": seconds, "beta": beta.ravel().tolist(), "sds": sds.tolist()}


def statsmodels(folder: Path) -> dict[str, Any]:
    """MixedLM (REML) for one factor of a linear model; variational Bayes of the binomial and Poisson mixed models."""
    import statsmodels as package
    from scipy import sparse
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM, PoissonBayesMixedGLM
    from statsmodels.regression.mixed_linear_model import MixedLM

    rows, task = rows_of(folder)
    begun = time.process_time()
    design, y = rows[task["columns"]].to_numpy(dtype=float), rows["y"].to_numpy(dtype=float)
    if task["family"] == "gaussian":
        slopes = task.get("slopes", ["Intercept"])
        fit = MixedLM(y, design, rows[task["factors"][0]].to_numpy(), exog_re=rows[slopes].to_numpy(dtype=float)).fit(reml=True)
        sds = [*np.sqrt(np.diag(np.asarray(fit.cov_re))), np.sqrt(fit.scale)]
        beta = fit.fe_params
    else:
        codes = rows["g"].to_numpy()
        levels = sparse.csr_matrix((np.ones(len(codes)), (np.arange(len(codes)), codes)), shape=(len(codes), task["levels"]))
        law = PoissonBayesMixedGLM if task["family"] == "poisson" else BinomialBayesMixedGLM
        model = law(y, design, levels, np.zeros(task["levels"], int), vcp_p=2.0, fe_p=5.0)
        np.random.seed(0)  # noqa: NPY002  (statsmodels starts at a random point)
        # the default, BFGS, keeps a dense matrix of all parameters and takes minutes where this takes a second
        tight = {"ftol": 1e-14, "gtol": 1e-3, "maxiter": 5000, "maxfun": 100_000}
        fit = model.fit_vb(fit_method="L-BFGS-B", minim_opts=tight)
        sds, beta = np.exp(fit.vcp_mean), fit.fe_mean
    seconds = time.process_time() - begun
    return {
        "version": package.__version__,
        "setup": seconds,
        "beta": np.asarray(beta).tolist(),
        "sds": np.asarray(sds).tolist(),
    }


TOOLS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "numpyro": numpyro,
    "numpyro-centred": lambda folder: numpyro(folder, centred=True),
    "numpyro-centred-handed": lambda folder: numpyro(folder, centred=True, handed=True),
    "nutpie": nutpie,
    "nutpie-centred": lambda folder: nutpie(folder, centred=True),
    "lme4": lme4,
    "lme4-quadrature": lambda folder: lme4(folder, 25),
    "gpboost": gpboost,
    "statsmodels": statsmodels,
}


def quick() -> int:
    """Every tool on a few rows, their answers printed; how many failed."""
    import pandas as pd

    rng, failed = np.random.default_rng(0), 0
    rows = pd.DataFrame({"Intercept": np.ones(400), "x1": rng.standard_normal(400), "g": rng.integers(0, 20, 400)})
    rows.insert(2, "y", (rng.random(400) < 1.0 / (1.0 + np.exp(-rows["x1"]))).astype(float))
    task = {"family": "logistic", "formula": "y ~ x1 + (1 | g)", "columns": ["Intercept", "x1"], "factors": ["g"], "levels": 20}
    task |= {"stored": list(rows), "warmup": 10, "handed_warmup": 5, "draws": 10, "seconds": 10.0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows.to_parquet(folder / "rows.parquet")
        rows.to_numpy(dtype=float).T.tofile(folder / "rows.bin")
        (folder / "task.json").write_text(json.dumps(task))
        np.savez(folder / "handed.npz", mean=np.zeros(23), variance=np.ones(23))
        for tool in TOOLS:
            run(tool, folder)
            answer = json.loads((folder / f"{tool}.json").read_text())
            print(tool, answer, flush=True)
            failed += "failed" in answer
    return failed


def main() -> None:
    """Run one tool, or all."""
    if sys.argv[1:] == ["--quick"]:
        sys.exit(quick())
    run(sys.argv[1], Path(sys.argv[2]))


def run(name: str, folder: Path) -> None:
    """The answer of a tool, or why there is none, in a file."""
    try:
        answer = TOOLS[name](folder)
    except (ImportError, FileNotFoundError) as error:
        answer = {"missing": str(error)}
    except Exception as error:  # the table says what a tool could not do
        answer = {"failed": f"{type(error).__name__}: {error}"[:600]}
    (folder / f"{name}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()

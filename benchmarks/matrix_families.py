"""Which parts of a model go together: every family with every structure, fitted by `auto` and compared with NUTS.

A cell is green if it fits and its posterior means lie within four standard errors of those of NUTS on the same model and rows: of all
coefficients, of those of the second predictor, of the standard deviations and correlations of groups, and of other scales. A cell that
differs is fitted again with other seeds and four times the draws, and is wrong if it differs again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from arviz_stats.base import array_stats

import tallbayes as tb
from benchmarks.matrix_rows import RESPONSES, response, table

FAMILIES = (*RESPONSES, "binomial", "weibull", "loglogistic", "lognormal")
SECOND = {
    "negbin": "size", "gamma": "shape", "gaussian": "sigma", "student_t": "sigma", "inverse_gaussian": "shape", "beta": "precision",
    "zero_inflated_poisson": "zi", "zero_inflated_negbin": "zi", "hurdle_poisson": "zi", "hurdle_negbin": "zi",
    "weibull": "shape", "loglogistic": "shape", "lognormal": "sigma",
}  # fmt: skip
LIMIT = 4.0  # standard errors between the means of a cell and those of NUTS
FEW = 0.1  # evaluations per draw as a share of n below which a cell reads few rows


class Structure(NamedTuple):
    """The right-hand side of a formula and further arguments of `tb.fit`; `second` gives the second predictor a formula too."""

    formula: str
    options: Callable[[], dict[str, Any]] = dict
    second: bool = False
    note: str = ""


def _weighted() -> dict[str, Any]:
    return {"offset": "o", "weights": "w"}


STRUCTURES = {
    "fixed": Structure("x + z"),
    "smooth": Structure("x + s(z)"),
    "(1|g)": Structure("x + (1|g)"),
    "(1+x|g)": Structure("x + (1+x|g)"),
    "crossed": Structure("x + (1|g) + (1|h)"),
    "smooth+(1|g)": Structure("x + s(z) + (1|g)"),
    "smooth+crossed": Structure("x + s(z) + (1|g) + (1|h)"),
    "horseshoe": Structure("x + z", lambda: {"prior": tb.priors.horseshoe()}, note="prior=tb.priors.horseshoe()"),
    "horseshoe+(1|g)": Structure(
        "x + z + (1|g)", lambda: {"prior": {"default": tb.priors.horseshoe()}}, note="prior=tb.priors.horseshoe()"
    ),
    "offset+weights": Structure("x + z", _weighted, note='offset="o", weights="w"'),
    "offset+weights+(1|g)": Structure("x + (1|g)", _weighted, note='offset="o", weights="w"'),
    "second~x": Structure("x", second=True, note='sigma="~ x"'),
    "second~x+(1|g)": Structure("x + (1|g)", second=True, note='sigma="~ x"'),
}


class Sizes(NamedTuple):
    """Rows, levels of the first factor, and the length of the runs."""

    n: int = 2000
    levels: int = 40
    draws: int = 1000
    warmup: int = 1000
    reference_draws: int = 500
    chains: int = 2
    seconds: float = 120.0  # at most, per fit


def meaningless(family: str, structure: str) -> str | None:
    """Why a cell means nothing, or None."""
    if STRUCTURES[structure].second and family not in SECOND:
        return "the family has no parameter beside its mean that a formula could describe"
    return None


def cells() -> list[tuple[str, str]]:
    """Families and structures that mean something together."""
    return [(f, s) for f in FAMILIES for s in STRUCTURES if meaningless(f, s) is None]


def fitted(family: str, structure: str, rows: pd.DataFrame, sampler: str, seed: int, **run: Any) -> tb.Fit:
    """The fit of a cell."""
    own = STRUCTURES[structure]
    options = {SECOND[family]: "~ x"} if own.second else own.options()
    formula = f"{response(family)} ~ {own.formula}"
    return tb.fit(formula, rows, family, sampler=sampler, seed=seed, progress=False, **options, **run)


def quantities(fit: tb.Fit) -> dict[str, np.ndarray]:
    """Draws of everything whose means are compared, each (chains, draws): parameters as sampled, and scales from their logarithms."""
    named = {name: fit.theta[:, :, k] for k, name in enumerate(fit.names)}
    return named | {name: values for name, values in fit.derived().items() if values.ndim == 2}


def distances(fit: tb.Fit, reference: tb.Fit) -> dict[str, float]:
    """Differences of the means of two fits in their standard errors."""
    ours, others = quantities(fit), quantities(reference)
    if ours.keys() != others.keys():
        raise AssertionError(f"the fits have other parameters: {sorted(ours.keys() ^ others.keys())}")
    found = {}
    for name, values in ours.items():
        error = np.hypot(_mean_error(values), _mean_error(others[name]))
        gap = abs(float(values.mean() - others[name].mean()))
        found[name] = float(gap / error) if error > 0.0 else (0.0 if gap == 0.0 else np.inf)
    return found


def _mean_error(values: np.ndarray) -> float:
    size = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean"))
    return float(values.std()) / np.sqrt(size) if values.std() > 0.0 else 0.0


def refusal(error: BaseException) -> dict[str, Any]:
    """What a cell keeps of an exception: a sentence of the package, or the first line of a raw exception; files without their folders."""
    named = isinstance(error, tb.TallbayesError)
    message = str(error) if named else str(error).strip().partition("\n")[0]
    message = re.sub(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+", "", " ".join(message.split()))
    return {"outcome": "refused" if named else "raw", "error": type(error).__name__, "message": message}


def checked(family: str, structure: str, sizes: Sizes, check: bool) -> dict[str, Any]:
    """The outcome of a cell: "green", "unchecked" (NUTS does not support it), "wrong", "refused", "raw", or "fits" without a check."""
    rows = table(sizes.n, sizes.levels)
    run = {"draws": sizes.draws, "warmup": sizes.warmup, "chains": sizes.chains, "max_seconds": sizes.seconds}
    try:
        fit = fitted(family, structure, rows, "auto", 1, **run)
    except Exception as error:
        return refusal(error)
    facts = described(fit, sizes.n)
    if not check:
        return {"outcome": "fits", **facts}
    short = {**run, "draws": sizes.reference_draws, "warmup": sizes.reference_draws}
    try:
        reference = fitted(family, structure, rows, "nuts", 2, **short)
    except Exception as error:
        found = refusal(error)
        return {**found, **facts, "outcome": "unchecked" if found["outcome"] == "refused" else "raw"}
    z = distances(fit, reference)
    if max(z.values()) > LIMIT:
        first = round(max(z.values()), 2)
        fit = fitted(family, structure, rows, "auto", 3, **_longer(run))
        facts = {**described(fit, sizes.n), "first z": first}
        z = distances(fit, fitted(family, structure, rows, "nuts", 4, **_longer(short)))
    worst = max(z, key=z.__getitem__)
    return {
        "outcome": "wrong" if z[worst] > LIMIT else "green",
        **facts,
        "z": round(z[worst], 2),
        "of": worst,
        "compared": len(z),
    }


def _longer(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "draws": 4 * run["draws"], "max_seconds": 4 * run["max_seconds"]}


def described(fit: tb.Fit, n: int) -> dict[str, Any]:
    """Sampler, guarantee and cost of a fit."""
    return {
        "sampler": fit.meta["sampler_name"],
        "guarantee": fit.guarantee.kind,
        "evaluations": float(f"{fit.evals.mean() / n:.3g}"),
        "r_hat": round(float(np.nanmax(fit.r_hat)), 3),
        "status": fit.status,
    }


def few_rows(family: str, structure: str, n: int, levels: list[int]) -> dict[str, Any]:
    """Sampler and evaluations per draw as a share of n for the best of these numbers of levels."""
    best: dict[str, Any] = {}
    for count in levels:
        try:
            fit = fitted(family, structure, table(n, count), "auto", 1, draws=50, warmup=100, chains=1, max_seconds=60.0)
        except Exception as error:
            best = best or refusal(error)
            continue
        facts = described(fit, n)
        facts = {"outcome": "fits", **{key: facts[key] for key in ("sampler", "guarantee", "evaluations")}, "levels": count}
        if best.get("outcome") != "fits" or facts["evaluations"] < best["evaluations"]:
            best = facts
        if best["evaluations"] < FEW:
            break
    return best

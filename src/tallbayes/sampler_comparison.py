"""`compare`: what samplers cost on one posterior, and how far their draws are from a long exact run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes import samplers as all_samplers
from tallbayes.api import REFERENCE_TOLERANCE, sample
from tallbayes.contract import Sampler
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.option_types import checked
from tallbayes.results.distances import Distance, between, from_normal, noise_floor
from tallbayes.results.fit import Fit
from tallbayes.streams import Stream, sequence
from tallbayes.validation import shown

if TYPE_CHECKING:
    import pandas as pd

LAPLACE = "laplace"
_CLEAR = 1.5  # times the noise floor from which on a distance is called a difference


@dataclass(eq=False)
class Comparison:
    """Cost and accuracy of samplers on one posterior: `table`, `reference`, `fits` by name, and what was `skipped`, and why."""

    table: pd.DataFrame
    reference: Fit
    fits: dict[str, Fit] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the draws, in JSON types; what is not a finite number is None."""
        return {
            "reference": self._reference(),
            "samplers": json.loads(self.table.to_json(orient="index", double_precision=12)),
            "skipped": dict(self.skipped),
        }

    def _reference(self) -> dict[str, Any]:
        chains, draws, _ = self.reference.theta.shape
        return {
            "sampler": self.reference.meta["sampler_name"],
            "guarantee": self.reference.guarantee.kind,
            "draws": chains * draws,
            "ess_min": _number(np.nanmin(self.reference.ess)),
            "r_hat": _number(np.nanmax(self.reference.r_hat)),
        }

    def __repr__(self) -> str:
        facts = self._reference()
        cost = ["guarantee", "evaluations", "seconds", "evals_per_ess", "seconds_per_ess", "IF", "CT", "RCT"]
        accuracy = ["W1_largest", "W1_mean", "W2", "floor_W1_largest", "floor_W1_mean", "floor_W2"]
        lines = [
            f"reference: {facts['sampler']} ({facts['guarantee']}), {facts['draws']:,} draws, smallest effective size "
            f"{facts['ess_min'] or 0:,.0f}, largest R-hat {facts['r_hat'] or math.nan:.3f}",
            "",
            _shown(self.table[cost]),
            "",
            "distance from the reference in posterior standard deviations, next to its Monte Carlo noise (floor):",
            _shown(self.table[accuracy]),
            "",
        ]
        lines += [f"{name}: {note}" for name, note in self.table["note"].items()]
        lines += [f"{name}: skipped, {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


@checked
def compare(
    model: Model,
    samplers: Iterable[str | Sampler] | None = None,
    draws: int = 1000,
    seed: int = 0,
    *,
    warmup: int = 1000,
    chains: int = 4,
    reference: Fit | None = None,
    reference_draws: int | None = None,
    cores: int | None = None,
    max_seconds: float | None = None,
    progress: bool = True,
) -> Comparison:
    """Run samplers on one model; compare their cost, and their draws with a long run of an exact sampler.

    `samplers` are names or objects; by default, all samplers that support the model. The reference has `reference_draws` draws
    per chain (five times `draws` if not given) of the exact sampler that `auto` chooses; or pass your own fit. The Laplace fit
    is an additional row: if it is as close as the draws, this comparison shows no benefit of sampling.

    Costs: evaluations and seconds, in total and per effective draw; IF iterations per effective draw, CT = IF x evaluations per
    iteration, RCT = CT relative to the first sampler. Distances W1 (each marginal) and W2 (normal distributions with the same moments)
    are in posterior standard deviations, each with its noise floor.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(2000), rng.standard_normal(2000)])
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, rng.integers(0, 2, 2000)))
    >>> done = tb.compare(model, ("exact-minibatch", "hmc"), draws=100, warmup=100, chains=2, progress=False)
    >>> list(done.table.index), float(done.table["RCT"].iloc[0])
    (['exact-minibatch', 'hmc', 'laplace'], 1.0)
    """
    import pandas as pd

    if not isinstance(model, Model):
        raise OptionError(f"compare needs a model such as tallbayes.models.logistic(data); got a {type(model).__name__}.")
    model.require_ungrouped("compare")
    named = _named(list(all_samplers.SAMPLERS) if samplers is None else samplers)
    if reference is not None and reference.meta["fingerprint"] != model.data.fingerprint:
        raise OptionError("reference= was fitted to other rows; pass a fit of the same model, or omit it.")
    seeds = [int(s) for s in sequence(seed, Stream.COMPARISON).generate_state(len(named) + 1)]
    begun = time.perf_counter()
    mode = find_mode(model, progress=progress, cores=cores, tolerance=REFERENCE_TOLERANCE)
    mode_seconds = time.perf_counter() - begun
    common: dict[str, Any] = {"warmup": warmup, "chains": chains, "cores": cores, "mode": mode, "progress": progress}
    fits: dict[str, Fit] = {}
    skipped: dict[str, str] = {}
    for (name, sampler), one in zip(named.items(), seeds[1:], strict=True):
        try:
            fits[name] = sample(model, sampler, draws, seed=one, max_seconds=max_seconds, **common)
        except ModelError as error:
            if samplers is not None:
                raise
            skipped[name] = str(error)
    if reference is None:
        long = 5 * draws if reference_draws is None else reference_draws
        reference = sample(model, "auto", long, seed=seeds[0], guarantee="exact", **{**common, "chains": max(4, chains)})
    truth = reference.theta.reshape(-1, model.dim)
    size = _independent(reference)
    rows = {name: _row(fit, reference.theta, truth, size) for name, fit in fits.items()}
    first = next((row["CT"] for row in rows.values()), math.nan)
    for row in rows.values():
        row["RCT"] = row["CT"] / first if first else math.nan
    laplace = mode.laplace()
    rows[LAPLACE] = _accuracy(
        from_normal(laplace.mean, laplace.covariance, truth), noise_floor(reference.theta, size, math.inf)
    ) | {"guarantee": "BvM", "evaluations": float(mode.evaluations), "seconds": mode_seconds}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["note"] = [_note(name, table) for name in table.index]
    order = ["guarantee", "evaluations", "seconds", "evals_per_ess", "seconds_per_ess", "IF", "CT", "RCT"]
    return Comparison(table[[*order, *(c for c in table.columns if c not in order)]], reference, fits, skipped)


def _named(samplers: Iterable[str | Sampler]) -> dict[str, str | Sampler]:
    if isinstance(samplers, str | Sampler):
        samplers = [samplers]
    if not isinstance(samplers, list | tuple | set):
        raise OptionError(f"samplers must be a list of names or objects of tallbayes.samplers; got {shown(samplers)}.")
    named: dict[str, str | Sampler] = {}
    for sampler in samplers:
        if not (isinstance(sampler, str) and sampler == "auto"):
            all_samplers.resolve(sampler)
        name = sampler if isinstance(sampler, str) else sampler.name
        copies = sum(k == name or k.startswith(f"{name} #") for k in named)
        named[name if not copies else f"{name} #{copies + 1}"] = sampler
    if not named:
        raise OptionError("name at least one sampler, such as samplers=('exact-minibatch', 'nuts').")
    return named


def _row(fit: Fit, reference: np.ndarray, truth: np.ndarray, size: float) -> dict[str, Any]:
    cost = fit.cost()
    weights = fit.weights.reshape(-1) if "weight" in fit.stats else None
    distance = between(fit.theta.reshape(-1, truth.shape[1]), truth, weights)
    return {
        "guarantee": fit.guarantee.kind,
        "evaluations": float(sum(cost[part]["evals"] for part in ("setup", "warmup", "draws"))),
        "seconds": cost["seconds"],
        "evals_per_ess": cost["evals_per_ess"],
        "seconds_per_ess": 1.0 / cost["ess_per_second"] if cost["ess_per_second"] > 0 else math.nan,
        "IF": cost["IF"],
        "CT": cost["CT"],
        **_accuracy(distance, noise_floor(reference, size, _independent(fit))),
        "r_hat": float(np.nanmax(fit.r_hat)) if np.isfinite(fit.r_hat).any() else math.nan,
        "status": fit.status,
    }


def _independent(fit: Fit) -> float:
    """Smallest effective size, but not more than the draws: antithetic chains know means better than spreads."""
    return min(float(np.nanmin(fit.ess)), float(fit.theta[..., 0].size)) if np.isfinite(fit.ess).any() else math.nan


def _accuracy(distance: Distance, floor: Distance) -> dict[str, float]:
    names = ("W1_largest", "W1_mean", "W2")
    return dict(zip(names, distance, strict=True)) | {f"floor_{k}": v for k, v in zip(names, floor, strict=True)}


def _note(name: str, table: pd.DataFrame) -> str:
    """The distance in words: the larger of W1 and W2 over its floor decides."""
    row = table.loc[name]
    ratio = max(row[k] / row[f"floor_{k}"] for k in ("W1_largest", "W2"))
    if math.isnan(ratio):
        note = "no noise floor: too few draws, or a chain that never moved; run longer"
    elif ratio <= 1.0:
        note = "within the Monte Carlo noise of the reference"
    elif ratio <= _CLEAR:
        note = "about the Monte Carlo noise of the reference"
    else:
        note = f"differs from the reference, {ratio:.2g} times the noise"
    if name == LAPLACE:
        others = table.drop(index=LAPLACE)
        if ratio <= 1.0:
            note += ": this comparison cannot tell the normal approximation at the mode from the posterior"
        elif len(others) and (row["W1_largest"] <= others["W1_largest"]).all() and (row["W2"] <= others["W2"]).all():
            note += ", but is closer to it than every sampler: the runs are too short to improve on it"
        return note
    if row["r_hat"] > 1.01:
        note += f"; largest R-hat {row['r_hat']:.3f}: the chains disagree; run longer"
    return note if row["status"] == "complete" else f"{note}; stopped early: {row['status']}"


def _shown(table: pd.DataFrame) -> str:
    return table.to_string(float_format=lambda v: f"{v:.3g}", na_rep="-")


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None

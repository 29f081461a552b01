"""Tables of the effects of levels, of terms with a dimension, and the intraclass correlation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tallbayes.data.groups import CONSTANT
from tallbayes.errors import ModelError, OptionError, shown, unknown
from tallbayes.models import family_of
from tallbayes.results.cost import effective_sizes, quantiles, r_hats
from tallbayes.results.levels import LevelDraws
from tallbayes.results.running_levels import FIRST, LevelStatistics, absorb, running, statistics
from tallbayes.results.summary import Summary

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

MANY = 2000  # levels from which R-hat and effective sizes come from batch means: ArviZ takes a millisecond for each
_PRINTED = 60  # levels that a table prints without leaving some out
_FEWEST = 4 * FIRST  # draws of a chain for that


def term_summary(fit: Fit, term: str, prob: float) -> Summary:
    """The table of `Fit.summary(term)`: one line for each level of a grouping factor, or for each element of a variable."""
    if not isinstance(term, str):
        raise OptionError(f"the first argument of summary is the name of a term; give the probability as prob={shown(term)}.")
    if term in fit.levels:
        own = fit.levels[term]
        table = level_table(own, prob)
        how = "" if own.positions is None else "; running statistics of all draws, of which a thinned set is kept"
        table.header = [f"effects {term} of {own.labels.size:,} levels of {own.factor}{how}"]
        return table
    if term in fit.variables:
        variable = fit.variables[term]
        labels = [", ".join(k) for k in itertools.product(*variable.labels.values())] if variable.labels else [term]
        values = variable.values.reshape(*fit.theta.shape[:2], -1)
    elif term in fit.names:
        labels, values = [term], fit.draws(term)[:, :, None]
    else:
        raise unknown("term", term, list(dict.fromkeys([*fit.variables, *fit.levels, *fit.names])))
    flat, weights = values.reshape(-1, values.shape[2]), fit.weights.reshape(-1)
    mean = np.average(flat, axis=0, weights=weights)
    sd = np.sqrt(np.maximum(0.0, np.average((flat - mean) ** 2, axis=0, weights=weights)))
    ends = np.array([quantiles(flat[:, j], weights, _ends(prob)) for j in range(flat.shape[1])]).T
    table = _table(labels, mean, sd, ends, effective_sizes(values, fit.stats.get("weight")), r_hats(values), prob)
    table.header = [f"{term}: {len(labels):,} coefficients" if variable_labels(fit, term) else term]
    return table


def variable_labels(fit: Fit, term: str) -> bool:
    """Whether a variable has a dimension besides chains and draws."""
    return term in fit.variables and bool(fit.variables[term].labels)


def level_table(own: LevelDraws, prob: float) -> Summary:
    """Means, standard deviations, intervals, effective sizes and R-hat of the effects of every level."""
    described, values = described_levels(own), own.values
    if described is not None:
        ends = np.stack([described.quantiles(p) for p in _ends(prob)])
        return _table(own.label_texts, described.mean, described.sd, ends, described.ess, described.r_hat, prob)
    ends = np.quantile(values, _ends(prob), axis=(0, 1))
    mean, sd = values.mean((0, 1)), values.std((0, 1))
    return _table(own.label_texts, mean, sd, ends, effective_sizes(values), r_hats(values), prob)


def described_levels(own: LevelDraws) -> LevelStatistics | None:
    """Running statistics where the draws were not kept, or where the levels are many; None to use the draws themselves."""
    if own.statistics is not None or own.labels.size <= MANY or own.values.shape[1] < _FEWEST:
        return own.statistics
    chains, every = [], np.arange(own.labels.size)
    for draws in own.values:
        chains.append(running(every.size, FIRST))
        absorb(chains[-1], np.ascontiguousarray(draws), every)
    return statistics(chains)


def _ends(prob: float) -> tuple[float, float]:
    return 0.5 - prob / 2, 0.5 + prob / 2


def _table(
    labels: list[str], mean: np.ndarray, sd: np.ndarray, ends: np.ndarray, ess: np.ndarray, r_hat: np.ndarray, prob: float
) -> Summary:
    low, high = (f"{100 * q:.4g}%" for q in _ends(prob))
    table = Summary({"mean": mean, "sd": sd, low: ends[0], high: ends[1]}, index=labels)
    table["ess_bulk"], table["r_hat"] = ess, r_hat
    table["mcse_mean"] = table["sd"] / np.sqrt(np.maximum(table["ess_bulk"], 1e-300))
    table.most = _PRINTED
    return table


def intraclass(fit: Fit, prob: float) -> pd.DataFrame:
    """The table of `Fit.icc`."""
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")
    described: dict[str, Any] = fit.meta["model"]
    groups = described.get("groups")
    if not groups:
        raise ModelError("the intraclass correlation belongs to models with group effects, and the model has none.")
    family = family_of(described)
    if family.latent_variance is None:
        raise ModelError(
            f"the intraclass correlation of the family {family.name!r} depends on the mean of the response, so there is no single one. It "
            "is known for gaussian, logistic and probit models; look at the standard deviations of fit.summary() instead."
        )
    factors = [own.get("factor", name) for name, own in groups.items() if CONSTANT in own["terms"]]
    variances = {name: fit.draws(f"{CONSTANT}|{name}_sigma") ** 2 for name in factors}
    if not variances:
        raise ModelError("the intraclass correlation needs a random intercept, and the model has none.")
    member = family.member_of(**described["options"])
    nuisances = fit.theta[:, :, len(fit.meta["columns"]) :].reshape(fit.weights.size, -1)
    residual = np.broadcast_to(family.latent_variance(member, nuisances), fit.weights.size).reshape(fit.weights.shape)
    total = residual + sum(variances.values())
    rows = {}
    for name, own in variances.items():
        share = (own / total).reshape(-1)
        low, high = np.quantile(share, _ends(prob))
        rows[name] = {"mean": share.mean(), "sd": share.std(), "lower": low, "upper": high}
    return pd.DataFrame.from_dict(rows, orient="index")

"""`Fit.loo`: expected log predictive density by leave-one-out, from a random few rows (Magnusson et al. 2019, 2020).

elpd = sum_i a_i + n/m sum_{i in S} (loo_i - a_i): a_i is the log-likelihood of row i at the posterior mean (one pass over the
rows), loo_i the Pareto-smoothed leave-one-out density of the m rows of a simple random sample S. Memory: m x draws, never n x
draws. arviz-stats' `loo_subsample` asks for a log-likelihood of all rows at all draws, so its parts are used: `psislw` smooths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from tallbayes.engine import passes
from tallbayes.errors import OptionError, StoreError
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.results.levels import joint_draws
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_instance

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_BLOCK = 1 << 18  # rows of the full pass at a time
_NUMBERS = 25_000_000  # of draws of levels: 200 MB
_MOST_DRAWS = 2000  # draws at which the rows of S are evaluated


def loo(fit: Fit, model: Model, rows: int, seed: int, each_row: bool = False) -> Any:
    """An `ELPDData` of arviz-stats; with `each_row`, the values of the sampled rows, and approximate ones of all, are in it."""
    from arviz_stats.base import array_stats
    from arviz_stats.utils import ELPDData

    require_instance("model", model, Model, "the model of the fit, or None to build it again")
    if model.data.fingerprint != fit.meta["fingerprint"] or model.describe() != fit.meta["model"]:
        raise StoreError("this is not the model of the fit, or not its rows; give the model it was made from.")
    if not model.exchangeable:
        raise OptionError("leave-one-out needs rows that are independent given theta; those of a series are not.")
    if "weight" in fit.stats:
        raise OptionError("the draws of this fit have weights, which leave-one-out cannot use; use an unweighted sampler.")
    if not isinstance(rows, int | np.integer) or rows < 2:
        raise OptionError(f"rows must be a whole number of at least 2; got {rows!r}.")
    model.log_normaliser(np.zeros(1, np.int64))  # refused before any pass
    chains, draws, _ = fit.theta.shape
    if chains * draws < 100:
        raise OptionError(f"leave-one-out needs at least 100 draws, better 1000; the fit has {chains * draws}.")
    n, m = model.data.n, min(int(rows), model.data.n)
    flat = evaluated_draws(fit)
    index = np.sort(generator(seed, Stream.LEAVE_ONE_OUT).choice(n, m, replace=False))
    total, squares, center = _full_pass(model, flat.mean(0))
    approximate = pointwise(model, index, flat.mean(0))
    table = np.stack([pointwise(model, index, t) for t in flat], axis=1)  # rows x draws
    efficiency = min(1.0, float(np.nanmin(fit.ess)) / (chains * draws)) if np.isfinite(fit.ess).any() else 1.0
    weights, shapes = array_stats.psislw(table, r_eff=efficiency, axis=-1)
    exact = logsumexp(weights + table, axis=1)
    gap = exact - approximate
    elpd = total + n * gap.mean()
    subsampling = n * math.sqrt((1.0 - m / n) * gap.var(ddof=1) / m)
    spread = squares + n * np.mean((exact - center) ** 2 - (approximate - center) ** 2) - (elpd - n * center) ** 2 / n
    full = logsumexp(table, axis=1) - math.log(flat.shape[0])
    good = min(1.0 - 1.0 / math.log10(flat.shape[0]), 0.7)
    values = _of_each_row(model, flat.mean(0), index, exact, shapes) if each_row else {}
    return ELPDData(
        "loo",
        float(elpd),
        math.sqrt(max(0.0, float(spread)) + subsampling**2),
        float(n * (full - exact).mean()),
        flat.shape[0],
        n,
        "log",
        bool((shapes > good).any()),
        good,
        subsampling_se=float(subsampling),
        subsample_size=m,
        loo_subsample_observations=index,
        **values,
    )


def _of_each_row(model: Model, theta: np.ndarray, index: np.ndarray, exact: np.ndarray, shapes: np.ndarray) -> dict[str, Any]:
    """Leave-one-out of the sampled rows, NaN for others, and the log-likelihood of all rows at the posterior mean."""
    import xarray

    n = model.data.n
    parts = [pointwise(model, np.arange(start, min(n, start + _BLOCK)), theta) for start in range(0, n, _BLOCK)]
    values, shape = np.full(n, np.nan), np.full(n, np.nan)
    values[index], shape[index] = exact, shapes
    every = {"elpd_i": values, "pareto_k": shape, "elpd_loo_approx": np.concatenate(parts)}
    return {name: xarray.DataArray(array, dims="row") for name, array in every.items()}


def evaluated_draws(fit: Fit) -> np.ndarray:
    """At most `_MOST_DRAWS` draws, evenly spaced; the effects of all levels follow the parameters."""
    chains, draws, d = fit.theta.shape
    if not fit.levels:
        theta = fit.theta[:, :: -(-chains * draws // _MOST_DRAWS)]
        return np.ascontiguousarray(theta.reshape(-1, d))
    width = d + sum(own.labels.size for own in fit.levels.values())
    index = joint_draws(fit)
    index = index[:: -(-index.size // min(_MOST_DRAWS, max(100, _NUMBERS // width)))]
    return np.hstack([fit.theta.reshape(-1, d)[index], *(own.at(index, draws) for own in fit.levels.values())])


def pointwise(model: Model, index: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Normalised log-likelihood of the indexed rows, weights included; given the effects of their levels, if there are any."""
    weight = np.asarray(model.data.records[index, model.data.d + 2], float)
    if isinstance(model, HierarchicalModel):
        values = model.conditional_values(index, theta)
    else:
        values = passes.values_at(model.rows, index, theta)
    return values + weight * model.log_normaliser(index)


def _full_pass(model: Model, theta: np.ndarray) -> tuple[float, float, float]:
    """Over all rows: the sum of log-likelihoods, their sum of squares about a centre, and the centre."""
    total, squares, center = 0.0, 0.0, None
    for start in range(0, model.data.n, _BLOCK):
        values = pointwise(model, np.arange(start, min(model.data.n, start + _BLOCK)), theta)
        center = float(values.mean()) if center is None else center
        total += float(values.sum())
        squares += float(((values - center) ** 2).sum())
    assert center is not None
    return total, squares, center

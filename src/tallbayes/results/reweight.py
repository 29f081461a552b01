"""`Fit.reweight`: draws of |L-hat(theta; u)| p(theta) p(u) made exact by the weights L(theta) / L-hat(theta; u).

The state's own u must be used: L-hat is what the chain stored. Then E[w f(theta)] / E[w] over the chain's law is the posterior
expectation of f whatever the bias of L-hat, since p(u) integrates out. For samplers whose sampling density is unknown
(subsampled tests, stochastic gradients) no such weight exists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.contract import Guarantee
from tallbayes.engine import passes
from tallbayes.errors import ModelError, OptionError, StoreError
from tallbayes.model import Model
from tallbayes.results.convergence import doubts

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

LARGEST_SHAPE = 0.7  # of the generalised Pareto fit to the largest weights (Vehtari et al. 2024)
WEIGHTED = Guarantee(
    "EXACT",
    "weighted averages are consistent: importance weights from the distribution of the chain to the posterior, Pareto-smoothed",
    assumed=("the weights have a finite variance",),
    checked=("Pareto shape of the weights below 0.7",),
)


def reweight(fit: Fit, model: Model, draws: int | None) -> Fit:
    """The weighted fit."""
    from arviz_stats.base import array_stats

    if "log_likelihood" not in fit.stats:
        raise OptionError(
            f"{fit.meta['sampler_name']} does not sample by estimates of the likelihood: its draws cannot be re-weighted. Re-weight "
            "fits of 'hmc-ecs' or 'block-pseudo-marginal', or sample with an exact method."
        )
    if "weight" in fit.stats:
        raise OptionError("the draws of this fit have weights already: signed averages need no others.")
    if model.data.fingerprint != fit.meta["fingerprint"]:
        raise StoreError("these are not the rows of the fit; re-weight it with the model it was made from.")
    if model.describe() != fit.meta["model"]:
        raise StoreError(f"the model differs from that of the fit: it was {fit.meta['model']}.")
    length = fit.theta.shape[1]
    if draws is not None and (not isinstance(draws, int | np.integer) or not 4 <= draws <= length):
        raise OptionError(f"draws must be a whole number from 4 to the {length} of each chain, or None for all; got {draws!r}.")
    chosen = np.arange(length) if draws is None else np.linspace(0, length - 1, int(draws)).round().astype(int)
    theta = fit.theta[:, chosen]
    exact = np.array([[passes.total_value(model.rows, t) for t in chain] for chain in theta])
    logs = exact - fit.stats["log_likelihood"][:, chosen]
    if np.ptp(logs) < 1e-6:  # rounding of two sums over all rows: nothing to smooth
        weights, shape = np.ones(logs.shape), -1.0
    else:
        smoothed, shape = array_stats.psislw(-logs.reshape(-1), r_eff=1.0)
        weights, shape = np.exp(smoothed - smoothed.max()).reshape(logs.shape), float(shape)
    if not shape <= LARGEST_SHAPE:
        raise ModelError(
            f"the weights have a Pareto shape of {shape:.2f}, above {LARGEST_SHAPE}: their averages do not settle. The estimates of "
            "the likelihood are too noisy to correct; use more rows (subsample=) or an exact sampler."
        )
    weights /= weights.mean()
    efficiency = float(weights.sum() ** 2 / (weights**2).sum() / weights.size)
    stats = {name: values[:, chosen] for name, values in fit.stats.items()} | {"weight": weights}
    notes = {**fit.meta.get("notes", {}), "pareto_k": shape, "weight_efficiency": efficiency}
    meta = {**fit.meta, "notes": notes, "reweighted": True}
    weighted = replace(
        fit,
        theta=theta,
        stats=stats,
        guarantee=WEIGHTED,
        why=f"{fit.why}; re-weighted on all rows, Pareto shape {shape:.2f}",
        setup={**fit.setup, "evals": fit.setup["evals"] + theta[..., 0].size * model.data.n},
        meta=meta,
    )
    old = doubts(fit)
    meta["warnings"] = [w for w in fit.meta.get("warnings", []) if w not in old] + doubts(weighted)
    return weighted

"""Audits of minibatch Gibbs: a random few decisions of every kind of step, replayed between pairs of posterior draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.proxies.centred_columns import add_means
from tallbayes.proxies.crossed_tables import CrossedTables
from tallbayes.schemes.level_replay import KINDS, DrawnState, Replayed, replay_one_factor, replay_several
from tallbayes.target import Target

_ERROR = 1e-8  # of a sum over all rows, for each nat of the log-likelihood


def audit_levels(
    model: HierarchicalModel, target: Target, fit: Any, pairs: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[str]]:
    """Facts and problems of `pairs` decisions of each kind."""
    several = isinstance(target.proxy, CrossedTables)
    free = target.proxy.surrogate.free.size
    facts: dict[str, Any] = {"sweeps that read a level in full": float((fit.stats["full_levels"] > 0).mean())}
    found: list[Replayed] = []
    for kind in KINDS:
        if kind == "coefficients" and free == 0:
            facts["decisions on coefficients"] = "none: the levels carry all of them"
            continue
        done = []
        for _ in range(pairs):
            here, there = (_drawn(model, target, fit, rng) for _ in range(2))
            k = int(rng.integers(len(model.factors)))
            g = int(rng.integers(model.factors[k].levels))
            if several:
                done.append(replay_several(model, target, kind, here, there, k, g))
            else:
                done.append(replay_one_factor(model, target, kind, here, there, g))
        facts[f"decisions on {kind}"] = f"{pairs} replayed on {np.mean([r.rows for r in done]):,.4g} rows each"
        found += done
    scale = 1.0 + model.data.n
    facts["largest residual / bound over all rows of them"] = max(r.ratio for r in found)
    facts["largest error of surrogate and residuals"] = max(r.error for r in found)
    facts["largest relative error of a rate"] = max(r.rate for r in found)
    problems = []
    if facts["largest residual / bound over all rows of them"] > 1.0 + 1e-9:
        problems.append("a residual exceeds its certified bound")
    if not facts["largest error of surrogate and residuals"] < _ERROR * scale**0.5:
        problems.append("surrogate and residuals do not add up to the log-likelihood: the data or the code changed")
    if not facts["largest relative error of a rate"] < 1e-8:
        problems.append("the rate of candidate rows is not the sum of their bounds")
    return facts, problems


def _drawn(model: HierarchicalModel, target: Target, fit: Any, rng: np.random.Generator) -> DrawnState:
    """A posterior draw in centred form."""
    chains, draws, _ = fit.theta.shape
    c, t = int(rng.integers(chains)), int(rng.integers(draws))
    beta, levels, tables = fit.theta[c, t, : model.data.d].copy(), [], target.proxy
    add_means(tables.surrogate, 1.0, beta)
    for k, factor in enumerate(model.factors):
        b = np.stack([fit.draws(f"{term}|{factor.name}")[c, t] for term in factor.terms], axis=1)
        if isinstance(tables, CrossedTables):
            own = tables.factors[k]
            carriers, carried = own.prior.carriers, own.carried
        else:
            carriers, carried = tables.prior.carriers, tables.surrogate.carried
        levels.append(np.ascontiguousarray(b + carriers @ beta[carried]))
    return DrawnState(beta, levels)

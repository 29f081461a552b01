"""What the lights of a Firefly run show: whether theta waits for them, and whether bounds and rows agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.contract import Diagnosis
from tallbayes.engine import passes
from tallbayes.mode.search import mode_at
from tallbayes.model import Model
from tallbayes.moves import Move
from tallbayes.moves.normal_benchmark import least_inefficiency, normal_inefficiency
from tallbayes.proxies import lower_bounds
from tallbayes.proxies.lower_bounds import MARGIN, bound_value

SLOW = 5.0  # times the inefficiency on all rows: worth a word
ENOUGH = 20  # effective draws that a run of that inefficiency must have to tell


def light_mixing(move: Move, theta: np.ndarray, thin: int, remedy: str) -> Diagnosis:
    """Inefficiency of theta against that of the same move on a normal density, which all rows would give: no row is read."""
    from arviz_stats.base import array_stats

    total, dim = theta.shape[0] * theta.shape[1] * thin, theta.shape[2]  # iterations
    moving = [theta[:, :, j] for j in range(dim) if np.ptp(theta[:, :, j]) > 0]
    if not moving:
        return Diagnosis()
    factor = total / min(float(array_stats.ess(t, chain_axis=0, draw_axis=1)) for t in moving)
    notes = {"theta_IF": factor}
    if factor <= SLOW * least_inefficiency(move, dim):
        return Diagnosis(notes)
    normal = normal_inefficiency(move, dim)
    if normal is None:
        return Diagnosis(notes)
    notes["normal_IF"] = normal
    if factor <= SLOW * max(normal, 1.0) or total < ENOUGH * SLOW * normal:
        return Diagnosis(notes)
    warning = (
        f"each effective draw takes {factor:.0f} iterations, compared with about {normal:.3g} for the same move on all rows of "
        f"a Gaussian posterior: theta moves slowly because few rows change between bright and dark. Raise {remedy}, tighten "
        "the bound, or use 'exact-minibatch' or 'nuts'."
    )
    return Diagnosis(notes, (warning,))


def replay_gaps(
    name: str, xi: float | None, model: Model, fit: Any, count: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[str]]:
    """Gaps of all rows at a few draws: none may be negative, and with the sum of bounds they make up the likelihood."""
    bound, label = lower_bounds.lower_bound(mode_at(model, fit.laplace_mean), name, xi)
    least, error, lit = math.inf, 0.0, []
    for _ in range(count):
        theta = fit.theta[rng.integers(fit.theta.shape[0]), rng.integers(fit.theta.shape[1])]
        gap = lower_bounds.gaps_at(model.rows, bound, theta)
        known = gap[gap != 0.0]
        least = min(least, float(known.min(initial=math.inf)))
        exact = passes.total_value(model.rows, theta)
        error = max(error, abs(float(bound_value(bound, theta)) + float((known - MARGIN).sum()) - exact) / (1.0 + abs(exact)))
        lit.append(-float(np.expm1(-gap).sum()))
    facts = {
        "bound": label,
        "draws replayed on all rows": count,
        "smallest gap between likelihood and bound": least,
        "largest relative error of sum of bounds and gaps against the likelihood": error,
        "expected bright rows at these draws": float(np.mean(lit)),
    }
    problems = []
    if least < 0.0:
        problems.append("a likelihood lies below its bound")
    if error > 1e-9:
        problems.append("the sum of bounds does not agree with the rows: the data or the code changed")
    return facts, problems

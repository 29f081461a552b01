"""Cost account of a run: evaluations, seconds, and both for one effective draw."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit


def effective_sizes(theta: np.ndarray) -> np.ndarray:
    """Bulk effective sample size of each coordinate of (chains, draws, dim); 0 for one that never moved.

    >>> float(effective_sizes(np.random.default_rng(0).standard_normal((4, 500, 1)))[0]) > 1500
    True
    """
    if theta.shape[1] < 4:
        return np.full(theta.shape[2], np.nan)
    return np.where(np.ptp(theta, axis=1).any(axis=0), _by_coordinate("ess", theta), 0.0)


def r_hats(theta: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of each coordinate."""
    if theta.shape[1] < 4 or theta.shape[0] < 2:
        return np.full(theta.shape[2], np.nan)
    return _by_coordinate("rhat", theta)


def _by_coordinate(name: str, theta: np.ndarray) -> np.ndarray:
    from arviz_stats.base import array_stats

    with warnings.catch_warnings():  # a chain that never moved divides by zero: its NaN is the answer
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(getattr(array_stats, name)(theta, chain_axis=0, draw_axis=1), float)


def account(fit: Fit) -> dict[str, Any]:
    """The dictionary of `Fit.cost`."""
    chains, draws, _ = fit.theta.shape
    evals = float(fit.evals.sum())
    iterations = chains * draws * fit.thin
    ess = float(np.nanmin(fit.ess)) if np.isfinite(fit.ess).any() else float("nan")
    inefficiency = iterations / ess if ess > 0 else float("nan")
    per_iteration = evals / max(1, iterations)
    return {
        "setup": dict(fit.setup),
        "warmup": dict(fit.warmup),
        "draws": {
            "iterations": iterations,
            "evals": evals,
            "evals_per_iteration": per_iteration,
            "seconds": fit.seconds["draws"],
        },
        "seconds": fit.seconds["total"],
        "ess_min": ess,
        "evals_per_ess": evals / ess if ess > 0 else float("nan"),
        "ess_per_second": ess / fit.seconds["draws"] if fit.seconds["draws"] > 0 else float("nan"),
        "IF": inefficiency,
        "CT": inefficiency * per_iteration,
    }

"""Cost account of a run: evaluations, seconds, and both per effective draw."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit


def effective_sizes(theta: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Bulk effective sample size of each coordinate of (chains, draws, dim); 0 for one that never moved.

    With weights (chains, draws), signed or not, that of the weighted mean I: its error is that of a plain mean of
    zeta = w (theta - I) / mean(w), so the size is ess(zeta) Var(theta) / Var(zeta), variances under the posterior and along the
    chain. For signs this is near ess (2 tau - 1)^2, tau the share of positive ones.

    >>> float(effective_sizes(np.random.default_rng(0).standard_normal((4, 500, 1)))[0]) > 1500
    True
    >>> draws, signs = np.random.default_rng(0).standard_normal((4, 2000, 1)), np.ones((4, 2000))
    >>> signs[:, ::10] = -1  # tau = 0.9
    >>> bool(abs(float(effective_sizes(draws, signs)[0]) / 8000 - 0.8**2) < 0.05)
    True
    """
    if theta.shape[1] < 4:
        return np.full(theta.shape[2], np.nan)
    if weights is not None:
        return weighted_sizes(theta, weights)
    return np.where(np.ptp(theta, axis=1).any(axis=0), _by_coordinate("ess", theta), 0.0)


def weighted_sizes(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Effective sizes of the weighted means of (chains, draws, functions); 0 where the weights cancel."""
    from arviz_stats.base import array_stats

    mean = weights.mean()
    if not mean > 0.0:
        return np.zeros(values.shape[2])
    average = np.einsum("cd,cdk->k", weights, values) / weights.sum()
    centred = values - average
    variance = np.maximum(np.einsum("cd,cdk->k", weights, centred**2) / weights.sum(), 0.0)
    zeta = weights[:, :, None] * centred / mean
    noise = zeta.var((0, 1))
    sizes = np.zeros(values.shape[2])
    for k in np.flatnonzero(noise > 0.0):
        plain = float(array_stats.ess(zeta[:, :, k], chain_axis=0, draw_axis=1, method="mean"))
        sizes[k] = plain * variance[k] / noise[k]
    return sizes


def tail_sizes(theta: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The smaller effective size of the 5 % and the 95 % quantile of each coordinate (Vehtari et al. 2021)."""
    if theta.shape[1] < 4:
        return np.full(theta.shape[2], np.nan)
    if weights is not None:
        flat, w = theta.reshape(-1, theta.shape[2]), weights.reshape(-1)
        ends = np.array([quantiles(flat[:, j], w, (0.05, 0.95)) for j in range(flat.shape[1])])
        sizes = [weighted_sizes((theta <= ends[:, k]).astype(float), weights) for k in range(2)]
        return np.minimum(*sizes)
    return _by_coordinate("ess", theta, method="tail", prob=0.05)


def quantiles(values: np.ndarray, weights: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """Quantiles of weighted values; signed weights are allowed."""
    if (weights == weights[0]).all():
        return np.quantile(values, levels)
    order = np.argsort(values)
    cumulative = np.maximum.accumulate(np.cumsum(weights[order]))  # signed weights step back
    return np.interp(levels, cumulative / cumulative[-1], values[order])


def r_hats(theta: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of each coordinate; the halves of a single chain are compared as if they were two.

    >>> draws = np.random.default_rng(0).standard_normal((1, 1000, 1))
    >>> bool(r_hats(draws)[0] < 1.02), bool(r_hats(draws + np.linspace(0, 4, 1000)[None, :, None])[0] > 1.5)
    (True, True)
    """
    chains = parts(theta) if theta.shape[0] == 1 else theta
    if chains.shape[1] < 4:
        return np.full(theta.shape[2], np.nan)
    return _by_coordinate("rhat", chains)


def parts(theta: np.ndarray) -> np.ndarray:
    """The halves of chains (chains, draws, ...) as chains of their own; of an odd number of draws the last is left out.

    >>> parts(np.arange(5.0).reshape(1, 5)).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    half = theta.shape[1] // 2
    return theta[:, : 2 * half].reshape(2 * theta.shape[0], half, *theta.shape[2:])


def mean_sizes(values: np.ndarray) -> float:
    """Mean over chains (chains, draws) of the effective size that a chain has by itself; 0 for one that never moved."""
    from arviz_stats.base import array_stats

    sizes = [
        float(array_stats.ess(v[None], chain_axis=0, draw_axis=1, method="mean")) if np.ptp(v) > 0.0 else 0.0 for v in values
    ]
    return float(np.nan_to_num(sizes).mean())


def _by_coordinate(name: str, theta: np.ndarray, **options: Any) -> np.ndarray:
    from arviz_stats.base import array_stats

    with warnings.catch_warnings():  # a chain that never moved divides by zero: its NaN is the answer
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(getattr(array_stats, name)(theta, chain_axis=0, draw_axis=1, **options), float)


def account(fit: Fit) -> dict[str, Any]:
    """The dictionary of `Fit.cost`."""
    chains, draws, _ = fit.theta.shape
    evals = float(fit.evals.sum())
    iterations = chains * draws * fit.thin
    ess = float(np.nanmin(fit.ess)) if np.isfinite(fit.ess).any() else float("nan")
    signs = _signs(fit)
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
        **signs,
        **_oracle(fit),
    }


def _oracle(fit: Fit) -> dict[str, Any]:
    """For studies with an oracle: what it read to know the true range, which is in no other count."""
    evals = float(fit.stats["oracle_evals"].sum()) if "oracle_evals" in fit.stats else 0.0
    return {"oracle": {"evals": evals}} if evals else {}


def _signs(fit: Fit) -> dict[str, float]:
    """For signed draws: the share tau of positive ones, and the smallest effective size by the rule ess (2 tau - 1)^2."""
    if "weight" not in fit.stats or not (fit.weights < 0).any():
        return {}
    positive = float((fit.weights > 0).mean())
    plain = effective_sizes(fit.theta)
    smallest = float(np.nanmin(plain)) if np.isfinite(plain).any() else float("nan")
    return {"positive": positive, "ess_rule": smallest * (2.0 * positive - 1.0) ** 2}

"""Semi-automatic statistics of subsets: combinations of candidate summaries that predict where sub-posteriors lie.

Fearnhead and Prangle (2012) regress parameters on candidate summaries in a pilot run; the fitted values are the statistics. Here
the pilot runs are modes of the scaled sub-posteriors of random subsets U_1 .. U_K, in posterior standard deviations:

    L^-1 (mode_k - theta*) = a + B (C(U_k) - C(all rows)) + residual,        S(U) = B C(U).

Delta(U) is then on the scale of scores, whatever the scale of the candidates, and what the residuals leave of the variance of the
modes is the share of it that no weighting of subsets by S can remove.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tallbayes.engine import passes
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.priors import prior_gradient
from tallbayes.schemes import subset_statistics
from tallbayes.streams import Stream, generator

MOST = 100  # products of columns among the candidates
_PILOTS, _EACH = 200, 5  # subsets: at least, and for each candidate
_ITERATIONS = 50  # of a search for a mode of a sub-posterior
_AT_MODE = 0.05  # gradient at which it has arrived, per standard deviation of modes
_CONSTANT = 1e-9  # spread below which a candidate does not vary, relative to its largest
FAR = 1e300  # minus log density where there is none


class Fitted(NamedTuple):
    """Coefficients of the candidates, and how the modes of sub-posteriors vary: as predicted, and around the prediction."""

    weights: np.ndarray  # (dim, candidates)
    predicted: np.ndarray  # variances of the prediction along its principal axes
    left: float  # variance per coordinate that the candidates do not explain

    @property
    def explained(self) -> float:
        """Share of the variance of the modes that the candidates explain."""
        total = self.predicted.sum() + self.left * self.weights.shape[0]
        return float(self.predicted.sum() / total) if total > 0.0 else 1.0


def products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Products of two of the columns of x and y: candidates unless others are given.

    >>> products(np.array([[1.0, 3.0]]), np.array([2.0]))
    array([[1., 3., 2., 9., 6., 4.]])
    """
    table = np.column_stack([x, y])
    first, second = np.triu_indices(table.shape[1])
    return table[:, first] * table[:, second]


def candidate_features(model: Model, mode: Mode, candidates: Any) -> np.ndarray:
    """Candidates of every independent row, less their means; by default its score and, of few columns, their products."""
    if isinstance(candidates, str):
        raise OptionError(f"candidates={candidates!r} apply only to a series; for independent rows use f(x, y).")
    if candidates is not None:
        return subset_statistics.row_features(model, candidates)
    scores, columns = subset_statistics.score_features(mode), model.data.d + 1
    if columns * (columns + 1) // 2 > MOST:
        return scores
    return np.concatenate([scores, subset_statistics.row_features(model, products)], axis=1)


def series_summaries(model: Model, candidates: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The function of windows that computes the candidates of a series."""
    if callable(candidates):
        return candidates
    levels, lags = subset_statistics.SUMMARIES["quantiles-autocorrelations" if candidates is None else candidates]

    def summaries(windows: np.ndarray) -> np.ndarray:
        quantiles = np.quantile(windows, levels, axis=1).T if levels else np.empty((windows.shape[0], 0))
        pairs = np.array([subset_statistics.autocorrelations(w, lags) for w in windows]).reshape(windows.shape[0], lags)
        return np.concatenate([quantiles, pairs], axis=1)

    return summaries


def fit_swaps(model: Model, mode: Mode, features: np.ndarray, m: int, seed: int) -> Fitted:
    """The regression on subsets of m independent rows."""
    n = model.data.n
    rng = generator(seed, Stream.SUBSETS)
    power = np.full(m, n / m)
    differences, modes = [], []
    for _ in range(_pilots(features.shape[1])):
        index = np.sort(rng.choice(n, m, replace=False, shuffle=False))

        def density(theta: np.ndarray, index: np.ndarray = index) -> tuple[float, np.ndarray]:
            return passes.gradient_at(model.rows, index, power, theta)

        found = _sub_mode(mode, density, n / m)
        if found is not None:
            differences.append(features[index].mean(axis=0))
            modes.append(found)
    return _regress(np.array(differences), np.array(modes), model.dim)


def fit_windows(
    model: Model, mode: Mode, summaries: Callable[[np.ndarray], np.ndarray], count: int, first: int, m: int, seed: int
) -> Fitted:
    """The regression on windows of m rows from `first` on; `summaries` takes starts, and returns `count` differences of each."""
    n = model.data.n - first
    rng = generator(seed, Stream.SUBSETS)
    starts, modes = [], []
    for _ in range(_pilots(count)):
        start = first + int(rng.integers(n - m + 1))

        def density(theta: np.ndarray, start: int = start) -> tuple[float, np.ndarray]:
            value, gradient = passes.range_gradient_at(model.rows, start, start + m, theta)
            return value * n / m, gradient * (n / m)

        found = _sub_mode(mode, density, n / m)
        if found is not None:
            starts.append(start)
            modes.append(found)
    return _regress(summaries(np.array(starts, np.int64)), np.array(modes), model.dim)


def _pilots(candidates: int) -> int:
    return max(_PILOTS, _EACH * candidates)


def _sub_mode(mode: Mode, likelihood: Callable[[np.ndarray], tuple[float, np.ndarray]], power: float) -> np.ndarray | None:
    """The mode of a sub-posterior in posterior standard deviations from that of all rows; None where none is found."""
    from scipy.optimize import minimize

    model, factor = mode.model, mode.factor

    def negative(white: np.ndarray) -> tuple[float, np.ndarray]:
        theta = mode.reference + factor @ white
        value, gradient = likelihood(theta)
        value += prior_gradient(model.prior_terms, theta, gradient)
        slope = -(factor.T @ gradient)
        return (-value, slope) if np.isfinite(value) and np.isfinite(slope).all() else (FAR, np.zeros(white.size))

    enough = _AT_MODE * np.sqrt(power)
    done = minimize(
        negative, np.zeros(model.dim), jac=True, method="BFGS", options={"gtol": 0.1 * enough, "maxiter": _ITERATIONS}
    )
    return done.x if done.fun < FAR and np.abs(done.jac).max() < enough else None


def _regress(differences: np.ndarray, modes: np.ndarray, dim: int) -> Fitted:
    """Least squares of modes on candidates; candidates that do not vary or repeat others get what the shortest solution gives."""
    pilots = modes.shape[0]
    if pilots < _PILOTS // 2 or pilots < 2 * differences.shape[1]:
        raise ModelError(
            f"the sub-posteriors of only {pilots} pilot subsets have a mode that was found, too few for the regression of "
            "statistics='semi-automatic'; raise subsample, give fewer candidates=, or use statistics='score'."
        )
    centred = differences - differences.mean(axis=0)
    spread = centred.std(axis=0)
    varies = spread > _CONSTANT * np.abs(differences).max(axis=0, initial=0.0)
    if not varies.any():
        raise OptionError("none of the candidates varies between subsets; give candidates= others.")
    scaled = centred[:, varies] / spread[varies]
    goal = modes - modes.mean(axis=0)
    coefficients, _, rank, _ = np.linalg.lstsq(scaled, goal, rcond=1e-8)
    weights = np.zeros((dim, differences.shape[1]))
    weights[:, varies] = (coefficients / spread[varies][:, None]).T
    fitted = scaled @ coefficients
    left = ((goal - fitted) ** 2).sum() / (pilots - rank - 1)
    noise = left * rank / (pilots - 1)  # by which the fitted values vary more than the true prediction
    predicted = np.maximum(0.0, np.linalg.eigvalsh(fitted.T @ fitted / (pilots - 1)))
    total = predicted.sum()
    shrunk = predicted * (max(0.0, total - noise) / total) if total > 0.0 else predicted
    return Fitted(weights, shrunk, float(left / dim))

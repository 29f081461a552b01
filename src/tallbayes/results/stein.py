"""`Fit.stein`: how far draws are from the posterior when the law they were drawn from is unknown, and which of them to keep.

In whitened coordinates w with scores s = L' grad log posterior on all rows, the inverse multiquadric kernel (1 + |r|^2)^(-1/2) has
the Stein kernel (Gorham and Mackey 2017)

    k(x, y) = -3 |r|^2 q^(-5/2) + (d + r.(s_x - s_y)) q^(-3/2) + s_x.s_y q^(-1/2),   r = x - y,  q = 1 + |r|^2,

whose mean over pairs of posterior draws is zero. The kernel Stein discrepancy is the root of its mean over all pairs. Stein
thinning (Riabiz et al. 2022) picks draws one by one, each the minimiser of k(x, x) / 2 + sum over those picked of k(x, .).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.errors import OptionError, StoreError
from tallbayes.mode.laplace import Laplace
from tallbayes.model import Model
from tallbayes.progress import Progress
from tallbayes.streams import Stream, generator
from tallbayes.validation import require_instance

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

_RESAMPLES = 1000  # of signs, for the p-value


@dataclass(frozen=True, eq=False)
class Stein:
    """Discrepancy of candidate draws from the posterior, and the draws that Stein thinning keeps.

    `ksd` is that of the candidates with their weights, `expected` what as many independent posterior draws would have on
    average, `p_value` the share of random signs that give more (it takes candidates as independent). `kept` are the (chain, draw)
    of the thinned draws in the order of picking, `theta` the draws, `ksd_kept` their discrepancy.
    """

    ksd: float
    expected: float
    p_value: float
    ksd_kept: float
    kept: np.ndarray
    theta: np.ndarray
    candidates: int
    evals: int

    def __repr__(self) -> str:
        return (
            f"Stein discrepancy {self.ksd:.4g} of {self.candidates} draws ({self.expected:.4g} expected of independent posterior "
            f"draws, p = {self.p_value:.3g}); {self.ksd_kept:.4g} of the {self.theta.shape[0]} kept; {self.evals:,} evaluations"
        )


def stein_kernel(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """k(x, y) of all pairs of whitened points with their scores.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((2000, 2))
    >>> k = stein_kernel(x, -x)  # the score of a standard normal
    >>> bool(abs((k.sum() - np.trace(k)) / (2000 * 1999)) < 0.01)
    True
    """
    square = (points**2).sum(1)
    distance = np.maximum(0.0, square[:, None] + square[None, :] - 2.0 * points @ points.T)
    own = (points * scores).sum(1)
    cross = points @ scores.T  # x . s_y
    lean = own[:, None] + own[None, :] - cross - cross.T  # (x - y) . (s_x - s_y)
    q = 1.0 + distance
    return -3.0 * distance * q**-2.5 + (points.shape[1] + lean) * q**-1.5 + (scores @ scores.T) / np.sqrt(q)


def thin(kernel: np.ndarray, count: int) -> np.ndarray:
    """Positions of the draws that Stein thinning picks, in order; a draw may be picked again."""
    objective = 0.5 * np.diag(kernel).copy()
    picked = np.empty(count, np.int64)
    for k in range(count):
        picked[k] = np.argmin(objective)
        objective += kernel[:, picked[k]]
    return picked


def discrepancy(kernel: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Root of the weighted mean of the kernel over all pairs."""
    w = np.full(kernel.shape[0], 1.0 / kernel.shape[0]) if weights is None else weights / weights.sum()
    return float(np.sqrt(max(0.0, w @ kernel @ w)))


def stein(fit: Fit, model: Model, candidates: int, keep: int | None, seed: int, progress: bool) -> Stein:
    """Scores of evenly spaced draws on all rows, their discrepancy, and the draws to keep."""
    require_instance("model", model, Model, "the model of the fit")
    if model.data.fingerprint != fit.meta["fingerprint"]:
        raise StoreError("these are not the rows of the fit; give the model it was made from.")
    chains, draws, d = fit.theta.shape
    if not isinstance(candidates, int | np.integer) or candidates < 2:
        raise OptionError(f"candidates must be a whole number of at least 2; got {candidates!r}.")
    keep = max(1, candidates // 4) if keep is None else keep
    if not isinstance(keep, int | np.integer) or keep < 1:
        raise OptionError(f"keep must be a whole number of at least 1; got {keep!r}.")
    each = min(draws, max(1, -(-candidates // chains)))
    place = np.unique(np.linspace(0, draws - 1, each).round().astype(int))
    pairs = np.array([(c, k) for k in place for c in range(chains)])
    laplace = Laplace(fit.laplace_mean, fit.laplace_factor, fit.names)
    theta, weights = fit.theta[pairs[:, 0], pairs[:, 1]], fit.weights[pairs[:, 0], pairs[:, 1]]
    scores = np.empty((pairs.shape[0], d))
    with Progress("gradients on all rows", pairs.shape[0], progress) as bar:
        for k, point in enumerate(theta):
            scores[k] = laplace.factor.T @ model.gradient(point)[1]
            bar.advance(1)
    kernel = stein_kernel(laplace.whiten(theta), scores)
    picked = thin(kernel, int(keep))
    w = weights / weights.sum()
    observed = _without_diagonal(kernel, w)
    signs = generator(seed, Stream.STEIN).choice([-1.0, 1.0], (_RESAMPLES, w.size)) * w
    resampled = ((signs @ kernel) * signs).sum(1) - (np.diag(kernel) * w**2).sum()
    return Stein(
        ksd=discrepancy(kernel, weights),
        expected=float(np.sqrt((w**2 * np.diag(kernel)).sum())),
        p_value=float((1 + (resampled >= observed).sum()) / (1 + _RESAMPLES)),
        ksd_kept=discrepancy(kernel[np.ix_(picked, picked)]),
        kept=pairs[picked],
        theta=theta[picked],
        candidates=pairs.shape[0],
        evals=pairs.shape[0] * model.data.n,
    )


def _without_diagonal(kernel: np.ndarray, w: np.ndarray) -> float:
    return float(w @ kernel @ w - (np.diag(kernel) * w**2).sum())

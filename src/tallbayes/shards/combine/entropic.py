"""The barycentre of sub-posteriors by entropic transport (Cuturi and Doucet 2014, algorithm 2: free support, uniform weights).

With cost |x - y|^2 between draws in whitened coordinates, eps = 2 d x `regularisation` (2 d is the mean cost of two draws of a shard) and
T_b(x) the mean of the draws of shard b under the entropic plan from the support, the support points of the barycentre satisfy

    sum_b w_b T_b(x_i) = x_i     (plain: the barycentre of Cuturi and Doucet)
    sum_b w_b T_b(x_i) = T(x_i)  (debiased, T of the plan from the support to itself: Janati, Cuturi and Gramfort 2020).

The mean is exact in both. Equal normal laws N(m, S) have the plain barycentre N(m, S - eps/2 I), a blur that takes spread away, and the
debiased barycentre N(m, S). For unequal normal laws its covariance A satisfies, with s = eps/2,

    sum_b w_b (4 A^1/2 S_b A^1/2 + s^2 I)^1/2 = (4 A^2 + s^2 I)^1/2,

which differs from the Wasserstein barycentre by O(s^2). Plans come from Sinkhorn iterations on the logarithms of their scalings.

A few hundred points match poorly in ten dimensions, and averages of poor matches lie too close together: the spread is compared with
that of the barycentre of normal fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.shards.combine.subposteriors import Combination, Combiner, Convention, SubPosteriors, whiten
from tallbayes.shards.combine.wasserstein import gaussian_barycentre

PRECISION = 5e-4  # of marginals of plans, in total variation
STILL = 2e-3  # mean movement of the support, in sds, at which it has converged
SPREAD = 0.1  # that may be missing of the standard deviations of the barycentre of normal fits
_SINKHORN, _MOST = 300, 200  # iterations of a plan, and of the support


@dataclass(frozen=True)
class Entropic(Combiner):
    """Support points of the entropic barycentre; `support` of them, `weights` of the shards equal unless given.

    >>> rng = np.random.default_rng(0)
    >>> draws = rng.standard_normal((3, 400, 1)) * np.array([0.5, 1.0, 1.5])[:, None, None]
    >>> bool(abs(Entropic()(SubPosteriors(draws, Convention.AVERAGE)).theta.std() - 1.0) < 0.15)  # sds are averaged
    True
    """

    regularisation: float = 0.05
    debiased: bool = True
    support: int = 200
    weights: tuple[float, ...] | None = None
    convention: ClassVar[Convention] = Convention.AVERAGE
    name: ClassVar[str] = "entropic"
    statement: ClassVar[str] = (
        "the entropic Wasserstein barycentre of the sub-posteriors, on a few support points: an average of distributions, not the posterior"
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.regularisation < 1.0:
            raise OptionError(
                "regularisation must be between 0 and 1, in units of the mean squared distance of two draws of a shard; got "
                f"{self.regularisation}."
            )
        if not isinstance(self.debiased, bool):
            raise OptionError(f"debiased must be True or False; got {self.debiased!r}.")
        if self.support < 2:
            raise OptionError(f"support must be at least 2 points; got {self.support}.")
        if self.weights is not None and not (np.isfinite(self.weights).all() and min(self.weights, default=0.0) > 0.0):
            raise OptionError(f"weights must be positive, one for each shard; got {self.weights}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Draws of the support points."""
        if self.weights is not None and len(self.weights) != sub.shards:
            raise OptionError(f"weights must be positive, one for each of the {sub.shards} shards; got {len(self.weights)}.")
        weights = np.ones(sub.shards) if self.weights is None else np.asarray(self.weights, float)
        weights = weights / weights.sum()
        white, size = whiten(sub), min(self.support, sub.draws.shape[1])
        eps = 2.0 * sub.dim * self.regularisation
        parts = [part[rng.permutation(part.shape[0])[:size]] for part in white.draws]
        parts = [part - part.mean(0) for part in parts]  # the barycentre moves with the means of the shards
        start = parts[int(rng.integers(sub.shards))]
        points, moved, error, rounds = entropic_barycentre(start, parts, weights, eps, self.debiased)
        theta = white.back(points + weights @ white.draws.mean(1))
        if draws != size:
            theta = theta[rng.integers(0, size, draws)] if draws > size else theta[rng.permutation(size)[:draws]]
        normal = gaussian_barycentre(SubPosteriors(white.draws, sub.convention).covariances, weights)
        spread = float(np.sqrt((points**2).mean() / np.diag(normal).mean()))
        notes = {
            "support": size,
            "iterations": rounds,
            "last_change": moved,
            "marginal_error": error,
            "blur": 0.5 * eps,
            "spread": spread,
        }
        out = Combination(theta, None, weights, float(min(draws, size)), notes)
        if moved > STILL or error > PRECISION:
            out.warnings.append(
                f"the entropic barycentre has not converged after {rounds} iterations: its support still moves by {moved:.2g} sds, and "
                f"marginals of plans are off by {error:.2g}. Use a larger regularisation= or combine='wasserstein'."
            )
        if spread < 1.0 - SPREAD:
            out.warnings.append(
                f"the standard deviations of the entropic barycentre are {spread:.2f} times those of the barycentre of normal fits: "
                f"{size} support points are too few for {sub.dim} parameters, or the blur is too large. Use a larger support=, "
                "debiased=True or combine='wasserstein'."
            )
        return out


def entropic_barycentre(
    points: np.ndarray, parts: list[np.ndarray], weights: np.ndarray, eps: float, debiased: bool
) -> tuple[np.ndarray, float, float, int]:
    """Support points from a start, their last mean movement, the largest error of a marginal, and the iterations."""
    potentials = [np.zeros(part.shape[0]) for part in parts]
    own = np.zeros(points.shape[0])
    moved, error, rounds = np.inf, np.inf, 0
    while rounds < _MOST and not (moved < STILL and error < PRECISION):
        target, error, rounds = np.zeros_like(points), 0.0, rounds + 1
        for b, part in enumerate(parts):
            mean, potentials[b], off = transport(points, part, eps, potentials[b])
            target += weights[b] * mean
            error = max(error, off)
        if debiased:
            mean, own, off = transport_to_itself(points, eps, own)
            target, error = points + target - mean, max(error, off)
        moved = float(np.sqrt(((target - points) ** 2).sum(1).mean() / points.shape[1]))
        points = target
    return points, moved, error, rounds


def transport(points: np.ndarray, part: np.ndarray, eps: float, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Where the entropic plan between uniform laws takes each point on average, its potential g on `part`, and the error of a marginal.

    >>> near, _, _ = transport(np.array([[0.0], [1.0]]), np.array([[1.1], [0.2]]), 0.01, np.zeros(2))
    >>> near.ravel().round(3)
    array([0.2, 1.1])
    """
    level = -_squared_distances(points, part) / eps
    rows, columns = np.log(points.shape[0]), np.log(part.shape[0])
    error = np.inf
    for _ in range(_SINKHORN):
        f = -_log_sums(level + g, 1) - rows  # rows of the plan sum to 1 / points
        sums = _log_sums(level + f[:, None], 0) + columns
        error = float(0.5 * np.abs(np.exp(np.minimum(sums + g, 700.0)) - 1.0).mean())
        if error < PRECISION:
            break
        g = -sums
    plan = np.exp(level + g - _log_sums(level + g, 1)[:, None])
    return plan @ part, g, error


def transport_to_itself(points: np.ndarray, eps: float, f: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The same of points to themselves: the plan is symmetric, so averaging its potential with its update converges at once."""
    level = -_squared_distances(points, points) / eps
    count, error = np.log(points.shape[0]), np.inf
    for _ in range(_SINKHORN):
        sums = _log_sums(level + f, 1) + count
        error = float(0.5 * np.abs(np.exp(np.minimum(sums + f, 700.0)) - 1.0).mean())
        if error < PRECISION:
            break
        f = 0.5 * (f - sums)
    plan = np.exp(level + f - _log_sums(level + f, 1)[:, None])
    return plan @ points, f, error


def _squared_distances(points: np.ndarray, part: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import cdist

    return cdist(points, part, "sqeuclidean")


def _log_sums(level: np.ndarray, axis: int) -> np.ndarray:
    """Logarithms of the sums of exponentials along an axis."""
    top = level.max(axis=axis, keepdims=True)
    return np.log(np.exp(level - top).sum(axis=axis)) + top.squeeze(axis)

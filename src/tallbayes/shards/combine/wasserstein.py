"""The Wasserstein-2 barycentre of sub-posteriors (Srivastava, Li and Dunson 2015, WASP; Li, Srivastava and Dunson 2017, PIE).

* gaussian: mean of the means and the fixed point S = S^-1/2 [B^-1 sum (S^1/2 S_b S^1/2)^1/2]^2 S^-1/2 (Alvarez-Esteban et al.
  2016); every draw moves by the optimal map of its own normal fit. Exact for laws that differ by an affine map.
* quantile: the mean of the quantiles of each coordinate, exact in one dimension; the ranks of the pooled draws tie the
  coordinates together.
* discrete: free support, uniform weights: every support point moves to the mean of the draws that optimal assignment gives
  it, one in each shard (Cuturi and Doucet 2014 without entropy).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import OptionError, unknown
from tallbayes.shards.combine.subposteriors import Combination, Combiner, Convention, SubPosteriors, symmetric, whiten

METHODS = ("gaussian", "quantile", "discrete")


@dataclass(frozen=True)
class Wasserstein(Combiner):
    """Draws of the barycentre; `method` is "gaussian", "quantile" or "discrete" (with `support` points).

    >>> rng = np.random.default_rng(0)
    >>> draws = rng.standard_normal((4, 500, 1)) + np.array([-1.0, 0.0, 0.0, 1.0])[:, None, None]
    >>> bool(abs(Wasserstein("quantile")(SubPosteriors(draws, Convention.AVERAGE)).theta.std() - 1.0) < 0.1)
    True
    """

    method: str = "gaussian"
    support: int = 200
    convention: ClassVar[Convention] = Convention.AVERAGE
    name: ClassVar[str] = "wasserstein"
    statement: ClassVar[str] = (
        "the Wasserstein barycentre of the sub-posteriors: an average of distributions, not the posterior"
    )

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if self.support < 2:
            raise OptionError(f"support must be at least 2 points; got {self.support}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Draws of the barycentre."""
        draw = {"gaussian": _affine, "quantile": _quantile, "discrete": self._discrete}[self.method]
        theta, notes = draw(sub, draws, rng)
        return Combination(theta, None, np.full(sub.shards, 1.0 / sub.shards), float(draws), {"method": self.method, **notes})

    def _discrete(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, float]]:
        white = whiten(sub)
        size = min(self.support, sub.draws.shape[1])
        parts = [part[rng.permutation(part.shape[0])[:size]] for part in white.draws]
        points, change = barycentre_points(parts, rng)
        theta = white.back(points)
        if draws != size:
            theta = theta[rng.integers(0, size, draws)] if draws > size else theta[rng.permutation(size)[:draws]]
        return theta, {"support": size, "last_change": change}


def barycentre_points(parts: list[np.ndarray], rng: np.random.Generator, most: int = 50) -> tuple[np.ndarray, float]:
    """Support of the free-support barycentre of samples of equal size, and the last change of a point."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    points, change = parts[int(rng.integers(len(parts)))].copy(), np.inf
    for _ in range(most):
        new = np.zeros_like(points)
        for part in parts:
            _, column = linear_sum_assignment(cdist(points, part, "sqeuclidean"))
            new += part[column] / len(parts)
        change = float(np.abs(new - points).max())
        points = new
        if change < 1e-9:
            break
    return points, change


def gaussian_barycentre(
    covariances: np.ndarray, weights: np.ndarray | None = None, tolerance: float = 1e-12, most: int = 500
) -> np.ndarray:
    """The covariance of the barycentre of centred normal laws, with equal weights unless given.

    >>> gaussian_barycentre(np.array([[[1.0]], [[9.0]]]))  # standard deviations are averaged
    array([[4.]])
    """
    here = np.average(covariances, axis=0, weights=weights)
    for _ in range(most):
        root, inverse = _roots(here)
        middle = np.average([_roots(root @ c @ root)[0] for c in covariances], axis=0, weights=weights)
        new = symmetric(inverse @ middle @ middle @ inverse)
        change = np.abs(new - here).max() / np.abs(here).max()
        here = new
        if change < tolerance:
            break
    return here


def _roots(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric square root of a positive matrix, and its inverse."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    root = np.sqrt(np.maximum(values, 0.0))
    return (vectors * root) @ vectors.T, (vectors / np.maximum(root, 1e-300)) @ vectors.T


def _affine(sub: SubPosteriors, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, float]]:
    white = whiten(sub)
    flat = SubPosteriors(white.draws, sub.convention)
    target = gaussian_barycentre(flat.covariances)
    shard, which = rng.integers(0, sub.shards, draws), rng.integers(0, sub.draws.shape[1], draws)
    theta = np.empty((draws, sub.dim))
    for b in range(sub.shards):
        mine = shard == b
        root, inverse = _roots(flat.covariances[b])
        move = inverse @ _roots(root @ target @ root)[0] @ inverse
        theta[mine] = flat.means.mean(0) + (white.draws[b, which[mine]] - flat.means[b]) @ move.T
    return white.back(theta), {}


def _quantile(sub: SubPosteriors, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, float]]:
    levels = (np.arange(draws) + 0.5) / draws
    averaged = np.mean([np.quantile(part, levels, axis=0) for part in sub.draws], axis=0)
    centred = (sub.draws - sub.means[:, None]).reshape(-1, sub.dim)
    pattern = (
        centred[rng.permutation(centred.shape[0])[:draws]]
        if draws <= centred.shape[0]
        else centred[rng.integers(0, centred.shape[0], draws)]
    )
    ranks = np.argsort(np.argsort(pattern, axis=0, kind="stable"), axis=0, kind="stable")
    return np.take_along_axis(averaged, ranks, axis=0), {}

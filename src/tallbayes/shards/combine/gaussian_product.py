"""Product of normal fits: P = sum P_b, mean P^-1 sum P_b m_b (Huang and Gelman 2005; Neiswanger, Wang and Xing 2014, parametric).

P_b carries Hartlap's factor, without which the spread comes out too small by d / T. Exact when every sub-posterior is normal.

`importance` re-weights draws of a t law around that product by the densities of the sub-posteriors themselves:
w(theta) = prod pi_b(theta) / t(theta). It costs one evaluation of every row for every draw, and what it returns is the
posterior, as far as its effective size reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from tallbayes.errors import DataError, OptionError
from tallbayes.shards.combine.subposteriors import (
    Combination,
    Combiner,
    Convention,
    SubPosteriors,
    normal_draws,
    product_of_normals,
    shares_of,
)
from tallbayes.streams import Stream, generator

FEWEST = 0.05  # share of draws that must count after re-weighting


@dataclass(frozen=True)
class GaussianProduct(Combiner):
    """Draws of the product of the normal fits.

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(2.0 + rng.standard_normal((4, 2000, 1)), Convention.PRODUCT)
    >>> bool(abs(GaussianProduct()(sub).theta.mean() - 2.0) < 0.05)
    True
    """

    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "gaussian"
    statement: ClassVar[str] = "the product of normal fits to the sub-posteriors: exact for normal ones only"

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Independent draws of the product."""
        mean, precision = product_of_normals(sub.means, sub.precisions)
        return Combination(normal_draws(rng, mean, precision, draws), shares=shares_of(sub.precisions), effective=float(draws))


@dataclass(frozen=True)
class Importance(Combiner):
    """The Gaussian product, re-weighted by the densities of the sub-posteriors; proposals are t with `df` degrees of freedom.

    `combine` needs the log density of the product of sub-posteriors, up to a constant: `Importance().reweight(sub, log_density)`.
    `tallbayes.sample_shards` asks the shards for it.
    """

    df: float = 6.0
    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "importance"
    statement: ClassVar[str] = (
        "draws around the product of normal fits, weighted by the posterior density: right as far as the effective size of the "
        "weights"
    )

    def __post_init__(self) -> None:
        if not self.df > 2:
            raise OptionError(f"df of the proposals must exceed 2; got {self.df}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Refuse: draws alone do not tell densities."""
        raise OptionError(
            "importance re-weighting needs densities in addition to draws: use Importance().reweight(sub, log_density), or "
            "combine='importance' in tallbayes.sample_shards, or combine='gaussian'."
        )

    def propose(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Proposals and their log densities up to a constant."""
        self.require(sub)
        mean, precision = product_of_normals(sub.means, sub.precisions)
        stretch = np.sqrt(self.df / rng.chisquare(self.df, draws))[:, None]
        theta = mean + stretch * (normal_draws(rng, np.zeros(sub.dim), precision, draws))
        distance = np.einsum("si,ij,sj->s", theta - mean, precision, theta - mean)
        return theta, -0.5 * (self.df + sub.dim) * np.log1p(distance / self.df)

    def weigh(self, sub: SubPosteriors, theta: np.ndarray, proposal: np.ndarray, target: np.ndarray) -> Combination:
        """The proposals with their weights."""
        if not np.isfinite(target).any():
            raise DataError("no proposal has a finite density; the sub-posteriors do not overlap. Use fewer shards.")
        ratio = np.where(np.isfinite(target), target - proposal, -np.inf)
        weights = np.exp(ratio - logsumexp(ratio)) * theta.shape[0]
        effective = float(weights.sum() ** 2 / (weights**2).sum())
        out = Combination(theta, weights, shares_of(sub.precisions), effective, {"effective_share": effective / theta.shape[0]})
        if effective < FEWEST * theta.shape[0]:
            out.warnings.append(
                f"after re-weighting only {effective:.0f} of {theta.shape[0]:,} draws are effective: the product of normal "
                "fits is far from the posterior. Use fewer shards, or sample the whole data with 'auto'."
            )
        return out

    def reweight(
        self,
        sub: SubPosteriors,
        log_density: Callable[[np.ndarray], np.ndarray],
        draws: int | None = None,
        seed: int | np.random.Generator = 0,
    ) -> Combination:
        """Proposals weighted by `log_density`, which takes points (draws, dim) and returns log densities (draws,).

        >>> rng = np.random.default_rng(0)
        >>> sub = SubPosteriors(rng.standard_normal((4, 2000, 1)), Convention.PRODUCT)
        >>> combination = Importance().reweight(sub, lambda theta: -2.0 * theta[:, 0] ** 2)
        >>> bool(combination.effective > 1500)
        True
        """
        rng = generator(seed, Stream.COMBINATION)
        theta, proposal = self.propose(sub, sub.draws.shape[1] if draws is None else draws, rng)
        return self.weigh(sub, theta, proposal, np.asarray(log_density(theta), float))

"""Draws of sub-posteriors, their convention, and what every combination has in common. NumPy arrays in, NumPy arrays out.

With rows split into B shards there are two kinds of sub-posterior:

* PRODUCT: pi_b = prior^(1/B) likelihood_b. Their product is the posterior.
* AVERAGE: pi_b = prior likelihood_b^(n / n_b). Each has about the spread of the posterior; they are averaged.

To combine draws of one kind by a method for the other gives a spread that is wrong by a factor of sqrt(B), with no sign of
it in the draws. So the kind is part of the type, and a combination refuses the wrong one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from tallbayes.errors import DataError, OptionError
from tallbayes.streams import Stream, generator


class Convention(Enum):
    """How prior and likelihood entered the sub-posteriors."""

    PRODUCT = "prior^(1/B) x likelihood"
    AVERAGE = "prior x likelihood^B"


@dataclass(frozen=True, eq=False)
class SubPosteriors:
    """Draws (shards, draws, dim) of sub-posteriors of one convention; `effective` is the effective size of each shard.

    >>> draws = np.random.default_rng(0).standard_normal((4, 100, 2))
    >>> SubPosteriors(draws, Convention.PRODUCT)
    SubPosteriors(4 shards x 100 draws x 2 parameters, prior^(1/B) x likelihood)
    """

    draws: np.ndarray
    convention: Convention
    effective: np.ndarray | None = None

    def __post_init__(self) -> None:
        array = np.asarray(self.draws, float)
        if array.ndim != 3 or min(array.shape) < 1:
            raise DataError(f"draws of sub-posteriors have the shape (shards, draws, dim); got {array.shape}.")
        if not np.isfinite(array).all():
            shard = int(np.argwhere(~np.isfinite(array))[0][0])
            raise DataError(f"shard {shard} has a draw that is not finite; sample it again.")
        if array.shape[1] <= array.shape[2] + 2:
            raise DataError(
                f"{array.shape[1]} draws of {array.shape[2]} parameters have no usable covariance; take more than "
                f"{array.shape[2] + 2} draws per shard, better {20 * array.shape[2]}."
            )
        if not isinstance(self.convention, Convention):
            raise OptionError(f"convention must be Convention.PRODUCT or Convention.AVERAGE; got {self.convention!r}.")
        object.__setattr__(self, "draws", array)
        if self.effective is not None and np.shape(self.effective) != (array.shape[0],):
            raise DataError(
                f"effective must hold one size for each of the {array.shape[0]} shards; its shape is "
                f"{np.shape(self.effective)}."
            )

    @property
    def shards(self) -> int:
        """B."""
        return self.draws.shape[0]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.draws.shape[2]

    @cached_property
    def sizes(self) -> np.ndarray:
        """Effective size of each shard; the number of draws where it was not given."""
        return np.full(self.shards, float(self.draws.shape[1])) if self.effective is None else np.asarray(self.effective, float)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of each shard, (shards, dim)."""
        return self.draws.mean(1)

    @cached_property
    def covariances(self) -> np.ndarray:
        """Covariance of each shard, (shards, dim, dim)."""
        out = np.stack([np.atleast_2d(np.cov(part.T)) for part in self.draws])
        for shard, matrix in enumerate(out):
            spread = np.sqrt(np.diag(matrix))
            if (spread == 0).any():
                raise DataError(
                    f"the draws of shard {shard} do not vary in coordinate {int(np.argmin(spread))}; sample longer."
                )
            if np.linalg.eigvalsh(matrix / np.outer(spread, spread))[0] < 1e-12:
                raise DataError(f"the draws of shard {shard} lie in a plane: its covariance is singular; take more draws.")
        return out

    @cached_property
    def precisions(self) -> np.ndarray:
        """Unbiased precision of each shard: the inverse covariance times Hartlap's (T - d - 2) / (T - 1), T the effective size."""
        pairs = zip(self.sizes, self.covariances, strict=True)
        return np.stack([hartlap(size, self.dim) * symmetric(np.linalg.inv(c)) for size, c in pairs])

    def __repr__(self) -> str:
        shards, draws, dim = self.draws.shape
        return f"SubPosteriors({shards} shards x {draws:,} draws x {dim} parameters, {self.convention.value})"


@dataclass(eq=False)
class Combination:
    """Draws of a combination: (draws, dim), with weights if they are re-weighted, and what it reports of itself."""

    theta: np.ndarray
    weights: np.ndarray | None = None
    shares: np.ndarray | None = None  # of each shard in the combination; they sum to one
    effective: float | None = None  # draws that count, as far as the combination itself can tell
    notes: dict[str, Any] = field(default_factory=dict)  # numbers in JSON types
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Combiner(ABC):
    """User-facing options of a combination."""

    convention: ClassVar[Convention]
    name: ClassVar[str]
    statement: ClassVar[str]  # what the combination approximates, and when it is exact
    overlap: ClassVar[bool] = False  # whether it fails when sub-posteriors do not overlap

    def __call__(self, sub: SubPosteriors, draws: int | None = None, seed: int | np.random.Generator = 0) -> Combination:
        """Combine; as many draws as a shard has unless told otherwise."""
        self.require(sub)
        count = sub.draws.shape[1] if draws is None else draws
        if not isinstance(count, int | np.integer) or count < 1:
            raise OptionError(f"draws must be a whole number of at least 1; got {draws!r}.")
        return self.combine(sub, int(count), generator(seed, Stream.COMBINATION))

    def require(self, sub: SubPosteriors) -> None:
        """Refuse draws of the wrong convention."""
        if not isinstance(sub, SubPosteriors):
            raise OptionError(
                f"{self.name} combines SubPosteriors(draws, convention); the convention cannot be inferred from a "
                f"{type(sub).__name__}."
            )
        if sub.convention is not self.convention:
            others = (
                "median, wasserstein or entropic"
                if sub.convention is Convention.AVERAGE
                else "consensus, gaussian or another product"
            )
            raise OptionError(
                f"{self.name} combines sub-posteriors {self.convention.value}, but these are {sub.convention.value}: the "
                f"spread would be wrong by a factor of sqrt({sub.shards}). Sample the shards again in the other convention, or "
                f"use {others}."
            )

    @abstractmethod
    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """The combination itself."""


def hartlap(size: float, dim: int) -> float:
    """(T - d - 2) / (T - 1): what makes the inverse of a sample covariance unbiased (Hartlap, Simon and Schneider 2007)."""
    if size <= dim + 2:
        raise DataError(
            f"{size:.0f} effective draws of {dim} parameters have no unbiased precision; sample the shards longer: more than "
            f"{dim + 2} effective draws each, better {20 * dim}."
        )
    return (size - dim - 2.0) / (size - 1.0)


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """The symmetric part."""
    return 0.5 * (matrix + matrix.T)


def normal_draws(rng: np.random.Generator, mean: np.ndarray, precision: np.ndarray, count: int) -> np.ndarray:
    """`count` draws of N(mean, precision^-1)."""
    lower = np.linalg.cholesky(precision)
    return mean + solve_triangular(lower, rng.standard_normal((mean.size, count)), lower=True, trans="T").T


def product_of_normals(means: np.ndarray, precisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of the product of normal densities.

    >>> mean, precision = product_of_normals(np.array([[0.0], [3.0]]), np.array([[[1.0]], [[2.0]]]))
    >>> float(mean[0]), float(precision[0, 0])
    (2.0, 3.0)
    """
    precision = symmetric(precisions.sum(0))
    return np.linalg.solve(precision, np.einsum("bij,bj->i", precisions, means)), precision


def shares_of(precisions: np.ndarray) -> np.ndarray:
    """Share of each shard in a combination weighted by precisions: tr(P^-1 W_b) / d."""
    return np.einsum("ij,bji->b", np.linalg.inv(precisions.sum(0)), precisions) / precisions.shape[1]


@dataclass(frozen=True, eq=False)
class WhiteDraws:
    """Draws in coordinates in which the average covariance of a shard is the identity."""

    centre: np.ndarray
    factor: np.ndarray
    draws: np.ndarray

    def back(self, points: np.ndarray) -> np.ndarray:
        """Points in the coordinates of theta."""
        return self.centre + points @ self.factor.T


def whiten(sub: SubPosteriors) -> WhiteDraws:
    """Whiten by the pooled covariance of the shards, centred at the mean of their means."""
    centre, factor = sub.means.mean(0), np.linalg.cholesky(sub.covariances.mean(0))
    flat = (sub.draws - centre).reshape(-1, sub.dim)
    return WhiteDraws(centre, factor, solve_triangular(factor, flat.T, lower=True).T.reshape(sub.draws.shape))


NORMAL_SPREAD, NORMAL_MEAN = 0.08, 0.5  # what may differ from the product of normal fits, in relative sds and in sds


def mean_skewness(sub: SubPosteriors) -> np.ndarray:
    """Mean over shards of the skewness of each coordinate."""
    return (_standardise(sub) ** 3).mean((0, 1))


def looks_normal(sub: SubPosteriors) -> bool:
    """Whether skewness and kurtosis of the coordinates, averaged over shards, are those of normal laws up to noise."""
    fourth, total = (_standardise(sub) ** 4).mean((0, 1)) - 3.0, float(np.sum(sub.sizes))
    third = np.abs(mean_skewness(sub)).max() < 4.9 * np.sqrt(6.0 / total) + 0.05
    return bool(third and np.abs(fourth).max() < 4.9 * np.sqrt(24.0 / total) + 0.2)


def _standardise(sub: SubPosteriors) -> np.ndarray:
    return (sub.draws - sub.means[:, None]) / np.sqrt(np.einsum("bii->bi", sub.covariances))[:, None]


def compare_with_normal_product(out: Combination, sub: SubPosteriors) -> None:
    """Sub-posteriors that look normal have a known product: note how far a combination is from it, and warn where it shows."""
    if out.theta.shape[0] < 2:
        return
    mean, precision = product_of_normals(sub.means, sub.precisions)
    lower = np.linalg.cholesky(precision)
    white = (out.theta - mean) @ lower
    ratio = out.theta.std(0, ddof=1) / np.sqrt(np.diag(np.linalg.inv(precision)))
    gap = float(np.sqrt((white.mean(0) ** 2).mean()))
    worst = float(ratio[np.argmax(np.abs(np.log(ratio)))])
    out.notes |= {"spread_to_normal_product": worst, "mean_from_normal_product": gap}
    if (abs(worst - 1.0) > NORMAL_SPREAD or gap > NORMAL_MEAN) and looks_normal(sub):
        out.warnings.append(
            f"the sub-posteriors look normal, but the standard deviations of the combination are up to {worst:.2f} times those "
            f"of their normal product and its mean is {gap:.2f} standard deviations per parameter away. Use combine='gaussian' "
            "or 'consensus', fewer shards, or more draws for each."
        )

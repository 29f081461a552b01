"""Product of kernel density estimates (Neiswanger, Wang and Xing 2014, algorithm 1).

prod_b T^-1 sum_t N(theta; theta_{b,t}, h^2 I) in coordinates whitened by the pooled covariance, drawn by chains over index tuples
(`kernel_mixture`). h is T^(-1/(4 + d)), or larger where a shard would have too few draws under the product. Kernels widen each
factor, and with it the product: standard deviations come out sqrt(1 + h^2) times too large for normal sub-posteriors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.shards.combine.kernel_mixture import (
    KernelMixture,
    check_bandwidth,
    draw_kernel_product,
    smallest_bandwidth,
    warn_of_inflation,
)
from tallbayes.shards.combine.subposteriors import (
    Combination,
    Combiner,
    Convention,
    SubPosteriors,
    product_of_normals,
    whiten,
)


@dataclass(frozen=True)
class KernelCombiner(Combiner):
    """What products of kernel estimates share: a bandwidth, in standard deviations of a sub-posterior, and sweeps of warm-up."""

    bandwidth: float | None = None
    warmup: int = 200
    convention: ClassVar[Convention] = Convention.PRODUCT
    overlap: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)
        if self.warmup < 0:
            raise OptionError(f"warmup must be at least 0; got {self.warmup}.")

    def width(self, flat: SubPosteriors) -> float:
        """h: the one given, or the smallest that leaves every whitened shard enough draws under the product."""
        if self.bandwidth is not None:
            return float(self.bandwidth)
        centre, precision = product_of_normals(flat.means, flat.precisions)
        return smallest_bandwidth(flat.draws, centre, np.linalg.inv(precision))


def whitened_shards(sub: SubPosteriors) -> SubPosteriors:
    """The sub-posteriors in coordinates in which the average covariance of a shard is the identity."""
    return SubPosteriors(whiten(sub).draws, sub.convention, sub.sizes)


@dataclass(frozen=True)
class Nonparametric(KernelCombiner):
    """Draws of the product of kernel density estimates; `bandwidth` fixes h (in sub-posterior sds).

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((2, 500, 1)), Convention.PRODUCT)
    >>> Nonparametric()(sub, draws=200).theta.shape
    (200, 1)
    """

    name: ClassVar[str] = "nonparametric"
    statement: ClassVar[str] = (
        "the product of kernel density estimates: kernels inflate its spread, and its error grows exponentially with the number of "
        "shards"
    )

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Chains over index tuples."""
        flat = whitened_shards(sub)
        h, none = self.width(flat), (np.zeros(sub.dim), np.zeros((sub.dim, sub.dim)))
        out = draw_kernel_product(sub, lambda width: KernelMixture(flat.draws, width, *none), h, draws, self.warmup, rng)
        warn_of_inflation(
            out, float(np.sqrt(1.0 + h * h)), h, "Use more draws per shard, fewer shards or combine='semiparametric'."
        )
        return out

"""Product of normal fits times kernel corrections (Neiswanger, Wang and Xing 2014, semiparametric).

Each sub-posterior is its normal fit N(theta; m_b, S_b) times a kernel estimate of the ratio of the two. The paper divides every kernel
by the fit at its draw, T^-1 sum_t N(theta; theta_{b,t}, h^2 I) / N(theta_{b,t}; m_b, S_b), which gives draws in the tails of a shard
enormous weights: `correction="draws"`. By default (`correction="smoothed"`) the kernel estimate is divided by the fit that is smoothed
like the draws,

    pi_b(theta) ~ N(theta; m_b, S_b) [T^-1 sum_t N(theta; theta_{b,t}, h^2 I)] / N(theta; m_b, S_b + h^2 I),

so that all draws weigh the same and normal sub-posteriors are combined exactly at every h. Either way the product is a mixture over
index tuples, drawn by chains (`kernel_mixture`). As h grows the product tends to that of the normal fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import unknown
from tallbayes.shards.combine.kernel_mixture import KernelMixture, draw_kernel_product, smoothing_correction
from tallbayes.shards.combine.nonparametric import KernelCombiner, whitened_shards
from tallbayes.shards.combine.subposteriors import Combination, SubPosteriors, product_of_normals

CORRECTIONS = ("smoothed", "draws")


@dataclass(frozen=True)
class Semiparametric(KernelCombiner):
    """Draws of the product of normal fits with kernel corrections; `bandwidth` fixes h (in sub-posterior sds).

    `correction` is "smoothed", or "draws" for the weights of the paper.

    >>> from tallbayes.shards.combine.subposteriors import Convention
    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((2, 500, 1)), Convention.PRODUCT)
    >>> Semiparametric()(sub, draws=200).theta.shape
    (200, 1)
    """

    correction: str = "smoothed"
    name: ClassVar[str] = "semiparametric"
    statement: ClassVar[str] = (
        "the product of normal fits with kernel corrections: exact for normal sub-posteriors, asymptotically exact in the draws of "
        "each shard"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correction not in CORRECTIONS:
            raise unknown("correction", self.correction, CORRECTIONS)

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Chains over index tuples."""
        flat = whitened_shards(sub)
        product = product_of_normals(flat.means, flat.precisions)
        covariances = np.linalg.inv(flat.precisions)
        fits = zip(flat.draws, flat.means, flat.precisions, strict=True)
        excess = np.stack([_log_normal(part, m, p) for part, m, p in fits]) if self.correction == "draws" else None

        def mixture(h: float) -> KernelMixture:
            centre, precision = product if excess is not None else smoothing_correction(flat.means, covariances, h)
            return KernelMixture(flat.draws, h, centre, precision, excess)

        return draw_kernel_product(sub, mixture, self.width(flat), draws, self.warmup, rng)


def _log_normal(points: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Log density up to a constant."""
    return -0.5 * (((points - mean) @ np.linalg.cholesky(precision)) ** 2).sum(1)

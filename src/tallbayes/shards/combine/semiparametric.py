"""Product of normal fits times kernel corrections (Neiswanger, Wang and Xing 2014, semiparametric).

Each sub-posterior is N(theta; m_b, S_b) times a kernel estimate of the ratio, T^-1 sum_t N(theta; theta_{b,t}, h^2 I) /
N(theta_{b,t}; m_b, S_b). With m_P, S_P of the product of normals the product is a mixture over index tuples with weights

    W_t = w_t N(mean_t; m_P, S_P + h^2 I / B) / prod_b N(theta_{b,t_b}; m_b, S_b)

and components of precision (B / h^2) I + S_P^-1 around the mean that weighs mean_t and m_P accordingly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.shards.combine.nonparametric import KernelProduct, reported
from tallbayes.shards.combine.subposteriors import Combined, SubPosteriors, product_of_normals, whitened


@dataclass(frozen=True)
class Semiparametric(KernelProduct):
    """Draws of the product of normal fits with kernel corrections; `bandwidth` fixes h (in sub-posterior sds).

    >>> from tallbayes.shards.combine.subposteriors import Convention
    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((2, 500, 1)), Convention.PRODUCT)
    >>> Semiparametric()(sub, draws=200).theta.shape
    (200, 1)
    """

    name: ClassVar[str] = "semiparametric"
    statement: ClassVar[str] = (
        "the product of normal fits with kernel corrections: asymptotically exact in the draws of each shard"
    )

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combined:
        """Independent Metropolis within Gibbs on the indices."""
        white = whitened(sub)
        x, shards, (count, dim) = white.draws, sub.shards, sub.draws.shape[1:]
        flat = SubPosteriors(x, sub.convention, sub.sizes)
        own = np.stack([_log_normal(part, m, p) for part, m, p in zip(x, flat.means, flat.precisions, strict=True)])
        centre, precision = product_of_normals(flat.means, flat.precisions)
        spread, vectors = np.linalg.eigh(np.linalg.inv(precision))
        square = (x**2).sum(2)
        chosen = rng.integers(0, count, shards)
        total = x[np.arange(shards), chosen].sum(0)
        squares = float(square[np.arange(shards), chosen].sum())
        theta, accepted, h = np.empty((draws, dim)), 0, 1.0
        for sweep in range(self.warmup + draws):
            h = self.width(sweep, dim)
            inverse = vectors @ np.diag(1.0 / (spread + h * h / shards)) @ vectors.T

            def level(total: np.ndarray, squares: float, h: float = h, inverse: np.ndarray = inverse) -> float:
                gap = total / shards - centre
                return -(squares - total @ total / shards) / (2.0 * h * h) - 0.5 * gap @ inverse @ gap

            here = level(total, squares)
            proposed, uniform = rng.integers(0, count, shards), np.log(rng.random(shards))
            for b in range(shards):
                old, new = chosen[b], proposed[b]
                other, more = total + x[b, new] - x[b, old], squares + float(square[b, new] - square[b, old])
                there = level(other, more)
                if uniform[b] < there - here - own[b, new] + own[b, old]:
                    chosen[b], total, squares, here = new, other, more, there
                    accepted += sweep >= self.warmup
            if sweep >= self.warmup:
                tight = shards / (h * h)
                shrunk = 1.0 / (tight + 1.0 / spread)  # eigenvalues of the covariance of a component
                pull = vectors.T @ (tight * total / shards + precision @ centre)
                theta[sweep - self.warmup] = vectors @ (shrunk * pull + np.sqrt(shrunk) * rng.standard_normal(dim))
        return reported(white.back(theta), accepted / (shards * draws), h, sub)


def _log_normal(points: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Log density up to a constant."""
    return -0.5 * (((points - mean) @ np.linalg.cholesky(precision)) ** 2).sum(1)

"""Product of kernel density estimates by independent Metropolis within Gibbs (Neiswanger, Wang and Xing 2014, algorithm 1).

prod_b T^-1 sum_t N(theta; theta_{b,t}, h^2 I) = sum over index tuples t of w_t N(theta; mean_t, h^2 I / B),
w_t = prod_b N(theta_{b,t_b}; mean_t, h^2 I), mean_t the mean of the B chosen draws. One index after the other is proposed anew
and accepted with the ratio of weights; h shrinks as i^(-1/(4 + d)). Draws are whitened by the pooled covariance first.
The number of tuples is T^B, so acceptance collapses as B d grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.shards.combine.subposteriors import Combined, Combiner, Convention, SubPosteriors, whitened

COLLAPSED = 0.02  # acceptance below which the indices hardly move


@dataclass(frozen=True)
class KernelProduct(Combiner):
    """What products of kernel estimates share: a bandwidth that shrinks from sweep to sweep, or a fixed one."""

    bandwidth: float | None = None
    warmup: int = 200
    convention: ClassVar[Convention] = Convention.PRODUCT
    overlap: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)
        if self.warmup < 0:
            raise OptionError(f"warmup must be at least 0; got {self.warmup}.")

    def width(self, sweep: int, dim: int) -> float:
        """h of a sweep."""
        return self.bandwidth if self.bandwidth is not None else float((sweep + 1) ** (-1.0 / (4 + dim)))


@dataclass(frozen=True)
class Nonparametric(KernelProduct):
    """Draws of the product of kernel density estimates; `bandwidth` fixes h (in sub-posterior sds) instead of shrinking it.

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((2, 500, 1)), Convention.PRODUCT)
    >>> Nonparametric()(sub, draws=200).theta.shape
    (200, 1)
    """

    name: ClassVar[str] = "nonparametric"
    statement: ClassVar[str] = (
        "the product of kernel density estimates: its error grows exponentially with the number of shards"
    )

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combined:
        """Independent Metropolis within Gibbs on the indices."""
        white = whitened(sub)
        x, shards, (count, dim) = white.draws, sub.shards, sub.draws.shape[1:]
        square = (x**2).sum(2)
        chosen = rng.integers(0, count, shards)
        total = x[np.arange(shards), chosen].sum(0)
        squares = square[np.arange(shards), chosen].sum()
        theta, accepted, h = np.empty((draws, dim)), 0, 1.0
        for sweep in range(self.warmup + draws):
            h = self.width(sweep, dim)
            proposed, level = rng.integers(0, count, shards), np.log(rng.random(shards))
            for b in range(shards):
                old, new = chosen[b], proposed[b]
                other = total + x[b, new] - x[b, old]
                more = squares + square[b, new] - square[b, old]
                change = (squares - total @ total / shards) - (more - other @ other / shards)
                if level[b] < change / (2.0 * h * h):
                    chosen[b], total, squares = new, other, more
                    accepted += sweep >= self.warmup
            if sweep >= self.warmup:
                theta[sweep - self.warmup] = total / shards + h / np.sqrt(shards) * rng.standard_normal(dim)
        return reported(white.back(theta), accepted / (shards * draws), h, sub)


def check_bandwidth(bandwidth: float | None) -> None:
    """Refuse a bandwidth that is not positive."""
    if bandwidth is not None and not bandwidth > 0:
        raise OptionError(f"bandwidth must be positive, in standard deviations of a sub-posterior; got {bandwidth}.")


def reported(theta: np.ndarray, acceptance: float, bandwidth: float, sub: SubPosteriors) -> Combined:
    """The draws with acceptance and bandwidth, and a warning if the indices hardly moved."""
    effective = max(1.0, min(1.0, acceptance) * theta.shape[0])
    out = Combined(theta, None, np.full(sub.shards, 1.0 / sub.shards), effective)
    out.notes = {"acceptance_rate": acceptance, "bandwidth": bandwidth}
    if acceptance < COLLAPSED:
        out.warnings.append(
            f"the indices of {sub.shards} shards were accepted at a rate of {acceptance:.2g}: with {sub.dim} parameters the product "
            "of kernel estimates has collapsed on few draws. Use fewer shards, or combine='gaussian' or 'consensus'."
        )
    return out

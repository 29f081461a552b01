"""Consensus Monte Carlo: theta_s = (sum W_b)^-1 sum W_b theta_{b,s}, W_b the precision of shard b (Scott et al. 2016).

Exact when every sub-posterior is normal. Matrix weights use the whole precision, scalar ones the inverse variance of each
coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import unknown
from tallbayes.shards.combine.subposteriors import Combination, Combiner, Convention, SubPosteriors, shares_of


@dataclass(frozen=True)
class Consensus(Combiner):
    """Weighted averages of draws; `weights` is "matrix" or "scalar".

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((4, 2000, 1)), Convention.PRODUCT)  # their product is N(0, 1/4)
    >>> bool(abs(Consensus()(sub).theta.std() - 0.5) < 0.05)
    True
    """

    weights: str = "matrix"
    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "consensus"
    statement: ClassVar[str] = "weighted averages of sub-posterior draws: exact for normal sub-posteriors only"

    def __post_init__(self) -> None:
        if self.weights not in ("matrix", "scalar"):
            raise unknown("weights", self.weights, ("matrix", "scalar"))

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Average the s-th draws of all shards; more draws than a shard has pair them again in random order."""
        weights = sub.precisions
        if self.weights == "scalar":
            weights = np.stack([np.diag(1.0 / np.diag(c)) for c in sub.covariances])
        parts = [_repeat_draws(part, draws, rng) for part in sub.draws]
        total = np.einsum("bij,bsj->si", weights, np.stack(parts))
        theta = np.linalg.solve(weights.sum(0), total.T).T
        return Combination(theta, shares=shares_of(weights), effective=min(float(draws), float(np.min(sub.sizes))))


def _repeat_draws(part: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The draws in order; a random order for every repetition of them."""
    if draws <= part.shape[0]:
        return part[:draws]
    rounds = [part] + [rng.permutation(part) for _ in range((draws - 1) // part.shape[0])]
    return np.concatenate(rounds)[:draws]

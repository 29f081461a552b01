"""The geometric median of sub-posteriors in a kernel metric (Minsker, Srivastava, Lin and Dunson 2014, the M-posterior).

|Q_i - Q_j|^2 = G_ii - 2 G_ij + G_jj with G_ij the mean of exp(-|x - y|^2 / (2 s^2)) over draws of i and j, s their median
distance. Weiszfeld's iteration w_j ~ |Q_j - sum w_k Q_k|^-1 gives the weights of the mixture that is the median. It is
robust: a shard far from the others gets little weight, also when it is right and the others are wrong.

It estimates where the posterior is, not how wide it is. A sub-posterior prior x likelihood^B has about the spread of the posterior,
but its mean errs by sqrt(B - 1) times as much, and the mixture holds the scatter of these means: its standard deviations are about
sqrt(B) times those of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.shards.combine.subposteriors import Combination, Combiner, Convention, SubPosteriors, whiten

_TOLERANCE, _MOST = 1e-8, 2000
WIDER = 1.1  # than a sub-posterior, that is worth a warning


@dataclass(frozen=True)
class Median(Combiner):
    """A mixture of the sub-posteriors; `kernel_draws` of each shard are used for the metric.

    >>> rng = np.random.default_rng(0)
    >>> draws = rng.standard_normal((6, 400, 2)) + np.array([8.0, 0, 0, 0, 0, 0])[:, None, None]
    >>> bool(Median()(SubPosteriors(draws, Convention.AVERAGE)).shares[0] < 0.05)
    True
    """

    kernel_draws: int = 200
    convention: ClassVar[Convention] = Convention.AVERAGE
    name: ClassVar[str] = "median"
    statement: ClassVar[str] = (
        "the geometric median of the sub-posteriors, a mixture: a robust estimate of location, with standard deviations about sqrt(B) "
        "times those of the posterior"
    )

    def __post_init__(self) -> None:
        if self.kernel_draws < 2:
            raise OptionError(f"kernel_draws must be at least 2; got {self.kernel_draws}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Draws of the mixture."""
        gram = gram_matrix(whiten(sub).draws, self.kernel_draws)
        weights, steps = weiszfeld(gram)
        shard = rng.choice(sub.shards, draws, p=weights)
        theta = sub.draws[shard, rng.integers(0, sub.draws.shape[1], draws)]
        out = Combination(theta, None, weights, float(draws), {"iterations": steps, "smallest_weight": float(weights.min())})
        widening = float(mixture_widening(sub, weights).max())
        out.notes["widening"] = widening
        if widening > WIDER:
            out.warnings.append(
                f"the median of {sub.shards} sub-posteriors is a mixture, up to {widening:.2g} times as wide as one of them, because their "
                "means differ; one alone has about the spread of the posterior. Use it as a robust estimate of location, not for "
                "intervals; combine='wasserstein' keeps the spread of a sub-posterior."
            )
        return out


def mixture_widening(sub: SubPosteriors, weights: np.ndarray) -> np.ndarray:
    """Standard deviations of the mixture in units of those of a sub-posterior, coordinate by coordinate.

    >>> draws = np.random.default_rng(0).standard_normal((2, 4000, 1)) + np.array([-2.0, 2.0])[:, None, None]
    >>> mixture_widening(SubPosteriors(draws, Convention.AVERAGE), np.array([0.5, 0.5])).round(1)
    array([2.2])
    """
    within = weights @ np.einsum("bii->bi", sub.covariances)
    between = weights @ (sub.means - weights @ sub.means) ** 2
    return np.sqrt(1.0 + between / within)


def gram_matrix(draws: np.ndarray, most: int) -> np.ndarray:
    """Mean kernels between shards; the bandwidth is the median distance of draws."""
    from scipy.spatial.distance import cdist, pdist

    step = max(1, draws.shape[1] // most)
    parts = draws[:, ::step][:, :most]
    few = parts[:, :: max(1, parts.shape[0] * parts.shape[1] // 1000)].reshape(-1, parts.shape[2])
    scale = 2.0 * max(float(np.median(pdist(few))), 1e-300) ** 2
    count = parts.shape[0]
    gram = np.empty((count, count))
    for i in range(count):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = np.exp(-cdist(parts[i], parts[j], "sqeuclidean") / scale).mean()
    return gram


def weiszfeld(gram: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights of the geometric median, and the iterations it took."""
    count = gram.shape[0]
    weights, diagonal = np.full(count, 1.0 / count), np.diag(gram)
    for step in range(_MOST):
        inner = gram @ weights
        distance = np.sqrt(np.maximum(diagonal - 2.0 * inner + weights @ inner, 1e-18))
        new = (1.0 / distance) / (1.0 / distance).sum()
        if np.abs(new - weights).max() < _TOLERANCE:
            return new, step + 1
        weights = new
    return weights, _MOST

"""Product of smoothed sub-posteriors: prod_b (pi_b * N(0, h^2 I)), the Weierstrass transform of each (Wang and Dunson 2013).

* rejection: a pair (theta_1, theta_2) is accepted with probability exp(-|theta_1 - theta_2|^2 / (4 h^2)) and gives
  (theta_1 + theta_2) / 2 + N(0, h^2 I / 2); pairs are combined along a binary tree, whitened anew at each level.
* refinement: theta given draws theta_1 .. theta_B of the shards is N(their mean, h^2 I / B), and theta_b given theta is proportional to
  pi_b(theta_b) N(theta_b; theta, h^2 I). With draws alone pi_b is their empirical measure and theta is integrated out (chains over
  index tuples, `kernel_mixture`); with densities, `refine` proposes from the normal fit times the kernel and accepts with the ratio
  of pi_b to the fit.

The transform of the paper inflates every variance: normal factors give precision sum (S_b + h^2 I)^-1, at every level of a tree anew,
and an h that accepts a tenth of the pairs is about one standard deviation with ten parameters. So the normal part of the
smoothing is taken back by default (`correct=True`): each factor is multiplied by N(m, S) / N(m, S + h^2 I), as in the semiparametric
product. Normal factors are then combined exactly at every h, and any rate of acceptance can be had; what h smooths is the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.shards.combine.kernel_mixture import (
    KernelMixture,
    chain_quality,
    check_bandwidth,
    draw_kernel_product,
    smoothing_correction,
    warn_of_inflation,
)
from tallbayes.shards.combine.nonparametric import whitened_shards
from tallbayes.shards.combine.subposteriors import (
    Combination,
    Combiner,
    Convention,
    SubPosteriors,
    compare_with_normal_product,
    hartlap,
    normal_draws,
    symmetric,
)
from tallbayes.streams import Stream, generator

_BATCHES = 100  # of pairs tried before a level of the tree is given up
_PROBES = 4000  # pairs from which the bandwidth is chosen
WIDE = 3.0  # bandwidth, in standard deviations, from which on the shape of the factors is lost


@dataclass(frozen=True)
class Weierstrass(Combiner):
    """Draws of the product of smoothed sub-posteriors; `method` is "rejection" or "refinement".

    `bandwidth` is h in standard deviations of a sub-posterior (of the factors of a level, with rejection); by default rejection
    takes the h that accepts a share `accept` of pairs, refinement T^(-1/(4 + d)). `correct=False` gives the transform of the paper,
    which inflates every variance.

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((4, 1000, 1)), Convention.PRODUCT)
    >>> Weierstrass()(sub, draws=300).theta.shape
    (300, 1)
    """

    method: str = "rejection"
    bandwidth: float | None = None
    accept: float = 0.1
    correct: bool = True
    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "weierstrass"
    statement: ClassVar[str] = (
        "the product of smoothed sub-posteriors: exact for normal ones unless correct=False, the shape of others is smoothed"
    )
    overlap: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.method not in ("rejection", "refinement"):
            raise unknown("method", self.method, ("rejection", "refinement"))
        check_bandwidth(self.bandwidth)
        if not 0.0 < self.accept < 1.0:
            raise OptionError(f"accept is a share of pairs and must be between 0 and 1; got {self.accept}.")
        if not isinstance(self.correct, bool):
            raise OptionError(f"correct must be True or False; got {self.correct!r}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        """Along a tree, or by chains over index tuples."""
        return self._tree(sub, draws, rng) if self.method == "rejection" else self._refinement(sub, draws, rng)

    def _tree(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        factors, pairs, inflation = [(part, float(size)) for part, size in zip(sub.draws, sub.sizes, strict=True)], [], 1.0
        while len(factors) > 1:
            level = [self._pair(factors[k], factors[k + 1], draws, rng) for k in range(0, len(factors) - 1, 2)]
            pairs += level
            inflation *= float(np.sqrt(1.0 + max(pair.bandwidth for pair in level) ** 2))
            factors = [(pair.theta, pair.kernels) for pair in level] + factors[len(factors) - len(factors) % 2 :]
        last, _ = factors[0]
        theta = last if last.shape[0] == draws else last[rng.integers(0, last.shape[0], draws)]
        fewest = min((pair.kernels for pair in pairs), default=float(np.min(sub.sizes)))
        out = Combination(theta, None, np.full(sub.shards, 1.0 / sub.shards), min(float(draws), max(1.0, fewest)))
        h = max((pair.bandwidth for pair in pairs), default=0.0)
        out.notes = {
            "acceptance_rate": float(np.mean([pair.rate for pair in pairs])) if pairs else 1.0,
            "bandwidth": h,
            "fewest_kernels": fewest,
        }
        return self._judge(out, sub, inflation)

    def _pair(
        self, first: tuple[np.ndarray, float], second: tuple[np.ndarray, float], draws: int, rng: np.random.Generator
    ) -> FactorPair:
        """Draws of the product of two smoothed factors, each given by its draws and their effective size."""
        pooled = 0.5 * (np.atleast_2d(np.cov(first[0].T)) + np.atleast_2d(np.cov(second[0].T)))
        factor, centre = np.linalg.cholesky(pooled), 0.5 * (first[0].mean(0) + second[0].mean(0))
        a, b = (solve_triangular(factor, (p - centre).T, lower=True).T for p in (first[0], second[0]))
        means, dim = np.stack([a.mean(0), b.mean(0)]), a.shape[1]
        covariances = [
            np.atleast_2d(np.cov(p.T)) / hartlap(max(t, dim + 3.0), dim)
            for p, (_, t) in zip((a, b), (first, second), strict=True)
        ]

        def mixture(h: float) -> KernelMixture:
            none = np.zeros(dim), np.zeros((dim, dim))
            return KernelMixture(
                np.stack([a[:1], b[:1]]), h, *(smoothing_correction(means, np.stack(covariances), h) if self.correct else none)
            )

        def level(law: KernelMixture, i: np.ndarray, j: np.ndarray) -> np.ndarray:
            return law.log_weights(a[i] + b[j], (a[i] ** 2).sum(1) + (b[j] ** 2).sum(1))

        i, j = rng.integers(0, a.shape[0], _PROBES), rng.integers(0, b.shape[0], _PROBES)

        def rate(h: float) -> float:
            return float(np.exp(level(mixture(h), i, j)).mean())

        h = self.bandwidth if self.bandwidth is not None else _width(rate, self.accept)
        law, share, index = mixture(h), rate(h), np.empty((0, 2), int)
        size = int(min(200_000, 1.2 * draws / max(share, 1e-5) + 100))
        for _ in range(_BATCHES):
            i, j = rng.integers(0, a.shape[0], size), rng.integers(0, b.shape[0], size)
            keep = np.log(rng.random(size)) < level(law, i, j)
            index = np.concatenate([index, np.column_stack([i[keep], j[keep]])])[:draws]
            if index.shape[0] == draws:
                break
        else:
            raise DataError(
                f"two sub-posteriors do not overlap: {index.shape[0]} of {_BATCHES * size:,} pairs were accepted at bandwidth "
                f"{h:.3g}. Give a larger bandwidth=, use fewer shards, or combine='gaussian'."
            )
        theta = law.components(a[index[:, 0]] + b[index[:, 1]], rng)
        kernels = min(_effective(np.bincount(column)) for column in index.T)
        return FactorPair(centre + theta @ factor.T, float(h), share, kernels)

    def _refinement(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combination:
        flat, (count, dim) = whitened_shards(sub), sub.draws.shape[1:]
        h = self.bandwidth if self.bandwidth is not None else float(count ** (-1.0 / (4 + dim)))
        covariances, none = np.linalg.inv(flat.precisions), (np.zeros(dim), np.zeros((dim, dim)))

        def mixture(width: float) -> KernelMixture:
            normal = smoothing_correction(flat.means, covariances, width) if self.correct else none
            return KernelMixture(flat.draws, width, *normal)

        out = draw_kernel_product(sub, mixture, h, draws, max(50, draws // 5), rng)
        return self._judge(out, sub, float(np.sqrt(1.0 + h * h)))

    def _judge(self, out: Combination, sub: SubPosteriors, inflation: float) -> Combination:
        h = out.notes["bandwidth"]
        if not self.correct:
            warn_of_inflation(out, inflation, h, "Use correct=True, fewer shards or combine='gaussian'.")
        elif h > WIDE:
            out.warnings.append(
                f"the Weierstrass bandwidth is {h:.2g} standard deviations of a factor: the result depends on little more than "
                "the normal fits of the sub-posteriors. Use fewer shards if they are not normal."
            )
        if "spread_to_normal_product" not in out.notes:
            compare_with_normal_product(out, sub)
        return out


def refine(
    sub: SubPosteriors,
    log_densities: Sequence[Callable[[np.ndarray], float]],
    draws: int,
    bandwidth: float = 0.5,
    seed: int | np.random.Generator = 0,
    warmup: int = 100,
) -> Combination:
    """Refinement with densities, instead of draws alone; `bandwidth` is in standard deviations of a sub-posterior.

    `log_densities` holds the log of each sub-posterior density, up to a constant, as a function of one point.

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((2, 200, 1)), Convention.PRODUCT)
    >>> refine(sub, [lambda t: -0.5 * float(t @ t)] * 2, draws=50).theta.shape
    (50, 1)
    """
    Weierstrass("refinement", bandwidth).require(sub)
    if len(log_densities) != sub.shards:
        raise OptionError(f"one log density for each of the {sub.shards} shards is needed; got {len(log_densities)}.")
    rng, dim = generator(seed, Stream.COMBINATION), sub.dim
    kernel = symmetric(np.linalg.inv(sub.covariances.mean(0))) / bandwidth**2
    places = sub.means.copy()

    def excess(b: int, theta: np.ndarray) -> float:
        gap = theta - sub.means[b]
        return float(log_densities[b](theta)) + 0.5 * float(gap @ sub.precisions[b] @ gap)

    levels = [excess(b, places[b]) for b in range(sub.shards)]
    theta, accepted = np.empty((draws, dim)), 0
    for sweep in range(warmup + draws):
        here = normal_draws(rng, places.mean(0), sub.shards * kernel, 1)[0]
        for b in range(sub.shards):
            precision = sub.precisions[b] + kernel
            mean = np.linalg.solve(precision, sub.precisions[b] @ sub.means[b] + kernel @ here)
            proposal = normal_draws(rng, mean, precision, 1)[0]
            level = excess(b, proposal)
            if np.log(rng.random()) < level - levels[b]:
                places[b], levels[b] = proposal, level
                accepted += 1
        if sweep >= warmup:
            theta[sweep - warmup] = here
    size = chain_quality(theta[None])[0] if draws >= 8 else 1.0
    out = Combination(theta, None, np.full(sub.shards, 1.0 / sub.shards), min(float(draws), size))
    out.notes = {"acceptance_rate": accepted / (sub.shards * (warmup + draws)), "bandwidth": float(bandwidth)}
    warn_of_inflation(out, float(np.sqrt(1.0 + bandwidth**2)), bandwidth, "Use a smaller bandwidth=, or combine='gaussian'.")
    return out


class FactorPair(NamedTuple):
    """Draws of the product of two factors, h, the rate of acceptance, and how many draws of a factor they effectively rest on."""

    theta: np.ndarray
    bandwidth: float
    rate: float
    kernels: float


def _width(rate: Callable[[float], float], accept: float) -> float:
    """h that accepts a share of the pairs, by bisection of its logarithm."""
    low, high = 1e-3, 1e3
    for _ in range(30):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if rate(middle) < accept else (low, middle)
    return high


def _effective(counts: np.ndarray) -> float:
    """Effective number of categories of counts."""
    return float(counts.sum() ** 2 / (counts.astype(float) ** 2).sum())

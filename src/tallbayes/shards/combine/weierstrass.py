"""Product of smoothed sub-posteriors: prod_b (pi_b * N(0, h^2 I)), the Weierstrass transform of each (Wang and Dunson 2013).

* rejection: a pair (theta_1, theta_2) is accepted with probability exp(-|theta_1 - theta_2|^2 / (4 h^2)) and gives
  (theta_1 + theta_2) / 2 + N(0, h^2 I / 2); pairs are combined along a binary tree, whitened anew at each level.
* refinement: Gibbs on (theta, theta_1 .. theta_B): theta given the theta_b is N(their mean, h^2 I / B), theta_b given theta is
  proportional to pi_b(theta_b) N(theta_b; theta, h^2 I). With draws alone pi_b is their empirical measure; with densities,
  `refine` proposes from the normal fit times the kernel and accepts with the ratio of pi_b to the fit.

Every variance is inflated: the combination of normal factors has precision sum (S_b + h^2 I)^-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from tallbayes.errors import DataError, OptionError, unknown
from tallbayes.shards.combine.nonparametric import check_bandwidth
from tallbayes.shards.combine.subposteriors import (
    Combined,
    Combiner,
    Convention,
    SubPosteriors,
    normal_draws,
    symmetric,
    whitened,
)
from tallbayes.streams import Stream, generator

_BATCHES = 400  # of pairs tried before a level of the tree is given up
WIDE = 1.0  # bandwidth, in standard deviations, from which on smoothing dominates


@dataclass(frozen=True)
class Weierstrass(Combiner):
    """Draws of the product of smoothed sub-posteriors; `method` is "rejection" or "refinement".

    `bandwidth` is h in standard deviations of a sub-posterior (of the factors of a level, with rejection); by default rejection
    takes the h that accepts a share `accept` of pairs, refinement T^(-1/(4 + d)).

    >>> rng = np.random.default_rng(0)
    >>> sub = SubPosteriors(rng.standard_normal((4, 1000, 1)), Convention.PRODUCT)
    >>> Weierstrass()(sub, draws=300).theta.shape
    (300, 1)
    """

    method: str = "rejection"
    bandwidth: float | None = None
    accept: float = 0.1
    convention: ClassVar[Convention] = Convention.PRODUCT
    name: ClassVar[str] = "weierstrass"
    statement: ClassVar[str] = "the product of smoothed sub-posteriors: every variance is inflated by the smoothing"
    overlap: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.method not in ("rejection", "refinement"):
            raise unknown("method", self.method, ("rejection", "refinement"))
        check_bandwidth(self.bandwidth)
        if not 0.0 < self.accept < 1.0:
            raise OptionError(f"accept is a share of pairs between 0 and 1; got {self.accept}.")

    def combine(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combined:
        """Along a tree, or by Gibbs."""
        return self._tree(sub, draws, rng) if self.method == "rejection" else self._gibbs(sub, draws, rng)

    def _tree(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combined:
        parts, widths, rates = [np.asarray(p) for p in sub.draws], [], []
        while len(parts) > 1:
            joined = []
            for k in range(0, len(parts) - 1, 2):
                theta, h, rate = self._pair(parts[k], parts[k + 1], draws, rng)
                joined.append(theta)
                widths.append(h)
                rates.append(rate)
            parts = joined + parts[len(parts) - len(parts) % 2 :]
        theta = parts[0][rng.integers(0, parts[0].shape[0], draws)] if parts[0].shape[0] != draws else parts[0]
        out = Combined(theta, None, np.full(sub.shards, 1.0 / sub.shards), max(1.0, min(rates, default=1.0) * draws))
        out.notes = {"acceptance_rate": float(np.mean(rates)) if rates else 1.0, "bandwidth": float(max(widths, default=0.0))}
        return _judged(out)

    def _pair(
        self, first: np.ndarray, second: np.ndarray, draws: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, float, float]:
        """Draws of the product of two smoothed factors, with the bandwidth used and the rate of acceptance."""
        pooled = 0.5 * (np.atleast_2d(np.cov(first.T)) + np.atleast_2d(np.cov(second.T)))
        factor, centre = np.linalg.cholesky(pooled), 0.5 * (first.mean(0) + second.mean(0))
        a, b = (solve_triangular(factor, (p - centre).T, lower=True).T for p in (first, second))
        gap = ((a[rng.integers(0, a.shape[0], 20_000)] - b[rng.integers(0, b.shape[0], 20_000)]) ** 2).sum(1)
        h = self.bandwidth if self.bandwidth is not None else _width(gap, self.accept)
        rate, made, count = float(np.exp(-gap / (4 * h * h)).mean()), [], 0
        size = int(min(200_000, 1.2 * draws / max(rate, 1e-5) + 100))
        for _ in range(_BATCHES):
            i, j = rng.integers(0, a.shape[0], size), rng.integers(0, b.shape[0], size)
            keep = np.log(rng.random(size)) < -((a[i] - b[j]) ** 2).sum(1) / (4 * h * h)
            middle = 0.5 * (a[i[keep]] + b[j[keep]])
            made.append(middle + h / np.sqrt(2.0) * rng.standard_normal(middle.shape))
            count += middle.shape[0]
            if count >= draws:
                break
        if count < draws:
            raise DataError(
                f"two sub-posteriors do not overlap: {count} of {_BATCHES * size:,} pairs were accepted at bandwidth {h:.3g}. Give a "
                "larger bandwidth=, use fewer shards, or combine='gaussian'."
            )
        return centre + np.concatenate(made)[:draws] @ factor.T, float(h), rate

    def _gibbs(self, sub: SubPosteriors, draws: int, rng: np.random.Generator) -> Combined:
        white = whitened(sub)
        x, shards, (count, dim) = white.draws, sub.shards, sub.draws.shape[1:]
        h = self.bandwidth if self.bandwidth is not None else float(count ** (-1.0 / (4 + dim)))
        square, here = (x**2).sum(2), x.mean((0, 1))
        theta, chosen, moved, warmup = np.empty((draws, dim)), np.zeros(shards, int), 0, max(50, draws // 5)
        for sweep in range(warmup + draws):
            level = -(square - 2.0 * x @ here) / (2.0 * h * h)
            new = np.argmax(level + rng.gumbel(size=level.shape), axis=1)  # Gumbel's way to draw in proportion to exp(level)
            moved += int((new != chosen).sum())
            chosen = new
            here = x[np.arange(shards), chosen].mean(0) + h / np.sqrt(shards) * rng.standard_normal(dim)
            if sweep >= warmup:
                theta[sweep - warmup] = here
        out = Combined(white.back(theta), None, np.full(shards, 1.0 / shards), float(draws))
        out.notes = {"acceptance_rate": moved / (shards * (warmup + draws)), "bandwidth": h}
        return _judged(out)


def refine(
    sub: SubPosteriors,
    log_densities: Sequence[Callable[[np.ndarray], float]],
    draws: int,
    bandwidth: float = 0.5,
    seed: int | np.random.Generator = 0,
    warmup: int = 100,
) -> Combined:
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
    out = Combined(theta, None, np.full(sub.shards, 1.0 / sub.shards), float(draws))
    out.notes = {"acceptance_rate": accepted / (sub.shards * (warmup + draws)), "bandwidth": float(bandwidth)}
    return _judged(out)


def _width(gap: np.ndarray, accept: float) -> float:
    """h that accepts a share of the squared distances, by bisection of its logarithm."""
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)
        if np.exp(-gap / (4 * middle * middle)).mean() < accept:
            low = middle
        else:
            high = middle
    return float(high)


def _judged(out: Combined) -> Combined:
    h = out.notes["bandwidth"]
    if h > WIDE:
        out.warnings.append(
            f"the Weierstrass bandwidth is {h:.2g} standard deviations of a factor: the spread of the combination is mostly smoothing. "
            "Use fewer shards or combine='gaussian'."
        )
    return out

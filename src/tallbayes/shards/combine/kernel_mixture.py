"""Products of kernel estimates as mixtures over index tuples, and chains that draw from them.

    prod_b [ sum_t a_{b,t} N(theta; theta_{b,t}, h^2 I) ] x exp(-(theta - c)' P (theta - c) / 2)

is a mixture over tuples (t_1 .. t_B): with s the sum of the B draws of a tuple and Q = P (I + h^2 P / B)^-1, a tuple has the weight

    prod_b a_{b,t_b} x exp(-(sum_b |theta_{b,t_b}|^2 - |s|^2 / B) / (2 h^2) - (s / B - c)' Q (s / B - c) / 2)

and its component is normal with precision (B / h^2) I + P and mean (precision)^-1 (s / h^2 + P c). Given all others, an index has a
law over the T draws of its shard that is computed at once, so the chains are Gibbs samplers: what Neiswanger, Wang and Xing (2014,
algorithm 1) propose one index at a time is accepted here without a proposal. Several chains start apart at a wide kernel that is
narrowed during warm-up and fixed afterwards; they run until they agree, or until the sweeps that are allowed are used up.

Kernels widen every factor. The normal part of that is known: a normal fit N(m_b, S_b) becomes N(m_b, S_b + h^2 I). Multiplying each
factor by the ratio of the two undoes it, which is a normal factor with P = sum_b [S_b^-1 - (S_b + h^2 I)^-1] for all shards together.
For normal sub-posteriors the product is then right at every h; for others h decides how much of their shape is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from tallbayes.errors import OptionError
from tallbayes.shards.combine.subposteriors import (
    Combination,
    SubPosteriors,
    compare_with_normal_product,
    product_of_normals,
    symmetric,
    whiten,
)

CHAINS = 4
FEWEST_KERNELS = 50  # effective draws of every shard that the default bandwidth lets the product rest on
COLLAPSED = 20  # effective draws of a shard below which its kernel estimate is noise
UNMIXED = 1.05  # R-hat of index chains that have not mixed
FEWEST_EFFECTIVE = 100  # effective draws below which index chains have not mixed
INFLATED = 1.1  # of standard deviations, by the width of kernels
_ENOUGH = 400  # effective draws at which the chains may end
_BLOCKS = 8  # of sweeps, before chains that do not mix are given up
_SHORTEST = 250  # sweeps of a block
_RUNGS = 8  # of the ladder of bandwidths
_WIDEST = 50.0


def check_bandwidth(bandwidth: float | None) -> None:
    """Refuse a bandwidth that is not positive."""
    if bandwidth is not None and not bandwidth > 0:
        raise OptionError(f"bandwidth must be positive, in standard deviations of a sub-posterior; got {bandwidth}.")


@dataclass(frozen=True, eq=False)
class KernelMixture:
    """The mixture of the equation above over draws (shards, draws, dim); `excess` is -log a, (shards, draws)."""

    draws: np.ndarray
    bandwidth: float
    centre: np.ndarray
    precision: np.ndarray
    excess: np.ndarray | None = None

    @property
    def shards(self) -> int:
        """B."""
        return self.draws.shape[0]

    @cached_property
    def pull(self) -> np.ndarray:
        """Q."""
        unit = np.eye(self.centre.size)
        return symmetric(self.precision @ np.linalg.inv(unit + self.bandwidth**2 / self.shards * self.precision))

    @cached_property
    def gain(self) -> np.ndarray:
        """The log weight of a tuple is s' gain s / 2 + s' Q c / B, and what each draw adds by itself."""
        return np.eye(self.centre.size) / (self.shards * self.bandwidth**2) - self.pull / self.shards**2

    @cached_property
    def levels(self) -> np.ndarray:
        """What every draw adds to the log weight of a tuple by itself, (shards, draws)."""
        own = 0.5 * np.einsum("bti,ij,btj->bt", self.draws, self.gain, self.draws)
        own -= 0.5 * (self.draws**2).sum(2) / self.bandwidth**2
        return own if self.excess is None else own - self.excess

    def log_weights(self, sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Log weights of tuples, at most 0, from the sums of their draws (tuples, dim) and the sums of squared norms (tuples,)."""
        gap = sums / self.shards - self.centre
        spread = squares - (sums**2).sum(1) / self.shards
        return -0.5 * spread / self.bandwidth**2 - 0.5 * np.einsum("si,ij,sj->s", gap, self.pull, gap)

    def components(self, sums: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A draw of the component of each tuple, from the sums of their draws (..., dim)."""
        precision = self.shards / self.bandwidth**2 * np.eye(self.centre.size) + self.precision
        lower = np.linalg.cholesky(symmetric(precision))
        flat = sums.reshape(-1, self.centre.size)
        mean = np.linalg.solve(precision, (flat / self.bandwidth**2 + self.precision @ self.centre).T)
        noise = solve_triangular(lower, rng.standard_normal(mean.shape), lower=True, trans="T")
        return (mean + noise).T.reshape(sums.shape)

    def sweep(self, index: np.ndarray, rng: np.random.Generator) -> None:
        """Draw every index of (chains, shards) anew, given the others, in place."""
        chains, count = index.shape[0], self.draws.shape[1]
        sums = self.sums(index)
        shift = self.pull @ self.centre / self.shards
        for b in range(self.shards):
            others = sums - self.draws[b, index[:, b]]
            level = (others @ self.gain + shift) @ self.draws[b].T + self.levels[b]
            mass = np.cumsum(np.exp(level - level.max(1, keepdims=True)), axis=1)
            new = (mass < (rng.random(chains) * mass[:, -1])[:, None]).sum(1)
            index[:, b] = np.minimum(new, count - 1)
            sums = others + self.draws[b, index[:, b]]

    def sums(self, index: np.ndarray) -> np.ndarray:
        """Sums of the draws of tuples (..., shards)."""
        return sum((self.draws[b, index[..., b]] for b in range(self.shards)), start=np.zeros(self.centre.size))


def smoothing_correction(means: np.ndarray, covariances: np.ndarray, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre and precision of the normal factor that undoes what kernels do to normal sub-posteriors."""
    unit = bandwidth**2 * np.eye(means.shape[1])
    surplus = np.stack([symmetric(np.linalg.inv(c) - np.linalg.inv(c + unit)) for c in covariances])
    return product_of_normals(means, surplus)


def smallest_bandwidth(draws: np.ndarray, centre: np.ndarray, covariance: np.ndarray) -> float:
    """The smallest h, T^(-1/(4 + d)) at least, at which every shard has enough draws under the kernels around the product.

    The draws of shard b count by exp(-(theta_{b,t} - c)' (h^2 I + S)^-1 (theta_{b,t} - c) / 2), c and S of the product of normal fits;
    their effective number is that of Kish.
    """
    count, dim = draws.shape[1:]
    spread, vectors = np.linalg.eigh(covariance)
    square = ((draws - centre) @ vectors) ** 2
    enough = min(FEWEST_KERNELS, count / 4)

    def fewest(h: float) -> float:
        level = -0.5 * (square / (h * h + spread)).sum(2)
        weight = np.exp(level - level.max(1, keepdims=True))
        return float((weight.sum(1) ** 2 / (weight**2).sum(1)).min())

    low, high = float(count ** (-1.0 / (4 + dim))), _WIDEST
    if fewest(low) >= enough:
        return low
    for _ in range(30):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if fewest(middle) < enough else (low, middle)
    return high


def chain_quality(chains: np.ndarray) -> tuple[float, float]:
    """Smallest effective size and largest R-hat of the coordinates of (chains, draws, dim); one chain is judged by its halves.

    >>> size, r_hat = chain_quality(np.random.default_rng(0).standard_normal((4, 500, 2)))
    >>> size > 1000, r_hat < 1.05
    (True, True)
    """
    from arviz_stats.base import array_stats

    if chains.shape[0] == 1:
        chains = chains[:, : chains.shape[1] // 2 * 2].reshape(2, -1, chains.shape[2])
    columns = [np.ascontiguousarray(chains[:, :, k]) for k in range(chains.shape[2])]
    if any(np.ptp(c) == 0.0 for c in columns):
        return 1.0, np.inf
    sizes = [float(array_stats.ess(c, chain_axis=0, draw_axis=1)) for c in columns]
    return max(1.0, min(sizes)), max(float(array_stats.rhat(c, chain_axis=0, draw_axis=1)) for c in columns)


def draw_kernel_product(
    sub: SubPosteriors,
    mixture: Callable[[float], KernelMixture],
    bandwidth: float,
    draws: int,
    warmup: int,
    rng: np.random.Generator,
) -> Combination:
    """Draws of `mixture(bandwidth)`, a law in whitened coordinates, by several chains over index tuples, and what they report."""
    index = rng.integers(0, sub.draws.shape[1], (CHAINS, sub.shards))
    ladder = np.geomspace(max(1.0, 2.0 * bandwidth), bandwidth, _RUNGS)
    half = warmup // 2
    for rung, sweeps in zip(ladder, np.diff(np.linspace(0, half, _RUNGS + 1).astype(int)), strict=True):
        wide = mixture(float(rung))
        for _ in range(sweeps):
            wide.sweep(index, rng)
    law = mixture(bandwidth)
    for _ in range(warmup - half):
        law.sweep(index, rng)
    each = -(-draws // CHAINS)
    history: list[np.ndarray] = []
    for _ in range(_BLOCKS):
        for _ in range(max(each, _SHORTEST)):
            law.sweep(index, rng)
            history.append(index.copy())
        path = np.stack(history, axis=1)
        chains = law.components(law.sums(path), rng)
        size, r_hat = chain_quality(chains)
        if size >= min(_ENOUGH, 0.5 * draws) and r_hat < 1.0 + 0.4 * (UNMIXED - 1.0):
            break
    rows = np.linspace(0, chains.shape[1] - 1, each).astype(int)
    theta = whiten(sub).back(chains[:, rows].reshape(-1, sub.dim)[:draws])
    out = Combination(theta, None, np.full(sub.shards, 1.0 / sub.shards), min(float(draws), size))
    usage = np.stack([np.bincount(path[:, :, b].ravel(), minlength=sub.draws.shape[1]) for b in range(sub.shards)])
    out.notes = {
        "bandwidth": bandwidth,
        "index_chains": CHAINS,
        "index_r_hat": r_hat,
        "index_sweeps": path.shape[1],
        **report_kernels(out, usage, sub),
    }
    if r_hat > UNMIXED or size < min(FEWEST_EFFECTIVE, 0.5 * draws):
        out.warnings.append(
            f"the {CHAINS} index chains have not mixed after {path.shape[1]:,} sweeps: R-hat is {r_hat:.3f} and about {size:.0f} of "
            f"{draws:,} draws are effective. Use fewer shards, a larger bandwidth=, or combine='gaussian'."
        )
    compare_with_normal_product(out, sub)
    return out


def report_kernels(out: Combination, usage: np.ndarray, sub: SubPosteriors) -> dict[str, float]:
    """Effective number of draws of the shard that has the fewest under the product; `usage` counts draws, (shards, draws)."""
    share = usage / usage.sum(1, keepdims=True)
    effective = 1.0 / (share**2).sum(1)
    fewest = float(effective.min())
    if fewest < min(COLLAPSED, sub.draws.shape[1] / 5):
        out.warnings.append(
            f"the product of kernel estimates has collapsed: it rests on about {fewest:.0f} draws of shard {int(np.argmin(effective))} of "
            f"{sub.shards}, with {sub.dim} parameters. Use fewer shards, a larger bandwidth=, or combine='gaussian' or 'consensus'."
        )
    return {"fewest_kernels": fewest}


def warn_of_inflation(out: Combination, factor: float, bandwidth: float, remedy: str) -> None:
    """A warning where the width of kernels shows in the standard deviations."""
    if factor > INFLATED:
        out.warnings.append(
            f"kernels of {bandwidth:.2g} standard deviations of a sub-posterior inflate the standard deviations of the combination by a "
            f"factor of about {factor:.2g}. {remedy}"
        )

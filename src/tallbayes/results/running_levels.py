"""Running statistics of the effects of levels, for runs whose draws of levels do not fit in memory.

Each draw is absorbed as it comes: sums of batches, which tell mean, standard deviation, R-hat and effective size; a histogram of 64 bins
that widen by doubling, which tells quantiles; and a thinned set of draws. A batch doubles in length when there are 32 of them, and
the thinned set keeps every other draw when it is full, so that the length of the run need not be known. Draws are absorbed one by one
in their order: the result is the same however they are divided into chunks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable, jit

FIRST = 32  # draws from which the grid of a level is laid; the thinned set holds at least as many
BATCHES = 32  # at most; merged in pairs when there are so many
BINS = 64
RARE, FEW_OUTSIDE = 0.002, 4  # share and number of draws beyond the bins that do not widen them
REACH = 6.0  # standard deviations of the first draws on either side of their mean, at first
SCORES = np.linspace(-3.0, 3.0, 25)  # normal scores of the quantiles that are kept


class Running(NamedTuple):
    """What a chain knows of the levels whose draws it does not keep."""

    counts: np.ndarray  # draws, thinned draws, their stride, complete batches, draws of a batch, draws of the one under way
    thinned: np.ndarray  # (most, levels)
    centre: np.ndarray
    width: np.ndarray  # of a bin of each level
    bins: np.ndarray  # (levels, BINS)
    outside: np.ndarray  # draws beyond the bins since these were last widened; the end bins hold them
    sums: np.ndarray  # (BATCHES + 1, levels), of (x - centre) / scale, the last batch being under way
    squares: np.ndarray
    scale: np.ndarray


_DRAWS, _THINNED, _STRIDE, _COMPLETE, _LENGTH, _PARTIAL = range(6)


def running(levels: int, thinned: int) -> Running:
    """Nothing absorbed yet; at most `thinned` draws are kept, an even number of at least `FIRST`."""
    counts = np.array([0, 0, 1, 0, 1, 0], np.int64)
    return Running(
        counts,
        np.zeros((thinned, levels)),
        np.zeros(levels),
        np.ones(levels),
        np.zeros((levels, BINS), np.uint32),
        np.zeros(levels, np.uint32),
        np.zeros((BATCHES + 1, levels), np.float32),
        np.zeros((BATCHES + 1, levels), np.float32),
        np.ones(levels),
    )


@inlinable
def _lay_grid(r: Running) -> None:
    """Centre and scale from the first draws."""
    for g in range(r.centre.size):
        mean = 0.0
        for k in range(FIRST):
            mean += r.thinned[k, g] / FIRST
        square = 0.0
        for k in range(FIRST):
            square += (r.thinned[k, g] - mean) ** 2 / FIRST
        r.centre[g] = mean
        r.scale[g] = max(math.sqrt(square), 1e-9 * abs(mean) + 1e-12)
        r.width[g] = 2.0 * REACH * r.scale[g] / BINS


@inlinable
def _count(r: Running, g: int, value: float) -> None:
    """One more in the bin of the value. When draws outside are no longer rare, bins are merged in pairs about the centre."""
    if not math.isfinite(value):
        return
    shift, half = value - r.centre[g], BINS // 2
    if abs(shift) >= half * r.width[g]:
        r.outside[g] += 1
    often = r.outside[g] > RARE * r.counts[_DRAWS] + FEW_OUTSIDE
    while often and abs(shift) >= half * r.width[g]:
        r.width[g] *= 2.0
        for k in range(half // 2):
            up, down = half + k, half - 1 - k
            r.bins[g, up] = r.bins[g, half + 2 * k] + r.bins[g, half + 2 * k + 1]
            r.bins[g, down] = r.bins[g, half - 1 - 2 * k] + r.bins[g, half - 2 - 2 * k]
        for k in range(half // 2, half):
            r.bins[g, half + k] = 0
            r.bins[g, half - 1 - k] = 0
    if often:
        r.outside[g] = 0
    place = min(BINS - 1, max(0, math.floor(shift / r.width[g]) + half))
    r.bins[g, place] += 1


@inlinable
def _feed(r: Running, draw: np.ndarray, where: np.ndarray) -> None:
    counts = r.counts
    for g in range(where.size):
        value = draw[where[g]]
        _count(r, g, value)
        z = (value - r.centre[g]) / r.scale[g]
        r.sums[BATCHES, g] += z
        r.squares[BATCHES, g] += z * z
    counts[_PARTIAL] += 1
    if counts[_PARTIAL] < counts[_LENGTH]:
        return
    at = counts[_COMPLETE]
    r.sums[at] = r.sums[BATCHES]
    r.squares[at] = r.squares[BATCHES]
    r.sums[BATCHES] = 0.0
    r.squares[BATCHES] = 0.0
    counts[_PARTIAL] = 0
    counts[_COMPLETE] = at + 1
    if at + 1 == BATCHES:
        for k in range(BATCHES // 2):
            r.sums[k] = r.sums[2 * k] + r.sums[2 * k + 1]
            r.squares[k] = r.squares[2 * k] + r.squares[2 * k + 1]
        counts[_COMPLETE] = BATCHES // 2
        counts[_LENGTH] *= 2


@jit
def absorb(r: Running, draws: np.ndarray, where: np.ndarray) -> None:
    """Draws (count, coordinates) of a chain, one after another; `where` are the coordinates of the levels."""
    counts, every = r.counts, np.arange(where.size)
    for row in range(draws.shape[0]):
        n = counts[_DRAWS]
        if n % counts[_STRIDE] == 0:
            if counts[_THINNED] == r.thinned.shape[0]:
                for k in range(r.thinned.shape[0] // 2):
                    r.thinned[k] = r.thinned[2 * k]
                counts[_THINNED] //= 2
                counts[_STRIDE] *= 2
            for g in range(where.size):
                r.thinned[counts[_THINNED], g] = draws[row, where[g]]
            counts[_THINNED] += 1
        counts[_DRAWS] = n + 1
        if n + 1 == FIRST:
            _lay_grid(r)
            for k in range(FIRST):
                _feed(r, r.thinned[k], every)
        elif n + 1 > FIRST:
            _feed(r, draws[row], where)


class LevelStatistics(NamedTuple):
    """Statistics of the effects of every level over all draws of all chains."""

    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray
    scores: np.ndarray  # (len(SCORES), levels): quantiles at the normal probabilities of SCORES

    def quantiles(self, probability: float) -> np.ndarray:
        """Quantiles of every level, interpolated between those that are kept as if they were normal."""
        from statistics import NormalDist

        z = min(SCORES[-1], max(SCORES[0], NormalDist().inv_cdf(probability)))
        k = min(len(SCORES) - 2, int(np.searchsorted(SCORES, z, side="right")) - 1)
        share = (z - SCORES[k]) / (SCORES[k + 1] - SCORES[k])
        return (1.0 - share) * self.scores[k] + share * self.scores[k + 1]


def statistics(chains: list[Running]) -> LevelStatistics:
    """Those of all chains together; R-hat and effective sizes come from means of batches."""
    parts = [_moments(r) for r in chains]
    count = np.array([p[0] for p in parts], float)
    mean = sum(n * p[1] for n, p in zip(count, parts, strict=True)) / count.sum()
    within = sum(n * p[2] for n, p in zip(count, parts, strict=True)) / count.sum()
    between = sum(n * (p[1] - mean) ** 2 for n, p in zip(count, parts, strict=True)) / count.sum()
    sd = np.sqrt(within + between)
    probabilities = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in SCORES])
    scores = np.empty((SCORES.size, mean.size))
    _invert(
        np.stack([r.bins for r in chains]),
        np.stack([r.centre for r in chains]),
        np.stack([r.width for r in chains]),
        probabilities,
        scores,
    )
    size, r_hat = _convergence(chains, mean)
    return LevelStatistics(mean, sd, size, r_hat, scores)


def _moments(r: Running) -> tuple[int, np.ndarray, np.ndarray]:
    """Draws, mean and variance of every level in a chain."""
    kept = [*range(r.counts[_COMPLETE]), BATCHES]
    n = int(r.counts[_DRAWS])
    z, square = r.sums[kept].sum(0, dtype=float) / n, r.squares[kept].sum(0, dtype=float) / n
    return n, r.centre + r.scale * z, r.scale**2 * np.maximum(0.0, square - z**2)


def _convergence(chains: list[Running], mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Effective sizes from the spread of batch means about the mean, and split R-hat from halves of complete batches."""
    length = max(int(r.counts[_LENGTH]) for r in chains)
    batches, halves, total = [], [], 0
    for r in chains:
        merge, m = length // int(r.counts[_LENGTH]), int(r.counts[_COMPLETE])
        m -= m % (2 * merge)
        if m == 0:
            continue
        sums = r.sums[:m].astype(float).reshape(m // merge, merge, -1).sum(1) / length
        squares = r.squares[:m].astype(float).reshape(m // merge, merge, -1).sum(1) / length
        batches.append(r.centre + r.scale * sums)
        total += (m // merge) * length
        for part in (slice(0, m // merge // 2), slice(m // merge // 2, None)):
            z = sums[part].mean(0)
            halves.append((r.centre + r.scale * z, r.scale**2 * np.maximum(0.0, squares[part].mean(0) - z**2)))
    means, variances = (np.stack([h[k] for h in halves]) for k in range(2))
    within, across = variances.mean(0), means.var(0, ddof=1)
    spread = np.concatenate(batches) - mean
    noise = length * (spread**2).sum(0) / max(1, spread.shape[0] - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(noise > 0.0, total * (within + means.var(0)) / noise, 0.0)
        r_hat = np.sqrt((within + across) / within)
    return np.minimum(size, total * math.log10(max(10, total))), r_hat


@inlinable
def _share(bins: np.ndarray, total: float, centre: float, width: float, value: float) -> float:
    """The share of counts below a value, spread evenly over each bin; `bins` are cumulative."""
    place = (value - centre) / width + BINS // 2
    if place <= 0.0:
        return 0.0
    if place >= BINS:
        return 1.0
    k = int(place)
    below = bins[k - 1] if k > 0 else 0.0
    return (below + (place - k) * (bins[k] - below)) / total


@jit
def _invert(bins: np.ndarray, centre: np.ndarray, width: np.ndarray, probabilities: np.ndarray, out: np.ndarray) -> None:
    """Quantiles of the average of the histograms of all chains, by bisection."""
    chains, levels, count = bins.shape
    cumulative, totals = np.zeros((chains, count)), np.zeros(chains)
    for g in range(levels):
        low, high = np.inf, -np.inf
        everything = 0.0
        for c in range(chains):
            sum_ = 0.0
            for k in range(count):
                sum_ += bins[c, g, k]
                cumulative[c, k] = sum_
            totals[c] = sum_
            everything += sum_
            low = min(low, centre[c, g] - width[c, g] * (count // 2))
            high = max(high, centre[c, g] + width[c, g] * (count // 2))
        for p in range(probabilities.size):
            left, right = low, high
            for _ in range(40):
                middle = 0.5 * (left + right)
                share = 0.0
                for c in range(chains):
                    share += totals[c] / everything * _share(cumulative[c], totals[c], centre[c, g], width[c, g], middle)
                if share < probabilities[p]:
                    left = middle
                else:
                    right = middle
            out[p, g] = 0.5 * (left + right)

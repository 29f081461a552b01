"""What a pilot sees before the chains: residual gaps of random pairs, and whether their means are nearly normal.

Samplers that lean on the central limit theorem can be arbitrarily wrong when the gaps have heavy tails (Bardenet, Doucet and
Holmes 2017, 6.2). The check here is the one they recommend: resample the statistic of the first look at pilot pairs, and
compare it with the law that the sampler assumes by the Anderson-Darling distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.compile import jit
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import Move, tuning
from tallbayes.moves.proposals import propose
from tallbayes.proxies.capabilities import HasProxy
from tallbayes.proxies.taylor import unwhiten
from tallbayes.schemes.acceptance import as_tuned_proposal, proxy_at
from tallbayes.streams import Stream, generator
from tallbayes.target import EVALS, Cache, Target, charge, counters, subsample_gaps, subsample_values

PAIRS, ROWS, RESAMPLES = 4, 200_000, 200
LEVEL = 1e-6  # of the check: a run in a million is warned of without cause


@jit
def _gaps(target: Target[HasProxy], index: np.ndarray, theta: np.ndarray, other: np.ndarray, out: np.ndarray) -> None:
    subsample_gaps(target, index, theta, other, Cache(False, False), out)


@jit
def _values(target: Target, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    subsample_values(target, index, theta, out)


@dataclass(frozen=True, eq=False)
class PairPilot:
    """Residual gaps (pairs, rows) at pairs drawn from the Laplace fit and the move, and what reading them cost."""

    gaps: np.ndarray
    evaluations: int

    @property
    def spread(self) -> float:
        """Root mean square over pairs of the standard deviation of gaps."""
        return float(np.sqrt(self.gaps.var(1).mean()))

    @property
    def skewness(self) -> float:
        """Largest |skewness| of gaps over pairs."""
        centred = self.gaps - self.gaps.mean(1, keepdims=True)
        sd = np.maximum(centred.std(1), 1e-300)
        return float(np.abs((centred**3).mean(1) / sd**3).max())

    def statistics(self, batch: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> np.ndarray:
        """Student statistics (pairs, resamples) of the mean of `batch` rows drawn without replacement."""
        population = self.gaps.shape[1]
        out = np.empty((self.gaps.shape[0], resamples))
        finite = 1.0 - (batch - 1) / max(population - 1, 1)
        for pair, gaps in enumerate(self.gaps):
            mean = gaps.mean()
            for k in range(resamples):
                sample = gaps[rng.choice(population, batch, replace=False)] - mean
                out[pair, k] = sample.mean() / max(sample.std(ddof=1) * math.sqrt(finite / batch), 1e-300)
        return out


def pilot(model: Model, mode: Mode, order: int, move: Move, seed: int, pairs: int = PAIRS, rows: int = ROWS) -> PairPilot:
    """Read at most `rows` rows, drawn at random, at `pairs` pairs."""
    rng = generator(seed, Stream.PAIRS)
    index = _some_rows(model, rng, rows)
    proxy = proxy_at(mode, order)
    target = Target(model.rows, model.prior_terms, proxy, counters())
    proposal = as_tuned_proposal(move, model.dim)
    kernel = tuning.kernel(proposal, tuning.begin(proposal, np.eye(model.dim)))
    gaps = np.empty((pairs, index.size))
    for out in gaps:
        white, other_white = rng.standard_normal(model.dim), np.empty(model.dim)
        propose(rng, kernel, white, other_white)
        theta, other = np.empty(model.dim), np.empty(model.dim)
        unwhiten(proxy.whitening, white, theta)
        unwhiten(proxy.whitening, other_white, other)
        _gaps(target, index, theta, other, out)
    charge(target)
    return PairPilot(gaps, int(target.counters[EVALS]))


def values_at_mode(model: Model, mode: Mode, seed: int, rows: int = ROWS) -> np.ndarray:
    """Log-likelihoods at the mode of at most `rows` rows, drawn at random: an evaluation each."""
    index = _some_rows(model, generator(seed, Stream.VALUES), rows)
    out = np.empty(index.size)
    target = Target(model.rows, model.prior_terms, proxy_at(mode, 0), counters())
    _values(target, index, mode.reference, out)
    charge(target)
    return out


def _some_rows(model: Model, rng: np.random.Generator, rows: int) -> np.ndarray:
    n = model.data.n
    sample = np.arange(n) if n <= rows else np.sort(rng.choice(n, rows, replace=False))
    return sample.astype(np.int64)


def anderson_darling(uniform: np.ndarray) -> tuple[float, float]:
    """Distance A^2 of numbers from the uniform law on (0, 1), and its p-value (Marsaglia and Marsaglia 2004, asymptotic).

    >>> distance, p = anderson_darling((np.arange(100) + 0.5) / 100)
    >>> distance < 0.1, p > 0.99
    (True, True)
    """
    u = np.clip(np.sort(uniform), 1e-300, 1.0 - 1e-16)
    m = u.size
    weight = 2.0 * np.arange(1, m + 1) - 1.0
    z = float(-m - (weight * (np.log(u) + np.log1p(-u[::-1]))).sum() / m)
    if z < 2.0:
        series = 2.00012 + (0.247105 - (0.0649821 - (0.0347962 - (0.011672 - 0.00168691 * z) * z) * z) * z) * z
        return z, 1.0 - math.exp(-1.2337141 / z) / math.sqrt(z) * series
    inner = 1.0776 - (2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * z) * z) * z) * z) * z
    return z, -math.expm1(-math.exp(inner)) if z < 8.0 else math.exp(-z) / 3.0  # the tail falls like exp(-z)


def normality(pairs: PairPilot, batch: int, seed: int) -> dict[str, Any]:
    """Whether Student statistics of the first look follow Student's law: notes for the fit, `normal` false if they do not."""
    from scipy.stats import t as student

    rng = generator(seed, Stream.NORMALITY)
    batch = min(batch, pairs.gaps.shape[1])
    if batch == pairs.gaps.shape[1] or pairs.spread == 0.0:  # nothing is estimated
        return {"normal": True, "anderson_darling": 0.0, "p_value": 1.0, "skewness": pairs.skewness, "batch": batch}
    tests = [anderson_darling(student.cdf(s, batch - 1)) for s in pairs.statistics(batch, rng)]
    p = min(1.0, len(tests) * min(p for _, p in tests))
    return {
        "normal": bool(p > LEVEL),
        "anderson_darling": max(z for z, _ in tests),
        "p_value": p,
        "skewness": pairs.skewness,
        "batch": batch,
    }


def not_normal(notes: dict[str, Any]) -> list[str]:
    """The sentence to warn with when the check failed."""
    if notes["normal"]:
        return []
    return [
        f"the means of {notes['batch']:,} rows used by the first look are not normally distributed: Anderson-Darling distance "
        f"{notes['anderson_darling']:.1f} of their Student statistics (p = {notes['p_value']:.1g}), skewness of the log ratios "
        f"{notes['skewness']:.1f}. Decisions are biased, and so is the posterior: use 'confidence' or 'exact-minibatch', or a "
        "larger batch."
    ]

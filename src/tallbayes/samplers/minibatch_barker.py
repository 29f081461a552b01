"""Minibatch Metropolis-Hastings by Barker's rule: accept iff D + N(0, 1 - s^2) + X_c > 0. HEURISTIC.

Barker's rule accepts with probability 1 / (1 + e^(-delta)), which is to accept iff delta + X > 0 for a logistic X. An estimate
D ~ N(delta, s^2) of the log ratio with s^2 <= 1 supplies part of X: N(0, s^2) + N(0, 1 - s^2) + X_c is logistic if N(0, 1) + X_c
is. So the posterior is invariant but for two errors: X_c is a fit (no law solves this exactly; the distribution function is met
within 5e-6), and means of rows are only nearly normal (Seita, Pan, Chen and Canny 2017; rows are read until s^2 <= 1).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, positions
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.schemes.acceptance import Pair, SubsampledAcceptance, check_looks, decide, looks, read_until
from tallbayes.target import row_total

BERRY_ESSEEN = 0.4748  # Shevtsova's constant: sup |F - Phi| <= 0.4748 rho_3 / (sigma^3 sqrt(b)) for independent summands
FAR = 0.25  # a distance of laws that makes a decision doubtful, where the noise is not small
NOISY = 0.1


class Barker(NamedTuple):
    """Rows read at each look, and the atoms of the correction with their cumulative probabilities."""

    sizes: np.ndarray
    atoms: np.ndarray
    cumulative: np.ndarray


@functools.cache
def correction(sigma: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and probabilities of X_c with N(0, sigma^2) + X_c nearly logistic: non-negative least squares on distribution functions.

    >>> atoms, probability = correction()
    >>> from scipy.special import expit, ndtr
    >>> grid = np.linspace(-20, 20, 2001)
    >>> bool(np.abs(ndtr(grid[:, None] - atoms) @ probability - expit(grid)).max() < 1e-5)
    True
    """
    from scipy.optimize import nnls
    from scipy.special import expit, ndtr

    atoms, grid = np.linspace(-10.0, 10.0, 801), np.linspace(-20.0, 20.0, 1601)
    matrix = np.vstack([ndtr((grid[:, None] - atoms) / sigma), np.full((1, atoms.size), 1e3)])
    weight, _ = nnls(matrix, np.append(expit(grid), 1e3), maxiter=20_000)
    kept = weight > 1e-12
    return atoms[kept], weight[kept] / weight[kept].sum()


class Info(NamedTuple):
    """What a decision reports, by position: the shared columns, and the rule's own."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    noise_variance: int
    berry_esseen: int


AT = positions(Info)


@decide.register(Barker)
def _decide(rng: np.random.Generator, target: Any, rule: Barker, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    n, sums = row_total(target), np.zeros(4)
    t, variance = read_until(rng, target, pair, rule.sizes, 1.0, sums)
    spread = math.sqrt(max(0.0, sums[2] / t - (sums[1] / t) ** 2))
    info[AT.noise_variance] = variance
    if spread > 0.0 and t < n:
        info[AT.berry_esseen] = min(1.0, BERRY_ESSEEN * sums[3] / t / (spread * spread * spread * math.sqrt(t)))
    atom = int(np.searchsorted(rule.cumulative, math.exp(pair.level)))
    correct = rule.atoms[min(atom, rule.atoms.size - 1)]
    noise = math.sqrt(max(0.0, 1.0 - variance)) * rng.standard_normal()
    return pair.known + n * sums[1] / t + noise + correct > 0.0, t


@dataclass(frozen=True)
class MinibatchBarker(SubsampledAcceptance):
    """Barker's rule with subsampling noise: `batch` rows at first, `growth` times as many at each look until the noise is below one.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.MinibatchBarker(), draws=200, warmup=100, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 1_000)
    True
    """

    batch: int = 100
    growth: float = 1.5
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "the posterior is invariant up to 5e-6 in an acceptance probability if means of rows are normal; they are nearly "
        "normal",
        assumed=("means of the rows read are normal",),
        checked=("Berry-Esseen distance of every decision",),
    )
    cost: ClassVar[str] = "rows until the noise of the log ratio is below 1"
    name: ClassVar[str] = "minibatch-barker"
    Info: ClassVar[type] = Info
    coupled: ClassVar[bool] = False
    barker: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        check_looks(self.batch, self.growth, least=30)

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """Looks and correction."""
        atoms, probability = correction()
        sizes = looks(self.batch, self.growth, model.data.n)
        return Barker(sizes, atoms, np.cumsum(probability)), "Barker's rule with a correction of the noise, as requested", {}

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost, and noise that may be far from normal."""
        shared, stats = super().diagnose(outcome), outcome.stats
        doubtful = (stats["berry_esseen"] > FAR) & (stats["noise_variance"] > NOISY)
        share = float(doubtful.mean())
        if share <= 0.1:
            return shared
        return shared + Diagnosis(
            warnings=(
                f"in {share:.0%} of decisions the noise may be far from normal (Berry-Esseen distance "
                f"{float(np.median(stats['berry_esseen'][doubtful])):.2f} in the median of them): the log ratios have heavy "
                "tails. Use 'exact-minibatch' or 'confidence', or a larger batch.",
            )
        )

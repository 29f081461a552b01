"""The penalty method: Metropolis-Hastings with a noisy log ratio, its acceptance lowered by half the variance of the noise.

If D ~ N(delta, s^2) estimates the log ratio delta(theta, theta') = -delta(theta', theta), with s^2 known and symmetric, then
accepting with probability

    min(1, exp(D - s^2 / 2)),    E[.] = Phi(delta/s - s/2) + exp(delta) Phi(-delta/s - s/2),

satisfies detailed balance with respect to the posterior (Ceperley and Dewing 1999). Here D = known + n times the mean of
Delta_i over t rows drawn without replacement, t grows until the estimated s^2 is at most `variance`, and the penalty for an
estimated s^2 is the series of the same authors, s^2/2 + s^4 / (4 (t+1)) + s^6 / (3 (t+1) (t+3)). Means of rows are only nearly
normal (Nicholls, Fox and Watt 2012; Bardenet, Doucet and Holmes 2017, 6.2). HEURISTIC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.contract import Diagnosis, Guarantee, Outcome, positions
from tallbayes.diagnostics.pair_pilot import normality, not_normal, pilot
from tallbayes.errors import OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.schemes.acceptance import Pair, SubsampledAcceptance, check_looks, decide, looks, read_until
from tallbayes.target import row_total

NOISY = 0.05  # mean variance of the noise above which its law matters


class Penalty(NamedTuple):
    """Rows read at each look, and the variance of the log ratio at which reading ends."""

    sizes: np.ndarray
    variance: float


@inlinable
def penalty_of(variance: float, count: int) -> float:
    """What is taken off the log ratio for noise of a variance that was estimated from `count` rows."""
    series = variance * variance * (0.25 + variance / (3.0 * (count + 3.0))) / (count + 1.0)
    return 0.5 * variance + series


class Info(NamedTuple):
    """What a decision reports, by position: the shared columns, and the rule's own."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    noise_variance: int


AT = positions(Info)


@decide.register(Penalty)
def _decide(rng: np.random.Generator, target: Any, rule: Penalty, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    sums = np.zeros(3)
    t, variance = read_until(rng, target, pair, rule.sizes, rule.variance, sums)
    info[AT.noise_variance] = variance
    return pair.level < pair.known + row_total(target) * sums[1] / t - penalty_of(variance, t), t


@dataclass(frozen=True)
class PenaltyMH(SubsampledAcceptance):
    """The penalty method: read from `batch` rows on, `growth` times as many at each look, until the noise has at most `variance`.

    `variance=inf` always reads `batch` rows. Without a proxy (`order=0`) nearly all rows are needed.

    >>> import numpy as np, tallbayes as tb
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(20_000), rng.standard_normal(20_000)])
    >>> y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ [0.1, 0.5]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> fit = tb.sample(model, tb.samplers.PenaltyMH(), draws=200, warmup=100, seed=1, progress=False)
    >>> bool(fit.evals.mean() < 1_000)
    True
    """

    variance: float = 1.0
    batch: int = 100
    growth: float = 1.5
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "the posterior is invariant if the noise of the log ratio is normal with known variance; it is nearly normal, and "
        "estimated",
        assumed=("means of the rows read are normal",),
        checked=("normality of the first look at pilot pairs",),
    )
    cost: ClassVar[str] = "rows until the noise of the log ratio is about 1"
    name: ClassVar[str] = "penalty-mh"
    Info: ClassVar[type] = Info
    coupled: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        check_looks(self.batch, self.growth, least=30)
        if not self.variance > 0.0:
            raise OptionError(
                f"variance is the variance of the log ratio at which reading stops and must be positive; got {self.variance}."
            )

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """Looks, and the check of normality."""
        found = pilot(model, mode, self.order, self.move, seed)
        notes = {**normality(found, self.batch, seed), "pilot_evaluations": found.evaluations}
        sizes = looks(self.batch, self.growth, model.data.n)
        return (
            Penalty(sizes, float(self.variance)),
            f"penalty for noise of variance {self.variance:g} or less, as requested",
            notes,
        )

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost, and normality where there is noise to speak of."""
        noisy = np.mean(outcome.stats["noise_variance"]) > NOISY
        return super().diagnose(outcome) + Diagnosis(warnings=tuple(not_normal(outcome.setup.notes)) if noisy else ())

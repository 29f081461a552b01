"""Austerity Metropolis-Hastings: the decision by a sequential t-test. No law is known that it leaves invariant. HEURISTIC.

With psi = (log u - known) / n, accept iff mean_i Delta_i > psi. Of t rows drawn without replacement let m be the mean and
s_l the standard deviation of Delta_i, and

    s = s_l / sqrt(t) sqrt(1 - (t - 1) / (n - 1)),    stop if 1 - F_{t-1}(|m - psi| / s) < epsilon,

F the law of Student; otherwise read more rows, all n at last (Korattikara, Chen and Welling 2014; Bardenet, Doucet and Holmes
2017, 6.2.2). The p-value is one-sided and not corrected for repeated looks. With skewed Delta_i the test is wrong however
small epsilon is: setup checks the normality of the first look, and a warning is issued if the check fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, positions
from tallbayes.diagnostics.pair_pilot import normality, not_normal, pilot
from tallbayes.errors import OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.schemes.acceptance import Pair, SubsampledAcceptance, check_looks, decide, looks, read_more
from tallbayes.target import row_total, stopped


class TTest(NamedTuple):
    """Rows read at each look, and the value of the statistic above which the look decides."""

    sizes: np.ndarray
    critical: np.ndarray


class Info(NamedTuple):
    """What a decision reports, by position: the shared columns, and the rule's own."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    looks: int


AT = positions(Info)


@decide.register(TTest)
def _decide(rng: np.random.Generator, target: Any, rule: TTest, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    n = row_total(target)
    psi = (pair.level - pair.known) / n
    sums, t = np.zeros(3), 0
    for look in range(rule.sizes.size):
        size = rule.sizes[look]
        read_more(rng, target, pair, t, size, psi, sums)
        t = size
        info[AT.looks] = look + 1
        if t >= n or stopped(target):
            break
        mean = sums[1] / t
        spread = math.sqrt(max(0.0, sums[2] / t - mean * mean) * t / (t - 1.0))
        error = spread / math.sqrt(t) * math.sqrt(1.0 - (t - 1.0) / (n - 1.0))
        if abs(mean) > rule.critical[look] * error:
            break
    return sums[1] > 0.0, t


@dataclass(frozen=True)
class Austerity(SubsampledAcceptance):
    """Metropolis-Hastings whose decision is a sequential t-test on `batch` rows at first, `growth` times as many at each look.

    `order` 1 or 2 tests the residuals of a Taylor proxy instead of the log ratios (0, as published).

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.normal(np.random.default_rng(0).standard_normal(20_000))
    >>> fit = tb.sample(model, tb.samplers.Austerity(batch=100), draws=200, warmup=100, seed=1, progress=False)
    >>> bool(fit.stats["rows"].mean() < 20_000)
    True
    """

    epsilon: float = 0.05
    batch: int = 500
    growth: float = 1.5
    order: int = 0
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "the stationary distribution is unknown; a t-test replaces the full-data decision",
        assumed=("means of the rows of a look are normal", "repeated looks do not matter"),
        checked=("normality of the first look at pilot pairs",),
    )
    cost: ClassVar[str] = "part of the rows; few if the decision is clear"
    name: ClassVar[str] = "austerity"
    Info: ClassVar[type] = Info

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        check_looks(self.batch, self.growth, least=30)
        if not 0.0 < self.epsilon < 0.5:
            raise OptionError(f"epsilon is the level of a one-sided test and must be between 0 and 0.5; got {self.epsilon}.")

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """Looks, their critical values, and the check of normality."""
        from scipy.stats import t as student

        sizes = looks(self.batch, self.growth, model.data.n)
        critical = student.isf(self.epsilon, np.maximum(sizes - 1, 1))
        found = pilot(model, mode, self.order, self.move, seed)
        notes = {**normality(found, self.batch, seed), "pilot_evaluations": found.evaluations}
        return TTest(sizes, critical), f"t-tests at level {self.epsilon} from {sizes[0]:,} rows on, as requested", notes

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost and normality."""
        return super().diagnose(outcome) + Diagnosis(warnings=tuple(not_normal(outcome.setup.notes)))

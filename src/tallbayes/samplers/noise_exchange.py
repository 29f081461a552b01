"""Exchange of acceptance noise for subsampling noise: accept iff known / n + mean of Delta_i over t rows with replacement > 0.

With sigma the standard deviation of Delta_i, the mean is normal with standard deviation sigma / sqrt(t) up to Berry-Esseen's
error, and |Phi(x) - 1 / (1 + e^(-1.702 x))| < 0.0095. So the move is accepted about as by Barker's rule for

    pi^beta,    beta = 1.702 sqrt(t) / (n sigma):

the law is approximately the posterior to the power beta (Bardenet, Doucet and Holmes 2017, 6.3). beta = 1 needs
t = (n sigma / 1.702)^2, which is of order n for steps of posterior size. HEURISTIC: sigma differs from pair to pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.contract import Diagnosis, Guarantee, Outcome, Setup, positions
from tallbayes.diagnostics.pair_pilot import pilot
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import tuning
from tallbayes.schemes.acceptance import (
    AcceptanceOptions,
    AcceptancePolicy,
    Pair,
    SubsampledAcceptance,
    check_rows,
    decide,
    proxy_at,
)
from tallbayes.target import row_total, stopped, subsample_gaps

LOGISTIC = 1.702  # the factor at which a logistic law is nearest to the normal one
BLOCK = 4096  # rows read at a time
HOPELESS = 20.0  # rows of a decision, in units of n, that are refused: plain Metropolis-Hastings reads n
MEMORY = 300  # iterations of warm-up that the spread of gaps is an average of


class Exchange(NamedTuple):
    """Rows drawn with replacement."""

    subsample: int


class ExchangeTuning(NamedTuple):
    """Step size, the typical spread of gaps, the iterations it comes from, and the subsample that makes beta one."""

    step: tuning.Tuning
    spread: float
    iterations: int
    subsample: int


class Info(NamedTuple):
    """What a decision reports, by position: the shared columns, and the rule's own."""

    acceptance_rate: int
    component: int
    rows: int
    full_read: int
    sigma: int
    beta: int


AT = positions(Info)


@decide.register(Exchange)
def _decide(rng: np.random.Generator, target: Any, rule: Exchange, pair: Pair, info: np.ndarray) -> tuple[bool, int]:
    n, t = row_total(target), rule.subsample
    index, gaps = np.empty(min(t, BLOCK), np.int64), np.empty(min(t, BLOCK))
    total, squares, start = 0.0, 0.0, 0
    while start < t:
        if stopped(target):
            return False, 0
        size = min(BLOCK, t - start)
        for k in range(size):
            index[k] = int(n * rng.random())
        subsample_gaps(target, index[:size], pair.theta, pair.other, pair.seen, gaps[:size])
        for k in range(size):
            total += gaps[k]
            squares += gaps[k] * gaps[k]
        start += size
    mean = total / t
    sigma = math.sqrt(max(0.0, squares / t - mean * mean))
    info[AT.rows] = t
    info[AT.sigma] = sigma
    info[AT.beta] = LOGISTIC * math.sqrt(t) / (n * sigma) if sigma > 0.0 else np.inf
    return pair.known + n * mean > 0.0, 0


class ExchangePolicy(AcceptancePolicy):
    """Warm-up also sets the subsample, from the spread of the gaps it saw, unless the user has."""

    def __init__(self, sampler: NoiseExchange, model: Model, spread: float) -> None:
        super().__init__(sampler.move, Exchange(1), model, shuffled=False, barker=True)
        self.n, self.given, self.spread = model.data.n, sampler.subsample, spread

    def begin(self) -> Any:
        """The subsample for the spread of the pilot."""
        return ExchangeTuning(
            super().begin(), self.spread, 0, self.given or require_hope(self.n, subsample_for(self.n, self.spread))
        )

    def update(self, state: Any, draws: np.ndarray, info: dict[str, np.ndarray], end: int, warmup: int) -> Any:
        """Step, then the subsample for the median spread over the last few hundred iterations."""
        moved = super().update(state.step, draws, info, end, warmup)
        if self.given is not None:
            return state._replace(step=moved)
        sigma, seen = info["sigma"], min(state.iterations, MEMORY)
        spread = (seen * state.spread + sigma.size * float(np.median(sigma))) / (seen + sigma.size)
        return ExchangeTuning(moved, spread, state.iterations + sigma.size, require_hope(self.n, subsample_for(self.n, spread)))

    def options(self, state: Any, final: bool) -> Any:
        """Kernel and rule."""
        return AcceptanceOptions(tuning.kernel(self.move, state.step, final), Exchange(state.subsample), False)


def subsample_for(n: int, sigma: float) -> int:
    """t with beta = 1.

    >>> subsample_for(100_000, 0.01)
    345209
    """
    return max(2, math.ceil((n * sigma / LOGISTIC) ** 2))


def require_hope(n: int, subsample: int) -> int:
    """The subsample, unless it is many times what a decision on all rows reads."""
    if subsample > HOPELESS * n:
        raise ModelError(
            f"noise exchange would read about {subsample:,} rows in every decision, {subsample / n:.0f} times the {n:,} there "
            "are, because the log ratios of proposals vary too much from row to row. Use sampler='mh', which reads each row "
            "once, order=2, or subsample= for a tempered posterior."
        )
    return subsample


@dataclass(frozen=True)
class NoiseExchange(SubsampledAcceptance):
    """Subsampling noise in place of the uniform number of the decision; warm-up chooses `subsample` so that beta is about one.

    Impractical, as its authors note: it reads about n rows per iteration.

    >>> import tallbayes as tb
    >>> tb.samplers.NoiseExchange(subsample=300).guarantee.kind
    'HEURISTIC'
    """

    subsample: int | None = None
    order: int = 0
    guarantee: ClassVar[Guarantee] = Guarantee(
        "HEURISTIC",
        "approximately the posterior to the power beta = 1.702 sqrt(t) / (n sigma), were sigma the same for all pairs",
        assumed=("means of the rows read are normal", "the spread of log ratios is the same for all pairs"),
    )
    cost: ClassVar[str] = "on the order of n rows"
    name: ClassVar[str] = "noise-exchange"
    Info: ClassVar[type] = Info
    coupled: ClassVar[bool] = False
    barker: ClassVar[bool] = True
    shuffled: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse what is out of range or contradicts itself."""
        super().check()
        if self.subsample is not None and (not isinstance(self.subsample, int) or self.subsample < 2):
            raise OptionError(
                "subsample is the number of rows per decision and must be a whole number of at least 2; got "
                f"{self.subsample!r}."
            )

    def rule(self, model: Model, mode: Mode, seed: int) -> tuple[Any, str, dict[str, Any]]:
        """The subsample at the start."""
        if self.subsample is not None:
            return Exchange(self.subsample), f"{self.subsample:,} rows with replacement, as requested", {}
        found = pilot(model, mode, self.order, self.move, seed)
        subsample = require_hope(model.data.n, subsample_for(model.data.n, found.spread))
        notes = {"pilot_evaluations": found.evaluations, "pilot_sigma": found.spread, "pilot_subsample": subsample}
        return Exchange(subsample), f"{subsample:,} rows with replacement before warm-up, for beta = 1", notes

    def prepare(self, model: Model, mode: Mode, seed: int, progress: bool) -> Setup:
        """The pilot, unless the subsample is given."""
        check_rows(model)
        _, why, notes = self.rule(model, mode, seed)
        policy = ExchangePolicy(self, model, notes.get("pilot_sigma", 0.0))
        return Setup(model, policy, proxy_at(mode, self.order), why, notes)

    def diagnose(self, outcome: Outcome) -> Diagnosis:
        """Cost, and a temperature that is not one."""
        shared, stats = super().diagnose(outcome), outcome.stats
        beta = float(np.median(stats["beta"]))
        if 0.9 < beta < 1.1:
            return shared
        return shared + Diagnosis(
            warnings=(
                f"the draws roughly follow the posterior raised to the power {beta:.2f} (median over iterations), because the "
                f"subsample is {int(np.median(stats['rows'])):,} rows; it should be about {beta**-2:.3g} times that.",
            )
        )

"""Which method is cheapest: predictions, confirmed by a pilot of what looks best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes import streams
from tallbayes.auto.predictions import (
    Prediction,
    bright_hmc,
    full_data,
    inefficiency,
    price,
    stays,
    subsampled_hmc,
    turning_point,
    with_sticking,
)
from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.contract import KINDS, Sampler, Setup, interruptible
from tallbayes.deadline import require_time
from tallbayes.diagnostics.tail_survey import HeavyTail, heaviest_tail
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import hmc, independence, nuts
from tallbayes.progress import Waiting
from tallbayes.proxies.third_order import pair_value
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import HMCECS, ExactMinibatch, Firefly, FullData
from tallbayes.schemes.poisson_minibatch import dominating
from tallbayes.streams import Stream, generator
from tallbayes.target import charge

PAIRS = 50  # pairs of Laplace draws on which the rate is predicted
PILOT = 3000  # iterations of exact minibatch in its pilot, at most
SHORT_PILOT = 80  # of Hamiltonian methods, and of exact minibatch at least
_PASSES = 40.0  # full passes that a pilot of exact minibatch may read,
_ROWS = 3e6  # and at least so many rows, which take less than a second: few passes over few rows would not show stays in a tail
_FEWEST = 5  # effective draws of that pilot: with fewer its stays were cut short by the end, and nothing is known of its cost
HEAVY_PILOT = 400  # of NUTS where tails are heavy, at most,
_PATIENCE = 5e9  # and for so many nanoseconds
LIGHTS_PILOT = 400  # of Firefly, whose lights may hold theta for many iterations
_LIGHTS_PASSES = 17.0  # over the rows, before Firefly begins
_DRAWS = 1000.0  # effective draws over which these passes have to pay
_QUICK = 3e8  # nanoseconds for as many draws, below which Firefly is not tried: it would have to be compiled first
_CHEAP = 1000.0  # evaluations per effective draw of an exact method that HMC-ECS cannot beat: it needs 100 rows per gradient
_CUBE = 0.03  # nanoseconds over d^3 of a third-order sum, and of what a row adds to its tensor (measured, both)
_FOURTH = 300.0  # nanoseconds per row of the fourth-order bound
_PAIR = 1000.0  # nanoseconds of the fourth-order bound per iteration
_MOST_CUBED = 120  # columns with which the tensor fits into the cache of a core
_LEAST_ACCEPTED = 0.5  # by third-order terms: in more skewed posteriors two decisions accept much less than one
_DRAWN = 150.0  # nanoseconds of an evaluation of a row that is drawn under a bound, beyond those of its columns (measured)
_SHARE = 0.8  # of independent proposals
_CHI = 2.0  # of the rate in heavy tails: the variance of the noise of a log ratio is at most about 1 / chi


class Choice(NamedTuple):
    """The sampler, its setup if there is one already, why, and every prediction, that of the sampler first."""

    sampler: Sampler
    setup: Setup | None
    why: str
    predictions: list[Prediction]


def _first_stage(setup: Setup, pairs: np.ndarray) -> float:
    """Share of draws from the Laplace fit that third-order terms accept: 2 Phi(-s / sqrt(2)) if s is their standard deviation."""
    changes = [pair_value(setup.proxy.proxy, a, b) for a, b in pairs]
    return math.erfc(float(np.std(changes)) / math.sqrt(8.0))


class Weighing:
    """The candidates for one posterior, and the methods that refused it."""

    def __init__(self, model: Model, mode: Mode, guarantee: str | None, seed: int, progress: bool) -> None:
        self.model, self.mode, self.seed, self.progress = model, mode, seed, progress
        self.allowed = KINDS if guarantee is None else KINDS[: KINDS.index(guarantee.upper()) + 1]
        self.guarantee, self.pilots = guarantee, 0
        self.refused: dict[str, str] = {}
        self.candidates: list[Prediction] = []
        self.heavy: HeavyTail | None = None

    def choice(self) -> Choice:
        """Predict, try what looks cheapest, and say why."""
        self._consider(FullData(nuts()), full_data)
        self._consider(ExactMinibatch(), self._exact_minibatch)
        if self._rows_dominate():
            self._consider(ExactMinibatch(order=3), self._exact_minibatch)
        best = self._settled()
        passes = _LIGHTS_PASSES * self.model.data.n * (4.0 + 0.5 * self.model.dim)  # nanoseconds
        if _DRAWS * best.nanoseconds_per_ess > max(_QUICK, 2.0 * passes) and self.heavy is None:
            self._consider(Firefly(move=hmc()), bright_hmc)
            best = self._settled()
        if "ASYMPTOTIC" in self.allowed and best.evals_per_ess > _CHEAP and self.heavy is None:
            self._consider(HMCECS(), subsampled_hmc)
            best = self._settled()
        others = [c for c in self.candidates if c is not best]
        return Choice(best.sampler, best.setup, self._why(best, others), [best, *sorted(others, key=price)])

    def _consider(self, sampler: Sampler, predict: Callable[[Any, Setup], Prediction | None]) -> None:
        """Add a method, unless it refuses the model; its reason is kept then."""
        if sampler.guarantee.kind not in self.allowed:
            return
        try:
            setup = sampler.setup(self.model, self.mode, self.seed, self.progress)
        except (ModelError, OptionError) as error:
            self.refused[sampler.name] = str(error)
            return
        prediction = predict(sampler, setup)
        self.candidates += [] if prediction is None else [prediction]

    def _settled(self) -> Prediction:
        """The cheapest, once it has been tried."""
        while self.candidates:
            best = min(self.candidates, key=price)
            if best.tried:
                return best
            self.candidates.remove(best)
            label = f"pilot of {best.sampler.name}, compiled once (the result is cached)"
            try:
                with Waiting(label, self.progress):
                    self.candidates.append(self._pilot(best))
            except (ModelError, OptionError) as error:
                if not self.candidates:
                    raise
                self.refused[best.sampler.name] = str(error)
        raise OptionError(f"no method offers guarantee={self.guarantee!r} for this model.")

    def _rows_dominate(self) -> bool:
        """Whether reading fewer rows could pay for the tensor of third-order proxies, over a thousand effective draws."""
        model, d = self.model, self.model.dim
        if (
            self.heavy is not None
            or d > _MOST_CUBED
            or not (model.linear and model.family.self_concordant)
            or model.predictors > 1
            or model.nuisances
        ):
            return False
        for known in self.candidates:
            if isinstance(known.sampler, ExactMinibatch):
                row_time = known.evals_per_ess * known.nanoseconds_per_eval
                saved = row_time - known.iterations_per_ess * (_CUBE * d**3 + _PAIR)
                return _DRAWS * saved > model.data.n * (_CUBE * d**3 + _FOURTH)
        return False

    def _exact_minibatch(self, sampler: ExactMinibatch, setup: Setup) -> Prediction | None:
        """At best every independent proposal is accepted. In heavy tails these come from Student's t, decided in one stage with more
        rows than needed, so that the noise of the decision does not hold the chain in the tails."""
        n, d, rng = self.model.data.n, self.model.dim, generator(self.seed, Stream.AUTO)
        bound = setup.proxy.bound
        rates = np.zeros(rate_count(bound))
        pairs = rng.standard_normal((PAIRS, 2, d))
        third, reason = sampler.order == 3, ", with third-order proxies" * (sampler.order == 3)
        self.heavy = None if third else heaviest_tail(setup, rng)  # its search is for second-order proxies
        if self.heavy is not None:
            move = independence(_SHARE, df=max(4.0, d / 3.0))
            heavy = ExactMinibatch(rate="tuna", chi=_CHI, move=move, two_stage=False)
            sampler, setup = heavy, replace(setup, policy=heavy.policy(d))
            reason = (
                f", with Student-t proposals and a single decision stage, because {self.heavy.distance:g} standard deviations "
                f"from the mode the posterior density is {math.exp(min(self.heavy.log_ratio, 100.0)):.2g} times the Laplace fit"
            )
        if third and _first_stage(setup, pairs) < _LEAST_ACCEPTED:
            return None
        law = sampler.policy(d).fixed.rate
        rate = float(np.mean([min(dominating(law, total_rate(bound, a, b, rates)), n) for a, b in pairs]))
        facts = f"{rate:,.3g} rows per iteration predicted ({100 * rate / n:.2g} % of n){reason}"
        iterations = 2.0 / _SHARE - 1.0
        row = 4.0 + 0.5 * d if rate >= 0.5 * n else _DRAWN + 0.5 * d
        arithmetic = 1000.0 + 4.0 * d**2 + (_CUBE * d**3 + _PAIR) * third
        return Prediction(sampler, 2.0 * rate * iterations, iterations, row, arithmetic, facts, setup)

    def _pilot(self, candidate: Prediction) -> Prediction:
        """The prediction from a short chain of the method itself."""
        setup, n, d = candidate.setup, self.model.data.n, self.model.dim
        assert setup is not None
        length = LIGHTS_PILOT if isinstance(candidate.sampler, Firefly) else SHORT_PILOT
        minibatch, in_tails = isinstance(candidate.sampler, ExactMinibatch), self.heavy is not None
        if in_tails:
            length = int(np.clip(_PATIENCE / candidate.nanoseconds_per_ess, SHORT_PILOT, HEAVY_PILOT))
        if minibatch:
            an_iteration = max(candidate.evals_per_ess / candidate.iterations_per_ess, 1e-9)
            length = int(np.clip(max(_PASSES * n, _ROWS) / an_iteration, SHORT_PILOT, PILOT))
        self.pilots += 1
        theta, table = self._trial(candidate.sampler, setup, length // 4, length - length // 4)
        evals, facts, row = float(table["evals"].mean()), candidate.facts, candidate.nanoseconds_per_eval
        if minibatch:
            iterations = with_sticking(stays((table["component"] == 0) & (table["accepted"] == 1)), theta)
            walked = table["component"] == 1
            if walked.any() and table["accepted"][walked].mean() > 0.1:
                iterations = min(iterations, 4.0 * d / (1.0 - _SHARE))
            if _FEWEST * iterations > len(theta) and self.candidates:
                raise ModelError(f"{candidate.sampler.name} hardly moved in a pilot run of {length:,} iterations.")
            full = float(table["full_read"].mean()) * 2.0 * n
            row = (full * (4.0 + 0.5 * d) + max(evals - full, 0.0) * (_DRAWN + 0.5 * d)) / max(evals, 1e-9)
            facts += f", acceptance {table['accepted'].mean():.2f} in a pilot"
        else:
            white = self.mode.laplace().whiten(theta)
            iterations = inefficiency(white)
            if in_tails:  # the worst coordinate is the one with the tail
                iterations = max(iterations, len(white) / max(float(np.nan_to_num(effective_sizes(white[None])).min()), 1.0))
            if isinstance(candidate.sampler, Firefly):  # long enough to see what the lights hold
                iterations = max(iterations, len(white) / float(np.quantile(effective_sizes(white[None]), 0.1)))
                facts += f", {table['bright'].mean():,.3g} in a pilot"
        facts += f", {evals * iterations:,.3g} evaluations per effective draw"
        return replace(
            candidate,
            evals_per_ess=evals * iterations,
            iterations_per_ess=iterations,
            nanoseconds_per_eval=row,
            facts=facts,
            tried=True,
        )

    def _trial(self, sampler: Sampler, setup: Setup, warmup: int, draws: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Draws of a short chain from a typical point, and what it reported."""
        start = self.mode.laplace().draw(generator(self.seed, Stream.AUTO, self.pilots, 0), 1)[0]
        start = start if self.model.admits(start) else self.mode.reference
        chain = Chain(0, sampler, setup, streams.sequence(self.seed, Stream.AUTO, self.pilots, 1), start, warmup, 1)
        while (chain.warming or chain.draws < draws) and not chain.failed:
            interruptible(chain.target, chain.chunk, draws)
            require_time()
        charge(chain.target)
        if chain.failed:
            raise ModelError(f"{sampler.name} failed in its pilot run: a density was not finite, or a bound did not hold.")
        theta, info = chain.collected()
        return theta, dict(zip(sampler.columns, info.T, strict=True))

    def _why(self, best: Prediction, others: list[Prediction]) -> str:
        why = f"auto chose {best.sampler.name}: {best.facts}"
        if best.sampler.guarantee.kind != "EXACT":
            exact = min((c for c in others if c.sampler.guarantee.kind == "EXACT"), key=price)
            why += (
                f"; its draws are {best.sampler.guarantee.kind}, not exact: {best.sampler.guarantee.statement}; pass "
                f"guarantee='exact' to get {exact.sampler.name}"
            )
        for other in (o for o in others if o.sampler.name != best.sampler.name):
            times = other.nanoseconds_per_ess / max(best.nanoseconds_per_ess, 1e-9)
            least = "" if other.tried else "at least "
            if isinstance(other.sampler, FullData) and not self.model.grouped:
                least = ""
            why += f"; {other.sampler.name} would be {least or 'about '}{times:,.3g} times slower ({other.facts})"
        for name, reason in self.refused.items():
            why += f"; {name} was skipped: {reason.rstrip('.')}"
        return why + self._turning_point(best)

    def _turning_point(self, best: Prediction) -> str:
        """What would change the choice."""
        return turning_point(best)

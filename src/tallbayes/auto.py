"""`sampler="auto"`: predict what each method would cost on this posterior, and take the cheapest that meets the guarantee.

A first prediction is what a method costs at best. The one that looks cheapest is tried in a pilot, a short chain of the method
itself, and the prediction made anew from what the chain did; so on until the cheapest has been tried. Tails are looked at before:
where they are much heavier than those of the Laplace fit, exact minibatch proposes from Student's t and decides in one stage. Methods
that refuse the model are skipped, with their reason. Costs are compared in nanoseconds, because a random row costs more than a
sequential one, and reported in evaluations per effective draw. An approximate method is considered only if the wanted guarantee
allows it, and taken only if it is several times faster than every exact one; the reason then says so.

Warm-up is the last judge: where it contradicts the prediction by more than `CONTRADICTION`, `reconsider` chooses again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes import samplers, streams
from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.contract import KINDS, Sampler, Setup
from tallbayes.diagnostics.tail_survey import HeavyTail, heaviest_tail
from tallbayes.engine import ledger
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import independence, nuts
from tallbayes.progress import Waiting
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.samplers import HMCECS, ExactMinibatch, FullData
from tallbayes.schemes.poisson_minibatch import dominating
from tallbayes.streams import Stream, generator
from tallbayes.target import charge

PAIRS = 50  # pairs of Laplace draws on which the rate is predicted
PILOT = 2000  # iterations of exact minibatch in its pilot, at most
SHORT_PILOT = 80  # of Hamiltonian methods, and of exact minibatch at least
CONTRADICTION = 5.0  # times the predicted cost, in warm-up, from which the choice is made again
JUDGED = 200  # iterations of warm-up from which it is judged
_PASSES = 40.0  # full passes that a pilot of exact minibatch may read
_CHEAP = 1000.0  # evaluations per effective draw of an exact method that HMC-ECS cannot beat: it needs 100 rows a gradient
_WORTH = 2.0  # times by which an approximate method must be faster than the best exact one
_SHARE = 0.8  # of independent proposals
_CHI = 2.0  # of the rate in heavy tails: the variance of the noise of a log ratio is at most about 1 / chi


@dataclass(frozen=True)
class Prediction:
    """What a method is expected to cost: evaluations and iterations for an effective draw, and nanoseconds for each."""

    sampler: Sampler
    evals_per_ess: float
    iterations_per_ess: float
    nanoseconds_per_eval: float
    nanoseconds_per_iteration: float
    facts: str
    setup: Setup | None = None
    tried: bool = False  # whether a pilot has confirmed it

    @property
    def nanoseconds_per_ess(self) -> float:
        """Both parts."""
        return self.evals_per_ess * self.nanoseconds_per_eval + self.iterations_per_ess * self.nanoseconds_per_iteration

    def as_dict(self) -> dict[str, Any]:
        """In JSON types, without the setup."""
        numbers = ("evals_per_ess", "iterations_per_ess", "nanoseconds_per_eval", "nanoseconds_per_iteration")
        return {"sampler": self.sampler.as_dict(), "facts": self.facts, **{k: float(getattr(self, k)) for k in numbers}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Prediction:
        """The inverse of `as_dict`."""
        return cls(**{**values, "sampler": samplers.from_dict(values["sampler"])})


class Choice(NamedTuple):
    """The sampler, its setup if there is one already, why, and every prediction, that of the sampler first."""

    sampler: Sampler
    setup: Setup | None
    why: str
    predictions: list[Prediction]


def choose(model: Model, mode: Mode, guarantee: str | None, seed: int, progress: bool) -> Choice:
    """The cheapest sampler that meets the guarantee, its setup if there is one already, why, and the predictions.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.auto import choose
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(50_000), rng.standard_normal(50_000)])
    >>> y = (rng.random(50_000) < 1 / (1 + np.exp(-X[:, 1]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> choose(model, tb.find_mode(model), None, 0, False).sampler.name
    'exact-minibatch'
    """
    return Weighing(model, mode, guarantee, seed, progress).choice()


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
        self._consider(FullData(nuts()), _full_data)
        self._consider(ExactMinibatch(), self._exact_minibatch)
        best = self._settled()
        if "ASYMPTOTIC" in self.allowed and best.evals_per_ess > _CHEAP and self.heavy is None:
            self._consider(HMCECS(), _subsampled_hmc)
            best = self._settled()
        others = [c for c in self.candidates if c is not best]
        return Choice(best.sampler, best.setup, self._why(best, others), [best, *sorted(others, key=_price)])

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
            best = min(self.candidates, key=_price)
            if best.tried:
                return best
            self.candidates.remove(best)
            label = f"pilot of {best.sampler.name}, compiled for this family (once; the result is cached)"
            try:
                with Waiting(label, self.progress):
                    self.candidates.append(self._pilot(best))
            except (ModelError, OptionError) as error:
                if not self.candidates:
                    raise
                self.refused[best.sampler.name] = str(error)
        raise OptionError(f"no method offers guarantee={self.guarantee!r} for this model.")

    def _exact_minibatch(self, sampler: ExactMinibatch, setup: Setup) -> Prediction:
        """At best every independent proposal is accepted. In heavy tails these come from Student's t, decided in one stage with more
        rows than needed, so that the noise of the decision does not hold the chain in the tails."""
        n, d, rng = self.model.data.n, self.model.dim, generator(self.seed, Stream.AUTO)
        bound = setup.proxy.bound
        rates = np.zeros(rate_count(bound))
        pairs = rng.standard_normal((PAIRS, 2, d))
        self.heavy, reason = heaviest_tail(setup, rng), ""
        if self.heavy is not None:
            move = independence(_SHARE, df=max(4.0, d / 3.0))
            heavy = ExactMinibatch(rate="tuna", chi=_CHI, move=move, two_stage=False)
            sampler, setup = heavy, replace(setup, policy=heavy.policy(d))
            reason = (
                f", proposals of Student's t and one stage, since {self.heavy.distance:g} standard deviations from the mode the "
                f"posterior is {math.exp(min(self.heavy.log_ratio, 100.0)):.2g} times the Laplace fit"
            )
        law = sampler.policy(d).rate
        rate = float(np.mean([min(dominating(law, total_rate(bound, a, b, rates)), n) for a, b in pairs]))
        facts = f"{rate:,.3g} rows an iteration predicted ({100 * rate / n:.2g} % of n){reason}"
        iterations = 2.0 / _SHARE - 1.0
        row = 4.0 + 0.5 * d if rate >= 0.5 * n else 30.0 + d
        return Prediction(sampler, 2.0 * rate * iterations, iterations, row, 1000.0 + 4.0 * d**2, facts, setup)

    def _pilot(self, candidate: Prediction) -> Prediction:
        """The prediction from a short chain of the method itself."""
        setup, n, d = candidate.setup, self.model.data.n, self.model.dim
        assert setup is not None
        length = SHORT_PILOT
        minibatch = isinstance(candidate.sampler, ExactMinibatch)
        if minibatch:
            an_iteration = max(candidate.evals_per_ess / candidate.iterations_per_ess, 1e-9)
            length = int(np.clip(_PASSES * n / an_iteration, SHORT_PILOT, PILOT))
        self.pilots += 1
        theta, table = self._trial(candidate.sampler, setup, length // 4, length - length // 4)
        evals, facts, row = float(table["evals"].mean()), candidate.facts, candidate.nanoseconds_per_eval
        if minibatch:
            iterations = _stays((table["component"] == 0) & (table["accepted"] == 1))
            walked = table["component"] == 1
            if walked.any() and table["accepted"][walked].mean() > 0.1:
                iterations = min(iterations, 4.0 * d / (1.0 - _SHARE))
            full = float(table["full_read"].mean()) * 2.0 * n
            row = (full * (4.0 + 0.5 * d) + max(evals - full, 0.0) * (30.0 + d)) / max(evals, 1e-9)
            facts += f", acceptance {table['accepted'].mean():.2f} in a pilot"
        else:
            iterations = _inefficiency(self.mode.laplace().whiten(theta))
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
            chain.chunk(draws)
        charge(chain.target)
        if chain.failed:
            raise ModelError(
                f"{sampler.name} failed in its pilot: a density that is not finite, or a bound that does not hold."
            )
        theta, info = chain.collected()
        return theta, dict(zip(sampler.columns, info.T, strict=True))

    def _why(self, best: Prediction, others: list[Prediction]) -> str:
        why = f"auto chose {best.sampler.name}: {best.facts}"
        if best.sampler.guarantee.kind != "EXACT":
            exact = min((c for c in others if c.sampler.guarantee.kind == "EXACT"), key=_price)
            why += (
                f"; its draws are {best.sampler.guarantee.kind}, not exact: {best.sampler.guarantee.statement}; pass "
                f"guarantee='exact' for {exact.sampler.name}"
            )
        for other in others:
            times = other.nanoseconds_per_ess / max(best.nanoseconds_per_ess, 1e-9)
            least = "" if other.tried else "at least "
            if isinstance(other.sampler, FullData):
                least = ""
            why += f"; {other.sampler.name} would take {least or 'about '}{times:,.3g} times as long ({other.facts})"
        for name, reason in self.refused.items():
            why += f"; {name} was skipped: {reason.rstrip('.')}"
        return why + _turning_point(best)


def _price(candidate: Prediction) -> float:
    """Nanoseconds for an effective draw; an approximate method has to be several times cheaper."""
    return candidate.nanoseconds_per_ess * (1.0 if candidate.sampler.guarantee.kind == "EXACT" else _WORTH)


def _turning_point(best: Prediction) -> str:
    if isinstance(best.sampler, HMCECS):
        return "; fewer columns for the same rows, or a posterior closer to normal, would favour exact-minibatch"
    if isinstance(best.sampler, ExactMinibatch):
        return "; a much larger dimension, a small n or a posterior far from normal would change the choice"
    return "; more rows for the same columns, or a posterior closer to normal, would favour exact-minibatch"


def _full_data(sampler: Sampler, setup: Setup) -> Prediction:
    """NUTS on a whitened posterior: about 2.5 d^0.15 gradients for an effective draw (measured), each a pass over the rows."""
    n, d = setup.model.data.n, setup.model.dim
    evals = n * 2.5 * d**0.15
    facts = f"{evals:,.3g} evaluations per effective draw predicted"
    return Prediction(sampler, evals, 1.0, 4.0 + 0.5 * d, 2000.0 + 10.0 * d**2, facts, setup)


def _subsampled_hmc(sampler: Sampler, setup: Setup) -> Prediction | None:
    """HMC-ECS with the rows its own pilot chose: trajectories of length 1.2 in steps of about 1.4 d^(-1/4), three iterations for
    an effective draw (measured), more where the estimate is noisy. None if an estimate would read a quarter of the rows."""
    m, variance = setup.notes["subsample"], setup.notes["variance_predicted"]
    if 4 * m > setup.model.data.n or setup.notes["bias_guard"] > 1.0:
        return None
    d, steps = setup.model.dim, max(1.0, 1.2 * setup.model.dim**0.25 / 1.4)
    iterations = 3.0 * (1.0 + variance)
    facts = f"{m:,} rows a gradient chosen by a pilot, predicted Var log L-hat {variance:.2g}"
    evals, overhead = iterations * m * (steps + 0.01), (steps + 1.0) * (2000.0 + 4.0 * d**2)
    return Prediction(sampler, evals, iterations, 30.0 + d, overhead, facts, setup)


def _stays(renewed: np.ndarray) -> float:
    """Iterations for an effective draw of a chain that now and then moves to an independent draw: sum of squared stays over their sum.

    With a constant probability a of moving this is (2 - a) / a; a few long stays, as in tails, count for what they are.

    >>> _stays(np.array([True, True, True, True])), _stays(np.array([True, False, False, False]))
    (1.0, 4.0)
    """
    ends = np.append(np.flatnonzero(renewed), renewed.size)
    stays = np.diff(ends, prepend=0)
    return float((stays.astype(float) ** 2).sum() / stays.sum())


def _inefficiency(white: np.ndarray) -> float:
    """Iterations for an effective draw, from the lag-one correlation of all coordinates together: short chains tell no more."""
    shifted = white - white.mean(0)
    correlation = float((shifted[1:] * shifted[:-1]).sum() / max((shifted**2).sum(), 1e-300))
    correlation = min(max(correlation, -0.2), 0.95)
    return (1.0 + correlation) / (1.0 - correlation)


class Verdict(NamedTuple):
    """What warm-up says of a choice: the predictions, corrected, the best of them first, and what to add to the reason."""

    predictions: list[Prediction]
    again: bool
    said: str


def reconsider(predictions: list[Prediction], theta: np.ndarray, evals: np.ndarray) -> Verdict:
    """Judge the first prediction by the later half of warm-up: draws (chains, iterations, dim) and evaluations of each.

    >>> quick = Prediction(ExactMinibatch(), 10.0, 2.0, 30.0, 1000.0, "")
    >>> slow = Prediction(FullData(), 1000.0, 1.0, 10.0, 1000.0, "")
    >>> walk = np.cumsum(np.random.default_rng(0).standard_normal((4, 500, 1)), axis=1)
    >>> verdict = reconsider([quick, slow], walk, np.full((4, 500), 5.0))
    >>> verdict.again, verdict.predictions[0].sampler.name
    (True, 'nuts')
    >>> reconsider([quick, slow], np.random.default_rng(0).standard_normal((4, 500, 1)), np.full((4, 500), 5.0)).again
    False
    """
    present, count = predictions[0], evals.size
    size = max(float(np.nan_to_num(effective_sizes(theta)).min()), 1.0)
    measured = replace(present, evals_per_ess=float(evals.sum()) / size, iterations_per_ess=count / size)
    times = measured.nanoseconds_per_ess / max(present.nanoseconds_per_ess, 1e-9)
    if times <= CONTRADICTION:
        return Verdict(predictions, False, "")
    order = sorted([measured, *predictions[1:]], key=_price)
    said = f"; warm-up contradicted the prediction: an effective draw cost {times:,.3g} times as much as predicted"
    if order[0] is measured:
        return Verdict(order, False, said + ", which is still less than the alternatives")
    return Verdict(order, True, f"{said}, so auto chose again and took {order[0].sampler.name}")


def warm_up(
    mode: Mode,
    setup: Setup,
    chains: list[Chain],
    description: dict[str, Any],
    start: Callable[[Sampler, Setup], list[Chain]],
    drive: Callable[[list[Chain]], str],
) -> tuple[Sampler, Setup, list[Chain], str]:
    """Warm-up of what was chosen, and of what is chosen again where it contradicts the prediction; the status it ended with.

    `description` is that of the run: its sampler, reason, predictions and evaluations are brought up to date. Draws do not depend on the
    judgement being made, unless it changes the sampler.
    """
    predictions, sampler = [Prediction.from_dict(p) for p in description["predictions"]], chains[0].sampler
    while True:
        for chain in chains:
            chain.watched = True
        status = drive(chains)
        if status != "complete":
            return sampler, setup, chains, status
        theta, evals = (np.stack(part) for part in zip(*(chain.judged() for chain in chains), strict=True))
        verdict = reconsider(predictions, theta, evals)
        description["why"] += verdict.said
        if not verdict.again:
            description.update(sampler=sampler.as_dict(), predictions=[])
            return sampler, setup, chains, status
        predictions, sampler = verdict.predictions, verdict.predictions[0].sampler
        with ledger.counting() as account:
            setup = sampler.setup(mode.model, mode, description["seed"], False)
        description["auto_evals"] += account.rows + sum(int(chain.warmup_evaluations) for chain in chains)
        chains = start(sampler, setup)
        chains[0].compile()

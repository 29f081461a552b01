"""Warm-up is the last judge of a choice: where it contradicts the prediction, the choice is made again.

It says two things of a sampler. Where the later half has enough effective draws, it says what one costs, which is compared with the
prediction. Where it has next to none, by the rule that `convergence` has for runs (fewer than `LEAST`, and fewer than one in `SHARE`), the
chains have not seen the posterior: their effective size is at most what was found, and a cost at least. Such a sampler is given up for
the cheapest exact one of another kind, even if that is predicted to cost up to `PATIENCE` times as much, and is not returned to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.auto.predictions import Prediction, price
from tallbayes.contract import Sampler, Setup
from tallbayes.engine import ledger
from tallbayes.mode.laplace import Mode
from tallbayes.results.convergence import LEAST, LEAST_OF, SHARE
from tallbayes.results.cost import effective_sizes
from tallbayes.run.chain import Chain
from tallbayes.run.checkpoint import Checkpoint

JUDGED = 200  # iterations of warm-up from which it is judged
CONTRADICTION = 5.0  # times the predicted cost, in warm-up, from which the choice is made again
PATIENCE = 10.0  # times the cost of an effective draw of chains that hardly had one, that another sampler may cost


class Verdict(NamedTuple):
    """What warm-up says of a choice: the predictions, corrected, the best of them first, and what to add to the reason."""

    predictions: list[Prediction]
    again: bool
    said: str


def reconsider(predictions: list[Prediction], theta: np.ndarray, evals: np.ndarray) -> Verdict:
    """Judge the first prediction by the later half of warm-up: draws (chains, iterations, dim) and evaluations of each.

    >>> from tallbayes.samplers import ExactMinibatch, FullData
    >>> quick = Prediction(ExactMinibatch(), 10.0, 2.0, 30.0, 1000.0, "")
    >>> slow = Prediction(FullData(), 1000.0, 1.0, 10.0, 1000.0, "")
    >>> walk = np.cumsum(np.random.default_rng(0).standard_normal((4, 500, 1)), axis=1)
    >>> verdict = reconsider([quick, slow], walk, np.full((4, 500), 5.0))
    >>> verdict.again, verdict.predictions[0].sampler.name
    (True, 'nuts')
    >>> reconsider([quick, slow], np.random.default_rng(0).standard_normal((4, 500, 1)), np.full((4, 500), 5.0)).again
    False

    A sampler that hardly moves is given up for one that is predicted to be slower, unless that would take much too long:

    >>> slower, endless = Prediction(FullData(), 200_000.0, 1.0, 10.0, 1000.0, ""), Prediction(FullData(), 1e7, 1.0, 10.0, 1000.0, "")
    >>> [reconsider([quick, other], walk, np.full((4, 500), 5.0)).again for other in (slower, endless)]
    [True, False]
    """
    present, count = predictions[0], evals.size
    if len(predictions) == 1:
        return Verdict(predictions, False, "")
    size = max(float(np.nan_to_num(effective_sizes(theta)).min()), 1.0)
    measured = replace(present, evals_per_ess=float(evals.sum()) / size, iterations_per_ess=count / size)
    if count >= LEAST_OF and size < min(LEAST, count / SHARE):
        others = [p for p in predictions[1:] if p.sampler.name != present.sampler.name]
        exact = [p for p in others if p.sampler.guarantee.kind == "EXACT" and price(p) <= PATIENCE * price(measured)]
        if exact:
            best = min(exact, key=price)
            said = (
                f"; the later half of warm-up contradicted that: its {count:,} draws were worth {size:,.2g} independent ones, too few "
                f"to know the posterior or a cost, so auto chose again and took {best.sampler.name}"
            )
            return Verdict([best, *(p for p in others if p is not best)], True, said)
    times = measured.nanoseconds_per_ess / max(present.nanoseconds_per_ess, 1e-9)
    if times <= CONTRADICTION:
        return Verdict(predictions, False, "")
    order = sorted([measured, *predictions[1:]], key=price)
    said = f"; warm-up contradicted the prediction: each effective draw cost {times:,.3g} times as much as predicted"
    if order[0] is measured:
        return Verdict(order, False, said + ", which is still less than the alternatives")
    return Verdict(order, True, f"{said}, so auto chose again and took {order[0].sampler.name}")


def warm_up(
    mode: Mode,
    setup: Setup,
    chains: list[Chain],
    description: dict[str, Any],
    saver: Checkpoint | None,
    start: Callable[[Sampler, Setup], list[Chain]],
    drive: Callable[[list[Chain]], str],
) -> tuple[Sampler, Setup, list[Chain], str]:
    """Warm-up of what was chosen, and of what is chosen again where it contradicts the prediction; the status it ended with.

    `description` is that of the run: its sampler, reason, predictions and evaluations are brought up to date, also in the checkpoint.
    Draws do not depend on the judgement being made, unless it changes the sampler.
    """
    sampler = chains[0].sampler
    while True:
        for chain in chains:
            chain.watched = True
        status = drive(chains)
        if status != "complete":
            return sampler, setup, chains, status
        theta, evals = (np.stack(part) for part in zip(*(chain.judged() for chain in chains), strict=True))
        verdict = reconsider([Prediction.from_dict(p) for p in description["predictions"]], theta, evals)
        changes: dict[str, Any] = {"why": description["why"] + verdict.said, "predictions": []}
        if verdict.again:
            sampler = verdict.predictions[0].sampler
            with ledger.counting() as account:
                setup = sampler.setup(mode.model, mode, description["seed"], False)
            spent = account.rows + sum(int(chain.warmup_evaluations) for chain in chains)
            changes |= {
                "sampler": sampler.as_dict(),
                "predictions": [p.as_dict() for p in verdict.predictions],
                "auto_evals": description["auto_evals"] + spent,
            }
        description |= changes
        if saver is not None:
            if verdict.again:
                saver.forget(chains)
            saver.change(**changes)
        if not verdict.again:
            return sampler, setup, chains, status
        chains = start(sampler, setup)
        chains[0].compile()

"""`sampler="auto"`: predict what each method would cost on this posterior, and take the cheapest that meets the guarantee.

Predictions come from a pilot around the mode: the rate of rows on pairs of Laplace draws, then a few hundred iterations of
the method itself if that rate is affordable. Costs are compared in nanoseconds, because a random row costs more than a
sequential one, and reported in evaluations per effective draw. An approximate method is considered only if the wanted guarantee
allows it, and taken only if it is several times faster than every exact one; the reason then says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.bounds.tables import rate_count, total_rate
from tallbayes.contract import Sampler, Setup, advance
from tallbayes.errors import ModelError, OptionError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.moves import nuts
from tallbayes.progress import Waiting
from tallbayes.samplers import HMCECS, KINDS, ExactMinibatch, FullData, MinibatchGibbs, SurrogateTransition
from tallbayes.streams import Stream, generator
from tallbayes.target import charge

PAIRS = 50  # pairs of Laplace draws on which the rate is predicted
PILOT = 400  # iterations of the method itself
_AFFORDABLE = 0.2  # share of n up to which a pilot is worth running
_CHEAP = 1000.0  # evaluations per effective draw of an exact method that HMC-ECS cannot beat: it needs 100 rows a gradient
_WORTH = 2.0  # times by which an approximate method must be faster than the best exact one


@dataclass(frozen=True)
class Prediction:
    """What a method is expected to cost."""

    sampler: Sampler
    evals_per_ess: float
    nanoseconds_per_ess: float
    facts: str
    setup: Setup | None = None


def choose(model: Model, mode: Mode, guarantee: str | None, seed: int, progress: bool) -> tuple[Sampler, Setup | None, str]:
    """The cheapest sampler that meets the guarantee, its setup if there is one already, and why.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.auto import choose
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(50_000), rng.standard_normal(50_000)])
    >>> y = (rng.random(50_000) < 1 / (1 + np.exp(-X[:, 1]))).astype(float)
    >>> model = tb.models.logistic(tb.Dataset.from_arrays(X, y))
    >>> choose(model, tb.find_mode(model), None, 0, False)[0].name
    'exact-minibatch'
    """
    if model.grouped:
        return _hierarchical(model, mode, seed, progress)
    if model.hyper:
        shrinking: Sampler = SurrogateTransition()
        return (
            shrinking,
            None,
            f"auto chose {shrinking.name}: it learns the scales of the prior and reads a few rows an iteration",
        )
    candidates = [_full_data(model), *_exact_minibatch(model, mode, seed, progress)]
    allowed = KINDS if guarantee is None else KINDS[: KINDS.index(guarantee.upper()) + 1]
    if "ASYMPTOTIC" in allowed and min(c.evals_per_ess for c in candidates) > _CHEAP:
        candidates += _subsampled_hmc(model, mode, seed, progress)
    candidates = [c for c in candidates if c.sampler.guarantee.kind in allowed]
    if not candidates:
        raise OptionError(f"no method offers guarantee={guarantee!r} for this model.")
    best = min(candidates, key=_price)
    others = [c for c in candidates if c is not best]
    why = f"auto chose {best.sampler.name}: {best.facts}"
    if best.sampler.guarantee.kind != "EXACT":
        exact = min((c for c in others if c.sampler.guarantee.kind == "EXACT"), key=_price)
        why += (
            f"; its draws are {best.sampler.guarantee.kind}, not exact: {best.sampler.guarantee.statement}; pass guarantee='exact' for "
            f"{exact.sampler.name}"
        )
    for other in others:
        times = other.nanoseconds_per_ess / max(best.nanoseconds_per_ess, 1e-9)
        why += f"; {other.sampler.name} would take about {times:,.3g} times as long ({other.facts})"
    return best.sampler, best.setup, why + _turning_point(best, model)


def _hierarchical(model: Model, mode: Mode, seed: int, progress: bool) -> tuple[Sampler, Setup | None, str]:
    """Minibatch Gibbs where it serves the model; otherwise NUTS on all rows."""
    sampler: Sampler = MinibatchGibbs()
    try:
        setup = sampler.setup(model, mode, seed, progress)
    except ModelError as reason:
        return FullData(nuts()), None, f"auto chose nuts on all rows: {reason}"
    return (
        sampler,
        setup,
        f"auto chose {sampler.name}: {setup.why}; nuts would read all {model.data.n:,} rows for every gradient",
    )


def _price(candidate: Prediction) -> float:
    """Nanoseconds for an effective draw; an approximate method has to be several times cheaper."""
    return candidate.nanoseconds_per_ess * (1.0 if candidate.sampler.guarantee.kind == "EXACT" else _WORTH)


def _turning_point(best: Prediction, model: Model) -> str:
    if isinstance(best.sampler, HMCECS):
        return "; fewer columns for the same rows, or a posterior closer to normal, would favour exact-minibatch"
    if isinstance(best.sampler, ExactMinibatch):
        return "; a much larger dimension, a small n or a posterior far from normal would change the choice"
    return "; more rows for the same columns, or a posterior closer to normal, would favour exact-minibatch"


def _full_data(model: Model) -> Prediction:
    """NUTS on a whitened posterior: about 3 d^(1/4) gradients for an effective draw, each a pass over the rows."""
    gradients = 3.0 * model.dim**0.25
    evals = model.data.n * gradients
    nanoseconds = evals * (4.0 + 0.5 * model.dim)
    return Prediction(FullData(nuts()), evals, nanoseconds, f"{evals:,.3g} evaluations per effective draw predicted")


def _subsampled_hmc(model: Model, mode: Mode, seed: int, progress: bool) -> list[Prediction]:
    """HMC-ECS with the rows its own pilot chose: trajectories of length 1.2 in steps of about 1.4 d^(-1/4), three iterations for
    an effective draw (measured), more where the estimate is noisy. Nothing if an estimate would read a quarter of the rows."""
    sampler = HMCECS()
    setup = sampler.setup(model, mode, seed, progress)
    m, variance = setup.notes["subsample"], setup.notes["variance_predicted"]
    if 4 * m > model.data.n or setup.notes["bias_guard"] > 1.0:
        return []
    d, steps = model.dim, max(1.0, 1.2 * model.dim**0.25 / 1.4)
    iterations = 3.0 * (1.0 + variance)
    evals = iterations * m * (steps + 0.01)
    nanoseconds = evals * (30.0 + d) + iterations * (steps + 1.0) * (2000.0 + 4.0 * d**2)
    facts = (
        f"{m:,} rows a gradient chosen by a pilot, predicted Var log L-hat {variance:.2g}, {evals:,.3g} evaluations per "
        "effective draw predicted"
    )
    return [Prediction(sampler, evals, nanoseconds, facts, setup)]


def _exact_minibatch(model: Model, mode: Mode, seed: int, progress: bool) -> list[Prediction]:
    sampler = ExactMinibatch()
    try:
        setup = sampler.setup(model, mode, seed, progress)
    except ModelError:
        return []
    n, rng = model.data.n, generator(seed, Stream.AUTO)
    bound = setup.proxy.bound
    rates = np.zeros(rate_count(bound))
    pairs = rng.standard_normal((PAIRS, 2, model.dim))
    rate = float(np.mean([min(total_rate(bound, a, b, rates), n) for a, b in pairs]))
    if rate > _AFFORDABLE * n:
        evals = 2.0 * rate * 3.0
        facts = f"{rate:,.3g} rows an iteration predicted, {100 * rate / n:.3g} % of n"
        return [Prediction(sampler, evals, evals * (30.0 + model.dim), facts, setup)]
    with Waiting("pilot of exact-minibatch, compiled for this family (once; the result is cached)", progress):
        return [_pilot(sampler, setup, mode, rate, rng)]


def _pilot(sampler: ExactMinibatch, setup: Setup, mode: Mode, rate: float, rng: np.random.Generator) -> Prediction:
    model = setup.model
    options = setup.policy.options(setup.policy.begin(), True)
    theta = np.empty((PILOT, model.dim))
    info = np.zeros((PILOT, len(sampler.columns)))
    start = setup.policy.blank(mode.laplace().draw(rng, 1)[0])
    target = setup.target()
    advance(rng, target, options, start, True, theta, info, 1)
    charge(target)
    table = dict(zip(sampler.columns, info.T, strict=True))
    moved = (table["component"] == 0) & (table["accepted"] == 1)
    acceptance = max(float(moved.mean()), 1.0 / PILOT)  # share of iterations that end at an independent draw
    inefficiency = (2.0 - acceptance) / acceptance
    evals = float(table["evals"].mean()) * inefficiency
    nanoseconds = evals * (30.0 + model.dim) + inefficiency * (1000.0 + 4.0 * model.dim**2)
    share = 100.0 * rate / model.data.n
    facts = (
        f"{rate:,.3g} rows an iteration predicted ({share:.2g} % of n), acceptance {table['accepted'].mean():.2f} in a pilot, "
        f"{evals:,.3g} evaluations per effective draw"
    )
    return Prediction(sampler, evals, nanoseconds, facts, setup)

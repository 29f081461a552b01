"""Which sampler a model gets: its own where it has one, otherwise the cheapest."""

from __future__ import annotations

from tallbayes.auto.group_choice import GroupWeighing
from tallbayes.auto.weighing import Choice, Weighing
from tallbayes.contract import KINDS
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.mode.several import important
from tallbayes.model import Model
from tallbayes.samplers import HMCECS, ExactMinibatch, ModeJumping, SurrogateTransition


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
    if model.grouped:
        return GroupWeighing(model, mode, guarantee, seed, progress).choice()
    if model.unknown_scales:
        sampler = SurrogateTransition()
        return Choice(sampler, None, f"auto chose {sampler.name}: only it supports priors with unknown scales", [])
    if model.partitions is not None:
        return _partitioned(model, mode, guarantee, seed, progress)
    if len(important(mode)) > 1:
        return _several_modes(model, mode, seed, progress)
    return Weighing(model, mode, guarantee, seed, progress).choice()


def _partitioned(model: Model, mode: Mode, guarantee: str | None, seed: int, progress: bool) -> Choice:
    """Exact minibatch from row streams; HMC-ECS for a likelihood without a certified bound, unless more is asked for."""
    exact, other = ExactMinibatch(), HMCECS()
    where = f"the {model.data.n:,} rows are in partitions, and it draws the few it needs where they are"
    try:
        return Choice(exact, exact.setup(model, mode, seed, progress), f"auto chose {exact.name}: {where}", [])
    except ModelError as error:
        if guarantee is not None and KINDS.index(guarantee.upper()) < KINDS.index(other.guarantee.kind):
            raise
        setup = other.setup(model, mode, seed, progress)
        return Choice(other, setup, f"auto chose {other.name}: {where}; {exact.name} was skipped: {error}", [])


def _several_modes(model: Model, mode: Mode, seed: int, progress: bool) -> Choice:
    """Other samplers rarely cross from one mode to another, so that their draws do not weigh the modes."""
    sampler = ModeJumping()
    setup = sampler.setup(model, mode, seed, progress)
    count = len(important(mode))
    return Choice(sampler, setup, f"auto chose {sampler.name}: the posterior has {count} separate modes; {setup.why}", [])

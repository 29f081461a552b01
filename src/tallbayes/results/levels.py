"""Draws of the effects of levels: which of them a run keeps, and what a fit has of them.

All draws are kept while they fit a budget. Otherwise a run keeps running statistics of every level and a thinned set of draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.errors import OptionError, unknown
from tallbayes.machine import available_memory
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.results.running_levels import FIRST, LevelStatistics, Running, statistics

DIMENSION = "__factor_dim"  # ends the name of the dimension of levels, as in bambi
BUDGET = 512 * 10**6  # bytes of the draws of levels that are kept unless keep= says otherwise
THINNED = 100  # draws of each chain that are kept beside running statistics, if the budget does not say
_MOST_THINNED = 1000


@dataclass(frozen=True, eq=False)
class LevelDraws:
    """Effects of one term of one factor: (chains, draws, levels), with the labels of the levels.

    `positions` are None if every draw is kept. Otherwise `values` is a thinned set, `positions` says which draws of `fit.theta` belong to
    it, and `statistics` describes all draws.
    """

    factor: str
    labels: np.ndarray
    values: np.ndarray
    positions: np.ndarray | None = None
    statistics: LevelStatistics | None = None

    @property
    def dimension(self) -> str:
        """Name of the dimension of levels."""
        return self.factor + DIMENSION

    @cached_property
    def label_texts(self) -> list[str]:
        """Labels as text."""
        return [label_text(label) for label in self.labels]

    def at(self, index: np.ndarray, draws: int) -> np.ndarray:
        """Effects (index, levels) at positions among all draws, chain after chain, each chain having so many."""
        draw = index % draws
        return self.values[index // draws, draw if self.positions is None else np.searchsorted(self.positions, draw)]

    @cached_property
    def index(self) -> Any:
        """Labels as text, to be looked up."""
        import pandas as pd

        return pd.Index(self.label_texts, dtype=object)


def label_text(label: Any) -> str:
    """A label as text; whole numbers have no decimal point, whatever their type.

    >>> label_text(3.0), label_text(np.int64(3)), label_text("b")
    ('3', '3', 'b')
    """
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label)


def joint_draws(fit: Any) -> np.ndarray:
    """Positions, chain after chain, of the draws whose parameters and levels are all kept."""
    chains, draws, _ = fit.theta.shape
    thinned = [own.positions for own in fit.levels.values() if own.positions is not None]
    kept = thinned[0] if thinned else np.arange(draws)
    return (np.arange(chains)[:, None] * draws + kept).reshape(-1)


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """Which coordinates of a draw a chain keeps, which it only describes, and how many draws of these it keeps."""

    kept: np.ndarray
    described: np.ndarray
    thinned: int


def read_keep(model: Model, keep: Any, draws: int, chains: int) -> dict[str, Any]:
    """What `keep=` means for a run, in JSON types: terms whose draws are all kept, and the size of the thinned set of others."""
    check_keep(keep)
    if not isinstance(model, HierarchicalModel):
        if keep is not None:
            raise OptionError("keep= is about the effects of levels, but the model has no groups; leave it out.")
        return {"terms": [], "thinned": 0}
    sizes = {name: 8.0 * labels.size * draws * chains for name, _, labels in model.level_names()}
    budget = float(BUDGET if keep is None else keep) if keep is None or not isinstance(keep, str | Sequence) else None
    if keep == "all" or (budget is not None and sum(sizes.values()) <= budget):
        whole = list(sizes)
    elif budget is not None or keep == "summary":
        whole = []
    else:
        whole = [keep] if isinstance(keep, str) else list(keep)
        for name in whole:
            if name not in sizes:
                raise unknown("term in keep=", name, [*sizes, "all", "summary"])
    needed, free = sum(sizes[name] for name in whole), available_memory()
    if needed > free:
        raise OptionError(
            f"all draws of the levels of {', '.join(whole)} take {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are free. "
            "Keep running statistics with keep='summary', or fewer draws with draws= and thin=."
        )
    described = sum(size for name, size in sizes.items() if name not in whole) / draws
    thinned = THINNED if budget is None or not described else int(min(_MOST_THINNED, max(FIRST, budget / described)))
    return {"terms": whole, "thinned": thinned - thinned % 2}


def check_keep(keep: Any) -> None:
    """Refuse what cannot be meant by `keep=`; whether the terms exist is seen later."""
    number = isinstance(keep, int | float | np.integer) and not isinstance(keep, bool)
    terms = isinstance(keep, str) or (isinstance(keep, list | tuple) and all(isinstance(t, str) for t in keep))
    if keep is not None and not terms and not (number and keep >= 0):
        raise OptionError(
            f"keep is 'all', 'summary', a list of terms such as ['1|shop'], a number of bytes or None; got {keep!r}."
        )


def level_plan(model: Model, keep: dict[str, Any]) -> LevelPlan | None:
    """The coordinates behind `read_keep`; None if every draw is kept whole."""
    if not isinstance(model, HierarchicalModel):
        return None
    described: list[np.ndarray] = []
    kept, at = [np.arange(model.dim)], model.dim
    for name, _, labels in model.level_names():
        (kept if name in keep["terms"] else described).append(np.arange(at, at + labels.size))
        at += labels.size
    if not described:
        return None
    return LevelPlan(np.concatenate(kept), np.concatenate(described), keep["thinned"])


def level_draws(model: Model, keep: dict[str, Any], values: np.ndarray, chains: list[Running | None]) -> dict[str, LevelDraws]:
    """The effects of levels term by term: from draws of the kept coordinates after the parameters, and from what the chains know."""
    if not isinstance(model, HierarchicalModel):
        return {}
    known = [r for r in chains if r is not None]
    positions, thinned = _thinned(known, values.shape[1]) if known else (None, np.empty(0))
    described = statistics(known) if known and positions is not None else None
    out: dict[str, LevelDraws] = {}
    at, other = 0, 0
    for name, factor, labels in model.level_names():
        if name in keep["terms"]:
            out[name] = LevelDraws(factor, labels, values[:, :, at : at + labels.size])
            at += labels.size
            continue
        part = slice(other, other + labels.size)
        own = None if described is None else LevelStatistics(*(v[..., part] for v in described))
        out[name] = LevelDraws(factor, labels, thinned[:, :, part], positions, own)
        other += labels.size
    return out


def _thinned(chains: list[Running], draws: int) -> tuple[np.ndarray | None, np.ndarray]:
    """The draws that all chains have among their thinned ones; positions are None if these are all draws."""
    stride = max(int(r.counts[2]) for r in chains)
    count = -(-draws // stride)
    values = np.stack([r.thinned[: int(r.counts[1]) : stride // int(r.counts[2])][:count] for r in chains])
    return (None if stride == 1 else np.arange(0, draws, stride)), values

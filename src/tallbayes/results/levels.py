"""Draws of the effects of levels: arrays by term, and their labels for ArviZ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.model import Model
from tallbayes.models.group_effects import HierarchicalModel

DIMENSION = "__factor_dim"  # ends the name of the dimension of levels, as in bambi

MOST_GIB = 2.0  # memory for the draws of levels of a run


@dataclass(frozen=True, eq=False)
class LevelDraws:
    """Effects of one term of one factor: (chains, draws, levels), with the labels of the levels."""

    factor: str
    labels: np.ndarray
    values: np.ndarray

    @property
    def dimension(self) -> str:
        """Name of the dimension of levels."""
        return self.factor + DIMENSION


def check_memory(model: Model, draws: int, chains: int) -> None:
    """Refuse a run whose draws of levels would not fit in memory."""
    levels = model.level_count if isinstance(model, HierarchicalModel) else 0
    size = 8.0 * levels * draws * chains / 2**30
    if size > MOST_GIB:
        raise OptionError(
            f"{draws:,} draws of {chains} chains for {levels:,} levels take {size:.1f} GiB, more than {MOST_GIB:g}. Keep fewer with "
            f"draws= and thin=: draws={max(1, int(draws * MOST_GIB / size)):,} would fit."
        )


def level_draws(model: Model, values: np.ndarray) -> dict[str, LevelDraws]:
    """The part of the draws after the parameters, term by term."""
    if not isinstance(model, HierarchicalModel):
        return {}
    out, at = {}, 0
    for name, factor, labels in model.level_names():
        out[name] = LevelDraws(factor, labels, values[:, :, at : at + labels.size])
        at += labels.size
    return out

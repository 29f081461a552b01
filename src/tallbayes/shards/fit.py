"""The fit of a sharded run: one chain of combined draws, and the fits of the shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.results.fit import Fit


@dataclass(eq=False)
class ShardFit(Fit):
    """A `Fit` of combined draws, with the fits of all shards in `shards`; a saved one keeps their summaries in meta only."""

    shards: list[Fit] = field(default_factory=list)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Overlap, effective sizes and distances of the combination."""
        return self.meta["notes"]

    def audit(self, model: Any, pairs: int = 20, repeats: int = 1000, seed: int = 0) -> Any:
        """Refused: no decision was made on the full data that could be replayed."""
        raise OptionError(
            "a combination of shards made no decision on the full data that could be replayed; audit a shard with its own model, compare "
            "with tallbayes.sample on all rows, or use combine='importance', whose weights are such a check."
        )


def spread(total: float, count: int) -> np.ndarray:
    """Whole numbers with a given sum, as equal as they can be: what each combined draw cost.

    >>> spread(7, 3)
    array([3., 2., 2.])
    """
    whole = int(total)
    return np.full(count, whole // count, float) + (np.arange(count) < whole % count)

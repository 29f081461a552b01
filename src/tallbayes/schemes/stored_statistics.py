"""Functions of the user's among the options of a saved run: stored by name alone, since files contain no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallbayes.errors import ModelError


@dataclass(frozen=True)
class MissingStatistics:
    """Statistics of a saved run that were a function of the user's."""

    name: str

    def __call__(self, *arguments: Any) -> Any:
        """A checkpoint cannot hold a function."""
        raise ModelError(
            f"the statistics of this run were the function {self.name!r}, which cannot be stored in a file, so the run cannot "
            "be resumed; call tallbayes.sample again with the function."
        )


def stored(statistics: Any) -> Any:
    """Statistics in JSON types."""
    if statistics is None or isinstance(statistics, str):
        return statistics
    if isinstance(statistics, MissingStatistics):
        return {"function": statistics.name}
    return {"function": str(getattr(statistics, "__name__", type(statistics).__name__))}


def restored(statistics: Any) -> Any:
    """The inverse of `stored`; a function that was stored by name cannot be called."""
    return MissingStatistics(statistics["function"]) if isinstance(statistics, dict) else statistics

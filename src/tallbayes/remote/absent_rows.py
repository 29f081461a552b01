"""What stands in the place of rows that are elsewhere: sums come from passes, and whatever would read single rows says where they are."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.engine.passes import Elsewhere
from tallbayes.errors import ModelError

if TYPE_CHECKING:
    from tallbayes.remote.partitions import Partitions


class RemoteDataset(Dataset):
    """Names, moments and number of rows that are not here."""

    @property
    def elsewhere(self) -> Any:
        """Sums over the rows by passes over their partitions."""
        return AbsentRows(self.partitions)

    def over(self, partitions: Partitions) -> RemoteDataset:
        """The same with the partitions that hold the rows; these do not hold it in turn, so that they end when the last model does."""
        linked = copy.copy(self)
        linked.partitions = partitions  # type: ignore[misc]
        return linked

    @property
    def n(self) -> int:
        """Number of rows in all partitions."""
        return self.moments.n

    @property
    def y(self) -> np.ndarray:
        """Nothing: responses were checked where they are."""
        return np.empty(0)


class AbsentRows(Elsewhere):
    """In the place of rows: sums come from passes, and whatever would read single rows says where they are."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def total_value(self, theta: np.ndarray) -> float:
        """Log-likelihood of all rows: one pass."""
        return self._partitions.total_value(theta)

    def total_values(self, thetas: np.ndarray) -> np.ndarray:
        """The same at several points: one pass."""
        return self._partitions.total_values(thetas)

    def total_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-likelihood of all rows and its gradient: one pass."""
        return self._partitions.total_gradient(theta)

    def total_hessian(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log-likelihood of all rows, its gradient and its Hessian: one pass."""
        return self._partitions.total_hessian(theta)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(ABSENT)


class AbsentRecords(np.ndarray):
    """In the place of records: none can be read."""

    def __getitem__(self, index: Any) -> Any:
        raise ModelError(ABSENT)


ABSENT = (
    "the rows of this model are in partitions; use the passes of tallbayes.shards.Partitions, or read the rows on one machine "
    "with tallbayes.read(..., memory='disk')."
)

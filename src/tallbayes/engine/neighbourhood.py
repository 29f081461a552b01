"""What bound T10 asks of a family with several indices: third derivatives of rows wherever theta may be.

theta = reference + factor w with |w| <= radius. An index that is linear in theta moves by at most radius times its speed, the length of its
gradient in w. A family registers `third_bounds` for the type of its member; without it there is no certificate.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

SLACK = 1.0 + 1e-12  # of the arithmetic on bounds


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Rows with one linear predictor, or a second one of the last columns, and nuisances, and where theta may be."""

    x: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    reference: np.ndarray
    factor: np.ndarray
    radius: float
    second: int = 0  # columns of a second linear predictor

    @property
    def first(self) -> int:
        """Columns of the linear predictor."""
        return self.x.shape[1] - self.second

    @cached_property
    def eta(self) -> np.ndarray:
        """Linear predictors at the reference."""
        return self.x[:, : self.first] @ self.reference[: self.first] + self.offset

    @cached_property
    def _moves(self) -> np.ndarray:
        return self.x[:, : self.first] @ self.factor[: self.first]

    @cached_property
    def other(self) -> np.ndarray:
        """Second linear predictors at the reference."""
        return self.x[:, self.first :] @ self.reference[self.first : self.x.shape[1]]

    @cached_property
    def other_speed(self) -> np.ndarray:
        """Of the second linear predictors."""
        return np.linalg.norm(self.x[:, self.first :] @ self.factor[self.first : self.x.shape[1]], axis=1) * SLACK

    @cached_property
    def speed(self) -> np.ndarray:
        """Of the linear predictors."""
        return np.linalg.norm(self._moves, axis=1) * SLACK

    def nuisance(self, k: int) -> float:
        """Nuisance k at the reference."""
        return float(self.reference[self.x.shape[1] + k])

    def nuisance_speed(self, k: int) -> float:
        """Of nuisance k."""
        return float(np.linalg.norm(self.factor[self.x.shape[1] + k])) * SLACK

    def difference_speed(self, k: np.ndarray) -> np.ndarray:
        """Of nuisance k_i less the linear predictor of row i."""
        rows = self.factor[self.x.shape[1] + np.asarray(k)]
        return np.linalg.norm(rows - self._moves, axis=1) * SLACK

    def between(self, at: Any, speed: Any) -> tuple[Any, Any]:
        """The least and the largest value of an index."""
        reach = self.radius * speed + 1e-12 * np.abs(at)
        return at - reach, at + reach


@functools.singledispatch
def third_bounds(member: Any, near: Neighbourhood) -> np.ndarray:
    """Bounds of the third derivative of each row along lines of unit speed in w, anywhere in the neighbourhood."""
    raise TypeError(f"{type(member).__name__} has no certificate.")


def has_third_bounds(member: Any) -> bool:
    """Whether a member of a family has a certificate of this kind.

    >>> has_third_bounds(object())
    False
    """
    return third_bounds.dispatch(type(member)) is not third_bounds.dispatch(object)


def cubic_form(s: Any, t: Any, sss: Any, sst: Any, stt: Any, ttt: Any) -> Any:
    """A bound of the third derivative along a line with speeds s and t of two indices, from bounds of the mixed derivatives."""
    return (s**3 * sss + 3.0 * s**2 * t * sst + 3.0 * s * t**2 * stt + t**3 * ttt) * SLACK


def largest_on(function: Any, low: np.ndarray, high: np.ndarray, turns: tuple[float, ...]) -> np.ndarray:
    """sup |function| on intervals, given all points where its derivative vanishes.

    >>> largest_on(lambda p: p * (1 - p), np.array([0.0, 0.6]), np.array([1.0, 0.7]), (0.5,)).round(2)
    array([0.25, 0.24])
    """
    out = np.maximum(np.abs(function(low)), np.abs(function(high)))
    for turn in turns:
        out = np.where((low <= turn) & (turn <= high), np.maximum(out, abs(function(np.float64(turn)))), out)
    return out

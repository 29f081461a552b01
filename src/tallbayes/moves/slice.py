"""Slice sampling (Neal 2003) along random directions of whitened space: step out, then shrink.

The level is log pi(theta) - Exp(1). An interval of the given width is placed at random around the point and doubled in
length by steps, at most `steps` in all, split at random between the two ends; then points are drawn inside it, and the end
on the side of a rejected point moves there. No step is ever rejected and nothing needs tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.moves.linear import dot, lower_times, normal_vector
from tallbayes.moves.move import MOVED, Move, Point, log_density, move, start
from tallbayes.option_types import checked


class Slice(NamedTuple):
    """Kernel: factor of the whitening, width of the first interval, most steps out, directions per iteration."""

    factor: np.ndarray
    width: float
    steps: int
    directions: int


@start.register(Slice)
def _start(kernel: Slice, density: Any, theta: np.ndarray) -> Point:
    return Point(theta.copy(), log_density(density, theta), np.zeros(theta.size))


@move.register(Slice)
def _move(rng: np.random.Generator, kernel: Slice, density: Any, point: Point, info: np.ndarray) -> Point:
    d = point.theta.size
    direction = np.empty(d)
    evaluations = 0
    for _ in range(kernel.directions):
        noise = normal_vector(rng, d)
        lower_times(kernel.factor, noise, direction)
        direction = direction / math.sqrt(dot(noise, noise))
        level = point.log_density + math.log(1.0 - rng.random())
        low = -kernel.width * rng.random()
        high = low + kernel.width
        left = int(kernel.steps * rng.random())
        right = kernel.steps - 1 - left
        while left > 0:
            evaluations += 1
            if not log_density(density, point.theta + low * direction) > level:
                break
            low -= kernel.width
            left -= 1
        while right > 0:
            evaluations += 1
            if not log_density(density, point.theta + high * direction) > level:
                break
            high += kernel.width
            right -= 1
        while True:
            at = low + (high - low) * rng.random()
            theta = point.theta + at * direction
            value = log_density(density, theta)
            evaluations += 1
            if value > level:
                point = Point(theta, value, point.gradient)
                break
            if high - low < 1e-12 * kernel.width:  # the slice has shrunk onto the point itself
                break
            if at < 0.0:
                low = at
            else:
                high = at
    info[MOVED.lp] = point.log_density
    info[MOVED.acceptance_rate] = 1.0
    info[MOVED.n_steps] = evaluations
    return point


@dataclass(frozen=True)
class SliceMove(Move):
    """Options of slice sampling."""

    width: float = 2.5
    steps: int = 10
    directions: int = 1
    name: ClassVar[str] = "slice"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel for a covariance estimate; there is no step to tune."""
        return Slice(np.ascontiguousarray(np.linalg.cholesky(covariance)), self.width, self.steps, self.directions)

    def first_step(self, dim: int) -> float:
        """Not used."""
        return 1.0

    def target_acceptance(self, dim: int) -> float:
        """Every step is accepted."""
        return 1.0


@checked
def slice(width: float = 2.5, steps: int = 10, directions: int = 1) -> SliceMove:
    """Slice sampling along `directions` random directions per iteration; `width` in posterior standard deviations.

    >>> slice(directions=3)
    SliceMove(width=2.5, steps=10, directions=3)
    """
    if not (width > 0 and math.isfinite(width)):
        raise OptionError(f"width is the initial interval in posterior standard deviations and must be positive; got {width}.")
    for name, value in (("steps", steps), ("directions", directions)):
        if not isinstance(value, int) or value < 1:
            raise OptionError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return SliceMove(width, steps, directions)

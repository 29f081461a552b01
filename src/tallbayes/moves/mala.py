"""Metropolis-adjusted Langevin: w' = w + (eps^2 / 2) L'grad + eps xi in whitened coordinates, with the full proposal ratio.

Roberts and Rosenthal (1998): the best acceptance rate is 0.574, the step shrinks like d^(-1/6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.errors import OptionError
from tallbayes.moves.hmc import start_with_gradient
from tallbayes.moves.linear import lower_times, normal_vector, upper_times
from tallbayes.moves.move import MOVED, Move, Point, log_density_gradient, move, start
from tallbayes.moves.random_walk import check_isotropic, isotropic_diagonal
from tallbayes.option_types import checked


class Langevin(NamedTuple):
    """Kernel: factor of the preconditioner, a single row if it is diagonal, and step size."""

    factor: np.ndarray
    step: float


@inlinable
def _times(factor: np.ndarray, vector: np.ndarray, out: np.ndarray, transposed: bool) -> None:
    """out = factor vector, or factor' vector."""
    if factor.shape[0] < vector.size:
        for j in range(vector.size):
            out[j] = factor[0, j] * vector[j]
    elif transposed:
        upper_times(factor, vector, out)
    else:
        lower_times(factor, vector, out)


@start.register(Langevin)
def _start(kernel: Langevin, density: Any, theta: np.ndarray) -> Point:
    return start_with_gradient(density, theta)


@move.register(Langevin)
def _move(rng: np.random.Generator, kernel: Langevin, density: Any, point: Point, info: np.ndarray) -> Point:
    d, half = point.theta.size, 0.5 * kernel.step * kernel.step
    drift, change, shift = np.empty(d), np.empty(d), np.empty(d)
    _times(kernel.factor, point.gradient, drift, True)
    noise = normal_vector(rng, d)
    for j in range(d):
        change[j] = half * drift[j] + kernel.step * noise[j]
    _times(kernel.factor, change, shift, False)
    theta, gradient = point.theta + shift, np.empty(d)
    value = log_density_gradient(density, theta, gradient)
    _times(kernel.factor, gradient, drift, True)
    forward, backward = 0.0, 0.0
    for j in range(d):
        back = -change[j] - half * drift[j]
        forward += noise[j] * noise[j]
        backward += back * back
    log_ratio = value - point.log_density + 0.5 * forward - 0.5 * backward / (kernel.step * kernel.step)
    finite = log_ratio == log_ratio
    info[MOVED.acceptance_rate] = math.exp(min(0.0, log_ratio)) if finite else 0.0
    info[MOVED.n_steps] = 1.0
    if finite and math.log(1.0 - rng.random()) < log_ratio:
        point = Point(theta, value, gradient)
    info[MOVED.lp] = point.log_density
    return point


@dataclass(frozen=True)
class LangevinMove(Move):
    """Options of MALA; `isotropic` replaces the covariance by one scale for all coordinates."""

    acceptance: float = 0.574
    isotropic: bool = False
    name: ClassVar[str] = "mala"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel for a covariance estimate."""
        factor = isotropic_diagonal(covariance) if self.isotropic else np.linalg.cholesky(covariance)
        return Langevin(np.ascontiguousarray(factor), step)

    def first_step(self, dim: int) -> float:
        """The best step shrinks like d^(-1/6)."""
        return 1.2 * dim ** (-1 / 6)

    def target_acceptance(self, dim: int) -> float:
        """As given."""
        return self.acceptance


@checked
def mala(acceptance: float = 0.574, isotropic: bool = False) -> LangevinMove:
    """Metropolis-adjusted Langevin, preconditioned by the covariance, or with `isotropic` by one scale for all coordinates.

    >>> mala()
    LangevinMove(acceptance=0.574, isotropic=False)
    """
    if not 0.0 < acceptance < 1.0:
        raise OptionError(f"acceptance is the target acceptance rate of warm-up and must be between 0 and 1; got {acceptance}.")
    check_isotropic(isotropic)
    return LangevinMove(acceptance, isotropic)

"""Hamiltonian Monte Carlo: theta' = flow of H = -log pi(theta) + |r|^2 / 2 for a time tau, by leapfrog steps of size eps.

In coordinates whitened by L the momentum is standard normal: theta += eps L r, r += eps L' grad. This is HMC with mass
matrix (L L')^-1. The number of steps is tau / eps, varied by 20 % to avoid periodic orbits (Neal 2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic, inlinable
from tallbayes.errors import OptionError, unknown
from tallbayes.moves.linear import dot, lower_times, normal_vector, upper_times
from tallbayes.moves.move import MOVED, Move, Point, log_density_gradient, move, start
from tallbayes.option_types import checked

DIVERGENCE = 1000.0  # an energy error this large means that the step is outside the stable region


class Hamiltonian(NamedTuple):
    """Kernel: factor of the inverse mass matrix, step size, trajectory time."""

    factor: np.ndarray
    step: float
    time: float


@generic
@declared
def with_factor(kernel: Any, factor: np.ndarray) -> Any:
    """The kernel with another factor of the inverse mass matrix."""
    raise TypeError


@with_factor.register(Hamiltonian)
def _hamiltonian(kernel: Hamiltonian, factor: np.ndarray) -> Hamiltonian:
    return Hamiltonian(factor, kernel.step, kernel.time)


@inlinable
def kick(factor: np.ndarray, step: float, gradient: np.ndarray, momentum: np.ndarray, scratch: np.ndarray) -> None:
    """Half a step of the momentum."""
    upper_times(factor, gradient, scratch)
    for j in range(momentum.size):
        momentum[j] += 0.5 * step * scratch[j]


@inlinable
def drift(factor: np.ndarray, step: float, momentum: np.ndarray, theta: np.ndarray, scratch: np.ndarray) -> None:
    """A step of the position."""
    lower_times(factor, momentum, scratch)
    for j in range(theta.size):
        theta[j] += step * scratch[j]


@inlinable
def leapfrog(
    density: Any,
    factor: np.ndarray,
    step: float,
    theta: np.ndarray,
    momentum: np.ndarray,
    gradient: np.ndarray,
    scratch: np.ndarray,
) -> float:
    """One leapfrog step in place of theta, momentum and gradient; returns the new log-density."""
    kick(factor, step, gradient, momentum, scratch)
    drift(factor, step, momentum, theta, scratch)
    value = log_density_gradient(density, theta, gradient)
    kick(factor, step, gradient, momentum, scratch)
    return value


@inlinable
def start_with_gradient(density: Any, theta: np.ndarray) -> Point:
    """The point at theta with its gradient."""
    gradient = np.empty(theta.size)
    value = log_density_gradient(density, theta, gradient)
    return Point(theta.copy(), value, gradient)


@start.register(Hamiltonian)
def _start(kernel: Hamiltonian, density: Any, theta: np.ndarray) -> Point:
    return start_with_gradient(density, theta)


@move.register(Hamiltonian)
def _move(rng: np.random.Generator, kernel: Hamiltonian, density: Any, point: Point, info: np.ndarray) -> Point:
    momentum = normal_vector(rng, point.theta.size)
    energy = point.log_density - 0.5 * dot(momentum, momentum)
    steps = max(1, round(kernel.time / kernel.step * (0.8 + 0.4 * rng.random())))
    theta, gradient, scratch = point.theta.copy(), point.gradient.copy(), np.empty(point.theta.size)
    value, taken, diverging = point.log_density, 0, False
    for _ in range(steps):
        value = leapfrog(density, kernel.factor, kernel.step, theta, momentum, gradient, scratch)
        taken += 1
        error = energy - (value - 0.5 * dot(momentum, momentum))
        if not error < DIVERGENCE:
            diverging = True
            break
    log_ratio = value - 0.5 * dot(momentum, momentum) - energy
    accepted = math.log(1.0 - rng.random()) < log_ratio and not diverging
    info[MOVED.acceptance_rate] = 0.0 if diverging else math.exp(min(0.0, log_ratio))
    info[MOVED.n_steps] = taken
    info[MOVED.diverging] = 1.0 if diverging else 0.0
    if accepted:
        point = Point(theta, value, gradient)
    info[MOVED.lp] = point.log_density
    return point


@dataclass(frozen=True)
class HamiltonianMove(Move):
    """Options of HMC."""

    time: float = 1.2
    acceptance: float = 0.8
    mass: str = "dense"
    name: ClassVar[str] = "hmc"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel for a covariance estimate."""
        return Hamiltonian(mass_factor(covariance, self.mass), step, self.time)

    def first_step(self, dim: int) -> float:
        """The stable step shrinks like d^(-1/4)."""
        return 0.8 * dim**-0.25

    def target_acceptance(self, dim: int) -> float:
        """As given."""
        return self.acceptance


def mass_factor(covariance: np.ndarray, mass: str) -> np.ndarray:
    """Factor of the inverse mass matrix: of the covariance, or of its diagonal."""
    if mass == "diagonal":
        return np.diag(np.sqrt(np.diag(covariance)))
    return np.ascontiguousarray(np.linalg.cholesky(covariance))


@checked
def hmc(time: float = 1.2, acceptance: float = 0.8, mass: str = "dense") -> HamiltonianMove:
    """Hamiltonian Monte Carlo with a trajectory of length `time` in whitened units; `mass` is "dense" or "diagonal".

    >>> hmc(time=1.5)
    HamiltonianMove(time=1.5, acceptance=0.8, mass='dense')
    """
    if mass not in ("dense", "diagonal"):
        raise unknown("mass", mass, ("dense", "diagonal"))
    if not (time > 0 and math.isfinite(time)):
        raise OptionError(f"time is the length of a trajectory and must be positive and finite; got {time}.")
    if not 0.0 < acceptance < 1.0:
        raise OptionError(f"acceptance is the target acceptance rate of warm-up and must be between 0 and 1; got {acceptance}.")
    return HamiltonianMove(time, acceptance, mass)

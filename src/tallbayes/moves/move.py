"""What a move is: a Markov kernel on any log-density. Moves know nothing of rows.

A density is a NamedTuple that registers `log_density` and, for moves that need it, `log_density_gradient`. A move is a
frozen dataclass of options whose `kernel` is a NamedTuple that registers `start` and `move`. Positions are proposed in
coordinates whitened by a factor L of a covariance estimate, so that a step size means the same on every posterior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic


class MoveInfo(NamedTuple):
    """What a move reports, by position: the first columns of what a sampler reports that uses moves."""

    lp: int
    acceptance_rate: int
    n_steps: int
    diverging: int
    tree_depth: int


MOVED = MoveInfo(0, 1, 2, 3, 4)


class Point(NamedTuple):
    """A position with its log-density and, for moves that use it, the gradient."""

    theta: np.ndarray
    log_density: float
    gradient: np.ndarray


@generic
@declared
def log_density(density: Any, theta: np.ndarray) -> float:
    """Log-density up to a constant."""
    raise TypeError


@generic
@declared
def log_density_gradient(density: Any, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log-density up to a constant, its gradient written to `gradient`."""
    raise TypeError


@generic
@declared
def start(kernel: Any, density: Any, theta: np.ndarray) -> Point:
    """The point at theta, with what the kernel needs."""
    raise TypeError


@generic(argument=1)
@declared
def move(rng: np.random.Generator, kernel: Any, density: Any, point: Point, info: np.ndarray) -> Point:
    """One transition that leaves the density invariant; fills the first columns of `info`, those of MoveInfo."""
    raise TypeError


@dataclass(frozen=True)
class Move(ABC):
    """Options of a move."""

    name: ClassVar[str]
    example: ClassVar[str] = "tallbayes.moves.hmc()"  # for messages
    alone: ClassVar[bool] = True  # whether it moves on any density; a move on a surrogate needs a sampler that has one

    @abstractmethod
    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The compiled kernel for a covariance estimate and a step size."""

    @abstractmethod
    def first_step(self, dim: int) -> float:
        """Step size to start warm-up with, in whitened coordinates."""

    @abstractmethod
    def target_acceptance(self, dim: int) -> float:
        """Acceptance rate that warm-up aims at."""

    def as_dict(self) -> dict[str, Any]:
        """Name and options in JSON types."""
        return {"name": self.name, **asdict(self)}

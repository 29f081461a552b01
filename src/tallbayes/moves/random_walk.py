"""Random-walk Metropolis: theta' = theta + s (2.38 / sqrt d) L xi, accepted with probability min(1, pi(theta')/pi(theta)).

With blocks, each block is updated in turn given the others, L the factor of its conditional covariance. Scale and
covariance are learned in warm-up (Haario et al. 2001; Andrieu and Thoms 2008) and then frozen. An isotropic walk has L = c I with
one number c for all coordinates, as in much of the literature on tall data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import SUMS, inlinable
from tallbayes.errors import OptionError
from tallbayes.moves.move import MOVED, Move, Point, log_density, move, start
from tallbayes.option_types import checked


class RandomWalk(NamedTuple):
    """Kernel: block-diagonal factor, each block scaled by its own 2.38 / sqrt(size); a single row is a diagonal."""

    factor: np.ndarray
    block: np.ndarray  # number of the block of each coordinate
    blocks: int


@inlinable(options=SUMS)
def _propose_all(rng: np.random.Generator, factor: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """All coordinates in one block."""
    d = theta.size
    noise, proposal = np.empty(d), np.empty(d)
    for j in range(d):
        noise[j] = rng.standard_normal()
    if factor.shape[0] < d:
        for j in range(d):
            proposal[j] = theta[j] + factor[0, j] * noise[j]
        return proposal
    for j in range(d):
        total = 0.0
        for k in range(j + 1):
            total += factor[j, k] * noise[k]
        proposal[j] = theta[j] + total
    return proposal


@inlinable(options=SUMS)
def _propose(rng: np.random.Generator, kernel: RandomWalk, theta: np.ndarray, which: int) -> np.ndarray:
    d = theta.size
    if kernel.blocks == 1:
        return _propose_all(rng, kernel.factor, theta)
    noise = np.zeros(d)
    for j in range(d):
        if kernel.block[j] == which:
            noise[j] = rng.standard_normal()
    proposal = theta.copy()
    for j in range(d):
        if kernel.block[j] == which:
            total = theta[j]  # a local sum: one in the array would be stored and loaded again at every k
            for k in range(j + 1):
                total += kernel.factor[j, k] * noise[k]
            proposal[j] = total
    return proposal


@start.register(RandomWalk)
def _start(kernel: RandomWalk, density: Any, theta: np.ndarray) -> Point:
    return Point(theta.copy(), log_density(density, theta), np.zeros(theta.size))


@move.register(RandomWalk)
def _move(rng: np.random.Generator, kernel: RandomWalk, density: Any, point: Point, info: np.ndarray) -> Point:
    acceptance = 0.0
    for which in range(kernel.blocks):
        proposal = _propose(rng, kernel, point.theta, which)
        candidate = log_density(density, proposal)
        log_ratio = candidate - point.log_density
        acceptance += math.exp(min(0.0, log_ratio)) if log_ratio == log_ratio else 0.0
        if math.log(1.0 - rng.random()) < log_ratio:
            point = Point(proposal, candidate, point.gradient)
    info[MOVED.lp] = point.log_density
    info[MOVED.acceptance_rate] = acceptance / kernel.blocks
    info[MOVED.n_steps] = kernel.blocks
    return point


@dataclass(frozen=True)
class RandomWalkMove(Move):
    """Options of the random walk: `blocks` is a list of lists of coordinates, each updated in turn; `isotropic` gives all
    coordinates one scale."""

    acceptance: float | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None
    isotropic: bool = False
    name: ClassVar[str] = "random_walk"

    def kernel(self, covariance: np.ndarray, step: float) -> RandomWalk:
        """The kernel: conditional covariance of each block."""
        d = covariance.shape[0]
        blocks = self._blocks(d)
        if len(blocks) == 1:
            root = isotropic_diagonal(covariance) if self.isotropic else np.linalg.cholesky(covariance)
            return RandomWalk(root * (step * 2.38 / math.sqrt(d)), np.zeros(d, np.int64), 1)
        precision = np.linalg.inv(covariance)
        factor, label = np.zeros((d, d)), np.zeros(d, np.int64)
        for number, members in enumerate(blocks):
            index = np.sort(np.asarray(members))
            inner = precision[np.ix_(index, index)]
            root = isotropic_factor(inner) if self.isotropic else np.linalg.cholesky(np.linalg.inv(inner))
            factor[np.ix_(index, index)] = root * (step * 2.38 / math.sqrt(index.size))
            label[index] = number
        return RandomWalk(factor, label, len(blocks))

    def _blocks(self, d: int) -> tuple[tuple[int, ...], ...]:
        if self.blocks is None:
            return (tuple(range(d)),)
        flat = sorted(j for block in self.blocks for j in block)
        if flat != list(range(d)):
            raise OptionError(f"blocks must hold each of the coordinates 0 to {d - 1} exactly once; got {self.blocks}.")
        return self.blocks

    def first_step(self, dim: int) -> float:
        """Relative to 2.38 / sqrt(d)."""
        return 1.0

    def target_acceptance(self, dim: int) -> float:
        """Half for one or two coordinates, a quarter above (Roberts and Rosenthal 2001)."""
        if self.acceptance is not None:
            return self.acceptance
        size = max(len(b) for b in self._blocks(dim))
        return 0.44 if size == 1 else 0.35 if size == 2 else 0.25


def isotropic_factor(precision: np.ndarray) -> np.ndarray:
    """One scale for all coordinates: the root of the harmonic mean of the variances along the axes of the covariance.

    >>> isotropic_factor(np.diag([1.0, 7.0]))
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    return np.sqrt(precision.shape[0] / np.trace(precision)) * np.eye(precision.shape[0])


def isotropic_diagonal(covariance: np.ndarray) -> np.ndarray:
    """The same from a covariance, as a single row: the diagonal, which takes O(d) to multiply by."""
    return np.ascontiguousarray(np.diag(isotropic_factor(np.linalg.inv(covariance)))[None, :])


@checked
def random_walk(
    acceptance: float | None = None, blocks: list[list[int]] | None = None, isotropic: bool = False
) -> RandomWalkMove:
    """Adaptive random-walk Metropolis; with `isotropic`, steps have the same scale in every coordinate and only it is tuned.

    >>> random_walk(blocks=[[0, 1], [2]])
    RandomWalkMove(acceptance=None, blocks=((0, 1), (2,)), isotropic=False)
    """
    _check_acceptance(acceptance)
    check_isotropic(isotropic)
    frozen = None if blocks is None else tuple(tuple(int(j) for j in block) for block in blocks)
    return RandomWalkMove(acceptance, frozen, isotropic)


def _check_acceptance(acceptance: float | None) -> None:
    if acceptance is not None and not 0.0 < acceptance < 1.0:
        raise OptionError(f"acceptance is the target acceptance rate of warm-up and must be between 0 and 1; got {acceptance}.")


def check_isotropic(isotropic: bool) -> None:
    """Refuse anything but a switch."""
    if not isinstance(isotropic, bool):
        raise OptionError(f"isotropic must be True (one scale for all coordinates) or False; got {isotropic!r}.")

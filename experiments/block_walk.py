"""A move for experiments: one block of theta, chosen at random, makes an isotropic random-walk step of a size given in advance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import tallbayes as tb
from tallbayes.moves.move import Move, Point, log_density, move, start


class BlockKernel(NamedTuple):
    """Block of each coordinate, number of blocks, standard deviation of a step."""

    block: np.ndarray
    blocks: int
    step: float


@start.register(BlockKernel)
def _start(kernel, density, theta):
    return Point(theta.copy(), log_density(density, theta), np.zeros(theta.size))


@move.register(BlockKernel)
def _move(rng, kernel, density, point, info):
    which = min(int(rng.random() * kernel.blocks), kernel.blocks - 1)
    proposal = point.theta.copy()
    for j in range(proposal.size):
        if kernel.block[j] == which:
            proposal[j] += kernel.step * rng.standard_normal()
    candidate = log_density(density, proposal)
    log_ratio = candidate - point.log_density
    info[1] = math.exp(min(0.0, log_ratio))
    info[2] = 1.0
    if math.log(1.0 - rng.random()) < log_ratio:
        point = Point(proposal, candidate, point.gradient)
    info[0] = point.log_density
    return point


@dataclass(frozen=True)
class BlockWalk(Move):
    """Blocks of coordinates and the standard deviation of a step."""

    blocks: tuple[tuple[int, ...], ...] = ()
    step: float = 0.1
    name: ClassVar[str] = "block_walk"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The covariance is not used."""
        label = np.zeros(covariance.shape[0], np.int64)
        for number, members in enumerate(self.blocks):
            label[list(members)] = number
        return BlockKernel(label, len(self.blocks), step)

    def first_step(self, dim: int) -> float:
        """As given."""
        return self.step

    def target_acceptance(self, dim: int) -> float:
        """The rate of the paper."""
        return 0.3


def tuned(model: Any, mode: Any, make: Callable[[float], Any], low: float, high: float, acceptance: float = 0.3) -> float:
    """The step at which the sampler that `make` returns accepts at this rate near the mode, by bisection."""
    for _ in range(6):
        middle = math.sqrt(low * high)
        fit = tb.sample(model, make(middle), 100, 0, 1, 1, init=mode.reference, mode=mode, progress=False)
        low, high = (middle, high) if fit.stats["acceptance_rate"][0, 20:].mean() > acceptance else (low, middle)
    return math.sqrt(low * high)

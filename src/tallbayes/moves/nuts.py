"""The no-U-turn sampler with multinomial weights (Hoffman and Gelman 2014; Betancourt 2017), written without recursion.

The trajectory doubles in a random direction until the criterion rho . r > 0 fails at an end of it or of any of its dyadic
subtrees, rho the sum of whitened momenta. A new half that turns or diverges inside is discarded whole. Between old tree and
valid new half the new draw is taken with probability min(1, W_new / W_old). The criterion is also tested across the
junction of the two halves of every subtree, which catches turns that a symmetric orbit hides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.errors import OptionError, unknown
from tallbayes.moves.hmc import DIVERGENCE, leapfrog, mass_factor, start_with_gradient, with_factor
from tallbayes.moves.linear import dot, fill, normal_vector
from tallbayes.moves.move import MOVED, Move, Point, move, start
from tallbayes.option_types import checked


class NoUTurn(NamedTuple):
    """Kernel: factor of the inverse mass matrix, step size, largest number of doublings."""

    factor: np.ndarray
    step: float
    max_depth: int


@with_factor.register(NoUTurn)
def _no_u_turn(kernel: NoUTurn, factor: np.ndarray) -> NoUTurn:
    return NoUTurn(factor, kernel.step, kernel.max_depth)


@inlinable
def _log_add(a: float, b: float) -> float:
    top = max(a, b)
    if top == -np.inf:
        return top
    return top + math.log(math.exp(a - top) + math.exp(b - top))


@inlinable
def _straight(total: np.ndarray, first: np.ndarray, last: np.ndarray) -> bool:
    """Whether a stretch with momentum sum `total` is still moving apart at both ends."""
    return dot(total, first) > 0.0 and dot(total, last) > 0.0


@inlinable
def _joined_straight(
    sum_left: np.ndarray,
    first: np.ndarray,
    middle_left: np.ndarray,
    sum_right: np.ndarray,
    middle_right: np.ndarray,
    last: np.ndarray,
) -> bool:
    """The criterion over two adjoining stretches, and over each with the first momentum of the other."""
    return (
        _straight(sum_left + sum_right, first, last)
        and _straight(sum_left + middle_right, first, middle_right)
        and _straight(sum_right + middle_left, middle_left, last)
    )


@inlinable
def _subtrees_straight(momenta: np.ndarray, sums: np.ndarray, leaf: int) -> bool:
    """The criterion on every dyadic subtree that ends with this leaf (counted from 0)."""
    count, size = leaf + 1, 2
    while count % size == 0:
        begin, middle = count - size, count - size // 2
        left = sums[middle] - sums[begin]
        right = sums[count] - sums[middle]
        if not _joined_straight(left, momenta[begin], momenta[middle - 1], right, momenta[middle], momenta[leaf]):
            return False
        size *= 2
    return True


@start.register(NoUTurn)
def _start(kernel: NoUTurn, density: Any, theta: np.ndarray) -> Point:
    return start_with_gradient(density, theta)


@move.register(NoUTurn)
def _move(rng: np.random.Generator, kernel: NoUTurn, density: Any, point: Point, info: np.ndarray) -> Point:
    d = point.theta.size
    momentum = normal_vector(rng, d)
    energy = point.log_density - 0.5 * dot(momentum, momentum)
    # Ends of the trajectory: index 0 is the end reached backwards in time, 1 the end reached forwards.
    ends_theta, ends_momentum, ends_gradient = np.empty((2, d)), np.empty((2, d)), np.empty((2, d))
    for side in range(2):
        fill(ends_theta[side], point.theta)
        fill(ends_momentum[side], momentum)
        fill(ends_gradient[side], point.gradient)
    total = momentum.copy()
    log_weight, acceptance, leaves, depth, diverging = 0.0, 0.0, 0, 0, False
    chosen, scratch = point, np.empty(d)
    momenta, sums = np.empty((1, d)), np.zeros((2, d))
    while depth < kernel.max_depth:
        side = 1 if rng.random() < 0.5 else 0
        step = kernel.step if side == 1 else -kernel.step
        size = 1 << depth
        if momenta.shape[0] < size:
            momenta, sums = np.empty((size, d)), np.zeros((size + 1, d))
        theta, r, gradient = ends_theta[side].copy(), ends_momentum[side].copy(), ends_gradient[side].copy()
        new_weight, straight = -np.inf, True
        candidate = chosen
        for leaf in range(size):
            value = leapfrog(density, kernel.factor, step, theta, r, gradient, scratch)
            leaves += 1
            change = value - 0.5 * dot(r, r) - energy
            if not -change < DIVERGENCE:
                diverging, straight = True, False
                break
            acceptance += math.exp(min(0.0, change))
            new_weight = _log_add(new_weight, change)
            if math.log(1.0 - rng.random()) < change - new_weight:
                candidate = Point(theta.copy(), value, gradient.copy())
            fill(momenta[leaf], r)
            fill(sums[leaf + 1], sums[leaf] + r)
            if not _subtrees_straight(momenta, sums, leaf):
                straight = False
                break
        if not straight:
            break
        depth += 1
        if math.log(1.0 - rng.random()) < new_weight - log_weight:
            chosen = candidate
        log_weight = _log_add(log_weight, new_weight)
        new_sum = sums[size].copy()
        far, near = ends_momentum[1 - side].copy(), ends_momentum[side].copy()
        fill(ends_theta[side], theta)
        fill(ends_momentum[side], r)
        fill(ends_gradient[side], gradient)
        if not _joined_straight(total, far, near, new_sum, momenta[0], r):
            break
        total = total + new_sum
    info[MOVED.lp] = chosen.log_density
    info[MOVED.acceptance_rate] = acceptance / max(1, leaves)
    info[MOVED.n_steps] = leaves
    info[MOVED.diverging] = 1.0 if diverging else 0.0
    info[MOVED.tree_depth] = depth
    return chosen


@dataclass(frozen=True)
class NoUTurnMove(Move):
    """Options of NUTS."""

    acceptance: float = 0.8
    mass: str = "dense"
    max_depth: int = 10
    name: ClassVar[str] = "nuts"

    def kernel(self, covariance: np.ndarray, step: float) -> Any:
        """The kernel for a covariance estimate."""
        return NoUTurn(mass_factor(covariance, self.mass), step, self.max_depth)

    def first_step(self, dim: int) -> float:
        """The stable step shrinks like d^(-1/4)."""
        return 0.8 * dim**-0.25

    def target_acceptance(self, dim: int) -> float:
        """As given."""
        return self.acceptance


@checked
def nuts(acceptance: float = 0.8, mass: str = "dense", max_depth: int = 10) -> NoUTurnMove:
    """The no-U-turn sampler: trajectory lengths are chosen automatically.

    >>> nuts(max_depth=8)
    NoUTurnMove(acceptance=0.8, mass='dense', max_depth=8)
    """
    if mass not in ("dense", "diagonal"):
        raise unknown("mass", mass, ("dense", "diagonal"))
    if not 0.0 < acceptance < 1.0:
        raise OptionError(f"acceptance is the target acceptance rate of warm-up and must be between 0 and 1; got {acceptance}.")
    if not 1 <= max_depth <= 20:
        raise OptionError(f"max_depth is the maximum number of doublings and must be between 1 and 20; got {max_depth}.")
    return NoUTurnMove(acceptance, mass, max_depth)

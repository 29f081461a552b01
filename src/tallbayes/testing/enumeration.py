"""Exact enumeration: the transition matrix of a kernel on a few states, with every auxiliary variable summed out.

An error in an acceptance ratio shows as |pi P - pi| of 1e-4 or more, against 1e-16 of rounding: no Monte Carlo noise hides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tallbayes.errors import OptionError

TAIL = 1e-15  # probability of auxiliary outcomes left out


def transition_matrix(states: int, outcomes: Callable[[int], Iterable[tuple[float, int]]]) -> np.ndarray:
    """P[i, j] from `outcomes(i)`, which yields (probability, next state) of every outcome of an iteration at i.

    >>> transition_matrix(2, lambda i: [(0.75, i), (0.25, 1 - i)])
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    matrix = np.zeros((states, states))
    for i in range(states):
        for probability, j in outcomes(i):
            matrix[i, j] += probability
    return matrix


def invariance_error(matrix: np.ndarray, law: np.ndarray) -> float:
    """max |pi P - pi|, after checking that the rows sum to one.

    >>> invariance_error(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([1 / 3, 2 / 3])) < 1e-15
    True
    """
    rows = np.abs(matrix.sum(1) - 1.0).max()
    return float(max(np.abs(law @ matrix - law).max(), rows if rows > 1e-12 else 0.0))


def irreducible(matrix: np.ndarray) -> bool:
    """Whether every state reaches every other.

    >>> irreducible(np.array([[1.0, 0.0], [0.5, 0.5]]))
    False
    """
    reach = np.linalg.matrix_power((matrix > 0).astype(float) + np.eye(matrix.shape[0]), matrix.shape[0])
    return bool((reach > 0).all())


def poisson_outcomes(rate: float, tail: float = TAIL) -> Iterator[tuple[float, int]]:
    """(probability, count) of a Poisson variable until less than `tail` is left.

    >>> sum(p for p, _ in poisson_outcomes(2.0)) > 1 - 1e-14
    True
    """
    if rate == 0.0:
        yield 1.0, 0
        return
    left, count, log_rate = 1.0, 0, math.log(rate)
    while left > tail or count < rate:
        probability = math.exp(count * log_rate - rate - math.lgamma(count + 1))
        yield probability, count
        left -= probability
        count += 1


class ScriptedRandom:
    """A generator whose uniform numbers are given, one after another: for every outcome of an interpreted iteration in turn.

    >>> rng = ScriptedRandom(0.25, 0.75)
    >>> rng.random(), rng.random()
    (0.25, 0.75)
    """

    def __init__(self, *uniforms: float) -> None:
        self.uniforms = list(uniforms)

    def random(self) -> float:
        """The next of the given numbers."""
        if not self.uniforms:
            raise OptionError("more uniform numbers were drawn than the script has; give one for each draw of the iteration.")
        return self.uniforms.pop(0)

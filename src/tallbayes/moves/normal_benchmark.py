"""How well a move does on a normal density: the inefficiency to expect of it on all rows, without reading any.

A posterior of many rows is nearly normal, and moves work in coordinates whitened by its covariance. So the same move, tuned by the
same warm-up, on a standard normal density of the same dimension shows what it gives when every density is exact.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import jit
from tallbayes.moves import tuning
from tallbayes.moves.linear import dot, fill
from tallbayes.moves.move import MOVED, Move, Point, log_density, log_density_gradient, move, start
from tallbayes.moves.proposals import ProposalMove
from tallbayes.moves.random_walk import RandomWalkMove
from tallbayes.moves.slice import SliceMove

_WARMUP = 600
_LARGEST = 64  # dimensions that are tried; beyond, inefficiency is taken to grow as it does for a tuned move in many dimensions
_GROWTH = {"random_walk": 1.0, "slice": 1.0, "mala": 1.0 / 3.0}  # others are Hamiltonian: 1/4 (Beskos et al. 2013)
_AVERAGED = 16  # coordinates: all have the same law


class StandardNormal(NamedTuple):
    """A density that moves may use; `scale` is 1."""

    scale: float


@log_density.register(StandardNormal)
def _log_density(density: StandardNormal, theta: np.ndarray) -> float:
    return -0.5 * dot(theta, theta) / density.scale


@log_density_gradient.register(StandardNormal)
def _log_density_gradient(density: StandardNormal, theta: np.ndarray, gradient: np.ndarray) -> float:
    for j in range(theta.size):
        gradient[j] = -theta[j] / density.scale
    return -0.5 * dot(theta, theta) / density.scale


@jit
def _run(
    rng: np.random.Generator, kernel: Any, density: StandardNormal, theta: np.ndarray, out: np.ndarray, accepted: np.ndarray
) -> None:
    point = start(kernel, density, theta)
    info = np.zeros(5)
    for k in range(out.shape[0]):
        point = move(rng, kernel, density, Point(point.theta, point.log_density, point.gradient), info)
        fill(out[k], point.theta)
        accepted[k] = info[MOVED.acceptance_rate]


def least_inefficiency(move: Move, dim: int) -> float:
    """What `normal_inefficiency` is never below, from theory: 3 d for the random walk, 2 d for one random direction, less a margin."""
    if isinstance(move, SliceMove):
        return dim / move.directions
    return 2.0 * dim if move.name == "random_walk" else 0.3


@functools.lru_cache(maxsize=32)
def normal_inefficiency(move: Move, dim: int) -> float | None:
    """Iterations of a tuned move per effective draw from a normal density; None for moves that depend on the coordinates.

    >>> from tallbayes.moves import slice
    >>> from tallbayes.moves.normal_benchmark import normal_inefficiency
    >>> 5 < normal_inefficiency(slice(), 5) < 15  # a random direction per iteration renews a fifth of the variance
    True
    """
    if isinstance(move, ProposalMove) or (isinstance(move, RandomWalkMove) and move.blocks is not None):
        return None
    if getattr(move, "isotropic", False):
        return None
    from arviz_stats.base import array_stats

    d, rng, density = min(dim, _LARGEST), np.random.default_rng(0), StandardNormal(1.0)
    tuned, theta = tuning.begin(move, np.eye(d)), rng.standard_normal(d)
    begun = 0
    for end in tuning.window_ends(_WARMUP):
        draws, accepted = np.empty((end - begun, d)), np.empty(end - begun)
        _run(rng, tuning.kernel(move, tuned), density, theta, draws, accepted)
        tuned, theta, begun = tuning.update_step(move, tuned, accepted), draws[-1].copy(), end
    draws, accepted = np.empty((2000 + 150 * d, d)), np.empty(2000 + 150 * d)
    _run(rng, tuning.kernel(move, tuned, True), density, theta, draws, accepted)
    sizes = [float(array_stats.ess(draws[None, :, j], chain_axis=0, draw_axis=1)) for j in range(min(d, _AVERAGED))]
    return draws.shape[0] / float(np.mean(sizes)) * (dim / d) ** _GROWTH.get(move.name, 0.25)

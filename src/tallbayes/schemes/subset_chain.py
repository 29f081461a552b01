"""One iteration on (theta, U): the subset U is refreshed, whatever theta is, then theta moves on the sub-posterior of U."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.contract import init, positions, step
from tallbayes.moves.move import Point, move, start
from tallbayes.schemes.subsets import choose, density_of, distance, refresh
from tallbayes.target import NOT_FINITE, Target, stop_run, stopped

FIXED, INFORMED, FREE = 0, 1, 2
SUBSETS = {"fixed": FIXED, "informed": INFORMED, "free": FREE}


class Info(NamedTuple):
    """What a step reports, by position: the move's columns, and what happened to the subset."""

    lp: int
    acceptance_rate: int
    n_steps: int
    diverging: int
    tree_depth: int
    refreshed: int
    distance: int


AT = positions(Info)


class InformedState(NamedTuple):
    """Position with its density on the subset, the subset, and |Delta|^2."""

    theta: np.ndarray
    log_density: float
    gradient: np.ndarray
    subset: Any
    squared: float


class InformedOptions(NamedTuple):
    """Compiled options."""

    kernel: Any
    scheme: Any
    kind: int
    penalty: float
    power: float
    repeats: int
    settle: int  # refreshes before the first move, so that U is a draw from nu


@init.register(InformedOptions)
def _init(rng: np.random.Generator, target: Target, options: InformedOptions, theta: np.ndarray) -> Any:
    subset = choose(rng, options.scheme, target)
    squared = distance(options.scheme, target, subset)
    if options.kind == INFORMED:
        for _ in range(options.settle):
            if stopped(target):
                break
            subset, squared, _ = refresh(rng, options.scheme, target, options.penalty, subset, squared)
    point = start(options.kernel, density_of(options.scheme, target, subset, options.power), theta)
    if not abs(point.log_density) < np.inf:
        stop_run(target, NOT_FINITE, 0)
    return InformedState(point.theta, point.log_density, point.gradient, subset, squared)


@step.register(InformedOptions)
def _step(rng: np.random.Generator, target: Target, options: InformedOptions, state: Any, info: np.ndarray) -> Any:
    subset, squared, moved = state.subset, state.squared, False
    if options.kind == INFORMED:
        subset, squared, moved = refresh(rng, options.scheme, target, options.penalty, subset, squared)
    elif options.kind == FREE:
        subset = choose(rng, options.scheme, target)
        squared, moved = distance(options.scheme, target, subset), True
    density = density_of(options.scheme, target, subset, options.power)
    point = Point(state.theta, state.log_density, state.gradient)
    if moved:
        point = start(options.kernel, density, state.theta)
    repeats = options.repeats if moved else 1
    acceptance, steps = 0.0, 0.0
    for _ in range(repeats):
        point = move(rng, options.kernel, density, point, info)
        acceptance += info[AT.acceptance_rate] / repeats
        steps += info[AT.n_steps]
    info[AT.acceptance_rate] = acceptance
    info[AT.n_steps] = steps
    info[AT.refreshed] = 1.0 if moved else 0.0
    info[AT.distance] = math.sqrt(squared)
    if info.size > AT.distance + 1:  # the bandwidth is adaptive
        info[AT.distance + 1] = options.penalty
    return InformedState(point.theta, point.log_density, point.gradient, subset, squared)

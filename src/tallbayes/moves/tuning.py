"""Warm-up of a move: step size by dual averaging (Nesterov 2009; Hoffman and Gelman 2014), covariance from the draws.

Tuning happens between windows of iterations, never inside one: a window runs with frozen options, and `update` returns new
numbers. The covariance starts from the Laplace fit and is mixed with that of the draws, so that few draws change it little.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.moves.move import Move

_GAIN, _OFFSET, _DECAY = 0.05, 10.0, 0.75  # gamma, t0, kappa of Hoffman and Gelman
_RELEARN = (0.3, 0.6, 0.85)  # shares of warm-up at which the covariance is renewed
_SHORT, _LONG, _EARLY = 10, 25, 100


class Tuning(NamedTuple):
    """What warm-up knows: numbers and arrays only, so that it can be saved."""

    updates: int
    centre: float
    log_step: float
    log_average: float
    error: float
    collected: int
    mean: np.ndarray
    scatter: np.ndarray
    covariance: np.ndarray
    prior_covariance: np.ndarray


def begin(move: Move, covariance: np.ndarray, surrogate: bool = False) -> Tuning:
    """Before warm-up: the Laplace covariance and the first step size; `surrogate` tells whether the sampler has one to move on."""
    if not (move.alone or surrogate):
        raise OptionError(
            f"move={move.name}(...) proposes from a surrogate, which this sampler does not have. Use it with "
            f"tallbayes.samplers.ExactMinibatch, or another move such as {move.example}."
        )
    d = covariance.shape[0]
    log_step = math.log(move.first_step(d))
    zeros = np.zeros(d), np.zeros((d, d))
    return Tuning(0, log_step + math.log(2.0), log_step, log_step, 0.0, 0, *zeros, covariance.copy(), covariance.copy())


def window_ends(warmup: int) -> list[int]:
    """Iterations at which a window ends: every 10 at first, then every 25.

    >>> window_ends(160)
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 125, 150, 160]
    """
    ends = [*range(_SHORT, min(warmup, _EARLY) + 1, _SHORT), *range(_EARLY + _LONG, warmup + 1, _LONG)]
    if warmup and (not ends or ends[-1] != warmup):
        ends.append(warmup)
    return ends


def update(move: Move, tuning: Tuning, draws: np.ndarray, acceptance: np.ndarray, end: int, warmup: int) -> Tuning:
    """After a window that ended at iteration `end` of `warmup`."""
    tuning = _step_size(move, tuning, float(np.mean(acceptance)))
    if end > 0.15 * warmup:
        tuning = _collect(tuning, draws)
    begun = end - draws.shape[0]
    if any(begun < share * warmup <= end for share in _RELEARN):
        tuning = _renew_covariance(tuning)
    return tuning


def update_step(move: Move, tuning: Tuning, acceptance: np.ndarray) -> Tuning:
    """After a window, for moves whose covariance is fixed: the step size only."""
    return _step_size(move, tuning, float(np.mean(acceptance)))


def kernel(move: Move, tuning: Tuning, final: bool = False) -> Any:
    """The kernel for the present numbers; the averaged step size once warm-up is over."""
    return move.kernel(tuning.covariance, math.exp(tuning.log_average if final else tuning.log_step))


def _step_size(move: Move, tuning: Tuning, acceptance: float) -> Tuning:
    goal = move.target_acceptance(tuning.mean.size)
    t = tuning.updates + 1
    error = (1 - 1 / (t + _OFFSET)) * tuning.error + (goal - acceptance) / (t + _OFFSET)
    log_step = tuning.centre - math.sqrt(t) / _GAIN * error
    log_step = min(max(log_step, tuning.log_step - 2.0), tuning.log_step + 1.0)  # no leap on one noisy window
    weight = t**-_DECAY
    average = weight * log_step + (1 - weight) * tuning.log_average
    return tuning._replace(updates=t, error=error, log_step=log_step, log_average=average)


def _collect(tuning: Tuning, draws: np.ndarray) -> Tuning:
    m = draws.shape[0]
    total = tuning.collected + m
    mean = draws.mean(0)
    gap = mean - tuning.mean
    centred = draws - mean
    scatter = tuning.scatter + centred.T @ centred + np.outer(gap, gap) * (tuning.collected * m / total)
    return tuning._replace(collected=total, mean=tuning.mean + gap * (m / total), scatter=scatter)


def _renew_covariance(tuning: Tuning) -> Tuning:
    d = tuning.mean.size
    if tuning.collected <= d + 1:
        return tuning
    weight = tuning.collected / (tuning.collected + 10.0 * d)
    sample = tuning.scatter / (tuning.collected - 1)
    covariance = weight * sample + (1 - weight) * tuning.prior_covariance
    step = tuning.log_average
    tuning = tuning._replace(collected=0, mean=np.zeros(d), scatter=np.zeros((d, d)))
    return tuning._replace(covariance=covariance, updates=0, error=0.0, centre=step, log_step=step)

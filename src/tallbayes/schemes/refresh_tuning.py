"""The inverse temperature of subsets, tuned in warm-up to a refresh rate, then frozen.

Between windows of warm-up log eps moves by a Robbins-Monro step towards the goal,

    log eps_{t+1} = log eps_t + c t^-kappa (rate_t - goal),

rate_t the share of the window's iterations that changed the subset: a colder law of subsets changes them less often. After
warm-up the weighted average of log eps is used, and never changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_GAIN, _DECAY, _LEAP = 8.0, 0.6, 2.0  # c, kappa, and the most that one window moves log eps
_AVERAGING = 0.75
_REACH = math.log(1e4)  # how far log eps may go from its first value: some rates are not reached by any eps


class RefreshTuning(NamedTuple):
    """What warm-up knows of the inverse temperature: numbers, so that it can be saved."""

    updates: int
    log_penalty: float
    log_average: float
    log_first: float


def begin(penalty: float) -> RefreshTuning:
    """Before warm-up."""
    return RefreshTuning(0, math.log(penalty), math.log(penalty), math.log(penalty))


def update(tuning: RefreshTuning, rate: float, goal: float) -> RefreshTuning:
    """After a window in which the subset was refreshed at `rate`.

    >>> update(begin(1.0), rate=0.6, goal=0.1)
    RefreshTuning(updates=1, log_penalty=2.0, log_average=2.0, log_first=0.0)
    """
    t = tuning.updates + 1
    leap = _GAIN * t**-_DECAY * (rate - goal)
    log_penalty = tuning.log_penalty + min(max(leap, -_LEAP), _LEAP)
    log_penalty = min(max(log_penalty, tuning.log_first - _REACH), tuning.log_first + _REACH)
    weight = t**-_AVERAGING
    average = weight * log_penalty + (1.0 - weight) * tuning.log_average
    return RefreshTuning(t, log_penalty, average, tuning.log_first)


def penalty(tuning: RefreshTuning, final: bool) -> float:
    """The inverse temperature of the present window, or the average once warm-up is over."""
    return math.exp(tuning.log_average if final else tuning.log_penalty)

"""Kinks of a Laplace prior: log density -|theta_j - location_j| / scale_j has no derivative where modes of sparse models lie.

Two things the search for the mode needs, neither of which reads a row:

* `kink_step`: the maximum of g'(u - theta) - (u - theta)'A(u - theta)/2 - sum_j |u_j - location_j| / scale_j, the quadratic model of
  everything smooth with the kinks kept as they are (a proximal Newton step). Coordinates end exactly on their kink where
  the slope of the rest is at most 1 / scale_j. Active sets as in feature-sign search (Lee, Battle, Raina and Ng 2007): a finite number
  of solves, each of which lowers the objective.
* `kink_curvature`: the precision that stands in for the prior's in the Laplace fit. The Hessian at a kink is infinite and elsewhere zero;
  neither describes the posterior. Expectation propagation on the quadratic model gives every coordinate the normal factor under
  which its variance is that of the density with kinks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_ndtr

from tallbayes.priors import LAPLACE

_SWEEPS = 50  # of expectation propagation; ten or twenty suffice
_TAIL = 30.0  # standard deviations from where the moments of a truncated normal are taken from their expansion
_LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


class Kinks(NamedTuple):
    """Which coordinates have one, where it is, and the slope of the log prior on either side."""

    where: np.ndarray
    location: np.ndarray
    slope: np.ndarray

    def signs(self, theta: np.ndarray) -> np.ndarray:
        """The side each coordinate is on; 0 on its kink."""
        return np.sign(theta[self.where] - self.location)

    def height(self, theta: np.ndarray) -> float:
        """Minus the log prior of these coordinates."""
        return float(self.slope @ np.abs(theta[self.where] - self.location))


def kinks_of(prior: Any) -> Kinks:
    """The kinks of a prior; none for most."""
    index = np.flatnonzero(prior.kind == LAPLACE)
    if index.size == 0:
        return Kinks(index, np.zeros(0), np.zeros(0))
    return Kinks(index, prior.location[index], 1.0 / prior.scale[index])


def kink_step(precision: np.ndarray, gradient: np.ndarray, kinks: Kinks, theta: np.ndarray) -> np.ndarray:
    """The point that maximises the quadratic model with kinks; `precision` must be positive definite."""
    d, index, slope = theta.size, kinks.where, kinks.slope
    kink = np.zeros(d)
    kink[index] = kinks.location
    pull = gradient + precision @ (theta - kink)  # the linear term, with every kink at zero
    at, sign, rate = theta - kink, np.zeros(d), np.zeros(d)
    sign[index], rate[index] = np.sign(at[index]), slope
    free = np.ones(d, bool)
    free[index] = sign[index] != 0.0

    def cost(u: np.ndarray) -> float:
        return float(0.5 * u @ precision @ u - pull @ u + rate @ np.abs(u))

    at, several = _descend(precision, pull, rate, cost, at, sign, free), True
    for _ in range(50 + 20 * d):
        excess = np.abs(pull - precision @ at) - rate
        excess[free] = -np.inf
        if not (excess > 1e-10 * rate).any():
            break
        entering = excess > 1e-10 * rate if several else np.arange(d) == np.argmax(excess)
        before, kept, signs = at, free.copy(), sign.copy()
        free |= entering
        sign[entering] = np.sign(pull - precision @ at)[entering]
        tried = _descend(precision, pull, rate, cost, at, sign, free)
        if cost(tried) < cost(before):
            at, several = tried, True
        elif several:  # coordinates that enter together may hinder each other: one at a time then
            at, free[:], sign[:], several = before, kept, signs, False
        else:
            break  # no further descent but rounding
    return kink + at


def _descend(precision: Any, pull: Any, rate: Any, cost: Any, at: np.ndarray, sign: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Minimise over free coordinates with the given signs; one that changes its sign on the way stops at its kink."""
    while free.any():
        block = np.flatnonzero(free)
        goal = np.zeros(at.size)
        goal[block] = cho_solve(cho_factor(precision[np.ix_(block, block)]), (pull - rate * sign)[block])
        crossing = free & (sign != 0.0) & (np.sign(goal) != sign)
        if not crossing.any():
            return goal
        share = np.full(at.size, np.inf)
        share[crossing] = at[crossing] / (at[crossing] - goal[crossing] + 1e-300 * sign[crossing])
        stops = np.unique(np.clip(share[crossing], 0.0, 1.0))[:20]
        trials = [at + t * (goal - at) for t in stops]
        for t, trial in zip(stops, trials, strict=True):
            trial[crossing & (share <= t * (1.0 + 1e-12))] = 0.0
        best = int(np.argmin([cost(t) for t in trials]))
        at = trials[best]
        gone = crossing & (share <= stops[best] * (1.0 + 1e-12))
        free[gone], sign[gone] = False, 0.0
        sign[free & (rate > 0.0)] = np.sign(at[free & (rate > 0.0)])
        free &= (rate == 0.0) | (sign != 0.0)
    return np.zeros(at.size)


def kink_curvature(precision: np.ndarray, gradient: np.ndarray, kinks: Kinks, theta: np.ndarray) -> np.ndarray:
    """Precisions of the normal factors that stand in for the kinks; `precision` and `gradient` are of all the rest at theta."""
    index, slope = kinks.where, kinks.slope
    shift = precision @ theta + gradient
    site, pull = 0.5 * slope**2, 0.5 * slope**2 * kinks.location  # the prior's own variance is 2 scale^2
    for _ in range(_SWEEPS):
        whole, linear = precision.copy(), shift.copy()
        whole[index, index] += site
        linear[index] += pull
        scale = 1.0 / np.sqrt(np.diag(whole))
        inverse = cho_solve(cho_factor(whole * np.outer(scale, scale)), np.eye(scale.size)) * np.outer(scale, scale)
        variance, mean = np.diag(inverse)[index], (inverse @ linear)[index]
        cavity = np.maximum(1.0 / variance - site, 1e-8 * slope**2)
        centre = (mean / variance - pull) / cavity - kinks.location
        tilted, spread = _moments(centre, 1.0 / cavity, slope)
        new = np.maximum(1.0 / spread - cavity, 0.0)
        moved = np.abs((new - site) / (site + cavity)).max()
        target = (tilted + kinks.location) / spread - (centre + kinks.location) * cavity
        site, pull = 0.2 * site + 0.8 * new, 0.2 * pull + 0.8 * target
        if moved < 1e-3:
            break
    return site


def _moments(mean: np.ndarray, variance: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the density proportional to N(z; mean, variance) exp(-slope |z|): two truncated normals."""
    sd = np.sqrt(variance)
    sides = []
    for sign in (1.0, -1.0):
        cut = slope * sd - sign * mean / sd  # how far in its own tail the side begins
        weight = -sign * slope * mean + log_ndtr(-cut)
        hazard = np.exp(-0.5 * np.minimum(cut, _TAIL) ** 2 - _LOG_ROOT - log_ndtr(-np.minimum(cut, _TAIL)))
        far, inverse = cut > _TAIL, 1.0 / np.maximum(cut, 1.0)
        first = np.where(far, inverse * (1.0 - 2.0 * inverse**2), hazard - np.minimum(cut, _TAIL))
        second = np.where(far, inverse**2 * (1.0 - 6.0 * inverse**2), 1.0 + cut * hazard - hazard**2)
        sides.append((weight, sign * sd * first, variance * np.maximum(second, 1e-12)))
    (left, m1, v1), (right, m2, v2) = sides
    share = 1.0 / (1.0 + np.exp(np.clip(right - left, -700.0, 700.0)))
    tilted = share * m1 + (1.0 - share) * m2
    return tilted, share * v1 + (1.0 - share) * v2 + share * (1.0 - share) * (m1 - m2) ** 2

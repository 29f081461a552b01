"""The joint density of theta and lights as a function of theta alone, for moves: what Firefly's moves see. The law is in `firefly`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, SUMS, inlinable
from tallbayes.engine.arithmetic import exp_remainder
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.priors import prior_gradient
from tallbayes.proxies.lower_bounds import bound_gradient, bound_value
from tallbayes.schemes.lights import bright_gradient, lower_gaps
from tallbayes.target import Target, log_prior, stopped


class BrightPosterior(NamedTuple):
    """The joint density as a function of theta, z fixed. Gaps of the last evaluation stay in `gap`, its theta in `at`."""

    target: Target
    lit: np.ndarray
    gap: np.ndarray
    at: np.ndarray


@inlinable(options=SCALAR)
def pseudo_prior(target: Target, theta: np.ndarray) -> float:
    """log p(theta) + sum_i log B_i(theta), in the words of the paper; reads no row."""
    value = bound_value(target.proxy, theta)
    return value if target.proxy.prior else value + log_prior(target, theta)


@inlinable(options=SCALAR)
def pseudo_prior_gradient(target: Target, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same; its gradient is added to `gradient`."""
    value = bound_gradient(target.proxy, theta, gradient)
    return value if target.proxy.prior else value + prior_gradient(target.prior, theta, gradient)


FEW = 16  # odds multiplied before a logarithm is taken: each is between 1e-10, the margin of a gap, and e^FAR = 1e13
FAR = 30.0  # log(e^gap - 1) is the gap beyond that, to 1e-13


@inlinable(options=SUMS)
def sum_of_odds(gap: np.ndarray) -> float:
    """The sum of log(L/B - 1) = log(e^gap - 1) over rows with these gaps: logarithms of products, a few rows at a time."""
    total, smallest = 0.0, np.inf
    for start in range(0, gap.size, FEW):
        product = 1.0
        for j in range(start, min(start + FEW, gap.size)):
            near = min(max(gap[j], 1e-12), FAR)
            product *= exp_remainder(near) + near * (1.0 + 0.5 * near)
            total += gap[j] - min(gap[j], FAR)
            smallest = min(smallest, gap[j])
        total += math.log(product)
    return total if smallest > 0.0 else -np.inf


@log_density.register(BrightPosterior)
def _log_density(density: BrightPosterior, theta: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    lower_gaps(density.target, density.lit, theta, density.gap)
    density.at[:] = theta
    value = pseudo_prior(density.target, theta) + sum_of_odds(density.gap)
    return value if abs(value) < np.inf else -np.inf


@log_density_gradient.register(BrightPosterior)
def _log_density_gradient(density: BrightPosterior, theta: np.ndarray, gradient: np.ndarray) -> float:
    if stopped(density.target):
        return -np.inf
    gradient[:] = 0.0
    bright_gradient(density.target, density.lit, theta, density.gap, gradient)
    density.at[:] = theta
    value = pseudo_prior_gradient(density.target, theta, gradient) + sum_of_odds(density.gap)
    return value if abs(value) < np.inf else -np.inf

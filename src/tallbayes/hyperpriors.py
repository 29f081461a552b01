"""Priors of coefficients with unknown scales, as compiled code sees them: ridge and horseshoe.

Coefficient j of group k has beta_j ~ N(0, (tau_k lambda_j u_j)^2), u_j a unit such as one over the standard deviation of its column, tau_k
half-Cauchy. Ridge has lambda_j = 1; under the horseshoe lambda_j is standard half-Cauchy, and integrated out it leaves, with
z = beta^2 / (2 tau^2 u^2),

    log p(beta | tau) = log(e^z E_1(z)) - log tau + constant.

theta is (beta, log tau): the density here has the lambda_j integrated out, and samplers that draw them target the same law.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import SCALAR, inlinable
from tallbayes.prior_terms import PriorTerms, prior_gradient, prior_precision, prior_value

HYPER = ("ridge", "horseshoe")
_EULER = 0.5772156649015329


class HyperTerms(NamedTuple):
    """Coefficients in groups with an unknown scale each, and the prior of the others."""

    kind: np.ndarray  # of the coordinates of theta, all flat: there are no kinks
    rest: PriorTerms  # of coefficients, flat for those in a group
    group: np.ndarray  # of each coefficient, -1 for none
    unit: np.ndarray  # of each coefficient
    local: np.ndarray  # of each group: 1 for the horseshoe
    scale: np.ndarray  # of each group: that of the half-Cauchy prior of tau


@inlinable(options=SCALAR)
def scaled_exponential_integral(z: float) -> float:
    """e^z E_1(z) for z > 0: its series below 2, a continued fraction above."""
    if z < 2.0:
        total, term = -_EULER - math.log(z), -1.0
        for k in range(1, 32):
            term *= -z / k
            total += term / k
        return total * math.exp(z)
    fraction = z + 161.0
    for k in range(80, 0, -1):
        fraction = z + 2.0 * k - 1.0 - k * k / fraction
    return 1.0 / fraction


@inlinable
def _group_density(prior: HyperTerms, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log density of coefficients in groups and of log tau; gradients are added."""
    d, total = prior.group.size, 0.0
    for j in range(d):
        k = prior.group[j]
        if k < 0:
            continue
        tau = math.exp(min(max(theta[d + k], -300.0), 300.0))
        ratio = theta[j] / (tau * prior.unit[j])
        z = max(0.5 * ratio * ratio, 1e-300)
        slope = -1.0
        if prior.local[k] == 1:
            m = scaled_exponential_integral(z)
            total += math.log(m)
            slope = 1.0 - 1.0 / (z * m)
        else:
            total -= z
        total -= theta[d + k]
        gradient[j] += slope * ratio / (tau * prior.unit[j])
        gradient[d + k] -= 2.0 * z * slope + 1.0
    for k in range(prior.scale.size):
        q = math.exp(2.0 * min(max(theta[d + k] - math.log(prior.scale[k]), -300.0), 300.0))
        total += theta[d + k] - math.log1p(q)
        gradient[d + k] += 1.0 - 2.0 * q / (1.0 + q)
    return total


@prior_value.register(HyperTerms)
def _hyper_value(prior: HyperTerms, theta: np.ndarray) -> float:
    return prior_value(prior.rest, theta[: prior.group.size]) + _group_density(prior, theta, np.zeros(theta.size))


@prior_gradient.register(HyperTerms)
def _hyper_gradient(prior: HyperTerms, theta: np.ndarray, gradient: np.ndarray) -> float:
    d = prior.group.size
    return prior_gradient(prior.rest, theta[:d], gradient[:d]) + _group_density(prior, theta, gradient)


@prior_precision.register
def _hyper_precision(prior: HyperTerms, theta: np.ndarray) -> np.ndarray:
    """By central differences of the gradient."""
    out = np.empty((theta.size, theta.size))
    for j in range(theta.size):
        step, ends = 1e-5 * (1.0 + abs(theta[j])), []
        for sign in (1.0, -1.0):
            moved, gradient = np.array(theta, float), np.zeros(theta.size)
            moved[j] += sign * step
            prior_gradient(prior, moved, gradient)
            ends.append(gradient)
        out[j] = (ends[1] - ends[0]) / (2.0 * step)
    return 0.5 * (out + out.T)

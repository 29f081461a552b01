"""Surrogate transitions: a kernel that is reversible for a surrogate posterior, as a proposal whose acceptance ratio is the residual alone.

With pi(beta, phi) the posterior and s(beta, phi) the surrogate one, which differ by the residuals of rows, pi / s = e^rho(beta): if K is
reversible for s,

    pi(x) K(x, x') min{1, e^(rho' - rho)} = s(x) K(x, x') min{e^rho, e^rho'}

is symmetric (Liu 2001, section 9.4.3; Christen and Fox 2005). K may make many steps, but they must form a palindrome: a composition in
one order is not reversible. On rejection everything is restored. Updates of phi given beta read no rows and are exact by themselves.

Here phi are the scales of `hyperpriors`, and K is (a c b c a)^m: local scales, global scales, coefficients, and back. With the auxiliary
variables of Makalic and Schmidt (2016), drawn afresh each time,

    nu_j ~ IG(1, 1 + 1/lambda_j^2),          lambda_j^2 ~ IG(1, 1/nu_j + beta_j^2 / (2 tau^2 u_j^2)),
    xi ~ IG(1, 1/scale^2 + 1/tau^2),         tau^2 ~ IG((p + 1)/2, 1/xi + sum beta_j^2 / (2 lambda_j^2 u_j^2)),

and beta is normal with precision A + diag(1 / (tau lambda u)^2) and mean that matrix's inverse times `linear`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.compile import inlinable


class ShrinkageSurrogate(NamedTuple):
    """Curvature and linear term of the likelihood and of the fixed part of the prior, and the groups of coefficients."""

    precision: np.ndarray
    linear: np.ndarray
    group: np.ndarray
    unit: np.ndarray
    local: np.ndarray
    scale: np.ndarray


@inlinable
def draw_local_scales(
    rng: np.random.Generator, surrogate: ShrinkageSurrogate, beta: np.ndarray, local: np.ndarray, log_tau: np.ndarray
) -> None:
    """lambda given beta and tau, through nu: reversible for the law of lambda."""
    for j in range(beta.size):
        k = surrogate.group[j]
        if k < 0 or surrogate.local[k] == 0:
            continue
        ratio = beta[j] / (math.exp(log_tau[k]) * surrogate.unit[j])
        nu = (1.0 + 1.0 / (local[j] * local[j])) / rng.standard_exponential()
        local[j] = math.sqrt((1.0 / nu + 0.5 * ratio * ratio) / rng.standard_exponential())


@inlinable
def draw_global_scales(
    rng: np.random.Generator, surrogate: ShrinkageSurrogate, beta: np.ndarray, local: np.ndarray, log_tau: np.ndarray
) -> None:
    """tau given beta and lambda, through xi."""
    for k in range(log_tau.size):
        count, total = 0, 0.0
        for j in range(beta.size):
            if surrogate.group[j] == k:
                ratio = beta[j] / (local[j] * surrogate.unit[j])
                total += 0.5 * ratio * ratio
                count += 1
        scale = surrogate.scale[k]
        xi = (1.0 / (scale * scale) + math.exp(-2.0 * log_tau[k])) / rng.standard_exponential()
        log_tau[k] = 0.5 * math.log((1.0 / xi + total) / rng.standard_gamma(0.5 * (count + 1)))


@inlinable
def draw_coefficients(
    rng: np.random.Generator, surrogate: ShrinkageSurrogate, beta: np.ndarray, local: np.ndarray, log_tau: np.ndarray
) -> None:
    """beta from its normal law given the scales."""
    d = beta.size
    precision = surrogate.precision.copy()
    for j in range(d):
        k = surrogate.group[j]
        if k >= 0:
            width = math.exp(log_tau[k]) * local[j] * surrogate.unit[j]
            precision[j, j] += 1.0 / max(width * width, 1e-300)
    root = np.linalg.cholesky(precision)
    inner = np.empty(d)
    for j in range(d):
        total = surrogate.linear[j]
        for k in range(j):
            total -= root[j, k] * inner[k]
        inner[j] = total / root[j, j]
    for j in range(d):
        inner[j] += rng.standard_normal()
    for i in range(d):
        j = d - 1 - i
        total = inner[j]
        for k in range(j + 1, d):
            total -= root[k, j] * beta[k]
        beta[j] = total / root[j, j]


@inlinable
def palindrome(
    rng: np.random.Generator,
    surrogate: ShrinkageSurrogate,
    sweeps: int,
    beta: np.ndarray,
    local: np.ndarray,
    log_tau: np.ndarray,
) -> None:
    """(a c b c a)^sweeps in place: reversible for the surrogate posterior."""
    for _ in range(sweeps):
        draw_local_scales(rng, surrogate, beta, local, log_tau)
        draw_global_scales(rng, surrogate, beta, local, log_tau)
        draw_coefficients(rng, surrogate, beta, local, log_tau)
        draw_global_scales(rng, surrogate, beta, local, log_tau)
        draw_local_scales(rng, surrogate, beta, local, log_tau)


@inlinable
def conditional_prior(surrogate: ShrinkageSurrogate, beta: np.ndarray, local: np.ndarray, log_tau: np.ndarray) -> float:
    """Log density of the coefficients in groups given the scales, up to terms without beta."""
    total = 0.0
    for j in range(beta.size):
        k = surrogate.group[j]
        if k >= 0:
            ratio = beta[j] / (math.exp(log_tau[k]) * local[j] * surrogate.unit[j])
            total -= 0.5 * ratio * ratio
    return total


@inlinable
def fresh_local_scale(rng: np.random.Generator, b: float) -> float:
    """lambda from its law given beta and tau, b = beta^2 / (2 tau^2 u^2): v = 1 / lambda^2 has density e^(-b v) / (1 + v).

    Below 1/b by the inverse of the integral of 1 / (1 + v), accepted with e^(-b v); above by an exponential tail, accepted with
    (1 + 1/b) / (1 + v).
    """
    end = 1.0 / max(b, 1e-200)
    inside = math.log1p(end)
    outside = math.exp(-1.0) / (max(b, 1e-200) * (1.0 + end))
    while True:
        if rng.random() * (inside + outside) < inside:
            v = math.expm1(rng.random() * inside)
            if rng.random() < math.exp(-b * v):
                return 1.0 / math.sqrt(max(v, 1e-300))
        else:
            v = end * (1.0 + rng.standard_exponential())
            if rng.random() * (1.0 + v) < 1.0 + end:
                return 1.0 / math.sqrt(v)

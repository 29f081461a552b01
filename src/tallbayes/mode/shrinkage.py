"""The reference of a model with priors of unknown scale: the joint density of coefficients and scales has no useful mode.

Scales are fixed at typical values, the mode of the coefficients is found under normal priors with these, and draws from the surrogate
posterior there give better typical values; a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.models.penalised import PenalisedModel
from tallbayes.prior_terms import prior_gradient, prior_precision
from tallbayes.streams import Stream, generator

ROUNDS, SWEEPS = 3, 400


@dataclass(eq=False)
class ShrinkageMode(Mode):
    """A reference of (beta, log tau), with the one of the coefficients alone under normal priors of typical scales."""

    coefficients: Mode | None = None


def surrogate_parts(model: PenalisedModel, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    """Precision and linear term of the quadratic part of the log posterior without the groups, as a function of beta.

    The prior of other coefficients takes part by its gradient and curvature at the reference, the latter no less than 0.
    """
    terms, beta = model.prior_terms.rest, mode.reference
    rows = mode.gradient.copy()
    prior = np.zeros(beta.size)
    prior_gradient(mode.model.prior_terms, beta, prior)
    rows -= prior
    own = np.zeros(beta.size)
    prior_gradient(terms, beta, own)
    values, vectors = np.linalg.eigh(prior_precision(terms, beta))
    precision = (vectors * np.maximum(values, 0.0)) @ vectors.T - mode.hessian
    return np.ascontiguousarray(0.5 * (precision + precision.T)), precision @ beta + rows + own


def find_shrinkage_mode(model: PenalisedModel, search: Callable[[Model], Mode], seed: int) -> ShrinkageMode:
    """The reference; `search` finds the mode of a plain model."""
    terms, rng = model.prior_terms, generator(seed, Stream.SHRINKAGE)
    width, passes, evaluations = np.where(terms.group >= 0, terms.unit, 1.0), 0, 0
    for _ in range(ROUNDS):
        inner = search(model.stand_in(width))
        passes, evaluations = passes + inner.passes, evaluations + inner.evaluations
        logs, log_tau = _typical(model, inner, rng)
        width = np.exp(logs)
    d, count = model.data.d, log_tau.shape[1]
    reference = np.concatenate([inner.reference, log_tau.mean(0)])
    hessian, precision = np.zeros((2, d + count, d + count))
    hessian[:d, :d], precision[:d, :d] = inner.hessian, inner.precision
    precision[d:, d:] = np.diag(1.0 / np.maximum(log_tau.var(0), 1e-4))
    gradient = np.concatenate([inner.gradient, np.zeros(count)])
    value = inner.log_posterior
    inner = replace(inner, passes=passes, evaluations=evaluations)
    return ShrinkageMode(model, reference, value, gradient, hessian, precision, passes, evaluations, coefficients=inner)


def _typical(model: PenalisedModel, mode: Mode, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Means of the logarithms of the prior standard deviations under the surrogate posterior, and draws of log tau."""
    terms = model.prior_terms
    precision, linear = surrogate_parts(model, mode)
    inside, group = terms.group >= 0, np.maximum(terms.group, 0)
    local = inside & (terms.local[group] == 1)
    lam, log_tau = np.ones(model.data.d), np.log(0.1 * terms.scale)
    total, kept = np.zeros(model.data.d), []
    for sweep in range(SWEEPS):
        width = np.exp(log_tau[group]) * lam * terms.unit
        root = np.linalg.cholesky(precision + np.diag(np.where(inside, 1.0 / np.maximum(width**2, 1e-300), 0.0)))
        beta = np.linalg.solve(root.T, np.linalg.solve(root, linear) + rng.standard_normal(linear.size))
        ratio = beta / (np.exp(log_tau[group]) * terms.unit)
        nu = (1.0 + 1.0 / lam**2) / rng.standard_exponential(lam.size)
        lam = np.where(local, np.sqrt((1.0 / nu + 0.5 * ratio**2) / rng.standard_exponential(lam.size)), 1.0)
        for k in range(log_tau.size):
            own = terms.group == k
            squares = 0.5 * float(((beta[own] / (lam[own] * terms.unit[own])) ** 2).sum())
            xi = (1.0 / terms.scale[k] ** 2 + np.exp(-2.0 * log_tau[k])) / rng.standard_exponential()
            log_tau[k] = 0.5 * np.log((1.0 / xi + squares) / rng.standard_gamma(0.5 * (own.sum() + 1)))
        if sweep >= SWEEPS // 2:
            total += np.log(np.exp(log_tau[group]) * lam * terms.unit)
            kept.append(log_tau.copy())
    return total / len(kept), np.array(kept)

"""The reference of a linear model with levels and unknown error: the mode of (log sigma, log tau) with everything else integrated out."""

from __future__ import annotations

import numpy as np

from tallbayes.engine.collapsed_sums import LinearSums, collapsed_value, linear_sums
from tallbayes.engine.grouped_rows import FactorRows
from tallbayes.errors import ModelError
from tallbayes.mode.hierarchical import HierarchicalMode
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.priors import FLAT, NORMAL, PriorTerms
from tallbayes.scale_priors import scale_log_density


class LinearMode(HierarchicalMode):
    """The sums that a linear model needs, and the curvature of its collapsed density."""

    sums: LinearSums
    curvature: np.ndarray  # (2, 2): of minus the log density of (log sigma, log tau)


def split_prior(terms: PriorTerms) -> tuple[np.ndarray, np.ndarray, PriorTerms]:
    """Precision and location of the Gaussian part of a prior of coefficients, and the rest."""
    normal, j = terms.kind == NORMAL, terms.intercept
    precision, location = np.diag(np.where(normal, 1.0 / terms.scale**2, 0.0)), terms.location.copy()
    if j >= 0 and normal[j]:  # judged at theta . centre
        precision[j, j] = 0.0
        precision += np.outer(terms.centre, terms.centre) / terms.scale[j] ** 2
        location[j] -= terms.centre @ location - terms.centre[j] * location[j]
    if terms.dense.size:
        precision = precision + terms.dense
    return precision, location, terms._replace(kind=np.where(normal, FLAT, terms.kind), dense=np.zeros((0, 0)))


def find_linear_mode(model: HierarchicalModel, cores: int | None = None) -> HierarchicalMode:
    """Two passes over the rows, then none."""
    factor, d = model.factors[0], model.data.d
    if len(model.factors) > 1 or factor.first >= 0:
        from tallbayes.mode.linear_several import find_several_mode

        return find_several_mode(model, cores)
    rows = FactorRows(model.unit_scale_member, model.data.records, d, factor.first, 1, factor.offsets, factor.members)
    sums = linear_sums(rows, factor.levels, cores)
    precision, location, _ = split_prior(model.coefficient_terms)
    from scipy.optimize import minimize

    terms = model.scale_priors[0][0].terms()

    def energy(at: np.ndarray) -> float:
        mean, root = np.zeros(d), np.zeros((d, d))
        value = collapsed_value(sums, precision, location - sums.centre, at[0], at[1], mean, root)
        return -(value + scale_log_density(terms, float(np.exp(at[1]))) + at[1])

    spread = 0.5 * np.log(max(sums.products[-1, -1] / max(sums.weights.sum(), 1.0), 1e-300))
    found = minimize(
        energy, [spread, spread - 1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 2000}
    )
    if not np.isfinite(found.fun):
        raise ModelError(
            "columns of X are collinear, and the prior does not separate them. Drop one of the columns, or use a proper prior "
            "such as tallbayes.priors.normal(10.0)."
        )
    mode = found.x
    step = 1e-3 * np.eye(2)
    curvature = np.empty((2, 2))
    for a in range(2):
        for b in range(2):
            signs = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
            curvature[a, b] = sum(s * energy(mode + i * step[a] + j * step[b]) for i, j, s in signs) / 4e-6
    values, vectors = np.linalg.eigh(curvature)
    curvature = (vectors * np.maximum(values, 0.5)) @ vectors.T
    mean, root = np.zeros(d), np.zeros((d, d))
    collapsed_value(sums, precision, location - sums.centre, *mode, mean, root)
    return _mode(model, sums, mode, curvature, mean, np.tril(root))


def _mode(
    model: HierarchicalModel, sums: LinearSums, at: np.ndarray, curvature: np.ndarray, mean: np.ndarray, root: np.ndarray
) -> LinearMode:
    d, tau, variance = model.data.d, float(np.exp(at[1])), float(np.exp(2.0 * at[0]))
    reference = np.concatenate([sums.centre + mean, [at[0], tau]])
    unit = np.array([1.0, 1.0 / tau])
    precision = np.zeros((model.dim, model.dim))
    precision[:d, :d] = root @ root.T
    precision[d:, d:] = curvature * np.outer(unit, unit)
    shrunk = tau**2 / (variance + sums.weights * tau**2)
    effects = shrunk * (sums.totals[:, d] - sums.totals[:, :d] @ mean)
    weakness = variance / (variance + sums.weights * tau**2)
    hessian = np.zeros((model.dim, model.dim))
    hessian[:d, :d] = -sums.products[:d, :d] / variance
    out = LinearMode(
        model,
        reference,
        float("nan"),
        np.zeros(model.dim),
        hessian,
        precision,
        2,
        2 * model.data.n,
        effects=[effects[:, None]],
        sigmas=[np.array([tau])],
        correlations=[np.eye(1)],
        weakness=[weakness],
    )
    out.sums, out.curvature = sums, curvature
    return out

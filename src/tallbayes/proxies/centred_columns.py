"""Columns of X taken from their means, so that their coefficients move without the intercept of all levels.

eta = beta_0 + x . beta = gamma_0 + (x - m) . beta with gamma_0 = beta_0 + m . beta, m the means of the free columns weighted by -f'' at
the reference. Where levels carry the intercept, a sweep holds gamma_0 in its place: the Jacobian is 1, the prior is judged at beta, and
draws are in beta. Rows need not know: in x . delta the column of ones has the coefficient -m . delta.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.models.group_effects import HierarchicalModel
from tallbayes.prior_terms import PriorTerms


def column_means(
    model: HierarchicalModel, information: np.ndarray, free: np.ndarray, carried: np.ndarray
) -> tuple[int, np.ndarray]:
    """The column of ones and the means of the free columns, 0 for the others; -1 and zeros where levels carry no such column."""
    means, constant = np.zeros(model.data.d), model.data.intercept
    if constant is None or constant not in carried or not information[constant, constant] > 0.0:
        return -1, means
    means[free] = information[free, constant] / information[constant, constant]
    return constant, means


def of_free_columns(sums: np.ndarray, free: np.ndarray, constant: int, means: np.ndarray) -> np.ndarray:
    """Sums over rows with a factor x, an axis of all columns in front: those of the free columns, from their means."""
    out = sums[free] if constant < 0 else sums[free] - np.multiply.outer(means[free], sums[constant])
    return np.ascontiguousarray(out)


def to_coefficients(constant: int, means: np.ndarray) -> np.ndarray:
    """The matrix M of beta = M gamma."""
    out = np.eye(means.size)
    if constant >= 0:
        out[constant] -= means
    return out


def centred_prior(terms: PriorTerms, constant: int, means: np.ndarray) -> PriorTerms:
    """The prior of beta as a density of gamma."""
    if constant < 0 or not means.any():
        return terms
    centre = terms.centre.copy() if terms.intercept == constant else np.eye(means.size)[constant]
    location, dense = terms.location, terms.dense
    if dense.size:
        matrix = to_coefficients(constant, means)
        location, dense = np.linalg.solve(matrix, location), np.ascontiguousarray(matrix.T @ dense @ matrix)
    return terms._replace(centre=centre - means, intercept=constant, location=location, dense=dense)


@inlinable
def add_means(surrogate: Any, sign: float, beta: np.ndarray) -> None:
    """Turn beta into gamma (sign 1) or back (-1), in place."""
    constant, means = surrogate.constant, surrogate.means
    if constant >= 0:
        total = 0.0
        for j in range(means.size):
            total += means[j] * beta[j]
        beta[constant] += sign * total

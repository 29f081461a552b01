"""Columns that hardly vary about a large mean, such as times within an hour: the search for the mode sees them less their means.

With an intercept, theta = M phi, where phi has the same coefficients and the intercept at the means m of such columns: phi_0 = theta_0
+ m.theta. Rows less m are computed exactly (Sterbenz), while the curvature in theta loses (mean / sd)^2 of its digits. Only the
search, the factor of the Laplace fit and the whitened curvature use phi; coefficients, priors and draws are those of theta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky

from tallbayes.engine import passes
from tallbayes.engine.rows import Rows
from tallbayes.mode.kinks import kinks_of
from tallbayes.model import Model

_FAR = 1e4  # |mean| / sd from which on a column is centred; (mean / sd)^2 of the precision is rounding

Derivatives = tuple[float, np.ndarray, np.ndarray]


class Centring(NamedTuple):
    """The change of coordinates theta = matrix phi."""

    shift: np.ndarray  # of the columns
    matrix: np.ndarray
    inverse: np.ndarray

    def outwards(self, phi: np.ndarray) -> np.ndarray:
        """theta of phi."""
        return self.matrix @ phi

    def inwards(self, theta: np.ndarray) -> np.ndarray:
        """phi of theta."""
        return self.inverse @ theta

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """The gradient in phi of one in theta."""
        return self.matrix.T @ slope

    def curvature(self, matrix: np.ndarray) -> np.ndarray:
        """The Hessian in phi of one in theta."""
        return self.matrix.T @ matrix @ self.matrix

    def total_hessian(self, rows: Any, theta: np.ndarray, cores: int | None = None) -> Derivatives:
        """Log-likelihood of all rows with derivatives in phi, from rows less their means."""
        return passes.total_hessian(rows, self.inwards(theta), cores, self.shift)

    def of(self, likelihood: Callable[[np.ndarray], Derivatives]) -> Callable[[np.ndarray], Derivatives]:
        """The same from derivatives in theta, which have lost digits."""

        def centred(theta: np.ndarray) -> Derivatives:
            value, gradient, hessian = likelihood(theta)
            return value, self.gradient(gradient), self.curvature(hessian)

        return centred


class Frame(NamedTuple):
    """Curvature at a reference in phi, from which the factor of the covariance of theta is made."""

    centring: Centring
    hessian: np.ndarray  # of the log-likelihood
    precision: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """Of theta."""
        inner = self.centring.matrix @ self._inner_factor
        return inner @ inner.T

    @property
    def _inner_factor(self) -> np.ndarray:
        scale = 1.0 / np.sqrt(np.diag(self.precision))
        inner = cho_solve(cho_factor(self.precision * np.outer(scale, scale)), np.eye(scale.size))
        return cholesky(inner * np.outer(scale, scale), lower=True)

    def whitened(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower triangular factor L of the covariance of theta, and L' H L of the Hessian H of the log-likelihood."""
        inner = self._inner_factor
        orthogonal, upper = np.linalg.qr((self.centring.matrix @ inner).T)  # columns of any size keep their digits
        signs = np.where(np.diag(upper) < 0.0, -1.0, 1.0)
        rotation = inner @ (orthogonal * signs)
        return np.ascontiguousarray((upper * signs[:, None]).T), rotation.T @ self.hessian @ rotation


def centring_of(model: Model) -> Centring | None:
    """The change of coordinates that a model needs; None for most."""
    data = model.data
    if not model.linear or model.row_limitation or data.intercept is None or not isinstance(model.rows, Rows) or model.second:
        return None
    mean, sd, low, high = (part[: data.d] for part in (data.moments.mean, data.moments.sd, data.moments.low, data.moments.high))
    far = (np.abs(mean) > _FAR * sd) & (low < high)
    far[data.intercept] = False
    if not far.any() or kinks_of(model.prior_terms).where.size:
        return None
    shift = np.where(far, mean, 0.0).astype(data.records.dtype).astype(float)  # a number of the records: differences are exact
    matrix = np.eye(model.dim)
    for block in range(model.predictors):
        matrix[block * data.d + data.intercept, block * data.d : (block + 1) * data.d] -= shift
    return Centring(shift, matrix, 2.0 * np.eye(model.dim) - matrix)

"""The reference of a posterior: its mode with the curvature there, and the Laplace fit, the normal law that they define."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from tallbayes.engine import ledger, passes
from tallbayes.mode.centring import Frame
from tallbayes.model import Model
from tallbayes.notebook import facts_table, numbers_table

MOST_SHOWN = 50  # parameters in a notebook


@dataclass(eq=False)
class Mode:
    """The reference of a posterior: its mode theta*, the curvature there, and the Laplace fit."""

    model: Model
    reference: np.ndarray
    log_posterior: float
    gradient: np.ndarray  # of the log posterior: nearly zero, but at a kink of a Laplace prior that of the rows alone
    hessian: np.ndarray  # of the log-likelihood at the reference
    precision: np.ndarray  # minus the Hessian of the log posterior; with a Laplace prior see `mode.kinks`
    passes: int  # full passes of the search
    evaluations: int  # of the search in all: full passes, and the subsample it began with
    others: tuple[Mode, ...] = ()  # further modes that were found, by decreasing mass
    searches: int = 0  # starts from which they were looked for; 0 where there is proven to be one
    frame: Frame | None = None  # curvature with columns less their means, where that of theta has lost its digits
    warnings: tuple[str, ...] = ()  # sentences on what the search has seen, kept with every fit
    tables: dict[str, Any] = field(default_factory=dict)  # bounds and their names that are known already, by the name asked for
    found_with: int = 0  # rows of the search, where more have been added since

    @cached_property
    def factor(self) -> np.ndarray:
        """L with L L' = covariance, lower triangular."""
        return cholesky(self.covariance, lower=True) if self.frame is None else self.frame.whitened()[0]

    @cached_property
    def whitened_hessian(self) -> np.ndarray:
        """L' H L, H the Hessian of the log-likelihood."""
        return self.factor.T @ self.hessian @ self.factor if self.frame is None else self.frame.whitened()[1]

    @cached_property
    def covariance(self) -> np.ndarray:
        """Inverse of the precision."""
        if self.frame is not None:
            return self.frame.covariance
        scale = 1.0 / np.sqrt(np.diag(self.precision))
        inner = cho_solve(cho_factor(self.precision * np.outer(scale, scale)), np.eye(scale.size))
        return inner * np.outer(scale, scale)

    @property
    def norms(self) -> np.ndarray:
        """|L' x_i| of every row: one pass, computed once; every account that asks for it pays for it."""
        ledger.record(self.model.data.n, once=("norms", id(self)))
        return self._norms

    @cached_property
    def _norms(self) -> np.ndarray:
        with ledger.counting():  # charged in `norms`
            return passes.whitened_norms(self.model.rows, self.factor)

    def laplace(self) -> Laplace:
        """The normal approximation of the posterior at the mode."""
        return Laplace(self.reference, self.factor, self.model.names)

    def _repr_html_(self) -> str:
        rows = zip(self.model.names, self.reference.tolist(), self.laplace().sd.tolist(), strict=True)
        shown = list(rows)[:MOST_SHOWN]
        more = len(self.reference) - len(shown)
        return facts_table(f"Mode of {self.model!r}", {"passes over the data": self.passes}) + numbers_table(
            ["", "mode", "Laplace sd"], shown, f"and {more} more parameters" if more else ""
        )


@dataclass(frozen=True, eq=False)
class Laplace:
    """N(mean, factor factor')."""

    mean: np.ndarray
    factor: np.ndarray
    names: tuple[str, ...]

    @property
    def covariance(self) -> np.ndarray:
        """Covariance matrix."""
        return self.factor @ self.factor.T

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    def draw(self, rng: np.random.Generator, count: int, spread: float = 1.0) -> np.ndarray:
        """`count` draws, with standard deviations multiplied by `spread`."""
        return self.mean + spread * rng.standard_normal((count, self.mean.size)) @ self.factor.T

    def whiten(self, theta: np.ndarray) -> np.ndarray:
        """Coordinates in which the approximation is standard normal."""
        shifted = np.asarray(theta) - self.mean
        flat = shifted.reshape(-1, self.mean.size)
        return solve_triangular(self.factor, flat.T, lower=True).T.reshape(shifted.shape)

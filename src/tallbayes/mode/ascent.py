"""One step of the search for a mode: the local model of the log posterior, maximised with or without a limit of its length.

The model is g'(u - theta) - (u - theta)'A(u - theta)/2, less the kinks of a Laplace prior, which are kept as they are. Where
the curvature A is not positive definite (a likelihood that is not log-concave, or collinear columns) eigenvalues of its scaled form
are taken by size, with a floor, so that every step goes uphill. Lengths are measured in units of 1 / sqrt(A_jj), which do not
depend on the units of the columns; a shorter step is a more damped one, as in Levenberg and Marquardt's method.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tallbayes.mode.kinks import Kinks, kink_step

_FLOOR = 1e-8  # of an eigenvalue, relative to the largest
_FALLING = 1e-6  # an eigenvalue below minus this is a direction in which the log posterior curves upwards


class LocalModel:
    """The log posterior near theta, from its gradient and precision without the kinks."""

    def __init__(self, theta: np.ndarray, gradient: np.ndarray, precision: np.ndarray, kinks: Kinks) -> None:
        self.theta, self.gradient, self.precision, self.kinks = theta, gradient, precision, kinks
        size = np.abs(np.diag(precision))
        size[kinks.where] += kinks.slope**2
        self.scale = 1.0 / np.sqrt(size)
        self.scaled = precision * np.outer(self.scale, self.scale)

    @cached_property
    def eigen(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and vectors of the scaled precision."""
        return np.linalg.eigh(self.scaled)

    @cached_property
    def positive(self) -> np.ndarray:
        """Eigenvalues by size."""
        size = np.abs(self.eigen[0])
        return np.maximum(size, _FLOOR * size.max(initial=0.0))

    @cached_property
    def newton(self) -> np.ndarray | None:
        """Newton's step from theta; None where it does not lead uphill or kinks may stop it."""
        if self.kinks.where.size:
            return None
        try:
            inner = cho_solve(cho_factor(self.scaled), self.scale * self.gradient)
        except LinAlgError:
            return None
        return self.scale * inner if np.isfinite(inner).all() else None

    def step(self, radius: float = np.inf) -> tuple[np.ndarray, float]:
        """The best point within `radius` and its distance."""
        if self.newton is not None:
            reach = float(np.linalg.norm(self.newton / self.scale))
            if reach <= radius:
                return self.theta + self.newton, reach
        low, damping, high = 0.0, 0.0, np.inf
        while True:
            goal = self._damped(damping)
            reach = float(np.linalg.norm((goal - self.theta) / self.scale))
            if reach <= radius and (damping == 0.0 or reach > 0.6 * radius or high < 1.1 * low):
                return goal, reach
            if reach <= radius:
                high = damping
            else:
                low = damping
            smallest = 1e-6 * float(self.positive.max())
            damping = max(8.0 * low, smallest) if np.isinf(high) else np.sqrt(max(low, 1e-3 * smallest) * high)

    def _damped(self, damping: float) -> np.ndarray:
        if self.kinks.where.size:
            return kink_step(self.definite(damping), self.gradient, self.kinks, self.theta)
        vectors, values = self.eigen[1], self.positive + damping
        return self.theta + self.scale * (vectors @ ((vectors.T @ (self.scale * self.gradient)) / values))

    def definite(self, damping: float = 0.0) -> np.ndarray:
        """The precision with its eigenvalues by size, and damped."""
        if damping == 0.0 and (self.eigen[0] == self.positive).all():
            return self.precision.copy()
        vectors, values = self.eigen[1], self.positive + damping
        matrix = (vectors * values) @ vectors.T / np.outer(self.scale, self.scale)
        return 0.5 * (matrix + matrix.T)

    def curved(self, goal: np.ndarray) -> float:
        """(goal - theta)'A(goal - theta), A with its eigenvalues by size: a squared distance in posterior standard deviations."""
        change = goal - self.theta
        if self.newton is not None:
            return float(change @ self.precision @ change)
        return float(self.positive @ (self.eigen[1].T @ (change / self.scale)) ** 2)

    def gain(self, goal: np.ndarray) -> float:
        """How much higher the model is at `goal`."""
        fall = self.kinks.height(goal) - self.kinks.height(self.theta)
        return float(self.gradient @ (goal - self.theta)) - 0.5 * self.curved(goal) - fall

    def rising(self) -> np.ndarray | None:
        """Where theta is stationary but no maximum: a step along which the log posterior curves upwards, else None."""
        if self.newton is not None:
            return None
        free = np.ones(self.theta.size, bool)
        free[self.kinks.where] = self.kinks.signs(self.theta) != 0.0
        if not free.any():
            return None
        values, vectors = self.eigen if free.all() else np.linalg.eigh(self.scaled[np.ix_(free, free)])
        if values[0] > -_FALLING:
            return None
        out = np.zeros(self.theta.size)
        out[free] = self.scale[free] * vectors[:, 0] / np.sqrt(-values[0])
        return out

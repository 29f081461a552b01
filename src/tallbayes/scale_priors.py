"""Priors of the standard deviations and correlations of group effects.

Densities on sigma > 0 up to a constant: half-normal e^(-sigma^2 / 2 s^2), half-Student-t (1 + sigma^2 / nu s^2)^(-(nu + 1)/2), half-Cauchy
with nu = 1, exponential e^(-sigma / s). Correlation matrices have the LKJ density |R|^(eta - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.errors import OptionError

HALF_NORMAL, HALF_STUDENT, EXPONENTIAL = 0.0, 1.0, 2.0
_KINDS = {"half_normal": HALF_NORMAL, "half_cauchy": HALF_STUDENT, "half_student_t": HALF_STUDENT, "exponential": EXPONENTIAL}


@inlinable
def scale_log_density(terms: np.ndarray, sigma: float) -> float:
    """Log prior density of a standard deviation; `terms` is kind, scale and degrees of freedom."""
    z = sigma / terms[1]
    if terms[0] == 0.0:
        return -0.5 * z * z
    if terms[0] == 1.0:
        return -0.5 * (terms[2] + 1.0) * math.log1p(z * z / terms[2])
    return -z


@inlinable
def scale_slope(terms: np.ndarray, sigma: float) -> float:
    """Derivative of the log prior density in log sigma."""
    z = sigma / terms[1]
    if terms[0] == 0.0:
        return -z * z
    if terms[0] == 1.0:
        return -(terms[2] + 1.0) * z * z / (terms[2] + z * z)
    return -z


@dataclass(frozen=True)
class ScalePrior:
    """A prior of a standard deviation, by name."""

    name: str
    scale: float
    df: float = 1.0

    def __post_init__(self) -> None:
        for number in (self.scale, self.df):
            if not (isinstance(number, int | float | np.number) and np.isfinite(number) and number > 0):
                raise OptionError(f"scale and df of {self.name} must be positive numbers; got {number!r}.")

    def terms(self) -> np.ndarray:
        """Kind, scale and degrees of freedom, for compiled code."""
        return np.array([_KINDS[self.name], float(self.scale), float(self.df)])

    def describe(self) -> str:
        """One line for summaries."""
        return f"{self.name}({f'{self.df:g}, ' if self.name == 'half_student_t' else ''}{self.scale:g})"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"name": self.name, "scale": float(self.scale), "df": float(self.df)}


@dataclass(frozen=True)
class CorrelationPrior:
    """The LKJ prior of a correlation matrix."""

    eta: float = 1.0

    def __post_init__(self) -> None:
        if not (isinstance(self.eta, int | float | np.number) and np.isfinite(self.eta) and self.eta > 0):
            raise OptionError(f"eta of lkj must be a positive number; got {self.eta!r}.")

    def describe(self) -> str:
        """One line for summaries."""
        return f"lkj({self.eta:g})"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"name": "lkj", "eta": float(self.eta)}


def half_normal(scale: float = 1.0) -> ScalePrior:
    """Half-normal prior of a standard deviation.

    >>> half_normal(2.0).describe()
    'half_normal(2)'
    """
    return ScalePrior("half_normal", scale)


def half_cauchy(scale: float = 2.5) -> ScalePrior:
    """Half-Cauchy prior of a standard deviation.

    >>> half_cauchy().describe()
    'half_cauchy(2.5)'
    """
    return ScalePrior("half_cauchy", scale)


def half_student_t(df: float = 3.0, scale: float = 2.5) -> ScalePrior:
    """Half-Student-t prior of a standard deviation; with 3 degrees of freedom the default of hierarchical models.

    >>> half_student_t(3, 1.0).describe()
    'half_student_t(3, 1)'
    """
    return ScalePrior("half_student_t", scale, df)


def exponential(scale: float = 1.0) -> ScalePrior:
    """Exponential prior of a standard deviation with mean `scale`.

    >>> exponential(0.5).describe()
    'exponential(0.5)'
    """
    return ScalePrior("exponential", scale)


def lkj(eta: float = 1.0) -> CorrelationPrior:
    """LKJ prior of a correlation matrix; 1 is uniform, larger values favour small correlations.

    >>> lkj(2.0).describe()
    'lkj(2)'
    """
    return CorrelationPrior(eta)

"""Priors of positive parameters, such as standard deviations, sizes and shapes, and of the correlations of group effects.

Densities on sigma > 0 up to a constant: half-normal e^(-sigma^2 / 2 s^2), half-Student-t (1 + sigma^2 / nu s^2)^(-(nu + 1)/2), half-Cauchy
with nu = 1, exponential e^(-sigma / s), gamma sigma^(a - 1) e^(-sigma / s), inverse gamma sigma^(-a - 1) e^(-s / sigma). The
densities of log sigma are log-concave. Correlation matrices have the LKJ density |R|^(eta - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.compile import inlinable
from tallbayes.errors import OptionError
from tallbayes.validation import number, positive_number, shown

HALF_NORMAL, HALF_STUDENT, EXPONENTIAL, GAMMA, INVERSE_GAMMA = 0.0, 1.0, 2.0, 3.0, 4.0
_KINDS = {
    "half_normal": HALF_NORMAL, "half_cauchy": HALF_STUDENT, "half_student_t": HALF_STUDENT, "exponential": EXPONENTIAL,
    "gamma": GAMMA, "inverse_gamma": INVERSE_GAMMA,
}  # fmt: skip


@inlinable
def scale_density(kind: float, scale: float, df: float, sigma: float) -> float:
    """Log prior density of a positive parameter; `df` is the shape of gamma and inverse gamma."""
    z = sigma / scale
    if kind == 0.0:
        return -0.5 * z * z
    if kind == 1.0:
        return -0.5 * (df + 1.0) * math.log1p(z * z / df)
    if kind == 2.0:
        return -z
    if kind == 3.0:
        return (df - 1.0) * math.log(sigma) - z
    return -(df + 1.0) * math.log(sigma) - 1.0 / z


@inlinable
def scale_derivative(kind: float, scale: float, df: float, sigma: float) -> float:
    """Derivative of the log prior density in log sigma."""
    z = sigma / scale
    if kind == 0.0:
        return -z * z
    if kind == 1.0:
        return -(df + 1.0) * z * z / (df + z * z)
    if kind == 2.0:
        return -z
    if kind == 3.0:
        return df - 1.0 - z
    return 1.0 / z - df - 1.0


def scale_precision(kind: float, scale: float, df: float, sigma: float) -> float:
    """Minus the second derivative of the log prior density in log sigma."""
    z = sigma / scale
    if kind == HALF_NORMAL:
        return 2.0 * z * z
    if kind == HALF_STUDENT:
        return 2.0 * df * (df + 1.0) * (z / (df + z * z)) ** 2
    return 1.0 / z if kind == INVERSE_GAMMA else z


def draw_scale(rng: np.random.Generator, kind: float, scale: float, df: float) -> float:
    """A draw from the prior of a positive parameter."""
    if kind == HALF_NORMAL:
        return scale * abs(rng.standard_normal())
    if kind == HALF_STUDENT:
        return scale * abs(rng.standard_t(df))
    if kind == EXPONENTIAL:
        return scale * rng.standard_exponential()
    draw = max(rng.standard_gamma(df), 1e-300)
    return scale * draw if kind == GAMMA else scale / draw


@inlinable
def scale_log_density(terms: np.ndarray, sigma: float) -> float:
    """Log prior density of a standard deviation; `terms` is kind, scale and degrees of freedom."""
    return scale_density(terms[0], terms[1], terms[2], sigma)


@inlinable
def scale_slope(terms: np.ndarray, sigma: float) -> float:
    """Derivative of the log prior density in log sigma."""
    return scale_derivative(terms[0], terms[1], terms[2], sigma)


@dataclass(frozen=True)
class ScalePrior:
    """A prior of a positive parameter, by name."""

    name: str
    scale: float
    df: float = 1.0  # degrees of freedom, or the shape of gamma and inverse_gamma

    def __post_init__(self) -> None:
        for value in (self.scale, self.df):
            if not 0.0 < number(value) < math.inf:
                raise OptionError(f"the numbers of {self.name} must be positive; got {shown(value)}.")

    def terms(self) -> np.ndarray:
        """Kind, scale and degrees of freedom, for compiled code."""
        return np.array([_KINDS[self.name], float(self.scale), float(self.df)])

    def describe(self) -> str:
        """One line for summaries."""
        if self.name == "gamma":
            return f"gamma({self.df:g}, {1.0 / self.scale:g})"
        first = f"{self.df:g}, " if self.name in ("half_student_t", "inverse_gamma") else ""
        return f"{self.name}({first}{self.scale:g})"

    def power(self, exponent: float) -> ScalePrior:
        """The density of log sigma to a power, as parts of the rows need it; only gamma and inverse gamma have one by name.

        >>> gamma(2.0, 1.0).power(0.5).describe()
        'gamma(1, 0.5)'
        """
        if self.name not in ("gamma", "inverse_gamma"):
            raise OptionError(
                f"{self.describe()} of a positive parameter cannot be split over parts of the rows; use tallbayes.priors.gamma or "
                "inverse_gamma, or a combination that keeps the prior whole: 'median' or 'wasserstein'."
            )
        scale = self.scale / exponent if self.name == "gamma" else self.scale * exponent
        return ScalePrior(self.name, scale, self.df * exponent)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"name": self.name, "scale": float(self.scale), "df": float(self.df)}


@dataclass(frozen=True)
class CorrelationPrior:
    """The LKJ prior of a correlation matrix."""

    eta: float = 1.0

    def __post_init__(self) -> None:
        positive_number("eta of lkj", self.eta)

    def describe(self) -> str:
        """One line for summaries."""
        return f"lkj({self.eta:g})"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {"name": "lkj", "eta": float(self.eta)}


def half_normal(scale: float = 1.0) -> ScalePrior:
    """Half-normal prior of a positive parameter.

    >>> half_normal(2.0).describe()
    'half_normal(2)'
    """
    return ScalePrior("half_normal", scale)


def half_cauchy(scale: float = 2.5) -> ScalePrior:
    """Half-Cauchy prior of a positive parameter.

    >>> half_cauchy().describe()
    'half_cauchy(2.5)'
    """
    return ScalePrior("half_cauchy", scale)


def half_student_t(df: float = 3.0, scale: float = 2.5) -> ScalePrior:
    """Half-Student-t prior of a positive parameter; with 3 degrees of freedom the default of hierarchical models.

    >>> half_student_t(3, 1.0).describe()
    'half_student_t(3, 1)'
    """
    return ScalePrior("half_student_t", scale, df)


def exponential(scale: float = 1.0) -> ScalePrior:
    """Exponential prior of a positive parameter with mean `scale`.

    >>> exponential(0.5).describe()
    'exponential(0.5)'
    """
    return ScalePrior("exponential", scale)


def gamma(shape: float = 2.0, rate: float = 0.1) -> ScalePrior:
    """Gamma prior of a positive parameter with mean shape / rate; the default is that of degrees of freedom.

    >>> gamma(2.0, 0.1).describe()
    'gamma(2, 0.1)'
    """
    if not 0.0 < number(rate) < math.inf:
        raise OptionError(f"the numbers of gamma must be positive; got {shown(rate)}.")
    return ScalePrior("gamma", 1.0 / rate, shape)


def inverse_gamma(shape: float = 0.4, scale: float = 0.3) -> ScalePrior:
    """Inverse gamma prior of a positive parameter; the default is that of the size of negative binomial models.

    >>> inverse_gamma(0.4, 0.3).describe()
    'inverse_gamma(0.4, 0.3)'
    """
    return ScalePrior("inverse_gamma", scale, shape)


def lkj(eta: float = 1.0) -> CorrelationPrior:
    """LKJ prior of a correlation matrix; 1 is uniform, larger values favour small correlations.

    >>> lkj(2.0).describe()
    'lkj(2)'
    """
    return CorrelationPrior(eta)

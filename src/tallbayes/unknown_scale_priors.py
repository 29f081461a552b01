"""Priors of coefficients whose scale is unknown: ridge and horseshoe. Coefficients are scaled by the standard deviations of their columns.

* ridge: sd_j beta_j ~ N(0, sigma^2), sigma half-Student-t.
* horseshoe (Carvalho, Polson and Scott 2010): sd_j beta_j ~ N(0, tau^2 lambda_j^2), lambda_j half-Cauchy, tau half-Cauchy. With a slab of
  width c (Piironen and Vehtari 2017) 1 / (tau lambda_j)^2 becomes 1 / (tau lambda_j)^2 + 1 / c^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.coefficient_priors import Prior
from tallbayes.errors import OptionError
from tallbayes.scale_priors import ScalePrior, half_student_t
from tallbayes.validation import positive_number, shown

KINDS = ("ridge", "horseshoe")


@dataclass(frozen=True)
class UnknownScale(Prior):
    """A prior of coefficients that share an unknown scale; `scale` and `df` are those of the half-Student-t prior of that scale."""

    slab: float = 0.0  # width of the slab; 0 for none
    standardise: bool = True  # whether coefficients are scaled by the standard deviations of their columns

    @property
    def local(self) -> bool:
        """Whether every coefficient has a scale of its own beside the shared one."""
        return self.name == "horseshoe"

    @property
    def parameter(self) -> str:
        """Name of the shared scale."""
        return "tau" if self.local else "sigma"

    def describe(self) -> str:
        """One line for summaries."""
        slab = f", slab={self.slab:g}" if self.slab else ""
        law = f"half_cauchy({self.scale:g})" if self.df == 1.0 else f"half_student_t({self.df:g}, {self.scale:g})"
        return f"{self.name}({self.parameter} ~ {law}{slab})"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {**super().as_dict(), "slab": float(self.slab), "standardise": bool(self.standardise)}


def ridge(sigma: ScalePrior | None = None, *, standardise: bool = True) -> UnknownScale:
    """Normal with an unknown standard deviation, shared by the coefficients and drawn with them.

    `sigma` is its prior, half_student_t(3, 2.5) by default, in units of standardised columns; for a Gaussian or Student-t response
    also in standard deviations of the response.

    >>> ridge().describe()
    'ridge(sigma ~ half_student_t(3, 2.5))'
    """
    law = half_student_t(3.0, 2.5) if sigma is None else sigma
    if not isinstance(law, ScalePrior) or law.name not in ("half_student_t", "half_cauchy"):
        raise OptionError(
            f"sigma of ridge must be tallbayes.priors.half_student_t(df, scale) or half_cauchy(scale); got {shown(law)}."
        )
    return UnknownScale("ridge", 0.0, float(law.scale), float(law.df), standardise=_switch(standardise))


def horseshoe(scale: float = 1.0, slab: float | None = None, *, standardise: bool = True) -> UnknownScale:
    """Strong shrinkage of small coefficients, little of large ones: a shared scale tau and one for each coefficient.

    tau has a half-Cauchy prior of width `scale`; (expected nonzero) / (all - expected nonzero) / sqrt(n) is a common choice. `slab` bounds
    how large a coefficient may get: the regularised horseshoe.

    >>> horseshoe(0.1, slab=2.0).describe()
    'horseshoe(tau ~ half_cauchy(0.1), slab=2)'
    """
    for name, value in (("scale", scale), ("slab", 1.0 if slab is None else slab)):
        positive_number(f"{name} of horseshoe", value)
    return UnknownScale("horseshoe", 0.0, float(scale), 1.0, 0.0 if slab is None else float(slab), _switch(standardise))


def _switch(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"standardise must be True or False; got {shown(value)}.")
    return bool(value)

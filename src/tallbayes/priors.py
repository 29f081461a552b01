"""Priors: independent over coefficients, scalar or one number for each; log-densities up to a constant.

`weakly_informative` is the default prior of Gelman, Jakulin, Pittau and Su (2008): Cauchy with scale 2.5 on coefficients of
inputs scaled to standard deviation 1/2 (inputs with two values: to a difference of 1) and scale 10 on the linear predictor
at the mean of all inputs. It is stated here in the units of the original columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.coefficient_priors import Prior as Prior
from tallbayes.errors import OptionError
from tallbayes.named_priors import NamedPriors as NamedPriors
from tallbayes.prior_terms import FLAT as FLAT
from tallbayes.prior_terms import LAPLACE as LAPLACE
from tallbayes.prior_terms import NORMAL as NORMAL
from tallbayes.prior_terms import STUDENT as STUDENT
from tallbayes.prior_terms import LogPrior as LogPrior
from tallbayes.prior_terms import PriorTerms as PriorTerms
from tallbayes.prior_terms import log_prior_of as log_prior_of
from tallbayes.prior_terms import prior_gradient as prior_gradient
from tallbayes.prior_terms import prior_precision as prior_precision
from tallbayes.prior_terms import prior_status as prior_status
from tallbayes.prior_terms import prior_value as prior_value
from tallbayes.scale_priors import ScalePrior
from tallbayes.scale_priors import exponential as exponential
from tallbayes.scale_priors import gamma as gamma
from tallbayes.scale_priors import half_cauchy as half_cauchy
from tallbayes.scale_priors import half_normal as half_normal
from tallbayes.scale_priors import half_student_t as half_student_t
from tallbayes.scale_priors import inverse_gamma as inverse_gamma
from tallbayes.scale_priors import lkj as lkj
from tallbayes.unknown_scale_priors import KINDS as UNKNOWN_SCALES
from tallbayes.unknown_scale_priors import UnknownScale as UnknownScale
from tallbayes.unknown_scale_priors import horseshoe as horseshoe
from tallbayes.unknown_scale_priors import ridge as ridge
from tallbayes.validation import shown


def flat() -> Prior:
    """No prior: the posterior is the likelihood, if that can be normalised.

    >>> flat().describe()
    'flat'
    """
    return Prior("flat")


def normal(scale: Any = 10.0, location: Any = 0.0) -> Prior:
    """Normal with standard deviation `scale`.

    >>> normal(scale=2.0).describe()
    'normal(location=0, scale=2)'
    """
    return Prior("normal", location, scale)


def laplace(scale: Any = 1.0, location: Any = 0.0) -> Prior:
    """Double exponential, for sparsity: density proportional to exp(-|theta - location| / scale).

    >>> laplace(scale=0.5).describe()
    'laplace(location=0, scale=0.5)'
    """
    return Prior("laplace", location, scale)


def cauchy(scale: Any = 2.5, location: Any = 0.0) -> Prior:
    """Cauchy with half-width `scale`.

    >>> cauchy().describe()
    'cauchy(location=0, scale=2.5)'
    """
    return Prior("cauchy", location, scale)


def student_t(df: Any = 4.0, scale: Any = 2.5, location: Any = 0.0) -> Prior:
    """Student's t with `df` degrees of freedom.

    >>> student_t(df=7).describe()
    'student_t(location=0, scale=2.5, df=7)'
    """
    return Prior("student_t", location, scale, df)


def multivariate_normal(mean: Any, precision: Any) -> Prior:
    """Joint normal over all parameters, nuisances included, with a precision matrix.

    >>> multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]).describe()
    'multivariate_normal(2 parameters)'
    """
    try:
        mean, precision = np.asarray(mean, float), np.asarray(precision, float)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(
            f"multivariate_normal needs arrays of numbers; got mean={shown(mean)} and precision={shown(precision)}."
        ) from None
    if (
        mean.ndim != 1
        or precision.shape != (mean.size, mean.size)
        or not (np.isfinite(mean).all() and np.isfinite(precision).all())
    ):
        raise OptionError("multivariate_normal needs a vector of means and a square matrix of the same size, all finite.")
    size = np.abs(precision).max(initial=0.0)
    if np.abs(precision - precision.T).max() > 1e-9 * size or np.linalg.eigvalsh(precision)[0] <= 0.0:
        raise OptionError("the precision of multivariate_normal must be symmetric and positive definite.")
    return Prior("multivariate_normal", mean, 0.5 * (precision + precision.T))


def weakly_informative() -> Prior:
    """The default: Cauchy scales from the spread of each column (Gelman et al. 2008).

    >>> weakly_informative().describe()
    'weakly_informative'
    """
    return Prior("weakly_informative")


def from_dict(values: dict[str, Any]) -> Prior:
    """The inverse of `Prior.as_dict`.

    >>> from_dict(cauchy().as_dict()).describe()
    'cauchy(location=0, scale=2.5)'
    """
    if values["name"] == "named":
        by_name = tuple((name, _single(own)) for name, own in values["by_name"].items())
        return NamedPriors("named", others=from_dict(values["others"]), by_name=by_name)
    if values["name"] in UNKNOWN_SCALES:
        return UnknownScale(**values)
    return Prior(
        values["name"], *(np.asarray(values[k]) if np.ndim(values[k]) else values[k] for k in ("location", "scale", "df"))
    )


def _single(values: dict[str, Any]) -> Prior | ScalePrior:
    """A prior of coefficients, or of a positive parameter, whose scale and df are its only numbers."""
    return from_dict(values) if "location" in values else ScalePrior(**values)

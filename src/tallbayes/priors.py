"""Priors: independent over coefficients, scalar or one number for each; log-densities up to a constant.

`weakly_informative` is the default prior of Gelman, Jakulin, Pittau and Su (2008): Cauchy with scale 2.5 on coefficients of
inputs scaled to standard deviation 1/2 (inputs with two values: to a difference of 1) and scale 10 on the linear predictor
at the mean of all inputs. It is stated here in the units of the original columns.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import declared, generic, inlinable
from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError
from tallbayes.scale_priors import exponential as exponential
from tallbayes.scale_priors import half_cauchy as half_cauchy
from tallbayes.scale_priors import half_normal as half_normal
from tallbayes.scale_priors import half_student_t as half_student_t
from tallbayes.scale_priors import lkj as lkj

FLAT, NORMAL, LAPLACE, STUDENT = 0, 1, 2, 3
_KINDS = {"flat": FLAT, "normal": NORMAL, "laplace": LAPLACE, "student_t": STUDENT, "cauchy": STUDENT}


class PriorTerms(NamedTuple):
    """A prior in numbers. Coordinate j is judged at theta_j, except the intercept, judged at theta . centre."""

    kind: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    df: np.ndarray
    centre: np.ndarray
    intercept: int
    dense: np.ndarray  # precision of a joint normal prior around `location`, or 0 x 0


@inlinable
def _coordinate(prior: PriorTerms, theta: np.ndarray, j: int) -> float:
    if j != prior.intercept:
        return theta[j]
    total = 0.0
    for c in range(theta.size):
        total += prior.centre[c] * theta[c]
    return total


@generic
@declared
def prior_value(prior: Any, theta: np.ndarray) -> float:
    """Log prior density up to a constant."""
    raise TypeError


@generic
@declared
def prior_gradient(prior: Any, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Log prior density; its gradient is added to `gradient`."""
    raise TypeError


@prior_value.register(PriorTerms)
def _prior_value(prior: PriorTerms, theta: np.ndarray) -> float:
    total = 0.0
    for j in range(theta.size):
        kind = prior.kind[j]
        if kind == 0:
            continue
        z = (_coordinate(prior, theta, j) - prior.location[j]) / prior.scale[j]
        if kind == 1:
            total -= 0.5 * z * z
        elif kind == 2:
            total -= abs(z)
        else:
            total -= 0.5 * (prior.df[j] + 1.0) * np.log1p(z * z / prior.df[j])
    for j in range(prior.dense.shape[0]):
        inner = 0.0
        for k in range(theta.size):
            inner += prior.dense[j, k] * (theta[k] - prior.location[k])
        total -= 0.5 * inner * (theta[j] - prior.location[j])
    return total


@prior_gradient.register(PriorTerms)
def _prior_gradient(prior: PriorTerms, theta: np.ndarray, gradient: np.ndarray) -> float:
    total = 0.0
    for j in range(theta.size):
        kind = prior.kind[j]
        if kind == 0:
            continue
        s = prior.scale[j]
        z = (_coordinate(prior, theta, j) - prior.location[j]) / s
        if kind == 1:
            total -= 0.5 * z * z
            g = -z / s
        elif kind == 2:
            total -= abs(z)
            g = -np.sign(z) / s
        else:
            nu = prior.df[j]
            total -= 0.5 * (nu + 1.0) * np.log1p(z * z / nu)
            g = -(nu + 1.0) * z / (nu + z * z) / s
        if j != prior.intercept:
            gradient[j] += g
        else:
            for c in range(theta.size):
                gradient[c] += g * prior.centre[c]
    for j in range(prior.dense.shape[0]):
        inner = 0.0
        for k in range(theta.size):
            inner += prior.dense[j, k] * (theta[k] - prior.location[k])
        total -= 0.5 * inner * (theta[j] - prior.location[j])
        gradient[j] -= inner
    return total


@functools.singledispatch
def prior_precision(prior: Any, theta: np.ndarray) -> np.ndarray:
    """Minus the Hessian of the log prior (a Laplace prior has none)."""
    raise TypeError


@prior_precision.register
def _prior_precision(prior: PriorTerms, theta: np.ndarray) -> np.ndarray:
    out = np.zeros((theta.size, theta.size))
    out[: prior.dense.shape[0], : prior.dense.shape[0]] = prior.dense
    for j in range(theta.size):
        kind, s, nu = prior.kind[j], prior.scale[j], prior.df[j]
        if kind == NORMAL:
            curvature = 1.0 / s**2
        elif kind == STUDENT:
            z = (_coordinate(prior, theta, j) - prior.location[j]) / s
            curvature = (nu + 1.0) * (nu - z * z) / (nu + z * z) ** 2 / s**2
        else:
            continue
        direction = prior.centre if j == prior.intercept else np.eye(theta.size)[j]
        out += curvature * np.outer(direction, direction)
    return out


@dataclass(frozen=True)
class Prior:
    """A prior by name; `terms` turns it into numbers for a data set."""

    name: str
    location: Any = 0.0
    scale: Any = 1.0
    df: Any = 1.0

    @property
    def proper(self) -> bool:
        """Whether it integrates to one over the coefficients."""
        return self.name != "flat"

    def terms(self, data: Dataset, predictors: int, nuisances: int, response_scale: bool) -> PriorTerms:
        """The prior of `predictors` blocks of coefficients; nuisance parameters have a flat prior."""
        d = data.d
        if self.name == "multivariate_normal":
            return self._joint(d * predictors + nuisances)
        centre, intercept = np.zeros(d), -1
        location, df = _each("location", self.location, d), _each("df", self.df, d)
        if self.name == "weakly_informative":
            code, df = STUDENT, np.ones(d)
            location, scale, centre, intercept = _gelman(data, response_scale and predictors == 1)
        else:
            code, scale = _KINDS[self.name], _each("scale", self.scale, d)
        if intercept >= 0 and predictors > 1:
            centre, intercept = np.zeros(d), -1  # one centred intercept only; the others are judged as they are
        pad = np.zeros(nuisances)
        place, width, tails = (np.concatenate([np.tile(v, predictors), pad + 1.0]) for v in (location, scale, df))
        kinds = np.concatenate([np.full(d * predictors, code), np.full(nuisances, FLAT)]).astype(np.int64)
        wide = np.zeros(d * predictors + nuisances)
        wide[:d] = centre
        return PriorTerms(kinds, place, width, tails, wide, intercept, np.zeros((0, 0)))

    def _joint(self, dim: int) -> PriorTerms:
        mean, precision = np.asarray(self.location, float), np.asarray(self.scale, float)
        if mean.shape != (dim,) or precision.shape != (dim, dim):
            raise OptionError(
                f"multivariate_normal needs a mean of {dim} and a precision of {dim} x {dim} numbers, one for each parameter; got "
                f"shapes {mean.shape} and {precision.shape}."
            )
        flat_terms = np.zeros(dim, np.int64), mean.copy(), np.ones(dim), np.ones(dim), np.zeros(dim)
        return PriorTerms(*flat_terms, -1, np.ascontiguousarray(precision))

    def power(self, exponent: float) -> Prior:
        """The prior to a power, as sub-posteriors of divide and conquer need it; refuses one that cannot be normalised.

        A t density with df degrees of freedom becomes one with exponent (df + 1) - 1 degrees; at 0 or below it is improper.

        >>> normal(2.0).power(1 / 4).describe(), laplace(1.0).power(1 / 2).describe()
        ('normal(location=0, scale=4)', 'laplace(location=0, scale=2)')
        >>> cauchy().power(1 / 2)
        Traceback (most recent call last):
        ...
        tallbayes.errors.OptionError: cauchy(location=0, scale=2.5) to the power 0.5 is improper: ...
        """
        if not (np.isfinite(exponent) and exponent > 0):
            raise OptionError(f"the power of a prior must be positive; got {exponent}.")
        if self.name == "flat" or exponent == 1.0:
            return self
        if self.name == "normal":
            return Prior("normal", self.location, np.asarray(self.scale, float) / np.sqrt(exponent))
        if self.name == "laplace":
            return Prior("laplace", self.location, np.asarray(self.scale, float) / exponent)
        if self.name == "multivariate_normal":
            return Prior("multivariate_normal", self.location, np.asarray(self.scale, float) * exponent)
        df = np.asarray(self.df if self.name == "student_t" else 1.0, float)
        tails = exponent * (df + 1.0) - 1.0
        if self.name == "weakly_informative" or (tails <= 0).any():
            raise OptionError(
                f"{self.describe()} to the power {exponent:.3g} is improper: its tails are too heavy to be split. Use a prior such "
                "as tallbayes.priors.normal(10.0), or a combination that keeps the prior whole: 'median' or 'wasserstein'."
            )
        return Prior("student_t", self.location, np.asarray(self.scale, float) * np.sqrt(df / tails), tails)

    def coordinates(self, count: int, nuisances: int = 0) -> PriorTerms:
        """The prior of `count` parameters that are not coefficients of columns, followed by nuisance parameters."""
        if self.name == "multivariate_normal":
            return self._joint(count + nuisances)
        if self.name not in _KINDS:
            raise OptionError("the weakly informative prior is stated for coefficients of columns; give another prior.")
        total, pad = count + nuisances, np.ones(nuisances)
        place, width, tails = (np.append(_each(k, getattr(self, k), count), pad) for k in ("location", "scale", "df"))
        kinds = np.append(np.full(count, _KINDS[self.name]), np.full(nuisances, FLAT)).astype(np.int64)
        return PriorTerms(kinds, place, width, tails, np.zeros(total), -1, np.zeros((0, 0)))

    def sample(self, terms: PriorTerms, rng: np.random.Generator) -> np.ndarray:
        """A draw of theta from the prior; refuses an improper one."""
        if terms.dense.size:
            noise = rng.standard_normal(terms.location.size)
            return terms.location + np.linalg.solve(np.linalg.cholesky(terms.dense).T, noise)
        if (terms.kind == FLAT).any():
            raise OptionError(
                "init='prior' needs a proper prior on every parameter, and this model has a flat one (log sigma always is). "
                "Use init='laplace' or give an array."
            )
        d = terms.kind.size
        z = np.where(terms.kind == NORMAL, rng.standard_normal(d), 0.0)
        z = np.where(terms.kind == LAPLACE, rng.laplace(size=d), z)
        z = np.where(terms.kind == STUDENT, rng.standard_t(terms.df), z)
        theta = terms.location + terms.scale * z
        if terms.intercept >= 0:
            k = terms.intercept
            rest = terms.centre @ theta - terms.centre[k] * theta[k]
            theta[k] = (theta[k] - rest) / terms.centre[k]
        return theta

    def describe(self) -> str:
        """One line for summaries."""
        if self.name in ("flat", "weakly_informative"):
            return self.name
        if self.name == "multivariate_normal":
            return f"multivariate_normal({np.size(self.location)} parameters)"
        df = f", df={_short(self.df)}" if self.name == "student_t" else ""
        return f"{self.name}(location={_short(self.location)}, scale={_short(self.scale)}{df})"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        plain = {k: np.asarray(getattr(self, k), float).tolist() for k in ("location", "scale", "df")}
        return {"name": self.name, **plain}


def _gelman(data: Dataset, response_scale: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    d, m = data.d, data.moments
    spread = np.where(m.two_valued[:d], m.high[:d] - m.low[:d], 2.0 * m.sd[:d])
    spread = np.where((spread > 0) & np.isfinite(spread), spread, 1.0)
    unit = 2.0 * m.sd[d] if response_scale and m.sd[d] > 0 else 1.0
    location, scale, centre, intercept = np.zeros(d), 2.5 * unit / spread, np.zeros(d), -1
    if data.intercept is not None:
        intercept = data.intercept
        scale[intercept] = 10.0 * unit
        location[intercept] = m.mean[d] if response_scale else 0.0
        centre = m.mean[:d].copy()
        centre[intercept] = 1.0
    return location, scale, centre, intercept


def _each(name: str, values: Any, d: int) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim == 0:
        array = np.full(d, float(array))
    if array.shape != (d,):
        raise OptionError(f"the prior's {name} must be one number or {d}, one for each coefficient; got shape {array.shape}.")
    if not np.isfinite(array).all() or (name != "location" and (array <= 0).any()):
        raise OptionError(f"the prior's {name} must be finite{'' if name == 'location' else ' and positive'}; got {values}.")
    return array


def _short(values: Any) -> str:
    array = np.asarray(values, float)
    return f"{float(array):g}" if array.ndim == 0 else f"[{array.size} values]"


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
    mean, precision = np.asarray(mean, float), np.asarray(precision, float)
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
    return Prior(
        values["name"], *(np.asarray(values[k]) if np.ndim(values[k]) else values[k] for k in ("location", "scale", "df"))
    )

"""The prior of coefficients by name, and the numbers it becomes for a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.data.dataset import Dataset
from tallbayes.errors import OptionError
from tallbayes.prior_terms import FLAT, LAPLACE, NORMAL, POSITIVE, STUDENT, PriorTerms
from tallbayes.scale_priors import draw_scale
from tallbayes.validation import shown

_KINDS = {"flat": FLAT, "normal": NORMAL, "laplace": LAPLACE, "student_t": STUDENT, "cauchy": STUDENT}


@dataclass(frozen=True)
class Prior:
    """A prior by name; `terms` turns it into numbers for a data set."""

    name: str
    location: Any = 0.0
    scale: Any = 1.0
    df: Any = 1.0

    def __post_init__(self) -> None:
        for what in ("location", "scale", "df"):
            try:
                np.asarray(getattr(self, what), float)
            except (TypeError, ValueError, OverflowError):
                raise OptionError(
                    f"{what} of the prior {self.name} must be a number, or one for each coefficient; got {shown(getattr(self, what))}."
                ) from None

    @property
    def proper(self) -> bool:
        """Whether it integrates to one over the coefficients."""
        return self.name != "flat"

    def terms(self, data: Dataset, predictors: int, nuisances: int, response_scale: bool, second: int = 0) -> PriorTerms:
        """The prior of `predictors` blocks of coefficients; nuisance parameters have a flat prior.

        The last `second` columns are those of a second predictor, which is not in units of the response.
        """
        d = data.d
        if self.name == "multivariate_normal":
            return self._joint(d * predictors + nuisances)
        centre, intercept = np.zeros(d), -1
        location, df = _each("location", self.location, d), _each("df", self.df, d)
        if self.name == "weakly_informative":
            code, df = STUDENT, np.ones(d)
            location, scale, centre, intercept = _gelman(data, response_scale and predictors == 1, second)
        else:
            code, scale = _KINDS[self.name], _each("scale", self.scale, d)
        if intercept >= 0 and predictors > 1:
            centre, intercept = np.zeros(d), -1  # one centred intercept only; the others are judged as they are
        pad = np.zeros(nuisances)
        place, width, tails = (np.concatenate([np.tile(v, predictors), pad + 1.0]) for v in (location, scale, df))
        kinds = np.concatenate([np.full(d * predictors, code), np.full(nuisances, FLAT)]).astype(np.int64)
        wide = np.zeros(d * predictors + nuisances)
        wide[:d] = centre
        constant = data.column_of_ones(d - second, d) if second and self.name == "weakly_informative" else None
        if constant is not None:
            kinds[constant] = NORMAL  # a Cauchy prior of the logit of a probability that may be 0 has no mean
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

        >>> from tallbayes.priors import cauchy, laplace, normal
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
                "init='prior' needs a proper prior on every parameter, and this model has a flat one; log sigma has one unless "
                "prior={'sigma': ...} says otherwise. Use init='laplace' or give an array."
            )
        d = terms.kind.size
        z = np.where(terms.kind == NORMAL, rng.standard_normal(d), 0.0)
        z = np.where(terms.kind == LAPLACE, rng.laplace(size=d), z)
        z = np.where(terms.kind == STUDENT, rng.standard_t(terms.df), z)
        theta = terms.location + terms.scale * z
        for j in np.flatnonzero(terms.kind >= POSITIVE):
            theta[j] = np.log(draw_scale(rng, float(terms.kind[j] - POSITIVE), terms.scale[j], terms.df[j]))
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


SECOND_INTERCEPT = 2.5  # scale of the normal prior of the intercept of a second predictor


def _gelman(data: Dataset, response_scale: bool, second: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    d, m, first = data.d, data.moments, data.d - second
    spread = np.where(m.two_valued[:d], m.high[:d] - m.low[:d], 2.0 * m.sd[:d])
    spread = np.where((spread > 0) & np.isfinite(spread), spread, 1.0)
    unit = 2.0 * m.sd[d] if response_scale and m.sd[d] > 0 else 1.0
    location, scale, centre, intercept = np.zeros(d), 2.5 * unit / spread, np.zeros(d), -1
    scale[first:] /= unit
    constant = data.column_of_ones(first, d)
    if constant is not None:
        location[constant], scale[constant] = np.log(0.5 * unit) if response_scale else 0.0, SECOND_INTERCEPT
    found = data.column_of_ones(0, first)
    if found is not None:
        intercept = found
        scale[intercept] = 10.0 * unit
        location[intercept] = m.mean[d] if response_scale else 0.0
        centre[:first] = m.mean[:first]
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

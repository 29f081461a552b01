"""Smooth functions of a column as columns of a design: penalised B-splines in coordinates in which the penalty is a ridge.

With B the matrix of k cubic B-splines on equal knots and D second differences, a P-spline (Eilers and Marx 1996) penalises |D a|^2. The
null space of D is the straight lines: the column itself, without a penalty. With D'D = U diag(s) U', the other k - 2 columns are
B U s^(-1/2), whose coefficients are independent N(0, tau^2) a priori: `tallbayes.priors.ridge(standardise=False)`, tau unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, OptionError

DEGREE = 3


@dataclass(frozen=True, eq=False)
class Smooth:
    """A smooth of one column, learned from its range; `columns` evaluates it anywhere in that range."""

    name: str
    low: float
    high: float
    transform: np.ndarray  # splines to penalised columns
    means: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns: the straight line, then the penalised ones, one term each."""
        return (f"{self.name}_line", *(f"s({self.name})[{k + 1}]" for k in range(self.transform.shape[1])))

    @property
    def term(self) -> str:
        """The name under which a prior of the penalised columns is given."""
        return f"s({self.name})"

    def columns(self, x: Any) -> np.ndarray:
        """The line, scaled to [-1, 1], and the penalised columns, less their means where the smooth was made."""
        values = np.asarray(x, float)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise DataError(f"the column of {self.term} must be a vector of finite numbers.")
        if (values < self.low).any() or (values > self.high).any():
            raise DataError(f"{self.term} is known from {self.low:g} to {self.high:g} only; values beyond were given.")
        line = (2.0 * values - self.low - self.high) / (self.high - self.low)
        splines = _splines(values, self.low, self.high, self.transform.shape[0])
        return np.column_stack([line, splines @ self.transform - self.means])


def _splines(x: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
    from scipy.interpolate import BSpline

    step = (high - low) / (count - DEGREE)
    knots = low + step * np.arange(-DEGREE, count + 1)
    inside = np.clip(x, low, np.nextafter(high, low))
    return BSpline.design_matrix(inside, knots, DEGREE).toarray()


def smooth(x: Any, name: str = "x", k: int = 10) -> Smooth:
    """A smooth of a column with k B-splines.

    >>> import numpy as np, tallbayes as tb
    >>> x = np.linspace(0.0, 1.0, 50)
    >>> part = tb.data.smooth(x, "age", k=6)
    >>> part.columns(x).shape, part.names[:2], part.term
    ((50, 5), ('age_line', 's(age)[1]'), 's(age)')
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 5:
        raise OptionError(f"k must be a whole number of at least 5; got {k!r}.")
    values = np.asarray(x, float)
    if values.ndim != 1 or not np.isfinite(values).all() or not np.ptp(values) > 0:
        raise DataError(f"the column {name!r} of a smooth must be a vector of finite numbers that are not all the same.")
    low, high = float(values.min()), float(values.max())
    differences = np.diff(np.eye(int(k)), n=2, axis=0)
    size, vectors = np.linalg.eigh(differences.T @ differences)
    transform = vectors[:, 2:] / np.sqrt(size[2:])
    return Smooth(name, low, high, transform, _splines(values, low, high, int(k)).mean(0) @ transform)

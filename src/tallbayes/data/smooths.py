"""Smooth functions of a column as columns of a design: penalised B-splines in coordinates in which the penalty is a ridge.

With B the matrix of k cubic B-splines on equal knots and D second differences, a P-spline (Eilers and Marx 1996) penalises |D a|^2. The
null space of D is the straight lines: the column itself, without a penalty. With D'D = U diag(s) U', the other k - 2 columns are
B U s^(-1/2), whose coefficients are independent N(0, tau^2) a priori: `tallbayes.priors.ridge(standardise=False)`, tau unknown.

In formulas these are s(x), s(x, k=20) and, for a smooth of every level, s(x, by=g). Columns are called "s(x)_line" and "s(x)[1]", those
of levels "s(x, by=g)_line[b]" and "s(x, by=g)[b, 1]", those of a second predictor "zi_s(x)[1]": `smooth_blocks` finds them by these names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, OptionError

DEGREE = 3
SPLINES = 10  # if k is not given
_BLOCK = re.compile(r"((?:\w+_)?s\(.+\))(?:\[(.*)\])?")
_PENALISED = re.compile(r"((?:\w+_)?s\(.+\))\[(?:(.*), )?\d+\]")


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
        return smooth_names(self.term, self.transform.shape[1])

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
            raise DataError(f"{self.term} is defined from {self.low:g} to {self.high:g} only; values beyond were given.")
        line = (2.0 * values - self.low - self.high) / (self.high - self.low)
        splines = _splines(values, self.low, self.high, self.transform.shape[0])
        return np.column_stack([line, splines @ self.transform - self.means])

    def state(self) -> dict[str, Any]:
        """What a formula keeps of it, in JSON types."""
        return {
            "lower_bound": self.low,
            "upper_bound": self.high,
            "transform": self.transform.tolist(),
            "means": self.means.tolist(),
        }


def _splines(x: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
    from scipy.interpolate import BSpline

    step = (high - low) / (count - DEGREE)
    knots = low + step * np.arange(-DEGREE, count + 1)
    inside = np.clip(x, low, np.nextafter(high, low))
    return BSpline.design_matrix(inside, knots, DEGREE).toarray()


def smooth(x: Any, name: str = "x", k: int = SPLINES) -> Smooth:
    """A smooth of a column with k B-splines; in a formula, write s(x, k=10).

    >>> import numpy as np, tallbayes as tb
    >>> x = np.linspace(0.0, 1.0, 50)
    >>> part = tb.data.smooth(x, "age", k=6)
    >>> part.columns(x).shape, part.names[:2], part.term
    ((50, 5), ('s(age)_line', 's(age)[1]'), 's(age)')
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < DEGREE + 1:
        raise OptionError(f"k must be a whole number of at least {DEGREE + 1}; got {k!r}.")
    values = np.asarray(x, float)
    if values.ndim != 1 or not np.isfinite(values).all() or not np.ptp(values) > 0:
        raise DataError(f"the column {name!r} of a smooth must be a vector of finite numbers that are not all the same.")
    if (distinct := np.unique(values).size) < k:
        raise DataError(f"the column {name!r} has {distinct} different values, too few for k = {k}; use k={distinct} or fewer.")
    low, high = float(values.min()), float(values.max())
    transform = _penalty_coordinates(int(k))
    return Smooth(name, low, high, transform, _splines(values, low, high, int(k)).mean(0) @ transform)


def _penalty_coordinates(k: int) -> np.ndarray:
    """U s^(-1/2), with the largest entry of every column positive: eigenvectors have no sign of their own."""
    differences = np.diff(np.eye(k), n=2, axis=0)
    size, vectors = np.linalg.eigh(differences.T @ differences)
    vectors = vectors[:, 2:]
    largest = np.take_along_axis(vectors, np.abs(np.round(vectors, 8)).argmax(0)[None], axis=0)
    return vectors * np.sign(largest) / np.sqrt(size[2:])


def smooth_names(term: str, count: int, levels: Sequence[Any] | None = None) -> tuple[str, ...]:
    """Names of the columns of a smooth with `count` penalised columns, one after the other for every level.

    >>> smooth_names("s(x, by=g)", 2, ["a"])
    ('s(x, by=g)_line[a]', 's(x, by=g)[a, 1]', 's(x, by=g)[a, 2]')
    """
    if levels is None:
        return (f"{term}_line", *(f"{term}[{j + 1}]" for j in range(count)))
    return tuple(name for b in levels for name in (f"{term}_line[{b}]", *(f"{term}[{b}, {j + 1}]" for j in range(count))))


def smooth_blocks(columns: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Positions of the penalised columns that share a scale, by the name of their smooth and level.

    >>> smooth_blocks(("Intercept", "s(x)_line", "s(x)[1]", "s(x)[2]", "s(z, by=g)[b, 1]", "zi_s(x)[1]"))
    {'s(x)': (2, 3), 's(z, by=g)[b]': (4,), 'zi_s(x)': (5,)}
    """
    out: dict[str, list[int]] = {}
    for j, column in enumerate(columns):
        if found := _PENALISED.fullmatch(column):
            out.setdefault(found[1] if found[2] is None else f"{found[1]}[{found[2]}]", []).append(j)
    return {name: tuple(where) for name, where in out.items()}


def split_block(block: str) -> tuple[str, str | None]:
    """The term and the level of the name of a block.

    >>> split_block("s(x, by=g)[b]"), split_block("s(x)")
    (('s(x, by=g)', 'b'), ('s(x)', None))
    """
    found = _BLOCK.fullmatch(block)
    return (found[1], found[2]) if found else (block, None)


def smooth_columns(x: Any, k: int = SPLINES, by: Any = None, _state: Any = None) -> dict[str, np.ndarray]:
    """The columns of a smooth in a formula; its state was learned before."""
    state = _state
    part = Smooth("", state["lower_bound"], state["upper_bound"], np.asarray(state["transform"]), np.asarray(state["means"]))
    columns = part.columns(np.asarray(x, float))
    if by is not None:
        codes, count = np.asarray(by.cat.codes), len(by.cat.categories)
        columns = np.column_stack([np.where((codes == b)[:, None], columns, 0.0) for b in range(count)])
    return {str(j): columns[:, j] for j in range(columns.shape[1])}

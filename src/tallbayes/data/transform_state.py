"""What transforms need to know of all rows, gathered chunk by chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from tallbayes.data.moments import Moments
from tallbayes.data.smooths import SPLINES, Smooth, smooth
from tallbayes.errors import DataError

EXACT_ROWS = 1_000_000  # up to here quantiles are exact
SAMPLED_ROWS = 100_000  # beyond, they are those of a uniform sample: standard error at most 0.16 % of the rows
SEED = 20_011
MOST_LEVELS = 10_000


class Scale:
    """Mean and spread, for `scale` and `center`."""

    def __init__(self, shown: str, options: dict[str, Any], name: str) -> None:
        self.shown, self.options, self.name = shown, options, name
        self.moments = Moments((shown,))

    def add(self, values: np.ndarray) -> None:
        """Merge a chunk."""
        self.moments.add(values[:, None])

    def state(self) -> dict[str, Any]:
        """The state of formulaic's transform."""
        n, mean, scatter = self.moments.n, float(self.moments.mean[0]), float(self.moments.scatter[0])
        center = self.options.get("center", True)
        ddof = self.options.get("ddof", 1)
        spread = None
        if self.name == "scale" and self.options.get("scale", True):
            around = scatter if center else scatter + n * mean**2
            spread = float(np.sqrt(around / (n - ddof))) if n > ddof else 0.0
            if not (np.isfinite(spread) and spread > 0):
                raise DataError(f"{self.shown} cannot be scaled: its spread is {spread:g}. Leave it out or use center().")
        return {"ddof": ddof, "center": mean if center else None, "scale": spread}


class Polynomial:
    """Recurrence of the orthogonal polynomials of all rows, for `poly`.

    The Chebyshev basis on the range so far is kept as B = Q R, of which only R is stored: each chunk is stacked below R and
    reduced again, and R is moved to the new basis when the range grows. Multiplication by x is tridiagonal in the basis, so
    J = R M R⁻¹ is the Jacobi matrix. No power moment is ever formed.
    """

    def __init__(self, shown: str, options: dict[str, Any], name: str) -> None:
        self.shown, self.degree = shown, int(options.get("degree", 1))
        self.n, self.low, self.high = 0, np.inf, -np.inf
        self.factor = np.zeros((0, self.degree + 1))

    def add(self, values: np.ndarray) -> None:
        """Merge a chunk."""
        low, high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if self.n and (low < self.low or high > self.high):
            self._move(low, high)
        self.low, self.high, self.n = low, high, self.n + values.size
        basis = chebyshev.chebvander(self._inside(values), self.degree)
        self.factor = np.asarray(np.linalg.qr(np.vstack([self.factor, basis]), mode="r"))

    def _inside(self, values: np.ndarray) -> np.ndarray:
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2 or 1.0
        return (values - middle) / half

    def _move(self, low: float, high: float) -> None:
        """New basis polynomials as combinations of the old ones, by interpolation: they are bounded by one on the old range."""
        nodes = chebyshev.chebpts1(self.degree + 1)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2 or 1.0
        self.low, self.high = low, high
        moved = chebyshev.chebvander(self._inside(middle + half * nodes), self.degree)
        self.factor = self.factor @ np.linalg.solve(chebyshev.chebvander(nodes, self.degree), moved)

    def state(self) -> dict[str, Any]:
        """Coefficients alpha and squared norms of the monic polynomials, as formulaic keeps them."""
        d = self.degree
        pivots = np.abs(np.diag(self.factor)) if self.factor.shape[0] == d + 1 else np.zeros(d + 1)
        if pivots.min() <= 1e-12 * pivots.max():
            raise DataError(f"{self.shown}: the column has too few different values for degree {d}; use a smaller degree.")
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2 or 1.0
        times = np.zeros((d + 1, d))  # t T_k = (T_{k+1} + T_{k-1}) / 2, and t T_0 = T_1
        for k in range(d):
            times[k + 1, k] = 1.0 if k == 0 else 0.5
            if k:
                times[k - 1, k] += 0.5
        jacobi = self.factor @ times @ np.linalg.inv(self.factor[:d, :d])
        alpha = middle + half * np.diag(jacobi)
        ratios = (half * np.diag(jacobi, -1)) ** 2
        return {"alpha": alpha.tolist(), "norms2": (self.n * np.cumprod([1.0, *ratios])).tolist()}


class Spline:
    """Range and quantiles, for `bs`.

    Every row gets a random key from a generator of fixed seed. All rows are kept up to EXACT_ROWS, beyond that the
    SAMPLED_ROWS rows of smallest key: a uniform sample, whatever the chunks.
    """

    def __init__(self, shown: str, options: dict[str, Any], name: str) -> None:
        self.shown, self.options = shown, options
        self.low, self.high, self.n = np.inf, -np.inf, 0
        self.random = np.random.default_rng(SEED)
        self.values: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []
        self.kept = 0

    def add(self, values: np.ndarray) -> None:
        """Merge a chunk."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self.n += values.size
        if "df" not in self.options:
            return
        self.values.append(values.copy())
        self.keys.append(self.random.random(values.size))
        self.kept += values.size
        if self.n > EXACT_ROWS and self.kept > 4 * SAMPLED_ROWS:
            self._thin()

    def _thin(self) -> None:
        values, keys = np.concatenate(self.values), np.concatenate(self.keys)
        smallest = np.argpartition(keys, SAMPLED_ROWS)[:SAMPLED_ROWS] if keys.size > SAMPLED_ROWS else slice(None)
        self.values, self.keys, self.kept = [values[smallest]], [keys[smallest]], SAMPLED_ROWS

    def state(self) -> dict[str, Any]:
        """Bounds and knots, as formulaic keeps them."""
        given = self.options
        degree, low, high = given.get("degree", 3), given.get("lower_bound", self.low), given.get("upper_bound", self.high)
        if not low < high:
            raise DataError(f"{self.shown}: the column has only the value {low:g}; a spline needs a range.")
        inner = given.get("knots", [])
        if "df" in given:
            if self.n > EXACT_ROWS:
                self._thin()
            count = given["df"] - degree - bool(given.get("include_intercept"))
            inner = np.quantile(np.concatenate(self.values), np.linspace(0, 1, count + 2))[1:-1].tolist()
        if inner and not (low <= min(inner) and max(inner) <= high):
            raise DataError(f"{self.shown}: the knots must be inside the range from {low:g} to {high:g}.")
        knots = [low] * (degree + 1) + [float(k) for k in inner] + [high] * (degree + 1)
        return {"lower_bound": float(low), "upper_bound": float(high), "knots": knots}


class NaturalSpline(Spline):
    """Knots, and the means of the natural cubic splines, for `cr`; both from the rows that are kept.

    The splines are centred, so that none of their combinations is the intercept.
    """

    def __init__(self, shown: str, options: dict[str, Any], name: str) -> None:
        super().__init__(shown, {**options, "df": options.get("df", 0)}, name)
        self.given = options

    def state(self) -> dict[str, Any]:
        """Bounds, knots and constraint, as formulaic keeps them."""
        from formulaic.transforms.cubic_spline import _get_free_cubic_spline_matrix

        given = self.given
        low, high = float(given.get("lower_bound", self.low)), float(given.get("upper_bound", self.high))
        if not low < high:
            raise DataError(f"{self.shown}: the column has only the value {low:g}; a spline needs a range.")
        if self.n > EXACT_ROWS:
            self._thin()
        values = np.concatenate(self.values)
        inner = np.asarray(given.get("knots", []), float)
        if "df" in given:
            inside = np.unique(values[(values >= low) & (values <= high)])
            if inside.size <= given["df"]:
                raise DataError(
                    f"{self.shown}: {inside.size} different values are too few for {given['df']} splines. Use fewer."
                )
            inner = np.quantile(inside, np.linspace(0, 1, given["df"] + 1)[1:-1])
        knots = np.unique(np.concatenate([[low, high], inner]))
        if knots.size != inner.size + 2 or knots[0] < low or knots[-1] > high:
            raise DataError(
                f"{self.shown}: the knots must be different, and inside the range from {low:g} to {high:g}. Use fewer."
            )
        means = _get_free_cubic_spline_matrix(values, knots).mean(0)
        return {"lower_bound": low, "upper_bound": high, "knots": knots.tolist(), "constraints": [means.tolist()]}


class PenalisedSpline(Spline):
    """Range, number of different values, and means of the penalised columns, for `s`; the means are those of the rows that are kept."""

    def __init__(self, shown: str, options: dict[str, Any], name: str) -> None:
        super().__init__(shown, {"df": 0}, name)
        self.count = int(options.get("k", SPLINES))
        self.distinct: set[float] = set()

    def add(self, values: np.ndarray) -> None:
        """Merge a chunk."""
        super().add(values)
        if len(self.distinct) < self.count:
            self.distinct.update(np.unique(values)[: 2 * self.count].tolist())

    def state(self) -> dict[str, Any]:
        """Range, rotation and means."""
        if len(self.distinct) < self.count:
            found = len(self.distinct)
            remedy = f"Write k={found}, or use" if found >= 4 else "Use"
            raise DataError(
                f"{self.shown}: the column has {found} different value{'s' * (found > 1)}, fewer than k = {self.count} splines. {remedy} "
                "the column as a number or, with C(...), as levels."
            )
        if self.n > EXACT_ROWS:
            self._thin()
        kept = np.concatenate([*self.values, sorted(self.distinct), [self.low, self.high]])
        part = smooth(kept, k=self.count)  # its range and splines; rows alone count for the means
        rows = Smooth(part.name, part.low, part.high, part.transform, np.zeros(self.count - 2)).columns(kept[: self.kept_rows])
        return replace(part, means=rows[:, 1:].mean(0)).state()

    @property
    def kept_rows(self) -> int:
        """Number of the rows that are kept."""
        return sum(values.size for values in self.values)


SUMMARIES: dict[str, Any] = {
    "scale": Scale,
    "center": Scale,
    "poly": Polynomial,
    "bs": Spline,
    "cr": NaturalSpline,
    "s": PenalisedSpline,
}

"""What the columns of a design are made of: columns of the source back from packed rows, and the design at other values.

Packed rows hold the design and not the columns: a column comes back from a term of its own (`x`, `center(x)`, `log(x)`,
`poly(x, 3)`, `bs(x, df=5)`, `s(x)`, `C(g)`).
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.data.design import DesignMatrices
from tallbayes.data.factors import is_smooth, transform_of
from tallbayes.data.factors import options as options_of
from tallbayes.data.formula import Factor
from tallbayes.errors import DataError, unknown

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

INVERSES: dict[str, Callable] = {
    "log": np.exp,
    "log10": lambda v: 10.0**v,
    "log1p": np.expm1,
    "exp": np.log,
    "sqrt": np.square,
    "I": lambda v: v,
}


class DesignTerms:
    """What the columns of a design are made of, and their values where some columns of the source are changed."""

    def __init__(self, fit: Fit) -> None:
        self.plan = fit.meta.get("plan")
        self.names = tuple(fit.meta["columns"])
        self.matrices = DesignMatrices(self.plan) if self.plan and "design" in self.plan else None
        self.levels: dict[str, list[Any]] = {}
        self._parts: dict[tuple[int, ...], Any] = {}
        self._tables: dict[tuple[int, ...], dict[tuple[float, ...], np.ndarray]] = {}
        if self.matrices is None:
            self.variables = tuple(self.plan["columns"]) if self.plan else self._from_arrays(fit)
            return
        general = self.matrices.formula
        self.variables = tuple(general.columns)
        self.levels = {general.names[k]: list(found) for k, found in self.matrices.levels.items()}
        self.terms = []  # of each term: its factors, the columns they need, where it stands in the design
        start = 0
        for factors, part in zip(general.terms, self.matrices.spec.structure, strict=True):
            stop = start + len(part.columns)
            used = {general.names[k] for f in factors for k in (*f.numbers, *(() if f.level is None else (f.level,)))}
            self.terms.append((factors, used, range(start, stop)))
            start = stop

    def _from_arrays(self, fit: Fit) -> tuple[str, ...]:
        return tuple(c for k, c in enumerate(self.names) if k != fit.meta.get("intercept"))

    def check(self, name: str) -> None:
        """Refuse what is no column of the source."""
        if name not in self.variables:
            hint = ""
            if name in self.names and self.matrices is not None:
                hint = " That is a column of the design; name the column of the data it is made from."
            raise DataError(str(unknown("variable", name, self.variables)) + hint)
        if self.plan and self.plan["offset"] == name:
            raise DataError(
                f"{name!r} is also the offset, which effects leave as it is; copy the column under another name to change one of them."
            )

    def touched(self, changed: set[str]) -> np.ndarray:
        """Columns of the design that depend on these columns of the source."""
        if self.matrices is None:
            return np.array(sorted(self.names.index(c) for c in changed), int)
        return np.array([j for _, used, where in self.terms if used & changed for j in where], int)

    def needed(self, changed: set[str]) -> set[str]:
        """Columns of the source that the touched columns of the design are made of."""
        if self.matrices is None:
            return set(changed)
        return set().union(*(used for _, used, _ in self.terms if used & changed))

    def transforms(self, name: str) -> set[str]:
        """Names of the transforms of this column."""
        if self.matrices is None:
            return set()
        position = self.matrices.formula.names.index(name)
        trees = [f.tree for factors, _, _ in self.terms for f in factors if position in f.numbers]
        return {transform_of(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}

    def values(self, columns: dict[str, np.ndarray], changed: set[str], rows: int) -> np.ndarray:
        """The touched columns of the design at these values of the columns of the source."""
        where = self.touched(changed)
        if self.matrices is None:
            return np.column_stack([np.broadcast_to(columns[self.names[j]], rows) for j in where])
        needed = self.needed(changed)
        numbers = [name for name in self.variables if name in needed and name not in self.levels]
        factors = [name for name in self.variables if name in needed and name in self.levels]
        cells = math.prod(len(self.levels[name]) for name in factors)
        if rows > 2 ** (len(numbers) + 2) * cells and len(numbers) <= 2 and self._affine(changed):
            return self._from_table(columns, changed, rows, numbers, factors, cells)
        return self._part(tuple(where)).matrix(self._batch(columns, rows))

    def _affine(self, changed: set[str]) -> bool:
        """Whether the touched terms are affine in every number, so that two values of it tell all."""
        for factors, used, _ in self.terms:
            if used & changed:
                numbers = [k for f in factors for k in f.numbers]
                plain = all(isinstance(f.tree, ast.Name) or _shifted(f.tree) for f in factors if f.numbers)
                if not plain or len(set(numbers)) < len(numbers):
                    return False
        return True

    def _from_table(
        self, columns: dict[str, np.ndarray], changed: set[str], rows: int, numbers: list[str], factors: list[str], cells: int
    ) -> np.ndarray:
        """The same from the design at 0 and 1 of every number and at every combination of levels."""
        code = np.zeros(rows, int)
        for name in factors:
            code = code * len(self.levels[name]) + np.asarray(columns[name], int)
        corners = dict(self._corners(tuple(self.touched(changed)), tuple(numbers), tuple(factors), cells))
        for place, name in reversed(list(enumerate(numbers))):  # joined along one number after the other
            low = {k[:place]: v for k, v in corners.items() if k[place] == 0.0}
            high = {k[:place]: v for k, v in corners.items() if k[place] == 1.0}
            x = np.asarray(columns[name], float)[:, None]
            take = (lambda v: v[code]) if place == len(numbers) - 1 else (lambda v: v)
            corners = {k: take(low[k]) + x * take(high[k] - low[k]) for k in low}
        return corners[()] if numbers else corners[()][code]

    def _part(self, where: tuple[int, ...]) -> Any:
        """The matrices of some terms alone."""
        if where not in self._parts:
            assert self.matrices is not None
            spec = self.matrices.spec
            kept = [part.term for part, (_, _, span) in zip(spec.structure, self.terms, strict=True) if set(span) & set(where)]
            part = copy.copy(self.matrices)
            part.spec, part.names = spec.subset(kept), tuple(self.names[j] for j in where)
            self._parts[where] = part
        return self._parts[where]

    def _corners(
        self, where: tuple[int, ...], numbers: tuple[str, ...], factors: tuple[str, ...], cells: int
    ) -> dict[tuple[float, ...], np.ndarray]:
        """Some columns of the design, all combinations of levels at 0 and 1 of every number; computed once."""
        if where not in self._tables:
            grid = np.meshgrid(*(np.arange(len(self.levels[name])) for name in factors), indexing="ij")
            cell = {name: g.reshape(-1) for name, g in zip(factors, grid, strict=True)}
            self._tables[where] = {}
            for ends in itertools.product((0.0, 1.0), repeat=len(numbers)):
                at = {**cell, **{name: np.full(cells, end) for name, end in zip(numbers, ends, strict=True)}}
                self._tables[where][ends] = self._part(where).matrix(self._batch(at, cells))
        return self._tables[where]

    def _batch(self, columns: dict[str, np.ndarray], rows: int) -> Any:
        """An Arrow batch; columns that do not matter have any value they can have."""
        import pyarrow as pa

        assert self.plan is not None
        described, arrays = self.plan["design"], []
        for name in self.variables:
            if name in self.levels:
                codes = np.broadcast_to(np.asarray(columns.get(name, 0), np.int64), rows)
                arrays.append(pa.array(self.levels[name]).take(pa.array(codes)))
            else:
                arrays.append(
                    pa.array(np.broadcast_to(np.asarray(columns.get(name, described["example"].get(name)), float), rows))
                )
        return pa.record_batch(arrays, list(self.variables))

    def recovered(self, x: np.ndarray, wanted: set[str]) -> dict[str, np.ndarray] | None:
        """Columns of the source from rows of the design; None if one of them has no term of its own."""
        if self.matrices is None:
            return {name: x[:, self.names.index(name)] for name in wanted}
        out = {}
        for name in wanted:
            values = self._levels_of(x, name) if name in self.levels else self._numbers_of(x, name)
            if values is None:
                return None
            out[name] = values
        return out

    def _levels_of(self, x: np.ndarray, name: str) -> np.ndarray | None:
        for factors, used, where in self.terms:
            if len(factors) == 1 and used == {name} and factors[0].level is not None:
                codes = np.arange(len(self.levels[name]))
                if codes.size == 1:
                    return np.zeros(x.shape[0], int)
                table = self.values({name: codes}, {name}, codes.size)
                own = [k for k, j in enumerate(self.touched({name})) if j in where]
                direction = np.cos(1.0 + np.arange(len(own)))  # any direction in which no two levels coincide
                marks = table[:, own] @ direction
                order = np.argsort(marks)
                found = x[:, where.start : where.stop] @ direction
                place = np.clip(np.searchsorted(marks[order], found), 1, codes.size - 1)
                left, right = order[place - 1], order[place]
                return np.where(np.abs(found - marks[left]) <= np.abs(found - marks[right]), left, right)
        return None

    def _numbers_of(self, x: np.ndarray, name: str) -> np.ndarray | None:
        for factors, used, where in self.terms:
            if len(factors) != 1:
                continue
            if is_smooth(factors[0].tree):
                values = self._from_lines(factors[0], name, x[:, where.start : where.stop])
                if values is not None:
                    return values
            elif used == {name} and factors[0].level is None:
                values = self._inverse(factors[0].tree, x[:, where.start : where.stop])
                if values is not None:
                    return values
        return None

    def _from_lines(self, factor: Factor, name: str, columns: np.ndarray) -> np.ndarray | None:
        """The column of a smooth from its straight line; of the lines of several levels all but one are 0."""
        assert self.matrices is not None
        tree = factor.tree
        assert isinstance(tree, ast.Call)
        if not isinstance(tree.args[0], ast.Name) or self.matrices.formula.names[factor.numbers[0]] != name:
            return None
        state = self.matrices.states[ast.unparse(tree)]
        low, high = state["lower_bound"], state["upper_bound"]
        line = columns[:, :: len(state["means"]) + 1].sum(1)
        return np.clip(0.5 * (line * (high - low) + low + high), low, high)

    def _inverse(self, tree: ast.expr, columns: np.ndarray) -> np.ndarray | None:
        if isinstance(tree, ast.Name):
            return columns[:, 0]
        if not isinstance(tree, ast.Call) or not isinstance(tree.args[0], ast.Name):
            return None
        assert self.matrices is not None
        name, state = transform_of(tree), self.matrices.states.get(ast.unparse(tree))
        if name in INVERSES:
            with np.errstate(all="ignore"):
                return INVERSES[name](columns[:, 0])
        if name in ("center", "scale") and state is not None:
            spread = 1.0 if state["scale"] is None else state["scale"]
            return columns[:, 0] * spread + (state["center"] or 0.0)
        if name == "poly":
            if state is None:  # raw powers
                return columns[:, 0]
            return columns[:, 0] * np.sqrt(state["norms2"][1]) + state["alpha"][0]
        if name == "bs" and state is not None:  # x is the sum of the Greville abscissae times the splines
            degree, knots = options_of(tree, "").get("degree", 3), np.asarray(state["knots"])
            greville = np.array([knots[k + 1 : k + degree + 1].mean() for k in range(knots.size - degree - 1)])
            if columns.shape[1] == greville.size - 1:  # the first spline is 1 less the others
                columns = np.column_stack([1.0 - columns.sum(1), columns])
            if columns.shape[1] != greville.size:
                return None
            return np.clip(columns @ greville, state["lower_bound"], state["upper_bound"])
        return None


def _shifted(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Call) and transform_of(tree) in ("center", "scale") and isinstance(tree.args[0], ast.Name)

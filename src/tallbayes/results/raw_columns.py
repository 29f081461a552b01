"""Rows of a fit as the columns they came from, a block at a time, and the design at other values of these columns.

The rows are those of the model in memory, of its store or of the file it was read from. Packed rows hold the design and not the
columns: a column comes back from a term of its own (`x`, `center(x)`, `log(x)`, `poly(x, 3)`, `bs(x, df=5)`, `C(g)`).
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.dataset import Dataset
from tallbayes.data.design import Matrices, design
from tallbayes.data.factors import options as options_of
from tallbayes.data.factors import transform_of
from tallbayes.data.packed_store import open_store
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError, StoreError, unknown
from tallbayes.results.new_rows import columns_of, from_batch

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

BLOCK = 1 << 15  # rows at a time: 10 MB of a design of forty columns
INVERSES: dict[str, Callable] = {
    "log": np.exp,
    "log10": lambda v: 10.0**v,
    "log1p": np.expm1,
    "exp": np.log,
    "sqrt": np.square,
    "I": lambda v: v,
}
CHECKED = 1000  # rows at which recovered columns must give the design again


class Block(NamedTuple):
    """Some rows: design, offsets, weights, and columns by name; those of levels are positions among the levels."""

    x: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    columns: dict[str, np.ndarray]


class Spread(NamedTuple):
    """What steps along a column are measured by."""

    low: float
    high: float
    mean: float
    sd: float
    binary: bool


class Design:
    """What the columns of a design are made of, and their values where some columns of the source are changed."""

    def __init__(self, fit: Fit) -> None:
        self.plan = fit.meta.get("plan")
        self.names = tuple(fit.meta["columns"])
        self.matrices = Matrices(self.plan) if self.plan and "design" in self.plan else None
        self.levels: dict[str, list[Any]] = {}
        self._parts: dict[tuple[int, ...], Any] = {}
        if self.matrices is None:
            self.variables = tuple(self.plan["columns"]) if self.plan else self._from_arrays(fit)
            return
        general = self.matrices.general
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
        position = self.matrices.general.names.index(name)
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
        grid = np.meshgrid(*(np.arange(len(self.levels[name])) for name in factors), indexing="ij")
        cell = {name: g.reshape(-1) for name, g in zip(factors, grid, strict=True)}
        where = tuple(self.touched(changed))
        corners = {}
        for ends in itertools.product((0.0, 1.0), repeat=len(numbers)):
            at = {**cell, **{name: np.full(cells, end) for name, end in zip(numbers, ends, strict=True)}}
            corners[ends] = self._part(where).matrix(self._batch(at, cells))
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
            if len(factors) == 1 and used == {name} and factors[0].level is None:
                values = self._inverse(factors[0].tree, x[:, where.start : where.stop])
                if values is not None:
                    return values
        return None

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


class RawColumns:
    """The rows of a fit, or of other data with the same columns: `blocks` yields them with the columns asked for."""

    def __init__(self, fit: Fit, data: Any = None) -> None:
        self.fit, self.design = fit, Design(fit)
        self.data: Dataset | None = None
        self.source: arrow.Source | None = None
        self.texts: dict[str, list[str]] = {}  # levels of columns that are not in the model
        if data is None:
            self._own_rows()
        elif isinstance(data, Dataset):
            if data.columns != self.design.names:
                raise DataError(
                    f"the Dataset has the columns {', '.join(data.columns)}, the fit {', '.join(self.design.names)}; read it with "
                    "the formula of the fit."
                )
            self.data = data
        else:
            self._given(data)

    def _given(self, data: Any) -> None:
        if isinstance(data, dict):
            import pyarrow as pa

            data = pa.table({str(k): np.atleast_1d(np.asarray(v)) for k, v in data.items()})
        self.source = open_source(data)
        if not self.source.repeatable:
            raise DataError("data= is a stream that can be read only once; give a table or a file.")

    def _own_rows(self) -> None:
        meta = self.fit.meta
        if self.fit.data is not None:
            self.data = self.fit.data
        elif meta.get("store") and Path(meta["store"]).exists():
            self.data = open_store(meta["store"])
        if self.data is not None:
            if self.data.fingerprint != meta["fingerprint"]:
                raise StoreError("the rows of the store are no longer those of the fit; give data=.")
            return
        self.source = self._file()
        if self.source is None:
            raise DataError(
                "the rows of the fit are not in memory, and they did not come from a file that is still there unchanged. Give "
                "data=, a table or file with the columns of the formula, or the Dataset of the model."
            )

    def _file(self) -> arrow.Source | None:
        source = self.fit.meta.get("source")
        if not source or "path" not in source:
            return None
        try:
            found = open_source(source["path"])
        except (DataError, StoreError):
            return None
        return found if found.identity == source else None

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        if self.data is not None:
            return self.data.has_weights
        return bool(self.design.plan and self.design.plan["weights"] in self._source.names)

    @property
    def _source(self) -> arrow.Source:
        assert self.source is not None
        return self.source

    def blocks(self, wanted: set[str]) -> Iterator[Block]:
        """All rows in order, at most `BLOCK` at a time, with these columns of the source."""
        if self.data is not None:
            first = self.data.records[:CHECKED, : self.data.d].astype(float)
            if wanted <= set(self.design.variables) and self._recoverable(first, wanted):
                yield from self._packed(wanted)
                return
            self.source = self._file() if self.source is None else self.source
            if self.source is None:
                missing = sorted(wanted - set(self.design.variables)) or sorted(wanted)
                raise DataError(
                    f"the rows in memory are those of the design, from which {', '.join(missing)} cannot be told. Give data=, a "
                    "table or file with the columns of the formula."
                )
        yield from self._streamed(wanted)

    def _recoverable(self, x: np.ndarray, wanted: set[str]) -> bool:
        columns = self.design.recovered(x, wanted)
        if columns is None:
            return False
        for name, values in columns.items():  # the term it came from must come out again
            if self.design.needed({name}) <= set(columns):
                where = self.design.touched({name})
                again = self.design.values(columns, {name}, values.size)
                scale = 1e-5 * (1.0 + np.abs(x[:, where]).max(0))
                if not (np.abs(again - x[:, where]) <= scale).all():
                    return False
        return True

    def _packed(self, wanted: set[str]) -> Iterator[Block]:
        data = self.data
        assert data is not None
        for start in range(0, data.n, BLOCK):
            records = data.records[start : start + BLOCK].astype(float)
            x = records[:, : data.d]
            columns = self.design.recovered(x, wanted)
            assert columns is not None
            yield Block(
                x,
                records[:, data.d + 1] if data.has_offset else None,
                records[:, data.d + 2] if data.has_weights else None,
                columns,
            )

    def _streamed(self, wanted: set[str]) -> Iterator[Block]:
        source, plan = self._source, self.design.plan
        if plan is None:
            plan = {"columns": list(self.design.variables), "offset": None, "weights": None, "log_offset": False}
            plan["intercept"] = len(self.design.variables) < len(self.design.names)
            if self.fit.meta.get("has_offset"):
                raise DataError(
                    "the model was fitted to arrays with an offset, whose column has no name; give data= as a Dataset."
                )
        extra = [plan["weights"]] if plan["weights"] in source.names else []
        names = list(dict.fromkeys([*columns_of(plan), *extra, *sorted(wanted)]))
        for name in names:
            if name not in source.names:
                raise DataError(f"the data have no column {name!r}: {unknown('column', name, source.names)}")
        arrow.refuse_ambiguous(source.names, names)
        matrix = self.design.matrices.matrix if self.design.matrices is not None else partial(design, plan)
        first = 0
        for whole in source.batches(names or list(source.names[:1])):
            for start in range(0, whole.num_rows, BLOCK):
                batch = whole.slice(start, BLOCK)
                x, offset = from_batch(plan, batch, first, matrix)
                weights = arrow.numbers(batch, plan["weights"], first) if extra else None
                yield Block(x, offset, weights, {name: self._column(batch, name, first) for name in wanted})
                first += batch.num_rows
        if first == 0:
            raise DataError("the data have no rows.")

    def _column(self, batch: Any, name: str, first: int) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute as pc

        levels, column = self.design.levels.get(name) or self.texts.get(name), batch.column(name)
        if levels is None:
            return arrow.numbers(batch, name, first)
        if isinstance(levels[0], str):
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            return pc.index_in(column.cast(pa.string()), value_set=pa.array(levels, pa.string())).to_numpy(zero_copy_only=False)
        return np.searchsorted(np.asarray(levels, float), arrow.numbers(batch, name, first))

    def distinct(self, name: str, most: int) -> list[Any]:
        """The different values of a column, in order; more than `most` are refused."""
        if name in self.design.levels:
            return self.design.levels[name]
        if self.data is not None and name not in self.design.variables:
            self.source = self._file() if self.source is None else self.source
        source, found = self.source, set[Any]()
        if source is not None and name in source.names and arrow.kind_of(source.types[source.names.index(name)]) == "level":
            import pyarrow.compute as pc

            for batch in source.batches([name]):
                found.update(str(v) for v in pc.unique(batch.column(name)).to_pylist() if v is not None)
                self._few(name, found, most)
            self.texts[name] = sorted(found)
            return self.texts[name]
        for block in self.blocks({name}):
            found.update(np.unique(block.columns[name]).tolist())
            self._few(name, found, most)
        return sorted(found)

    @staticmethod
    def _few(name: str, found: set, most: int) -> None:
        if len(found) > most:
            raise DataError(f"{name!r} has more than {most} different values; group them in a column of the data first.")

    def spread(self, name: str) -> Spread:
        """Range, mean and standard deviation of a column, and whether it is 0 or 1 in every row."""
        low, high, count, binary = np.inf, -np.inf, 0, True
        mean, scatter = 0.0, 0.0
        for block in self.blocks({name}):
            v = block.columns[name]
            low, high = min(low, float(v.min())), max(high, float(v.max()))
            binary = binary and bool(((v == 0.0) | (v == 1.0)).all())
            shift, total = float(v.mean()) - mean, count + v.size
            scatter += float(v.var()) * v.size + shift**2 * count * v.size / total
            mean += shift * v.size / total
            count = total
        return Spread(low, high, mean, float(np.sqrt(scatter / max(1, count - 1))), binary)

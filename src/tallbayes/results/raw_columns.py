"""Rows of a fit as the columns they came from, a block at a time.

The rows are those of the model in memory, of its store or of the file it was read from.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.calendar_columns import with_calendar
from tallbayes.data.dataset import Dataset
from tallbayes.data.design import design
from tallbayes.data.missing import complete_rows
from tallbayes.data.packed_store import open_store
from tallbayes.data.plan import source_columns
from tallbayes.data.response_functions import weight_columns
from tallbayes.data.sources import open_source
from tallbayes.errors import DataError, StoreError, unknown
from tallbayes.results.design_terms import DesignTerms
from tallbayes.results.group_predictions import NewGroups
from tallbayes.results.new_rows import columns_of, from_batch

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

BLOCK = 1 << 15  # rows at a time: 10 MB of a design of forty columns
CHECKED = 1000  # rows at which recovered columns must give the design again


class RawBlock(NamedTuple):
    """Some rows: design, offsets, weights, and columns by name; those of levels are positions among the levels."""

    x: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    columns: dict[str, np.ndarray]
    levels: np.ndarray | None = None  # with group effects, (rows, 2 x terms): level of the row and value of the term


class Spread(NamedTuple):
    """What steps along a column are measured by."""

    low: float
    high: float
    mean: float
    sd: float
    binary: bool


class RawColumns:
    """The rows of a fit, or of other data with the same columns: `blocks` yields them with the columns asked for."""

    def __init__(self, fit: Fit, data: Any = None) -> None:
        self.fit, self.design = fit, DesignTerms(fit)
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
        return bool(self.design.plan and self._weights(self.design.plan))

    def _weights(self, plan: dict[str, Any]) -> list[str]:
        """Columns whose product is the weight of a row of the source; none if it lacks one of them."""
        names = weight_columns(plan)
        return names if set(names) <= set(self._source.names) else []

    @property
    def _source(self) -> arrow.Source:
        assert self.source is not None
        return self.source

    def blocks(self, wanted: set[str]) -> Iterator[RawBlock]:
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
                    f"the rows in memory contain only the design matrix, from which {', '.join(missing)} cannot be recovered. Give data=, "
                    "a table or file with the columns of the formula."
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

    def _packed(self, wanted: set[str]) -> Iterator[RawBlock]:
        data = self.data
        assert data is not None
        groups = NewGroups(self.fit, "error") if self.grouped else None
        tables = {} if groups is None else groups.translated(data)
        for start in range(0, data.n, BLOCK):
            records = data.records[start : start + BLOCK].astype(float)
            x = records[:, : data.d]
            columns = self.design.recovered(x, wanted)
            assert columns is not None
            yield RawBlock(
                x,
                records[:, data.d + 1] if data.has_offset else None,
                records[:, data.d + 2] if data.has_weights else None,
                columns,
                self._levels(records, slice(start, start + BLOCK), tables) if tables else None,
            )

    @property
    def grouped(self) -> bool:
        """Whether the fit has group effects."""
        return bool(self.fit.meta["model"].get("groups"))

    def _levels(self, records: np.ndarray, part: slice, tables: dict[str, np.ndarray]) -> np.ndarray:
        assert self.data is not None
        own, out = {factor.name: factor for factor in self.data.groups}, []
        for name, table in tables.items():
            factor = own[name]
            for a in range(len(factor.terms)):
                out += [
                    table[factor.codes[part]],
                    np.ones(records.shape[0]) if factor.first < 0 else records[:, factor.first + a],
                ]
        return np.column_stack(out).astype(float)

    def _streamed(self, wanted: set[str]) -> Iterator[RawBlock]:
        if self.grouped:
            raise DataError(
                "with group effects, averages are taken over the rows of a Dataset and over columns of its design; give data= as a Dataset "
                "with the groups of the fit, and name only variables of the model."
            )
        source, plan = self._source, self.design.plan
        if plan is None:
            plan = {"columns": list(self.design.variables), "offset": None, "weights": None, "log_offset": False}
            plan["intercept"] = len(self.design.variables) < len(self.design.names)
            if self.fit.meta.get("has_offset"):
                raise DataError(
                    "the model was fitted to arrays with an offset, whose column has no name; give data= as a Dataset."
                )
        source = with_calendar(source, plan.get("calendar"))
        if plan.get("na") == "drop":
            source = complete_rows(source, [c for c in source_columns(plan) if c in source.names], "drop")
        extra = self._weights(plan)
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
                weights = np.prod([arrow.numbers(batch, c, first) for c in extra], axis=0) if extra else None
                yield RawBlock(x, offset, weights, {name: self._column(batch, name, first) for name in wanted})
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

            row = 0
            for batch in source.batches([name]):
                arrow.require_decodable(batch.column(name), name, row)
                row += batch.num_rows
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

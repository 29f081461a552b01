"""Dataset: n rows of a design matrix with response, offset and weight, packed, in memory or memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tallbayes.data import records as packed
from tallbayes.data.groups import GroupFactor, factors, fingerprint_of_factor, groupings, row_order
from tallbayes.data.moments import Moments, check_finite
from tallbayes.data.precision import require_kept
from tallbayes.errors import DataError
from tallbayes.notebook import facts_table, numbers_table
from tallbayes.validation import shown

CHUNK = packed.CHUNK


@dataclass(eq=False)
class Dataset:
    """n rows ready for sampling. Make one with `Dataset.from_arrays`, `Dataset.from_arrow` or `tallbayes.read`.

    >>> import numpy as np, tallbayes as tb
    >>> X = np.array([[1.0, 0.5], [1.0, -0.5], [1.0, 2.0]])
    >>> data = tb.Dataset.from_arrays(X, y=[0, 1, 1], columns=["one", "x"])
    >>> data
    Dataset(3 rows x 2 columns, response 'y', float64, in memory)
    >>> data.intercept
    0
    """

    records: np.ndarray
    columns: tuple[str, ...]
    response: str
    moments: Moments
    has_offset: bool = False
    has_weights: bool = False
    store: Path | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    _fingerprint: str | None = None
    groups: tuple[GroupFactor, ...] = ()
    order: np.ndarray | None = None  # with groups: the row given by the user that each record holds
    trials_place: int | None = None  # of the number of trials in a record, where it is not the weight
    room: Any = field(default=None, init=False, repr=False)  # memory with room for more rows: `data.append`
    complete_hashes: list[int] | None = field(default=None, init=False, repr=False)  # of chunks of records that are known

    partitions: ClassVar[Any] = None  # where the rows are, if they are not on this machine: `tallbayes.remote.Partitions`

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        offset: Any = None,
        weights: Any = None,
        columns: Sequence[str] | None = None,
        dtype: str | np.dtype = "float64",
        groups: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Pack a design matrix and a response held in memory. No intercept is added: put a column of ones in X for one.

        `weights` are powers of the likelihood of a row; `offset` is added to the linear predictor. `dtype="float32"` halves
        the memory; sums and differences are float64 either way. X may also be any object with `__arrow_c_stream__`
        (polars, pandas, pyarrow, duckdb), y then the name of one of its columns or an array.

        `groups={"shop": codes}` gives every level of a factor an intercept of its own; `groups={"shop": (codes, Z)}` the effects
        of the columns of Z, a matrix or names of columns of X with "1" for the intercept. Records are then sorted by the
        factor with most levels; `order` says which row each of them was.

        >>> import numpy as np, tallbayes as tb
        >>> data = tb.Dataset.from_arrays(np.ones((4, 1)), [0, 1, 1, 0], groups={"shop": ["b", "a", "b", "a"]})
        >>> data.order.tolist(), data.groups[0].labels.tolist()
        ([1, 3, 0, 2], ['a', 'b'])
        """
        if hasattr(X, "__arrow_c_stream__"):
            from tallbayes.data.arrow import dense_columns

            X, y, names = dense_columns(X, y, columns)
            columns = names if columns is None else columns
        X = _plain(X)
        if X.ndim == 1:
            X = X[:, None]
        if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] == 0:
            raise DataError(f"X must be a matrix of rows by columns with at least one of each; its shape is {X.shape}.")
        n, d = X.shape
        if X.dtype.kind not in "fiub":
            raise DataError(f"X has type {X.dtype}; convert it to numbers first (strings become indicator columns).")
        if columns is not None and (isinstance(columns, str | bytes) or not isinstance(columns, Iterable)):
            raise DataError(f"columns must be {d} different names, one for each column of X; got {shown(columns)}.")
        names = tuple(str(c) for c in columns) if columns is not None else tuple(f"x{j}" for j in range(d))
        if len(names) != d or len(set(names)) != d:
            raise DataError(f"columns must be {d} different names, one for each column of X; got {len(names)}: {names}.")
        given = {"y": y, "offset": offset, "weights": weights}
        vectors = {k: _vector(k, v, n) for k, v in given.items() if v is not None}
        kind = _float_type(dtype)
        made = () if groups is None else groupings(groups, X, names)
        order = row_order(made)[1] if made else None
        extra = [g.columns for g in made if g.columns is not None]
        terms = None if not extra else np.column_stack(extra)
        out = packed.empty(n, d + (0 if terms is None else terms.shape[1]), kind)
        packer = Packer(names, "y")
        for start in range(0, n, CHUNK):
            part = slice(start, min(n, start + CHUNK)) if order is None else order[start : start + CHUNK]
            parts = [vectors[k][part] if k in vectors else None for k in ("y", "offset", "weights")]
            chunk = out[start : start + CHUNK]
            packer.pack(chunk, np.asarray(X[part], np.float64), *parts)  # type: ignore[arg-type]
            if terms is not None:
                chunk[:, d + 3 : d + 3 + terms.shape[1]] = terms[part]
        require_kept(packer.moments, kind)
        grouped = () if order is None else factors(made, order, d + 3)
        return cls(out, names, "y", packer.moments, offset is not None, weights is not None, groups=grouped, order=order)

    @classmethod
    def from_arrow(cls, source: Any, response: str, **options: Any) -> Dataset:
        """Pack any object with `__arrow_c_stream__`; the options are those of `tallbayes.read`.

        >>> import pyarrow as pa, tallbayes as tb
        >>> table = pa.table({"clicks": [0, 1, 0], "age": [31.0, 45.0, 27.0]})
        >>> tb.Dataset.from_arrow(table, response="clicks").columns
        ('Intercept', 'age')
        """
        from tallbayes.data.read import read

        return read(source, response=response, **options)

    @property
    def elsewhere(self) -> Any:
        """Sums over rows that are not on this machine, an `engine.passes.Elsewhere`; None if they are."""
        return None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.records.shape[0]

    @property
    def d(self) -> int:
        """Number of columns of the design matrix."""
        return len(self.columns)

    @property
    def y(self) -> np.ndarray:
        """The response (a view)."""
        return self.records[:, self.d]

    @property
    def intercept(self) -> int | None:
        """Index of the column of ones, if there is one."""
        return self.column_of_ones(0, self.d)

    def column_of_ones(self, start: int, stop: int) -> int | None:
        """Index of the first column of ones from `start` up to `stop`."""
        m = self.moments
        ones = np.flatnonzero((m.low[start:stop] == 1.0) & (m.high[start:stop] == 1.0))
        return start + int(ones[0]) if ones.size else None

    @property
    def dropped(self) -> int:
        """Rows with missing values that were left out by `na="drop"`."""
        return int(self.recipe.get("dropped", 0))

    @property
    def fingerprint(self) -> str:
        """Hash of the whole content; computed once, at memory speed."""
        if self._fingerprint is None:
            self._fingerprint = packed.fingerprint(self.records, self.columns, self.response, self.complete_hashes)
            self._fingerprint += "".join(map(fingerprint_of_factor, self.groups))
        return self._fingerprint

    def trials(self, index: Any) -> np.ndarray:
        """Numbers of trials of some records of proportions: their weights, unless rows were read with `weights=` besides.

        >>> import pyarrow as pa, tallbayes as tb
        >>> rows = pa.table({"k": [1, 2], "m": [4, 5], "w": [2, 1]})
        >>> data = tb.read(rows, "p(k, m) ~ 1", weights="w", progress=False)
        >>> data.trials([0, 1]), data.total_weight
        (array([4., 5.]), 13.0)
        """
        return np.asarray(self.records[index, self.d + 2 if self.trials_place is None else self.trials_place], float)

    @property
    def total_weight(self) -> float:
        """Sum of the row weights: n if there are none."""
        return float(self.moments.mean[self.d + 2] * self.n)

    def __repr__(self) -> str:
        where = "in memory" if self.store is None else f"memory-mapped from {self.store}"
        kind = self.records.dtype.name
        levels = "".join(f", {f.levels:,} levels of {f.name}" for f in {f.name: f for f in self.groups}.values())
        return f"Dataset({self.n:,} rows x {self.d} columns{levels}, response {self.response!r}, {kind}, {where})"

    def _repr_html_(self) -> str:
        m = self.moments
        names = [*self.columns[:50], self.response]
        places = [*range(self.d)[:50], self.d]
        rows = [(name, *(float(v[k]) for v in (m.mean, m.sd, m.low, m.high))) for name, k in zip(names, places, strict=True)]
        more = f"and {self.d - 50} more columns" if self.d > 50 else ""
        facts = {
            "response": self.response,
            "offset": self.has_offset,
            "weights": self.has_weights,
            "records": self.records.dtype.name,
        }
        return facts_table(f"Dataset of {self.n:,} rows and {self.d} columns", facts) + numbers_table(
            ["", "mean", "sd", "smallest", "largest"], rows, more
        )


class Packer:
    """Checks and packs chunks of rows in order, and keeps their moments; without `check` it packs and counts them."""

    def __init__(
        self, columns: tuple[str, ...], response: str, offset: str = "offset", weights: str = "weights", check: bool = True
    ) -> None:
        self.check = check
        self.columns = columns
        self.names = (*columns, response, offset, weights)
        self.moments = Moments(self.names)

    def pack(
        self, out: np.ndarray, x: np.ndarray, y: np.ndarray, offset: np.ndarray | None, weights: np.ndarray | None
    ) -> None:
        """Pack one chunk."""
        first, k = self.moments.n, len(self.names)
        with np.errstate(over="ignore"):  # float32 overflow is named below
            packed.pack(out, x, y, offset, weights)
        if not self.check:
            self.moments.n += x.shape[0]
            return
        chunk = np.empty((x.shape[0], k), order="F")  # sums over columns are faster
        chunk[:, :-3] = x
        chunk[:, -3] = y
        chunk[:, -2] = 0.0 if offset is None else offset
        chunk[:, -1] = 1.0 if weights is None else weights
        check_finite(chunk, self.names, first)
        if not np.isfinite(out).all():
            check_finite(out[:, :k].astype(float), tuple(f"{c} (too large for float32)" for c in self.names), first)
        if weights is not None and (chunk[:, -1] < 0).any():
            row = int(np.argmax(chunk[:, -1] < 0))
            raise DataError(
                f"row {first + row}, column {self.names[-1]!r}: the weight is {chunk[row, -1]:g}; weights are powers of the "
                "likelihood, so >= 0."
            )
        self.moments.add(chunk)


def _plain(values: Any) -> np.ndarray:
    """An array; masked elements become NaN, so that they are refused like any missing value."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        return np.ma.filled(values.astype(float), np.nan)
    return np.asarray(values)


def _vector(name: str, values: Any, n: int) -> np.ndarray:
    array = _plain(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} has type {array.dtype}; convert it to numbers first.")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise DataError(f"{name} must have one number for each of the {n} rows; its shape is {array.shape}.")
    return array


def _float_type(dtype: str | np.dtype) -> np.dtype:
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, OverflowError, SyntaxError):
        raise DataError(f"rows are stored as float64 or float32, not {shown(dtype)}.") from None
    if kind not in (np.dtype("f8"), np.dtype("f4")):
        raise DataError(f"rows are stored as float64 or float32, not {kind}.")
    return kind

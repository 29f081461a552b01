"""The one type of rows that compiled code knows, those of models with groups aside, and the verbs through which everything sees them.

A row depends on theta through a short vector of indices u. Index k is x . theta_k plus the offset for a block of columns and of
coordinates, or a coordinate of theta itself. The family is a table of addresses (`tiles`), so the verbs are compiled once for all families.

Verbs on an index array serve subsampling; verbs on a range `[start, stop)` serve full passes. Gradients and Hessians are added to the
array given, so that a caller can accumulate. What verbs do is behind addresses: `index_verbs` and `range_verbs`, or `outside`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.compile import INLINED, SUMS, declared, generic, inlinable
from tallbayes.engine.further import COUNT, FIELDS, Further, further_of
from tallbayes.engine.indexed_rows import HEAD, TILE, layout_of, tiles_at
from tallbayes.engine.outside import (
    PROXY_VALUES,
    RANGE_GRADIENT,
    RANGE_HESSIAN,
    RANGE_VALUE,
    RESIDUAL_DIFFERENCES,
    ROW_VALUES,
    WEIGHTED_GRADIENT,
)
from tallbayes.engine.tiles import Tiles, tiles_of
from tallbayes.engine.verb_calls import on_index, on_points, on_range, without_table
from tallbayes.engine.verb_tables import index_table, outside_table
from tallbayes.pointers import held_by, kind_of, numbers_of

HERE, ELSEWHERE, NUMBERED = 0, 1, 2
OPEN = 1  # in `Rows.answers`: the number of sums that are asked for
ALLOWANCE = 32 * 2.220446049250313e-16  # rounding of a residual difference of order one


class Rows(NamedTuple):
    """Records of rows, how their indices follow from theta, and the family of their likelihood."""

    records: np.ndarray  # (n, width): x, y, offset, weight, padding
    columns: int
    indices: int  # K
    layout: np.ndarray  # how indices follow from theta, and addresses (`indexed_rows.layout_of`)
    p: np.ndarray  # numbers of the family
    verbs: int  # address of the addresses of verbs (`verb_tables`)
    outside: int  # address of the function of all verbs (`outside`), for likelihoods that have no tiles; 0 where there are
    n: int  # rows, here or elsewhere
    most: int  # expected candidate rows of a decision at which all rows are read instead
    place: int  # HERE; ELSEWHERE, a few records of n rows; NUMBERED, the same, and rows are known by their numbers in a stream
    numbers: np.ndarray  # of each record in its stream, ascending
    answers: np.ndarray  # FAILED, OPEN, and for rows elsewhere the thetas that are asked for and the sums that are known
    slopes: int  # numbers that describe the gradient of one row
    rounding: float  # how far rounding may take a residual difference beyond its bound
    lead: int = -1  # rows that start the recursion of a window (`windows`); -1 where rows are independent given theta
    conditioned: int = 0  # rows at the beginning without a likelihood: the others are conditioned on them

    def __reduce__(self) -> Any:
        """Addresses are those of a process: another one makes its own."""
        if self.outside:
            raise TypeError("rows of a likelihood outside cannot be pickled: send the model, and make its rows there.")
        fields = {name: getattr(self, name) for name in ("n", "most", "place", "numbers", "answers")}
        member = held_by(self.p)
        return _rows_again, (
            self.records,
            self.columns,
            self.layout[HEAD:],
            tiles_at(self.layout),
            self.p if member is None else member,
            fields,
        )


def _rows_again(
    records: np.ndarray, columns: int, blocks: np.ndarray, tiles: Tiles, numbers: Any, fields: dict[str, Any]
) -> Rows:
    p = numbers if isinstance(numbers, np.ndarray) else numbers_of(numbers)
    return _indexed(records, columns, blocks, tiles, p)._replace(**fields)


def rows_of(member: Any, records: np.ndarray, columns: int, blocks: list[tuple[int, int, int, bool]]) -> Rows:
    """Rows of a member of a family.

    `blocks` has of each index the first column, the columns, the first coordinate and whether the offset is added; without columns, the
    index is the coordinate.
    """
    places = np.array([[int(v) for v in block] for block in blocks], np.int64).reshape(-1)
    return _indexed(records, columns, places, tiles_of(kind_of(member), len(blocks) > 1), numbers_of(member))


def with_family(rows: Rows, member: Any) -> Rows:
    """The same rows with another likelihood of their indices."""
    tiles = tiles_of(kind_of(member), rows.indices > 1)
    return _indexed(rows.records, rows.columns, rows.layout[HEAD:], tiles, numbers_of(member))


def _indexed(records: np.ndarray, columns: int, blocks: np.ndarray, tiles: Tiles, p: np.ndarray) -> Rows:
    first, indices = int(blocks[COUNT]), blocks.size // FIELDS
    further = Further(0, 0) if indices == 1 and first > 0 else further_of(records.dtype.name)
    layout = layout_of(columns, blocks, tiles, further)
    return _here(records, columns, indices, layout, p, index_table(records.dtype.name), 0, indices, ALLOWANCE)


def outside_rows(
    records: np.ndarray, columns: int, p: np.ndarray, address: int, slopes: int, rounding: float = ALLOWANCE
) -> Rows:
    """Rows of a likelihood outside; `slopes` numbers describe the gradient of one row."""
    layout = layout_of(columns, np.zeros(0, np.int64), Tiles(0, 0, 0, 0, 0), Further(0, 0))
    return _here(records, columns, 0, layout, p, outside_table(address), address, slopes, rounding)


def _here(
    records: np.ndarray,
    columns: int,
    indices: int,
    layout: np.ndarray,
    p: np.ndarray,
    verbs: int,
    outside: int,
    slopes: int,
    rounding: float,
) -> Rows:
    n, nothing = records.shape[0], np.zeros(0, np.int64)
    return Rows(
        records,
        columns,
        indices,
        layout,
        p,
        verbs,
        outside,
        n,
        n,
        HERE,
        nothing,
        np.zeros(2),
        slopes,
        rounding,
    )


@inlinable
def with_records(rows: Rows, records: np.ndarray) -> Rows:
    """Rows of the same kind over other records, all of which are here."""
    return Rows(
        records,
        rows.columns,
        rows.indices,
        rows.layout,
        rows.p,
        rows.verbs,
        rows.outside,
        records.shape[0],
        rows.most,
        rows.place,
        rows.numbers,
        rows.answers,
        rows.slopes,
        rows.rounding,
        rows.lead,
        rows.conditioned,
    )


def one_index(member: Any, records: np.ndarray, columns: int) -> Rows:
    """Rows of a family of one index, of all columns."""
    return rows_of(member, records, columns, [(0, columns, 0, True)])


@generic(options={**SUMS, **INLINED})
@declared
def row_values(rows: Any, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """out[j] = weighted log-likelihood of row index[j]."""


@generic(options={**SUMS, **INLINED})
@declared
def weighted_gradient(rows: Any, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    """Sum of factors[j] l_{index[j]}(theta), its gradient added to `gradient`."""
    raise TypeError


@generic(options={**SUMS, **INLINED})
@declared
def residual_differences(
    rows: Any, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    """out[j] = rho(other) - rho(theta) of row index[j], rho the second-order Taylor residual at `reference`."""


@generic(options={**SUMS, **INLINED})
@declared
def proxy_values(rows: Any, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    """out[j] = Taylor expansion at `reference` to `order` 0, 1 or 2 of the weighted log-likelihood of row index[j]."""


@generic(options={**SUMS, **INLINED})
@declared
def range_value(rows: Any, start: int, stop: int, theta: np.ndarray) -> float:
    """Sum of l_i(theta) over a range of rows."""
    raise TypeError


@generic(options={**SUMS, **INLINED})
@declared
def range_gradient(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    """The same, with the gradient."""
    raise TypeError


@generic(options={**SUMS, **INLINED})
@declared
def range_hessian(rows: Any, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    """The same, with gradient and the lower triangle of the Hessian."""
    raise TypeError


@generic
def rows_at_once(rows: Any) -> int:
    """Rows of a full pass between two looks at whether it is to be given up: some hundredths of a second."""
    return max(1, (1 << 24) // (rows.records.shape[1] * TILE)) * TILE


@rows_at_once.register(Rows)
def _rows_at_once(rows: Rows) -> int:
    if rows.place != HERE or rows.lead >= 0:
        return rows.n
    return max(1, (1 << 24) // (rows.records.shape[1] * TILE)) * TILE


QUESTIONS = 2  # sums that an iteration may ask for: it compares two positions


def answers_of(dim: int, known: np.ndarray | None = None) -> np.ndarray:
    """The board of rows elsewhere: nothing failed, nothing asked, and rows of `known`: theta and the log-likelihood of all rows there."""
    first = 2 + QUESTIONS * dim
    return np.concatenate([np.zeros(first), np.zeros(0) if known is None else known.reshape(-1)])


@inlinable
def known_sum(rows: Any, theta: np.ndarray) -> float:
    """Log-likelihood of all n rows at theta where it is known; else it is asked for, and NaN."""
    d = theta.size
    at = 2 + QUESTIONS * d
    while at + d < rows.answers.size:
        same = True
        for j in range(d):
            same &= rows.answers[at + j] == theta[j]
        if same:
            return rows.answers[at + d]
        at += d + 1
    asked = int(rows.answers[OPEN])
    if asked < QUESTIONS:
        for j in range(d):
            rows.answers[2 + asked * d + j] = theta[j]
        rows.answers[OPEN] += 1.0
    return np.nan


@inlinable
def record_numbers(rows: Any, index: np.ndarray) -> np.ndarray:
    """Records of rows known by their numbers; one that is not here yet has any: what comes of it is void."""
    if rows.place != NUMBERED:
        return index
    out, last = np.empty(index.size, np.int64), rows.numbers.size - 1
    for j in range(index.size):
        out[j] = min(np.searchsorted(rows.numbers, index[j]), last)
    return out


@row_values.register(Rows)
def _row_values(rows: Rows, index: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    on_points(rows, ROW_VALUES, index, (theta, theta, theta), 0, theta, out)


@weighted_gradient.register(Rows)
def _weighted_gradient(rows: Rows, index: np.ndarray, factors: np.ndarray, theta: np.ndarray, gradient: np.ndarray) -> float:
    return on_index(rows, WEIGHTED_GRADIENT, index, theta, factors, gradient)


@residual_differences.register(Rows)
def _residual_differences(
    rows: Rows, index: np.ndarray, theta: np.ndarray, other: np.ndarray, reference: np.ndarray, out: np.ndarray
) -> None:
    on_points(rows, RESIDUAL_DIFFERENCES, index, (theta, other, reference), 2, theta, out)


@proxy_values.register(Rows)
def _proxy_values(rows: Rows, index: np.ndarray, theta: np.ndarray, reference: np.ndarray, order: int, out: np.ndarray) -> None:
    on_points(rows, PROXY_VALUES, index, (theta, theta, reference), order, theta, out)


@range_value.register(Rows)
def _range_value(rows: Rows, start: int, stop: int, theta: np.ndarray) -> float:
    if rows.place != HERE:
        return known_sum(rows, theta)
    return on_range(rows, RANGE_VALUE, start, stop, theta, theta, without_table(rows))


@range_gradient.register(Rows)
def _range_gradient(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray) -> float:
    return on_range(rows, RANGE_GRADIENT, start, stop, theta, gradient, without_table(rows))


@range_hessian.register(Rows)
def _range_hessian(rows: Rows, start: int, stop: int, theta: np.ndarray, gradient: np.ndarray, hessian: np.ndarray) -> float:
    return on_range(rows, RANGE_HESSIAN, start, stop, theta, gradient, hessian)

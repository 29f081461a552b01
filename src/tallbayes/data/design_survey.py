"""Pass one over the rows of a general formula: levels of its columns and states of its transforms, batch by batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.categories import CategoryOrder
from tallbayes.data.design import DesignMatrices, flat_column, level_positions, numbers_of
from tallbayes.data.factors import (
    evaluate,
    is_smooth,
    options,
    placeholder,
    reference_of,
    stateful_calls,
    transform_of,
    with_names,
)
from tallbayes.data.formula import Formula
from tallbayes.data.moments import check_finite
from tallbayes.data.smooths import SPLINES
from tallbayes.data.transform_state import MOST_LEVELS, SUMMARIES
from tallbayes.errors import DataError, unknown

MOST_COLUMNS = 20_000
_MOST_LEVEL = 2**53  # in size: a float holds no larger whole numbers exactly
FEWEST_IDENTIFIERS = 100  # levels from which a column that hardly repeats is refused


def survey(formula: Formula, batches: Iterable[Any], ordered: frozenset[str] = frozenset()) -> tuple[dict[str, Any], int]:
    """What `plan["design"]` holds, and the number of rows."""
    found = DesignSurvey(formula, ordered)
    for batch in batches:
        found.add(batch)
    return found.described(), found.n


class DesignSurvey:
    """Levels and states of one formula; `ordered` are the columns whose categories keep their order."""

    def __init__(self, formula: Formula, ordered: frozenset[str] = frozenset()) -> None:
        self.formula = formula
        self.categories = CategoryOrder(ordered & {formula.names[k] for k in level_positions(formula)})
        self.levels: dict[int, set[Any]] = {k: set() for k in level_positions(formula)}
        self.numbers = sorted({k for f in formula.factors for k in f.numbers})
        self.calls = {ast.unparse(c): c for f in formula.factors for c in stateful_calls(f.tree)}
        self.summaries = {}
        for text, call in self.calls.items():
            shown, name = with_names(text, formula.names), transform_of(call)
            self.summaries[text] = SUMMARIES[name](shown, options(call, shown), name)
        self.n = 0
        self.example: dict[str, float] = {}

    def add(self, batch: Any) -> None:
        """Merge a batch."""
        formula, n = self.formula, self.n
        if batch.num_rows == 0:
            return
        self.categories.see(batch)
        for k, values_of in self.levels.items():
            name = formula.names[k]
            values_of.update(_distinct(batch, name, n))
            if len(values_of) > MOST_LEVELS:
                raise DataError(
                    f"column {name!r} has more than {MOST_LEVELS:,} levels within the first {n + batch.num_rows:,} rows. Group "
                    f"rare levels together, use it as a number, leave it out, or write (1 | {name}) for group effects."
                )
        values = numbers_of(formula, self.numbers, batch, n)
        for text, call in self.calls.items():
            with np.errstate(all="ignore"):
                argument = np.asarray(evaluate(call.args[0], values), float)
            check_finite(argument[:, None], (with_names(ast.unparse(call.args[0]), formula.names),), n)
            self.summaries[text].add(argument)
        if n == 0:
            self.example = {formula.names[k]: float(values[placeholder(k)][0]) for k in self.numbers}
        self.n += batch.num_rows

    def described(self) -> dict[str, Any]:
        """What the second pass needs, in JSON types."""
        formula = self.formula
        if self.n == 0:
            raise DataError("the source has no rows.")
        ordered_levels = {
            formula.names[k]: _sort_levels(values_of, self.categories.of(formula.names[k]))
            for k, values_of in self.levels.items()
        }
        _check_references(formula, ordered_levels)
        _refuse_identifiers(ordered_levels, self.n)
        _refuse_wide(formula, ordered_levels)
        states = {with_names(text, formula.names, quoted=True): summary.state() for text, summary in self.summaries.items()}
        text_columns = [formula.names[f.level] for f in formula.factors if f.level is not None and _bare(f.tree)]
        described = {
            "formula": formula.text,
            "text": text_columns,
            "levels": ordered_levels,
            "states": states,
            "example": self.example,
        }
        plan = {"response": formula.response, "columns": list(formula.columns), "design": described}
        described["names"] = list(DesignMatrices(plan, formula).names)
        return described


def _bare(tree: ast.expr) -> bool:
    """Whether a column of levels stands without C around it."""
    return isinstance(tree, ast.Name) or (is_smooth(tree) and "C(" not in ast.unparse(tree))


def _distinct(batch: Any, name: str, first_row: int) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = flat_column(batch, name, first_row)
    if arrow.kind_of(column.type) == "level":
        return pc.unique(column).to_pylist()
    if pa.types.is_boolean(column.type) or pa.types.is_integer(column.type):
        found = pc.unique(column).to_pylist()
        if any(abs(int(v)) > _MOST_LEVEL for v in found):
            row = next(k for k, v in enumerate(column.to_pylist()) if abs(int(v)) > _MOST_LEVEL)
            raise DataError(
                f"row {first_row + row}, column {name!r} is {column[row].as_py()}: whole numbers beyond 2^53 are not told apart as levels. "
                "Convert the column to text."
            )
        return found
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    check_finite(values[:, None], (name,), first_row)
    return np.unique(values).tolist()


def _sort_levels(levels: set[Any], categories: Any) -> list[Any]:
    """Levels in the order of their values; text in the order of its categories, if they have one."""
    if categories is not None and all(isinstance(v, str) for v in levels):
        return [v for v in categories.to_pylist() if v in levels]
    if all(isinstance(v, float) and v.is_integer() and abs(v) < 2**53 for v in levels):
        levels = {int(v) for v in levels}
    return sorted(levels)


def _check_references(formula: Formula, levels: dict[str, list[Any]]) -> None:
    """Refuse a reference level that is not in the rows."""
    for f in formula.factors:
        reference = reference_of(f.tree)
        if f.level is not None and reference is not None:
            own = levels[formula.names[f.level]]
            if reference not in own:
                raise DataError(f"{f.text!r}: {unknown('level', reference, [str(v) for v in own[:50]])}")


def _refuse_identifiers(levels: dict[str, list[Any]], n: int) -> None:
    """A column whose values hardly repeat names rows, not groups: it would make as many coefficients as there are rows."""
    for name, values in levels.items():
        if len(values) >= FEWEST_IDENTIFIERS and 2 * len(values) > n:
            raise DataError(
                f"column {name!r} has {len(values):,} levels in {n:,} rows: it identifies rows rather than groups. Leave it out "
                f"of the formula (`.` takes all columns; `. - {name}` all but this one), or group its levels."
            )


def _refuse_wide(formula: Formula, levels: dict[str, list[Any]]) -> None:
    total = 0
    for term in formula.terms:
        width = 1
        for f in term:
            if f.level is not None:
                width *= len(levels[formula.names[f.level]])
            if isinstance(f.tree, ast.Call) and is_smooth(f.tree):
                width *= options(f.tree, f.text).get("k", SPLINES) - 1
            elif isinstance(f.tree, ast.Call) and transform_of(f.tree) in ("bs", "cr", "poly"):
                given = options(f.tree, f.text)
                width *= given.get(
                    "df", given.get("degree", 1 if transform_of(f.tree) == "poly" else 3 + len(given.get("knots", [])))
                )
        total += width
        if total > MOST_COLUMNS:
            raise DataError(
                f"the formula makes more than {MOST_COLUMNS:,} columns, most of them from {':'.join(x.text for x in term)!r}. "
                "Group levels together or leave the interaction out."
            )

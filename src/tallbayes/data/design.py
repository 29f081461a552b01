"""Design matrices of general formulas, chunk by chunk, with formulaic.

Pass one (`design_survey`) gathers levels and the states of transforms; the result is plain JSON under `plan["design"]`. Pass two, and
prediction, build a formulaic ModelSpec from that JSON and apply it to batches: the columns are those that formulaic would
make of all rows at once. Text from a file is checked against the whitelist before formulaic sees it.
"""

from __future__ import annotations

import ast
import math
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.calendar_columns import calendar_batch
from tallbayes.data.factors import (
    ELEMENTWISE,
    evaluate,
    is_smooth,
    options,
    placeholder,
    reference_of,
    smooth_term,
    stateful_calls,
    transform_of,
    with_names,
)
from tallbayes.data.formula import Factor, Formula, parse
from tallbayes.data.moments import check_finite
from tallbayes.data.smooths import SPLINES, smooth_columns, smooth_names
from tallbayes.data.transform_state import MOST_LEVELS
from tallbayes.errors import DataError, StoreError, TallbayesError

CELLS = 1 << 23  # of a matrix at a time: 64 MB

_STATES: dict[str, tuple[str, ...]] = {
    "scale": ("ddof", "center", "scale"),
    "center": ("ddof", "center", "scale"),
    "poly": ("alpha", "norms2"),
    "bs": ("lower_bound", "upper_bound", "knots"),
    "cr": ("lower_bound", "upper_bound", "knots", "constraints"),
    "s": ("lower_bound", "upper_bound", "transform", "means"),
}


def design(plan: dict[str, Any], batch: Any, first_row: int = 0) -> np.ndarray:
    """The columns of a data set for new rows: `plan` is `data.recipe["plan"]`, `batch` an Arrow batch or table.

    A level that was not there when the data were read, or a value outside the range of a spline, is an error.

    >>> import pyarrow as pa, tallbayes as tb
    >>> table = pa.table({"y": [0.0, 1.0, 2.0], "g": ["b", "a", "b"], "x": [1.0, 2.0, 3.0]})
    >>> data = tb.read(table, "y ~ g + center(x)", progress=False)
    >>> data.columns
    ('Intercept', 'g[T.b]', 'center(x)')
    >>> design(data.recipe["plan"], pa.table({"g": ["a"], "x": [7.0]}))
    array([[1., 0., 5.]])
    """
    batch = calendar_batch(batch, plan.get("calendar"))
    if "second" in plan:
        own = {"response": plan["response"], **plan["second"]}
        first = design({k: v for k, v in plan.items() if k not in ("second", "calendar")}, batch, first_row)
        return np.column_stack([first, design(own, batch, first_row)])
    if "design" in plan:
        return DesignMatrices(plan).matrix(batch, first_row)
    missing = [c for c in plan["columns"] if c not in batch.schema.names]
    if missing:
        raise DataError(f"there is no column {missing[0]!r}; the columns are {', '.join(batch.schema.names)}.")
    return plain_matrix(plan, batch, first_row)


def plain_matrix(plan: dict[str, Any], batch: Any, first_row: int, order: Literal["C", "F"] = "C") -> np.ndarray:
    """The design matrix of a plan without transforms: numeric columns as they are, after a column of ones."""
    x = np.empty((batch.num_rows, len(plan["columns"]) + bool(plan["intercept"])), order=order)
    x[:, : int(plan["intercept"])] = 1.0
    for j, c in enumerate(plan["columns"], start=int(plan["intercept"])):
        x[:, j] = arrow.numbers(batch, c, first_row)
    return x


class DesignMatrices:
    """The second pass: design matrices of batches from the JSON of a plan."""

    def __init__(self, plan: dict[str, Any], formula: Formula | None = None) -> None:
        described = plan["design"]
        try:
            if formula is None:
                formula = _parse_plan(plan)
            self.formula = formula
            self.numbers = sorted({k for f in formula.factors for k in f.numbers})
            self.levels = {k: _check_levels(described["levels"][formula.names[k]]) for k in level_positions(formula)}
            self.calls = {ast.unparse(c): c for f in formula.factors for c in stateful_calls(f.tree)}
            self.states = {}
            for text, call in self.calls.items():
                state = described["states"][with_names(text, formula.names, quoted=True)]
                self.states[text] = _check_state(transform_of(call), options(call, text), state)
            example = {k: float(described["example"][formula.names[k]]) for k in self.numbers}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, TallbayesError) and not isinstance(error, DataError):
                raise
            raise StoreError(
                f"the description of the columns is damaged or not allowed ({error}). Read the source again."
            ) from error
        self._build(example)
        if described.get("names", list(self.names)) != list(self.names):
            raise StoreError("the description of the columns does not give the columns it names. Read the source again.")

    def _build(self, example: dict[int, float]) -> None:
        import pandas as pd
        from formulaic import ModelSpec
        from formulaic.formula import SimpleFormula
        from formulaic.parser.types import Factor as FormulaicFactor
        from formulaic.parser.types import Term
        from formulaic.transforms import stateful_transform
        from formulaic.utils.code import format_expr

        self.smooth = stateful_transform(smooth_columns)
        self.types = {k: pd.CategoricalDtype(values) for k, values in self.levels.items()}

        def factor(part: Factor) -> Any:
            if is_smooth(part.tree):
                return FormulaicFactor(ast.unparse(_with_levels(part.tree)), eval_method="python")
            if part.level is None:
                method = "lookup" if isinstance(part.tree, ast.Name) else "python"
                return FormulaicFactor(ast.unparse(part.tree), eval_method=method)
            name = _level_name(part.level)
            if isinstance(part.tree, ast.Name):
                return FormulaicFactor(name, eval_method="lookup")
            reference = reference_of(part.tree)
            if reference is None:
                return FormulaicFactor(f"C({name})", eval_method="python")
            if reference not in self.levels[part.level]:
                raise StoreError(
                    "the description of the columns has a reference level that is not among its levels. Read the source again."
                )
            return FormulaicFactor(f"C({name}, contr.treatment({reference!r}))", eval_method="python")

        terms = [
            Term([factor(f) for f in term] if term else [FormulaicFactor("1", eval_method="literal")])
            for term in self.formula.terms
        ]
        states = {format_expr(_with_levels(self.calls[text])): _formulaic_state(state) for text, state in self.states.items()}
        spec = ModelSpec(SimpleFormula(terms), na_action="ignore", output="numpy", transform_state=states)
        values = {placeholder(k): np.array([v]) for k, v in example.items()}
        self.spec = self._materialise(spec, self._frame(values, {k: np.zeros(1, int) for k in self.levels}, 1)).model_spec
        self.names = tuple(
            name
            for term, part in zip(self.formula.terms, self.spec.structure, strict=True)
            for name in self._term_names(term, part.columns)
        )
        if not self.names:
            raise DataError("the formula leaves no predictor: every column of it is constant.")

    def _term_names(self, term: tuple[Factor, ...], columns: list[str]) -> list[str]:
        if term and is_smooth(term[0].tree):
            tree, level = term[0].tree, term[0].level
            assert isinstance(tree, ast.Call)
            count = options(tree, "").get("k", SPLINES) - 2
            return [*smooth_names(smooth_term(tree, self.formula.names), count, None if level is None else self.levels[level])]
        return [with_names(c.replace("contr.treatment(", "Treatment("), self.formula.names) for c in columns]

    def _frame(self, values: dict[str, np.ndarray], codes: dict[int, np.ndarray], m: int) -> Any:
        import pandas as pd

        columns: dict[str, Any] = dict(values)
        for k, code in codes.items():
            columns[_level_name(k)] = pd.Categorical.from_codes(code, dtype=self.types[k])
        return pd.DataFrame(columns, index=pd.RangeIndex(m))

    def _materialise(self, spec: Any, frame: Any) -> Any:
        context = {name: function for name, function in ELEMENTWISE.items() if name != "I"} | {"s": self.smooth}
        try:
            with np.errstate(all="ignore"):  # what is not finite is named by its row afterwards
                return spec.get_model_matrix(frame, context=context)
        except Exception as error:
            raise DataError(f"the formula {self.formula.text!r} cannot be computed: {error}") from error

    def matrix(self, batch: Any, first_row: int = 0) -> np.ndarray:
        """The design matrix of a batch, whose first row has the given number."""
        missing = [c for c in self.formula.columns if c not in batch.schema.names]
        if missing:
            raise DataError(f"there is no column {missing[0]!r}; the columns are {', '.join(batch.schema.names)}.")
        if batch.num_rows == 0:
            return np.empty((0, len(self.names)))
        values = numbers_of(self.formula, self.numbers, batch, first_row)
        self._refuse_outside(values, first_row)
        codes = {k: _codes(batch, self.formula.names[k], known, first_row) for k, known in self.levels.items()}
        out = np.asarray(self._materialise(self.spec, self._frame(values, codes, batch.num_rows)), float)
        check_finite(out, self.names, first_row)
        return out

    def _refuse_outside(self, values: dict[str, np.ndarray], first_row: int) -> None:
        for text, call in self.calls.items():
            if transform_of(call) not in ("bs", "s"):
                continue
            state = self.states[text]
            with np.errstate(all="ignore"):
                argument = np.asarray(evaluate(call.args[0], values), float)
            outside = ~((argument >= state["lower_bound"]) & (argument <= state["upper_bound"]))
            if outside.any():
                row = int(np.argmax(outside))
                column = with_names(ast.unparse(call.args[0]), self.formula.names)
                raise DataError(
                    f"row {first_row + row}, column {column!r} is {argument[row]:g}, outside the range of the spline "
                    f"{with_names(text, self.formula.names)}, {state['lower_bound']:g} to {state['upper_bound']:g}. Leave such "
                    f"rows out, or {'fit rows with such values' if is_smooth(call) else 'fit with lower_bound= and upper_bound='}."
                )

    @property
    def rows_at_a_time(self) -> int:
        """Rows of a batch that keep the matrix below 64 MB."""
        return max(64, CELLS // max(1, len(self.names)))


def _with_levels(call: ast.expr) -> ast.expr:
    """The call of a smooth as formulaic is to see it: by= a column of levels."""
    if not is_smooth(call):
        return call
    given = options(call, "")  # type: ignore[arg-type]
    by = [ast.keyword("by", ast.Name(_level_name(given["by"]), ast.Load()))] if "by" in given else []
    count = ast.keyword("k", ast.Constant(given.get("k", SPLINES)))
    return ast.Call(ast.Name("s", ast.Load()), [call.args[0]], [count, *by])  # type: ignore[attr-defined]


def _level_name(k: int) -> str:
    return f"_level_{k}_"


def level_positions(formula: Formula) -> list[int]:
    """Positions of the columns used as levels."""
    return sorted({f.level for f in formula.factors if f.level is not None})


def _parse_plan(plan: dict[str, Any]) -> Formula:
    """The formula of a plan that comes out of a file."""
    described = plan["design"]
    available = (*(str(c) for c in plan["columns"]), str(plan["response"]))
    text = described["formula"]
    if not isinstance(text, str) or "~" in text:
        raise StoreError("the description of the columns is damaged: its formula is not text.")
    return parse(f"`{plan['response']}` ~ {text}", available, [str(c) for c in described["text"]])


def numbers_of(formula: Formula, numbers: list[int], batch: Any, first_row: int) -> dict[str, np.ndarray]:
    """The columns of a batch that are used as numbers, by placeholder."""
    out = {}
    for k in numbers:
        name = formula.names[k]
        out[placeholder(k)] = values = arrow.numbers(batch, name, first_row)
        check_finite(values[:, None], (name,), first_row)
    return out


def flat_column(batch: Any, name: str, first_row: int) -> Any:
    """A column to be used as levels: without dictionary, refusing what is missing or no level."""
    import pyarrow as pa

    column = batch.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.kind_of(column.type) == "other":
        raise DataError(f"column {name!r} has type {column.type}, neither numbers nor text. Leave it out or convert it.")
    if arrow.kind_of(column.type) == "level":
        arrow.require_decodable(column, name, first_row)
    if column.null_count:
        row = first_row + arrow.missing_row(column)
        raise DataError(f"row {row}, column {name!r} is missing. Drop or impute such rows before fitting.")
    return column


def _codes(batch: Any, name: str, levels: list[Any], first_row: int) -> np.ndarray:
    """Position of every row's level; a level that is not among them is an error."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = flat_column(batch, name, first_row)
    text = arrow.kind_of(column.type) == "level"
    if text != isinstance(levels[0], str):
        raise DataError(f"column {name!r} has type {column.type}, but its levels are such as {levels[0]!r}; convert it.")
    if text:
        position = pc.index_in(column.cast(pa.string()), value_set=pa.array(levels, pa.string()))
        codes = pc.fill_null(position, -1).to_numpy(zero_copy_only=False)
    else:
        values = arrow.numbers(pa.record_batch([column], [name]), name, first_row)
        known = np.asarray(levels, float)
        codes = np.minimum(np.searchsorted(known, values), known.size - 1)
        codes = np.where(known[codes] == values, codes, -1)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise DataError(
            f"row {first_row + row}, column {name!r} is {column[row].as_py()!r}, which is not among its {len(levels):,} levels "
            "when the data were read. Leave such rows out, or read data that hold this level."
        )
    return codes


def _check_levels(values: Any) -> list[Any]:
    if not isinstance(values, list) or not values or len(values) > MOST_LEVELS:
        raise ValueError("levels are no list")
    if not (all(isinstance(v, str) for v in values) or all(isinstance(v, int | float) for v in values)):
        raise ValueError("levels are neither all text nor all numbers")
    text = isinstance(values[0], str)
    if len(set(values)) < len(values) or (not text and any(not a < b for a, b in pairwise(values))):
        raise ValueError("levels are not in order")
    return values


def _check_state(name: str, given: dict[str, Any], state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or set(state) != set(_STATES[name]):
        raise ValueError(f"the state of {name} needs {', '.join(_STATES[name])}")
    for value in state.values():
        for number in np.ravel(value).tolist() if isinstance(value, list) else [value]:
            if number is not None and (
                isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number)
            ):
                raise ValueError(f"the state of {name} holds {number!r}")
    degree = given.get("degree", 1)
    if name == "poly" and (len(state["alpha"]) != degree or len(state["norms2"]) != degree + 1 or min(state["norms2"]) <= 0):
        raise ValueError("the state of poly does not fit its degree")
    if name == "cr" and np.shape(state["constraints"]) != (1, len(state["knots"])):
        raise ValueError("the state of cr does not fit its knots")
    if name == "s":
        count = given.get("k", SPLINES)
        fits = np.shape(state["transform"]) == (count, count - 2) and len(state["means"]) == count - 2
        if not fits or not state["lower_bound"] < state["upper_bound"]:
            raise ValueError("the state of s does not fit its splines")
    if name in ("bs", "cr") and (not state["lower_bound"] < state["upper_bound"] or not isinstance(state["knots"], list)):
        raise ValueError("the state of bs has no range")
    return state


def _formulaic_state(state: dict[str, Any]) -> dict[str, Any]:
    if "alpha" in state:
        return {"alpha": dict(enumerate(state["alpha"])), "norms2": dict(enumerate(state["norms2"]))}
    if "constraints" in state:
        return {**state, "constraints": np.asarray(state["constraints"], float), "cyclic": False}
    return dict(state)

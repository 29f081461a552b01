"""Second linear predictors: `zi="~ z"` of zero-inflated counts, `sigma="~ x"` of a standard deviation.

Their columns follow those of the formula, under names that begin with what they predict: `zi_Intercept`, `zi_z`. `plan["second"]` has the
name, the formula as it was given, and what a plan has of columns. An offset belongs to the first predictor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallbayes.data import arrow
from tallbayes.data.dataset import Dataset
from tallbayes.data.design import DesignMatrices, plain_matrix
from tallbayes.data.design_survey import survey
from tallbayes.data.formula import Formula, parse
from tallbayes.data.group_rows import counted_batches
from tallbayes.errors import DataError, OptionError

NAMES = ("zi", "sigma")


def require_one(given: dict[str, str | None]) -> tuple[str, str] | None:
    """Name and formula of the second predictor; None if there is none.

    >>> require_one({"zi": "~ z", "sigma": None})
    ('zi', '~ z')
    """
    found = [(name, text) for name, text in given.items() if text is not None]
    if len(found) > 1:
        raise OptionError(f"a model has one second predictor; give {found[0][0]}= or {found[1][0]}=, not both.")
    if not found:
        return None
    name, text = found[0]
    if not isinstance(text, str) or text.count("~") != 1 or text.partition("~")[0].strip():
        raise OptionError(f"{name}= is a formula without a response, such as '~ x' or '~ 1'; got {text!r}.")
    return name, " ".join(text.split())


def plan_second(rows: arrow.Source, plan: dict[str, Any], name: str, text: str) -> tuple[dict[str, Any], Formula | None]:
    """The entry of a plan for a second predictor, and its formula if it takes a pass to learn its columns."""
    response = plan["response"]
    levels = {c for c, kind in zip(rows.names, rows.types, strict=True) if arrow.kind_of(kind) == "level"} - set(rows.doubtful)
    reserved = tuple(c for c in (plan["offset"], plan["weights"]) if c is not None)
    formula = parse(f"`{response}` {text}", rows.names, levels, reserved)
    if formula.groups:
        raise DataError(f"{name}={text!r}: group effects are not available in a second predictor; use C(...) for few levels.")
    for factor in formula.factors:
        for k in factor.numbers:
            if formula.names[k] in rows.doubtful:
                raise DataError(rows.doubtful[formula.names[k]])
    entry = {"name": name, "formula": text, "columns": list(formula.columns), "intercept": formula.intercept}
    arrow.refuse_ambiguous(rows.names, formula.columns)
    if formula.plain:
        return entry, None
    return {**entry, "design": {"formula": formula.text}}, formula


def learn_second(rows: arrow.Source, plan: dict[str, Any], formula: Formula, progress: bool) -> dict[str, Any]:
    """The plan with levels and states of the second predictor: a pass over its columns."""
    with counted_batches(rows, list(formula.columns), "levels and ranges", progress) as batches:
        described, _ = survey(formula, batches, rows.ordered)
    return {**plan, "second": {**plan["second"], "design": described}}


def second_plan(plan: dict[str, Any]) -> dict[str, Any] | None:
    """The second predictor of a plan as a plan of its own."""
    return None if "second" not in plan else {"response": plan["response"], **plan["second"]}


def second_names(plan: dict[str, Any]) -> tuple[str, ...]:
    """Names of the columns of the second predictor of a plan.

    >>> second_names({"second": {"name": "zi", "columns": ["z"], "intercept": True}})
    ('zi_Intercept', 'zi_z')
    """
    if "second" not in plan:
        return ()
    own = plan["second"]
    names = own["design"]["names"] if "design" in own else [*(["Intercept"] if own["intercept"] else []), *own["columns"]]
    return tuple(f"{own['name']}_{name}" for name in names)


def second_matrix(plan: dict[str, Any]) -> Callable[[Any, int], np.ndarray] | None:
    """The function that makes the columns of the second predictor from a batch; None if a plan has none."""
    own = second_plan(plan)
    if own is None:
        return None
    if "design" in own:
        return DesignMatrices(own).matrix
    return lambda batch, first: plain_matrix(own, batch, first)


def second_columns(data: Any, name: str, given: str | Sequence[str] | None) -> list[str]:
    """Names of the columns of a second predictor among those of a data set: the last ones.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((3, 2)), [0, 1, 2], columns=["Intercept", "zi_Intercept"])
    >>> second_columns(data, "zi", None)
    ['zi_Intercept']
    """
    if not isinstance(data, Dataset):
        raise DataError(
            f"a model needs a Dataset, not a {type(data).__name__}; use tallbayes.read(path, formula, {name}='~ 1')."
        )
    plan = data.recipe.get("plan") or {}
    remedy = f"read the rows with {name}='~ 1' or another formula, or put columns with names such as {name}_Intercept after the others"
    if isinstance(given, str):
        read = plan.get("second", {})
        if (read.get("name"), read.get("formula")) != (name, " ".join(given.split())):
            raise OptionError(f"{name}={given!r} is not the formula that the rows were read with; {remedy}.")
        return list(second_names(plan))
    if given is not None:
        if not isinstance(given, list | tuple):
            raise OptionError(f"{name}= is a formula such as '~ x', or names of the last columns; got {given!r}.")
        names = [str(c) for c in given]
        if not names or tuple(names) != data.columns[len(data.columns) - len(names) :]:
            raise OptionError(
                f"{name}= names the last columns of the rows, {', '.join(data.columns)}; got {', '.join(names) or 'none'}."
            )
    elif plan.get("second", {}).get("name") == name:
        names = list(second_names(plan))
    else:
        names = [c for c in data.columns if c.startswith(f"{name}_")]
        if not names or tuple(names) != data.columns[len(data.columns) - len(names) :]:
            raise OptionError(f"the rows have no columns of the predictor {name} after the others; {remedy}.")
    if len(names) == len(data.columns):
        raise OptionError(f"all columns are those of {name}; the first predictor needs at least one, such as an intercept.")
    return names

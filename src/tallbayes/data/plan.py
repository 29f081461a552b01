"""Plans: which columns of a source become predictors, response, offset and weights. A plan is kept with the rows, as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tallbayes.data import arrow
from tallbayes.data.calendar_columns import name_calls
from tallbayes.data.dataset import Dataset
from tallbayes.data.formula import Formula, parse
from tallbayes.data.group_rows import describe_term, described_text, effect_count, group_columns, parse_groups
from tallbayes.data.response_functions import (
    described_response,
    keeps_trials,
    response_function,
    second_column,
    weight_columns,
)
from tallbayes.data.second_predictor import second_names
from tallbayes.errors import DataError, OptionError, unknown

_LONGEST_FORMULA = 10_000


def make_plan(
    rows: arrow.Source,
    formula: str | None,
    response: str | None,
    columns: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    na: str = "error",
    calendar: dict[str, list[str]] | None = None,
) -> tuple[dict[str, Any], Formula | None]:
    """Which columns of a source are read as what, in JSON types; and the formula, if it takes a pass to learn columns or levels."""
    log_offset, general, special = False, None, response_function(formula)
    formula, offset = cut_offset(formula if special is None else special.formula, offset)
    kinds = dict(zip(rows.names, map(arrow.kind_of, rows.types), strict=True))
    if offset is not None:
        match = re.fullmatch(r"\s*log\((.+)\)\s*", offset)
        if match and offset not in rows.names:
            offset, log_offset = match[1].strip().strip("`"), True
    second = None if special is None else special.second
    named = ("offset column", offset), ("weights column", weights), ("response column", response), ("column", second)
    for what, name in named:
        if name is not None and name not in rows.names:
            raise DataError(str(unknown(what, name, rows.names)))
    reserved = tuple(c for c in (offset, weights, second) if c is not None)
    if formula is not None:
        if response is not None or columns is not None:
            raise OptionError("give either a formula or response= and columns=, not both.")
        if not isinstance(formula, str) or len(formula) > _LONGEST_FORMULA:
            raise DataError(f"a formula is a text of at most {_LONGEST_FORMULA:,} characters.")
        terms = parse(formula, rows.names, {c for c in rows.names if kinds[c] == "level" and c not in rows.doubtful}, reserved)
        response, predictors, intercept = terms.response, list(terms.columns), terms.intercept
        general = terms
    elif response is None:
        raise OptionError("say what to model: a formula such as 'y ~ .', or response='y'.")
    else:
        predictors = [c for c in rows.names if c != response and c not in reserved] if columns is None else list(columns)
        for name in predictors:
            if name not in rows.names:
                raise DataError(str(unknown("column", name, rows.names)))
        if response in predictors:
            raise DataError(f"the response {response!r} is also among columns=.")
        intercept = True
    plan: dict[str, Any] = {
        "response": response,
        "columns": predictors,
        "intercept": intercept,
        "offset": offset,
        "log_offset": log_offset,
        "weights": weights,
    }
    if special is not None:
        plan["response_function"] = {"name": special.name, "second": special.second}
    if calendar:
        plan["calendar"] = calendar
    if na != "error":
        plan["na"] = na
    if general is not None and general.groups:
        plan["groups"] = [describe_term(term) for term in general.groups]
    arrow.refuse_ambiguous(rows.names, source_columns(plan))
    _refuse_doubtful(rows, plan, general)
    if general is not None and not general.plain:
        plan["design"] = {"formula": general.text}
        return plan, general
    refuse_double(plan_names(plan))
    return plan, general if "groups" in plan else None


def cut_offset(formula: str | None, offset: str | None) -> tuple[str | None, str | None]:
    """The formula without its term offset(...), and the offset.

    >>> cut_offset("claims ~ age + offset(log(exposure))", None)
    ('claims ~ age', 'log(exposure)')
    """
    if not isinstance(formula, str):
        return formula, offset
    found = [m for m in re.finditer(r"`[^`]*`|\boffset\s*\(", formula) if m[0][0] != "`"]
    if not found:
        return formula, offset
    if len(found) > 1 or offset is not None:
        raise DataError(
            f"there are two offsets, in the formula {formula!r}{' and in offset=' * (offset is not None)}; give one."
        )
    start, end = found[0].start(), found[0].end()
    depth = 1
    while depth and end < len(formula):
        depth += {"(": 1, ")": -1}.get(formula[end], 0)
        end += 1
    before, after = formula[:start].rstrip(), formula[end:].strip()
    if depth or before[-1:] not in ("+", "~") or after[:1] not in ("", "+", "-"):
        raise DataError(
            f"'offset' in the formula {formula!r}: an offset is added with +, such as y ~ x + offset(log(exposure))."
        )
    inner = formula[found[0].end() : end - 1].strip()
    if not re.fullmatch(r"(log\s*\()?\s*(`[^`]+`|[^\W\d][\w.]*)\s*\)?", inner):
        raise DataError(f"offset({inner}) is neither a column nor log(column); compute it as a column first.")
    rest = f"{before.rstrip('+').rstrip()} {after.removeprefix('+').strip() if before.endswith('~') else after}".strip()
    return (rest + " 1" if rest.endswith("~") else rest), inner.strip("`")


def _refuse_doubtful(rows: arrow.Source, plan: dict[str, Any], formula: Formula | None) -> None:
    """Refuse text that looks like numbers where it was not said that it is levels."""
    factors = [] if formula is None else [*formula.factors, *(f for term in formula.groups for f in term.effects.factors)]
    numbers = {formula.names[k] for f in factors if formula for k in f.numbers}
    direct = {
        plan["response"],
        second_column(plan),
        plan["offset"],
        plan["weights"],
        *(() if formula is not None else plan["columns"]),
    }
    for name in source_columns(plan):
        if name in rows.doubtful and name in numbers | direct:
            raise DataError(rows.doubtful[name])


def plan_names(plan: dict[str, Any]) -> tuple[str, ...]:
    """Names of the columns that a plan makes."""
    own = plan["design"]["names"] if "design" in plan else ((*(("Intercept",) if plan["intercept"] else ()), *plan["columns"]))
    return (*own, *second_names(plan))


def source_columns(plan: dict[str, Any]) -> list[str]:
    """All columns that are read."""
    wanted = (*plan["columns"], plan["response"], second_column(plan), plan["offset"], plan["weights"], *group_columns(plan))
    wanted = (*wanted, *plan.get("second", {}).get("columns", ()))
    return list(dict.fromkeys(c for c in wanted if c is not None))


def row_flags(plan: dict[str, Any]) -> tuple[bool, bool]:
    """Whether rows have an offset, and weights other than one."""
    return plan["offset"] is not None, bool(weight_columns(plan))


def extra_columns(plan: dict[str, Any]) -> int:
    """Numbers of a record behind its weight: terms of groups, then the number of trials if it is not the weight."""
    return effect_count(plan) + keeps_trials(plan)


def trials_place(plan: dict[str, Any]) -> int | None:
    """Where records have the number of trials; None if it is their weight, or if there is none."""
    return len(plan_names(plan)) + 3 + effect_count(plan) if keeps_trials(plan) else None


def refuse_double(names: tuple[str, ...]) -> None:
    """No two predictors may have one name."""
    for name in names:
        if names.count(name) > 1:
            hint = "; 'Intercept' is the name of the column of ones, which a formula leaves out with + 0" * (
                name == "Intercept"
            )
            raise DataError(f"two predictors are called {name!r}{hint}.")


def check_store(
    data: Dataset,
    formula: str | None,
    response: str | None,
    columns: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    second: tuple[str, str] | None = None,
) -> None:
    """A packed store holds one design: refuse to read another one from it."""
    plan = data.recipe.get("plan", {})
    plain = tuple(c for c in data.columns[: data.d - len(second_names(plan))] if c != "Intercept")
    special = response_function(formula)
    formula, offset = cut_offset(formula if special is None else special.formula, offset)
    formula = formula if formula is None else name_calls(formula, plan.get("calendar", {}))
    asked: dict[str, Any] = {}
    held = {
        "response": described_response(plan, data.response),
        "columns": set(plain),
        "intercept": "Intercept" in data.columns,
    }
    design = plan.get("design")
    if formula is not None:
        known, levels = (plain, ()) if design is None else (plan["columns"], design["text"])
        terms = parse_groups(formula, {"response": data.response, **plan}, known, levels)
        call = {} if special is None else {"response_function": {"name": special.name, "second": special.second}}
        asked["response"] = described_response(call, terms.response)
        asked["group terms"] = [term.text for term in terms.groups]
        held["group terms"] = [described_text(term) for term in plan.get("groups", ())]
        if design is None and terms.plain:
            asked |= {"columns": set(terms.columns), "intercept": terms.intercept}
        else:
            asked["formula"] = terms.text
            held["formula"] = (
                " + ".join([str(int("Intercept" in data.columns)), *plain]) if design is None else design["formula"]
            )
    if response is not None:
        asked["response"] = response
    if columns is not None:
        asked["columns"] = set(columns)
    for name, value in (("offset", offset), ("weights", weights)):
        if value is not None:
            asked[name] = value
            log = name == "offset" and plan.get("log_offset")
            held[name] = f"log({plan[name]})" if log else plan.get(name)
    if second is not None:
        asked[second[0]] = second[1]
        own = plan.get("second", {})
        held[second[0]] = own.get("formula") if own.get("name") == second[0] else None
    for name, value in asked.items():
        if value != held[name]:
            raise DataError(
                f"the store {data.store} was packed with {name} {_list_names(held[name])}, not {_list_names(value)}. Read the original "
                "file again to change what is packed."
            )


def _list_names(value: Any) -> str:
    return ", ".join(sorted(value)) if isinstance(value, set) else repr(value)

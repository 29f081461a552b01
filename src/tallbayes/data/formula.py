"""Formulas over numeric columns: `y ~ x1 + x2`, `y ~ .`, `y ~ . - x3`, `+ 0` or `- 1` for no intercept.

Names that are not plain words stand in backquotes. A formula says which columns are read; nothing in it is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallbayes.errors import DataError, unknown

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w.]*|`[^`]+`)|(?P<number>[01])|(?P<sign>[+-])|(?P<all>\.)|(?P<other>\S))")


@dataclass(frozen=True)
class Terms:
    """What a formula asks for."""

    response: str
    columns: tuple[str, ...]
    intercept: bool


def parse(formula: str, available: tuple[str, ...], reserved: tuple[str, ...] = ()) -> Terms:
    """Read a formula against the columns of a file; `.` means every column not used elsewhere.

    >>> parse("y ~ . - b", ("y", "a", "b", "c"))
    Terms(response='y', columns=('a', 'c'), intercept=True)
    """
    if formula.count("~") != 1:
        raise DataError(f"the formula {formula!r} needs exactly one ~ between response and predictors.")
    left, right = formula.split("~")
    response = left.strip().strip("`")
    if response not in available:
        raise DataError(str(unknown("response column", response, available)))
    chosen: dict[str, None] = {}
    intercept, add, expect_term, position = True, True, True, 0
    while right[position:].strip():
        match = _TOKEN.match(right, position)
        assert match is not None
        first, position = position == 0, match.end()
        token = match.group().strip()
        if match["other"]:
            raise DataError(
                f"{token!r} in the formula {formula!r}: only sums of numeric columns, '.', '- column', '+ 0' and '- 1' are "
                "understood. Compute other terms as columns of the file first."
            )
        if match["sign"]:
            if expect_term and not (first and token == "-"):
                raise DataError(f"the formula {formula!r} has a sign without a term before {right[position:]!r}.")
            add, expect_term = token == "+", True
            continue
        if not expect_term:
            raise DataError(f"the formula {formula!r} has no + or - before {token!r}.")
        expect_term = False
        if match["number"]:
            intercept = (token == "1") == add
            continue
        if match["all"]:
            names = [c for c in available if c != response and c not in reserved]
        else:
            names = [token.strip("`")]
            if names[0] not in available:
                raise DataError(str(unknown("column", names[0], available)))
            if names[0] == response and add:
                raise DataError(f"the response {response!r} is also a predictor in the formula {formula!r}.")
        for name in names:
            if add:
                chosen[name] = None
            else:
                chosen.pop(name, None)
    if expect_term:
        raise DataError(f"the formula {formula!r} ends without a term; write y ~ 1 for an intercept alone.")
    if not chosen and not intercept:
        raise DataError(f"the formula {formula!r} leaves no predictor.")
    return Terms(response, tuple(chosen), intercept)

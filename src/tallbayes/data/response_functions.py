"""Responses of two columns in a formula: `censored(time, event) ~ x` and `p(successes, trials) ~ x`.

A plan keeps the name of the function and the second column; rows get what the families read when they are packed: signed times, or
proportions whose weights are the numbers of trials. With weights of their own, rows of proportions have the product as weight, and the
number of trials in a column behind all others.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from tallbayes.data.responses import censored, proportion
from tallbayes.errors import DataError

_CALL = re.compile(r"^\s*(censored|p)\(\s*(`[^`]+`|[^,`()]+?)\s*,\s*(`[^`]+`|[^,`()]+?)\s*\)\s*~")
PROPORTION = "p"


class ResponseFunction(NamedTuple):
    """A response function, the formula with its first column as response, and its second column."""

    name: str
    formula: str
    second: str


def response_function(formula: str | None) -> ResponseFunction | None:
    """What the left side of a formula calls; None for a plain response.

    >>> response_function("censored(time, event) ~ x + C(g)")
    ResponseFunction(name='censored', formula='time ~ x + C(g)', second='event')
    >>> response_function("y ~ x") is None
    True
    """
    found = _CALL.match(formula) if isinstance(formula, str) else None
    if found is None:
        return None
    return ResponseFunction(found[1], f"{found[2]} ~{formula[found.end() :]}", found[3].strip("`"))  # type: ignore[index]


def current_plan(plan: dict[str, Any] | None) -> dict[str, Any] | None:
    """A plan that an earlier version may have written, which named the second column as weights."""
    if not plan or not isinstance(plan.get("response_function"), str):
        return plan
    return {**plan, "weights": None, "response_function": {"name": plan["response_function"], "second": plan["weights"]}}


def second_column(plan: dict[str, Any]) -> str | None:
    """The second column of the response; None for a plain response."""
    return plan["response_function"]["second"] if "response_function" in plan else None


def trials_column(plan: dict[str, Any] | None) -> str | None:
    """The column with the numbers of trials; None unless the response is p(successes, trials)."""
    return second_column(plan) if plan and plan.get("response_function", {}).get("name") == PROPORTION else None


def weight_columns(plan: dict[str, Any]) -> list[str]:
    """The columns whose product is the weight of a row."""
    return [c for c in (plan.get("weights"), trials_column(plan)) if c is not None]


def keeps_trials(plan: dict[str, Any]) -> bool:
    """Whether records have the number of trials besides the weight, because the two differ."""
    return len(weight_columns(plan)) == 2


def described_response(plan: dict[str, Any], response: str) -> str:
    """The left side of the formula.

    >>> described_response({"response_function": {"name": "p", "second": "m"}}, "k")
    'p(k, m)'
    """
    own = plan.get("response_function")
    return response if own is None else f"{own['name']}({response}, {own['second']})"


class Response(NamedTuple):
    """Response and weight of some rows as they are packed; the numbers of trials where records have them."""

    y: np.ndarray
    weights: np.ndarray | None
    trials: np.ndarray | None


def packed_response(plan: dict[str, Any], value: dict[str, np.ndarray], first: int) -> Response:
    """What rows hold, from the columns of a batch that begins at row `first`."""
    y, weights, second = value[plan["response"]], plan["weights"], second_column(plan)
    given = None if weights is None else value[weights]
    if second is None:
        return Response(y, given, None)
    if trials_column(plan) is None:
        return Response(censored(y, value[second], first), given, None)
    y, trials = proportion(y, value[second], first)
    if given is None:
        return Response(y, trials, None)
    if (given < 0).any():
        row = int(np.argmax(given < 0))
        raise DataError(
            f"row {first + row}, column {weights!r}: the weight is {given[row]:g}; weights are powers of the likelihood, so >= 0."
        )
    return Response(y, given * trials, trials)

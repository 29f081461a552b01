"""The family where none was asked for: logistic for a response of 0 and 1, and otherwise an error that names the families that fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

import numpy as np

from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.errors import DataError
from tallbayes.model import Family

KINDS = {
    "count": "for counts",
    "class": "for classes",
    "ordinal": "for ordered classes",
    "proportion": "for proportions",
    "successes": "for shares of successes among trials",
    "positive": "for positive numbers",
    "time": "for times to an event",
    "real": "for any numbers",
}
"""Kinds of responses, in the order in which they are suggested."""
MOST_SUGGESTED = 20  # classes up to which whole numbers may be classes


def response_function_of(data: Dataset) -> str | None:
    """The function that made the response from two columns, `p` or `censored`; None if it is a column."""
    made = (data.recipe.get("plan") or {}).get("response_function")
    return made["name"] if isinstance(made, dict) else made  # plans of earlier versions have the name alone


def may_be_binary(data: Dataset) -> bool:
    """Whether the extremes of the response, which reading has learned, leave room for 0 and 1 alone.

    >>> [may_be_binary(Dataset.from_arrays(np.ones((3, 1)), y)) for y in ([0, 1, 1], [0, 1, 2], [0.0, 0.5, 1.0])]
    [True, False, True]
    """
    return float(data.moments.low[data.d]) >= 0.0 and float(data.moments.high[data.d]) <= 1.0


def ask_for_family(data: Dataset, families: Mapping[str, Family]) -> NoReturn:
    """Refuse to assume a family, naming those whose responses may be like these."""
    low, high = (float(v[data.d]) for v in (data.moments.low, data.moments.high))
    whole = all((part == np.floor(part)).all() for part in _chunks(data))
    if response_function_of(data) == "censored":
        found, kinds = "is a time that may be censored", ["time"]
    else:
        found = f"has {'whole numbers' if whole else 'numbers'} from {low:.6g} to {high:.6g}{_example(data)}"
        kinds = _kinds(low, high, whole)
    ends, weights = np.array([low, high]), data.has_weights
    names = {kind: _suggested(families, kind, ends, weights) for kind in KINDS if kind in kinds}
    suggested = "; ".join(f"{listed(own, 'or')} {KINDS[kind]}" for kind, own in names.items() if own)
    two = bool(data.moments.two_valued[data.d]) and low != high
    code = ""
    if two:
        code = f" Two classes are coded as 0 and 1, not {low:g} and {high:g}, for family='logistic'."
    elif whole and low > 0.0 and high < MOST_SUGGESTED:
        code = " Classes are numbered from 0, for family='softmax' or 'ordinal'."
    raise DataError(
        f"the response {data.response!r} {found}; without family=, only 0 and 1 are modelled (logistic). Give family=: {suggested}.{code}"
    )


def _suggested(families: Mapping[str, Family], kind: str, ends: np.ndarray, weights: bool) -> list[str]:
    """Families of regressions for a kind of response with these extremes, plain ones first; binomial needs the numbers of trials."""
    fitting = {
        name: own
        for name, own in families.items()
        if own.response == kind and own.regression and own.admits(ends).all() and (weights or not own.trials)
    }
    return sorted(fitting, key=lambda name: (fitting[name].second_needed, len(fitting[name].nuisance_priors), name))


def _example(data: Dataset) -> str:
    """The first row whose response is neither 0 nor 1."""
    first = 0
    for part in _chunks(data):
        other = ~np.isin(part, (0.0, 1.0))
        if other.any():
            at = int(np.argmax(other))
            row = first + at if data.order is None else int(data.order[first + at])
            return f" (row {row}: {part[at]:.6g})"
        first += part.size
    return ""


def _kinds(low: float, high: float, whole: bool) -> list[str]:
    """Kinds of responses that may have these extremes."""
    kinds = ["real"]
    if low > 0.0:
        kinds += ["positive", "time"]
    if low >= 0.0 and high <= 1.0:
        kinds += ["proportion", "successes"]
    if whole and low >= 0.0:
        kinds += ["count", *(["class", "ordinal"] if low == 0.0 and high < MOST_SUGGESTED else [])]
    return kinds


def _chunks(data: Dataset) -> Iterable[np.ndarray]:
    return (np.asarray(data.y[start : start + CHUNK]) for start in range(0, data.n, CHUNK))


def listed(names: list[str], word: str) -> str:
    """Names with a word before the last one.

    >>> listed(["a", "b", "c"], "or")
    'a, b or c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def sentence(data: Dataset, family: str) -> str:
    """What a fit says of a family that was assumed."""
    why = "successes among trials" if family == "binomial" else "0 or 1 in every row"
    return f"no family was given: {family}, because {data.response} is {why}"

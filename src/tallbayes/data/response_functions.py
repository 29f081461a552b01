"""Responses of two columns in a formula: `censored(time, event) ~ x` and `p(successes, trials) ~ x`.

The second column is read as weights, and the two are then turned into what the families read: signed times, or proportions with the
trials as weights.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tallbayes.data.dataset import CHUNK, Dataset
from tallbayes.data.moments import Moments
from tallbayes.data.responses import censored, proportion
from tallbayes.errors import DataError, OptionError

_CALL = re.compile(r"^\s*(censored|p)\(\s*(`[^`]+`|[^,`()]+?)\s*,\s*(`[^`]+`|[^,`()]+?)\s*\)\s*~")


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


def apply_response_function(data: Dataset, name: str) -> Dataset:
    """The rows with their response made from response and weights."""
    if data.store is not None:
        raise OptionError(f"{name}(...) in a formula needs rows in memory; use memory='ram'.")
    d, records = data.d, np.array(data.records)
    moments = Moments(data.moments.names)
    for start in range(0, data.n, CHUNK):
        chunk = records[start : start + CHUNK]
        try:
            if name == "censored":
                chunk[:, d], chunk[:, d + 2] = censored(chunk[:, d], chunk[:, d + 2]), 1.0
            else:
                chunk[:, d], chunk[:, d + 2] = proportion(chunk[:, d], chunk[:, d + 2])
        except DataError as error:
            raise DataError(f"in rows from {start:,}: {error}") from error
        moments.add(chunk[:, : d + 3].astype(float))
    recipe = dict(data.recipe)
    if "plan" in recipe:
        recipe["plan"] = {**recipe["plan"], "response_function": name}
    records.flags.writeable = data.records.flags.writeable
    return replace(data, records=records, moments=moments, has_weights=name == "p", recipe=recipe, _fingerprint=None)

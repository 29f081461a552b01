"""Arguments of the wrong type, refused with the name of the argument and what it takes."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.errors import shown as shown

MOST_WHOLE = 2**63 - 1  # what compiled code and files can hold
MOST_CLASSES = 10_000  # each has a block of coefficients


def number(value: Any) -> float:
    """A real number as a float; NaN, with which every comparison fails, for whatever is none or too large to be one.

    >>> number(2), number(np.float32(0.5)), number(np.array(2.0)), number("2"), number(True), number([1.0, 2.0]), number(10**400)
    (2.0, 0.5, 2.0, nan, nan, nan, nan)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none.

    >>> is_whole(3), is_whole(np.int64(3)), is_whole(3.0), is_whole(True)
    (True, True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def require_whole(name: str, value: Any, least: int, most: int = MOST_WHOLE) -> None:
    """A whole number that is neither too small nor too large."""
    if not is_whole(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}; got {shown(value)}.")
    if value > most:
        raise OptionError(f"{name} must be a whole number of at most {most:,}; got {shown(value)}.")


def require_positive(name: str, value: Any) -> None:
    """A positive number."""
    if not number(value) > 0:
        raise OptionError(f"{name} must be positive; got {shown(value)}.")


def positive_number(name: str, value: Any, otherwise: str = "") -> float:
    """A positive finite number, as a float; `otherwise` is what else may be given."""
    found = number(value)
    if not 0.0 < found < math.inf:
        raise OptionError(f"{name} must be a positive number{otherwise}; got {shown(value)}.{about_formula(value)}")
    return found


def about_formula(value: Any) -> str:
    """A sentence about a formula that was given where a number is expected; nothing for other values."""
    if not (isinstance(value, str) and "~" in value):
        return ""
    return (
        " A formula is taken by sigma= of gaussian and student_t and by zi= of zero-inflated and hurdle families only; "
        "give a number here, or leave the option out."
    )


def require_switch(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name} must be True or False; got {shown(value)}.")


def require_text(name: str, value: Any, example: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise OptionError(f"{name} must be text such as {example!r}; got {shown(value)}.")


def is_path(value: Any) -> bool:
    r"""Whether a value is a path that a file may have.

    >>> is_path("run"), is_path(""), is_path(b"run"), is_path("a\0b")
    (True, False, False, False)
    """
    return isinstance(value, str | os.PathLike) and str(value) != "" and "\0" not in str(value)


def require_path(name: str, value: Any) -> None:
    """A path."""
    if not is_path(value):
        raise OptionError(f"{name} must be the path of a folder; got {shown(value)}.")


def require_instance(name: str, value: Any, kind: type | tuple[type, ...], takes: str) -> None:
    """An object of a class; `takes` describes it."""
    if not isinstance(value, kind):
        raise OptionError(f"{name} must be {takes}; got {shown(value)}.")


def require_seed(value: Any, fresh: bool = True) -> None:
    """A seed; None for a fresh one, if there can be one."""
    if value is None and fresh:
        return
    if not is_whole(value) or value < 0:
        raise OptionError(f"seed must be a whole number >= 0{', or None for a random one' * fresh}; got {shown(value)}.")


def require_cores(value: Any) -> None:
    """A number of threads, or None."""
    if value is not None and (not is_whole(value) or value < 1):
        raise OptionError(f"cores must be a whole number of at least 1, or None for all; got {shown(value)}.")


def check_probability(prob: float) -> None:
    """Refuse what is no probability of an interval."""
    if not 0.0 < prob < 1.0:
        raise OptionError(f"prob is the probability of the interval, between 0 and 1; got {prob}.")

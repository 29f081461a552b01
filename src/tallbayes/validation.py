"""Arguments of the wrong type, refused with the name of the argument and what it takes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tallbayes.errors import OptionError


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and False are none.

    >>> is_whole(3), is_whole(np.int64(3)), is_whole(3.0), is_whole(True)
    (True, True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def require_whole(name: str, value: Any, least: int) -> None:
    """A whole number."""
    if not is_whole(value) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}; got {value!r}.")


def require_positive(name: str, value: Any) -> None:
    """A positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or not value > 0:
        raise OptionError(f"{name} must be positive; got {value!r}.")


def require_switch(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name} must be True or False; got {value!r}.")


def require_text(name: str, value: Any, example: str) -> None:
    """A string."""
    if not isinstance(value, str):
        raise OptionError(f"{name} must be text such as {example!r}; got {value!r}.")


def require_path(name: str, value: Any) -> None:
    """A path."""
    if not isinstance(value, str | os.PathLike) or str(value) == "":
        raise OptionError(f"{name} must be the path of a folder; got {value!r}.")


def require_instance(name: str, value: Any, kind: type | tuple[type, ...], takes: str) -> None:
    """An object of a class; `takes` describes it."""
    if not isinstance(value, kind):
        raise OptionError(f"{name} must be {takes}; got {value!r}.")


def require_seed(value: Any, fresh: bool = True) -> None:
    """A seed; None for a fresh one, if there can be one."""
    if value is None and fresh:
        return
    if not is_whole(value) or value < 0:
        raise OptionError(f"seed must be a whole number >= 0{', or None for a random one' * fresh}; got {value!r}.")


def require_cores(value: Any) -> None:
    """A number of threads, or None."""
    if value is not None and (not is_whole(value) or value < 1):
        raise OptionError(f"cores must be a whole number of at least 1, or None for all; got {value!r}.")

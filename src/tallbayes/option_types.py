"""Types of options: what a frozen dataclass of options declares, checked when a user makes one."""

from __future__ import annotations

import types
import typing
from dataclasses import fields
from typing import Any

import numpy as np

from tallbayes.errors import OptionError

WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None"}


def check_types(options: Any) -> None:
    """Refuse a field of a dataclass whose value is not of the type it declares, in words that name the field.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Options:
    ...     batch: int = 10
    >>> check_types(Options("ten"))
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: batch of Options must be a whole number; got 'ten'.
    """
    hints = typing.get_type_hints(type(options))
    for field in fields(options):
        value = getattr(options, field.name)
        if not matches(value, hints[field.name]):
            raise OptionError(f"{field.name} of {type(options).__name__} must be {_worded(hints[field.name])}; got {value!r}.")


def matches(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type: numbers of NumPy count as numbers, a bool does not."""
    if hint is Any:
        return True
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(matches(value, part) for part in inside)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        each = inside[:1] * len(value) if inside[1:] == (...,) else inside
        return len(each) == len(value) and all(matches(v, h) for v, h in zip(value, each, strict=True))
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _worded(hint: Any) -> str:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_worded(part) for part in inside)
    if origin is tuple:
        return "a tuple"
    if hint in WORDS:
        return WORDS[hint]
    return (
        f"an object of tallbayes.{hint.__module__.split('.')[1]}, such as {hint.example}"
        if hasattr(hint, "example")
        else hint.__name__
    )

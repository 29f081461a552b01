"""Types of options: what a frozen dataclass of options declares, checked when a user makes one."""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tallbayes.errors import OptionError
from tallbayes.validation import MOST_WHOLE, about_formula, is_path, is_whole, number, require_seed, shown

WORDS = {
    int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None", Path: "a path",
}  # fmt: skip


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
            raise _refused(f"{field.name} of {type(options).__name__}", value, hints[field.name])


Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """A function that refuses arguments which are not of the plain types it declares, in words that name the argument.

    Numbers, texts, switches, paths, lists and dictionaries are plain; what is declared as an object is left to the function. `seed` may be
    any whole number >= 0.

    >>> @checked
    ... def wait(seconds: float = 1.0, data: "Dataset" = None) -> float:
    ...     return seconds
    >>> wait(2), wait(data="rows")
    (2, 1.0)
    >>> wait("long")
    Traceback (most recent call last):
    ...
    tallbayes.errors.OptionError: seconds must be a number; got 'long'.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*arguments, **named).arguments
        except TypeError:
            return function(*arguments, **named)  # Python names what is missing or unknown
        hints = _plain_hints(function)
        for name, value in given.items():
            if name not in hints or value is signature.parameters[name].default:
                continue
            if name == "seed":
                require_seed(value, fresh=matches(None, hints[name]))
            elif not matches(value, hints[name]) and not (_is_nan(value) and matches(0.0, hints[name])):
                raise _refused(name, value, hints[name])
        return function(*arguments, **named)

    return call  # type: ignore[return-value]


def _is_nan(value: Any) -> bool:
    """Whether a value is NaN, of which a function says itself which numbers it needs."""
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


@functools.cache
def _plain_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The declared types of the arguments of a function that are plain."""
    found = {}
    for name, text in inspect.get_annotations(function).items():
        declared = types.SimpleNamespace(__annotations__={name: text})
        try:
            hint = typing.get_type_hints(declared, inspect.unwrap(function).__globals__)[name]
        except NameError:  # a class that is imported for type checkers alone
            continue
        if _plain(hint):
            found[name] = hint
    return found


def _plain(hint: Any) -> bool:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return all(_plain(part) for part in inside)
    return origin in (Sequence, Mapping, list, tuple, dict) or hint in WORDS


def _refused(name: str, value: Any, hint: Any) -> OptionError:
    if is_whole(value) and abs(int(value)) > MOST_WHOLE and matches(1, hint):
        return OptionError(f"{name} must be a whole number of at most {MOST_WHOLE:,} in size; got {shown(value)}.")
    return OptionError(f"{name} must be {_worded(hint)}; got {shown(value)}.{about_formula(value)}")


def matches(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type: numbers of NumPy count as numbers, a bool does not."""
    if hint is Any:
        return True
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if Path in inside and isinstance(value, str | os.PathLike):
            return is_path(value)
        return any(matches(value, part) for part in inside)
    if origin is Sequence or origin is list:
        return _is_list(value) and all(matches(v, h) for v in value for h in inside)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        each = inside[:1] * len(value) if inside[1:] == (...,) else inside
        return len(each) == len(value) and all(matches(v, h) for v, h in zip(value, each, strict=True))
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        return is_whole(value) and abs(int(value)) <= MOST_WHOLE
    if hint is float:
        return not isinstance(value, np.ndarray) and not np.isnan(number(value))
    return isinstance(value, origin or hint)


def _is_list(value: Any) -> bool:
    """Whether a value is a list of things: also an array or an index of pandas, but no text, set or dictionary."""
    if isinstance(value, str | bytes | set | frozenset | Mapping):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__") and getattr(value, "ndim", 1) == 1


def _worded(hint: Any) -> str:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_worded(part) for part in inside if not (part is str and Path in inside))
    if origin is tuple:
        return "a tuple"
    if origin in (Sequence, list):
        return "a list" + (" of texts" if inside == (str,) else "")
    if origin in (Mapping, dict):
        return "a dictionary"
    if hint in WORDS:
        return WORDS[hint]
    return (
        f"an object of tallbayes.{hint.__module__.split('.')[1]}, such as {hint.example}"
        if hasattr(hint, "example")
        else hint.__name__
    )

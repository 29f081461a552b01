"""Samplers: which rows are read. One file per algorithm; a class declares its names and its guarantee, and is listed here by that.

The table, the names to import and the documentation follow from listing this folder; `__init__.pyi` says the same to type
checkers and is written by docs/generate.py.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from tallbayes.contract import KINDS, Diagnosis, Guarantee, Outcome, Sampler, Setup, advance, positions
from tallbayes.errors import OptionError, shown, unknown


def _classes() -> Iterator[type[Sampler]]:
    for file in sorted(pkgutil.iter_modules(__path__), key=lambda file: file.name):
        module = importlib.import_module(f"{__name__}.{file.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Sampler) and kind.__module__ == module.__name__ and not inspect.isabstract(kind):
                yield kind


def _names(kind: type[Sampler]) -> dict[str, Callable[[], Sampler]]:
    if kind.variants:
        return {name: functools.partial(kind, **options) for name, options in kind.variants.items()}
    return {str(kind.name): kind}


CLASSES: dict[str, type[Any]] = {kind.__name__: kind for kind in _classes()}

SAMPLERS: dict[str, Callable[[], Sampler]] = dict(
    sorted(
        (entry for kind in CLASSES.values() for entry in _names(kind).items()),
        key=lambda entry: KINDS.index(entry[1]().guarantee.kind),
    )
)
"""By name, from the strongest guarantee to the weakest, then in the order of files."""

globals().update(CLASSES)

__all__ = [
    "CLASSES",
    "KINDS",
    "SAMPLERS",
    "Diagnosis",
    "Guarantee",
    "Outcome",
    "Sampler",
    "Setup",
    "advance",
    "from_dict",
    "positions",
    "resolve",
    *CLASSES,
]


def resolve(sampler: str | Sampler) -> Sampler:
    """A sampler by name, or the object itself.

    >>> resolve("hmc")
    FullData(move=HamiltonianMove(time=1.2, acceptance=0.8, mass='dense'))
    """
    if isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise unknown("sampler", sampler, [*SAMPLERS, "auto"])
        return SAMPLERS[sampler]()
    raise OptionError(f"sampler must be a name or an object of tallbayes.samplers; got {shown(sampler)}.")


def from_dict(options: dict[str, Any]) -> Sampler:
    """The inverse of `Sampler.as_dict`."""
    options = dict(options)
    kind = options.pop("class")
    if kind not in CLASSES:
        raise unknown("sampler class", kind, CLASSES)
    return CLASSES[kind].from_options(options)

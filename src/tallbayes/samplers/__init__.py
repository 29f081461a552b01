"""Samplers: which rows are read. One file an algorithm; each has a string name and carries its guarantee."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallbayes import moves
from tallbayes.errors import OptionError, unknown
from tallbayes.samplers.base import KINDS, Guarantee, Sampler, Setup, advance
from tallbayes.samplers.exact_minibatch import ExactMinibatch
from tallbayes.samplers.full_data import FullData
from tallbayes.samplers.informed import Informed

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "mh": lambda: FullData(moves.random_walk()),
    "mala": lambda: FullData(moves.mala()),
    "hmc": lambda: FullData(moves.hmc()),
    "nuts": lambda: FullData(moves.nuts()),
    "slice": lambda: FullData(moves.slice()),
    "exact-minibatch": ExactMinibatch,
    "informed": Informed,
    "lwa": lambda: Informed(scaled=False),
}

CLASSES: dict[str, type[Any]] = {"ExactMinibatch": ExactMinibatch, "FullData": FullData, "Informed": Informed}


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
    raise OptionError(f"sampler must be a name or an object of tallbayes.samplers; got {sampler!r}.")


def from_dict(options: dict[str, Any]) -> Sampler:
    """The inverse of `Sampler.as_dict`."""
    options = dict(options)
    kind = options.pop("class")
    if kind not in CLASSES:
        raise unknown("sampler class", kind, CLASSES)
    return CLASSES[kind].from_options(options)


__all__ = [
    "CLASSES",
    "KINDS",
    "SAMPLERS",
    "ExactMinibatch",
    "FullData",
    "Guarantee",
    "Informed",
    "Sampler",
    "Setup",
    "advance",
    "from_dict",
    "resolve",
]

"""Nested NamedTuples and tuples of numbers and arrays to a flat dictionary and back: what checkpoints hold."""

from __future__ import annotations

from typing import Any

import numpy as np


def flatten(value: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """All numbers and arrays of a nested NamedTuple, by path.

    >>> from tallbayes.moves.move import Point
    >>> sorted(flatten(Point(np.zeros(2), 1.0, np.ones(2)), "p"))
    ['p.gradient', 'p.log_density', 'p.theta']
    """
    if hasattr(value, "_fields"):
        out: dict[str, np.ndarray] = {}
        for name in value._fields:
            out.update(flatten(getattr(value, name), f"{prefix}.{name}"))
        return out
    if isinstance(value, tuple):
        return {name: part for k, item in enumerate(value) for name, part in flatten(item, f"{prefix}.{k}").items()}
    return {prefix: np.asarray(value)}


def unflatten(template: Any, values: dict[str, np.ndarray], prefix: str = "") -> Any:
    """The inverse of `flatten`, given a value of the same shape and types."""
    if hasattr(template, "_fields"):
        return type(template)(*(unflatten(getattr(template, k), values, f"{prefix}.{k}") for k in template._fields))
    if isinstance(template, tuple):
        return tuple(unflatten(item, values, f"{prefix}.{k}") for k, item in enumerate(template))
    stored = values[prefix]
    if isinstance(template, np.ndarray):
        return np.ascontiguousarray(stored)
    return type(template)(stored.item())

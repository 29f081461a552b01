"""Cells of two factors: rows that have the same level of both, and sums over them that tell a level what the levels it meets do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.models.group_effects import HierarchicalModel

_CELLS = 4_000_000  # of two factors, up to which the surrogate of a level knows the levels that it meets: sweeps read all cells


class FactorCells(NamedTuple):
    """Cells of the levels of a factor with those of other factors, level by level; p the most terms of another factor."""

    offsets: np.ndarray  # (levels + 1,)
    starts: np.ndarray  # (cells,): where the effects of the other level are
    terms: np.ndarray  # (cells,): how many it has
    seconds: np.ndarray  # (cells, q, p): sums of -f'' z z'
    thirds: np.ndarray  # (cells, q, q, p): sums of f''' z z z'


def factor_cells(model: HierarchicalModel, k: int, starts: np.ndarray, curves: np.ndarray) -> tuple[np.ndarray, FactorCells]:
    """Which other factors a level knows by their mean alone, and its cells with the others."""
    own, n = model.factors[k], model.data.n
    broad, q = np.zeros(len(model.factors), np.bool_), len(own.terms)
    widest = max(len(other.terms) for m, other in enumerate(model.factors) if m != k)
    levels, places, terms = (np.zeros(0, np.int64) for _ in range(3))
    seconds, thirds = np.zeros((0, q, widest)), np.zeros((0, q, q, widest))
    for m, other in enumerate(model.factors):
        if m == k:
            continue
        keys, count = own.codes.astype(np.int64) * other.levels + other.codes, own.levels * other.levels
        if count <= max(4 * n, 1 << 20):
            cells, place = np.flatnonzero(np.bincount(keys, minlength=count)), keys
        else:
            cells, place = np.unique(keys, return_inverse=True)
            count = cells.size
        if cells.size > _CELLS:
            broad[m] = True
            continue
        chosen = cells if place is keys else slice(None)
        second, cubic = np.zeros((cells.size, q, widest)), np.zeros((cells.size, q, q, widest))
        for a in range(q):
            for c in range(len(other.terms)):
                product = _term(model, k, a) * _term(model, m, c)
                second[:, a, c] = np.bincount(place, curves[:, 0] * product, count)[chosen]
                for b in range(q):
                    cubic[:, a, b, c] = np.bincount(place, curves[:, 1] * product * _term(model, k, b), count)[chosen]
        levels = np.concatenate([levels, cells // other.levels])
        places = np.concatenate([places, starts[m] + (cells % other.levels) * len(other.terms)])
        terms = np.concatenate([terms, np.full(cells.size, len(other.terms))])
        seconds, thirds = np.concatenate([seconds, second]), np.concatenate([thirds, cubic])
    order = np.argsort(levels, kind="stable")
    offsets = np.zeros(own.levels + 1, np.int64)
    np.cumsum(np.bincount(levels, minlength=own.levels), out=offsets[1:])
    return broad, FactorCells(offsets, places[order], terms[order], seconds[order], thirds[order])


def _term(model: HierarchicalModel, k: int, a: int) -> Any:
    """Column a of the terms of a factor."""
    return 1.0 if model.factors[k].first < 0 else model.data.records[:, model.factors[k].first + a].astype(np.float64)

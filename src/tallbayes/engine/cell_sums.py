"""Linear models with several factors or random slopes: everything that their likelihood needs, from sums of one pass.

With r the residuals of `centre`: sums of w x x', w x r and w r^2; of each level w z z', w x z' and w z r; and of each pair of levels
of two factors that meet in some row, w z_k z_l'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.engine.grouped_rows import FactorRows, level_sums


class FactorSums(NamedTuple):
    """Sums of the levels of one factor, and its cells with later and earlier factors."""

    products: np.ndarray  # (levels, q, q): w z z'
    crossed: np.ndarray  # (levels, d, q): w x z'
    scores: np.ndarray  # (levels, q): w z r
    offsets: np.ndarray  # (levels + 1,): cells by level
    others: np.ndarray  # (cells,): where the effects of the other level begin
    sizes: np.ndarray  # (cells,): how many they are
    cells: np.ndarray  # (cells, q, largest number of terms): w z_k z_l', padded with zeros


class SeveralSums(NamedTuple):
    """Sums over all rows, and of each factor."""

    centre: np.ndarray  # (d,)
    information: np.ndarray  # (d, d)
    gradient: np.ndarray  # (d,)
    square: float  # sum of w r^2
    weight: float
    starts: np.ndarray  # (factors,): where the effects of a factor begin
    factors: tuple[FactorSums, ...]


def several_sums(rows: list[FactorRows], codes: list[np.ndarray], levels: list[int], cores: int | None = None) -> SeveralSums:
    """One pass for least squares, one for each factor, and the cells of each pair of factors."""
    d, records, nothing = rows[0].columns, rows[0].records, np.empty(0)
    zeros = [np.zeros((g, r.terms)) for g, r in zip(levels, rows, strict=True)]
    first = level_sums(rows[0], np.zeros(d), zeros[0], nothing, False, cores)
    centre = np.linalg.lstsq(first.information, first.gradient, rcond=1e-12)[0]
    starts = np.concatenate([[0], np.cumsum([z.size for z in zeros])[:-1]]).astype(np.int64)
    widest = max(r.terms for r in rows)
    factors, sums = [], None
    for k, own in enumerate(rows):
        sums = level_sums(own, centre, zeros[k], nothing, False, cores)
        found = [_cells(own, other, codes[k], codes[m], levels[m], widest) for m, other in enumerate(rows) if m != k]
        begins = [int(starts[m]) for m in range(len(rows)) if m != k]
        terms = [rows[m].terms for m in range(len(rows)) if m != k]
        level = np.concatenate([f[0] for f in found]) if found else np.zeros(0, np.int64)
        place = np.concatenate([b + f[1] * q for f, b, q in zip(found, begins, terms, strict=True)]) if found else level
        sizes = np.concatenate([np.full(f[0].size, q) for f, q in zip(found, terms, strict=True)]) if found else level
        cells = np.concatenate([f[2] for f in found]) if found else np.zeros((0, own.terms, widest))
        order = np.argsort(level, kind="stable")
        offsets = np.zeros(levels[k] + 1, np.int64)
        np.cumsum(np.bincount(level, minlength=levels[k]), out=offsets[1:])
        factors.append(
            FactorSums(
                sums.curvatures,
                sums.crossed,
                sums.slopes,
                offsets,
                np.ascontiguousarray(place[order], np.int64),
                np.ascontiguousarray(sizes[order], np.int64),
                np.ascontiguousarray(cells[order]),
            )
        )
    assert sums is not None
    weight = float(records[:, d + 2].sum(dtype=np.float64))
    return SeveralSums(centre, sums.information, sums.gradient, -2.0 * sums.value, weight, starts, tuple(factors))


def _cells(
    own: FactorRows, other: FactorRows, codes: np.ndarray, other_codes: np.ndarray, levels: int, widest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels of both factors that meet, and w z_k z_l' of each such pair."""
    keys, inverse = np.unique(codes.astype(np.int64) * levels + other_codes, return_inverse=True)
    weight = own.records[:, own.columns + 2].astype(np.float64)
    out = np.zeros((keys.size, own.terms, widest))
    for a in range(own.terms):
        first = weight if own.first < 0 else weight * own.records[:, own.first + a]
        for b in range(other.terms):
            both = first if other.first < 0 else first * other.records[:, other.first + b]
            out[:, a, b] = np.bincount(inverse, both)
    return keys // levels, keys % levels, out

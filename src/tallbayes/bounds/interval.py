"""Bound T10: the third derivative of a row, bounded where its linear predictor can be.

Within whitened distance R of the reference |s_i| <= R |a_i|, so with m_i(R) = sup |f_i'''| over |eta - eta_i*| <= R |a_i|

    |Delta_i| <= m_i(R) / 6 |a_i|^3 g(w, w')   whenever max(|w|, |w'|) <= R.

Rows have weights for two radii, and for all of the line if |f'''| is bounded there; beyond, a pair reads all rows. Nothing but
`third_supremum_on` is asked of the family: neither a global bound nor self-concordance. The radius that applies is a function
of max(|w|, |w'|) and g is symmetric, so the bound is symmetric to the bit.

A law of location and scale from an expression has two indices, eta and log_scale. There m_i(R) |a_i|^3 is a bound of the third
derivative along any line of unit speed within R, from the certificate of the family, and g is that of cubic forms. Families with an
unknown size, shape, scale or cut points register `third_bounds` of `engine.neighbourhood`, which is the same bound in closed form.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.pair_functions import angular, cubic, norm
from tallbayes.bounds.tables import draw_row, row_rate, total_rate
from tallbayes.compile import inlinable
from tallbayes.engine import passes
from tallbayes.engine.neighbourhood import Neighbourhood, third_bounds
from tallbayes.engine.random_rows import CHUNK, AliasTable, allocate, build, draw_item
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode

NEAR, FAR = 2.5, 8.0  # beyond sqrt(d): |w| of a normal posterior exceeds sqrt(d) + 2.5 once in thousands of draws


class Ranged(NamedTuple):
    """lambda_i = c_i(level) g(w, w'), the level chosen by max(|w|, |w'|): T10."""

    near: AliasTable
    far: AliasTable
    globally: AliasTable
    radius: np.ndarray
    bounded: bool
    several: bool  # indices: rows change along more than one direction


@total_rate.register(Ranged)
def _ranged_total(bound: Ranged, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    rates[0] = cubic(white, other) if bound.several else angular(white, other)
    reach = max(norm(white), norm(other))
    if rates[0] == 0.0:
        rates[1] = 0.0
        return 0.0
    if reach <= bound.radius[0]:
        rates[1] = 0.0
        return bound.near.cumulative[-1] * rates[0]
    if reach <= bound.radius[1]:
        rates[1] = 1.0
        return bound.far.cumulative[-1] * rates[0]
    rates[1] = 2.0
    return bound.globally.cumulative[-1] * rates[0] if bound.bounded else np.inf


@inlinable
def _level(bound: Ranged, rates: np.ndarray) -> AliasTable:
    if rates[1] == 0.0:
        return bound.near
    return bound.far if rates[1] == 1.0 else bound.globally


@draw_row.register(Ranged)
def _ranged_draw(rng: np.random.Generator, bound: Ranged, rates: np.ndarray, total: float) -> tuple[int, float]:
    table = _level(bound, rates)
    row = draw_item(rng, table, 0, table.start.size - 1)
    return row, table.weight[row] * rates[0]


@row_rate.register(Ranged)
def _ranged_row(bound: Ranged, rates: np.ndarray, row: int) -> float:
    return _level(bound, rates).weight[row] * rates[0]


def ranged(mode: Mode, folder: Path | None) -> Ranged:
    """The bound over all rows of a model: one pass."""
    model, n = mode.model, mode.model.data.n
    radius = math.sqrt(model.dim) + np.array([NEAR, FAR])
    weights = [allocate((n,), np.float64, folder) for _ in range(3)]
    certificate = getattr(model.family, "certificate", None)
    several = model.several_indices
    cubes = _cubes if not several else _vector_cubes if certificate is None else _scale_cubes

    def work(start: int, stop: int) -> list[int]:
        unbounded = []
        for k, cube in enumerate(cubes(mode, start, stop, radius)):
            infinite = np.flatnonzero(~np.isfinite(cube))
            unbounded.append(start + int(infinite[0]) if infinite.size else -1)
            weights[k][start:stop] = np.where(np.isfinite(cube), cube, 0.0)
        return unbounded

    parts = passes.over_chunks(n, CHUNK, work)
    failed = [next((p[k] for p in parts if p[k] >= 0), -1) for k in range(3)]
    if failed[0] >= 0:
        raise ModelError(_no_bound(mode, failed[0], float(radius[0])))
    if failed[1] >= 0:
        radius[1] = radius[0]
    near = build(weights[0], folder=folder)
    far = near if failed[1] >= 0 else build(weights[1], folder=folder)
    globally = far if failed[2] >= 0 else build(weights[2], folder=folder)
    return Ranged(near, far, globally, radius, failed[2] < 0, several)


def _cubes(mode: Mode, start: int, stop: int, radius: np.ndarray) -> list[np.ndarray]:
    """m_i(R) |a_i|^3 / 6 at both radii, and everywhere."""
    rows = mode.model.rows
    length, _, everywhere = passes.survey(rows, start, stop, mode.factor, mode.reference)
    suprema = [passes.third_suprema(rows, start, stop, mode.reference, r * length) for r in radius]
    return [np.where(length > 0.0, s, 0.0) * (length**3 / 6.0) for s in (*suprema, everywhere)]


def _scale_cubes(mode: Mode, start: int, stop: int, radius: np.ndarray) -> list[np.ndarray]:
    """The same of a law of location and scale, for which nothing is known everywhere."""
    model: Any = mode.model
    x, y, offset, weight = passes.block(model.rows, start, stop)
    d, reference = x.shape[1], mode.reference
    eta = x @ reference[:d] + offset
    length = np.linalg.norm(x @ mode.factor[:d], axis=1) * (1.0 + 1e-12)
    scale_length = float(np.linalg.norm(mode.factor[d])) * (1.0 + 1e-12)
    found = [
        model.family.certificate.third_bounds(eta, y, reference[d], r * length, r * scale_length, length, scale_length)
        for r in radius
    ]
    with np.errstate(invalid="ignore"):
        return [*(np.where(weight > 0.0, weight * b / 6.0, 0.0) for b in found), np.full(y.size, np.inf)]


def _vector_cubes(mode: Mode, start: int, stop: int, radius: np.ndarray) -> list[np.ndarray]:
    """The same of a family with several indices that has a certificate of its own."""
    model = mode.model
    x, y, offset, weight = passes.block(model.rows, start, stop)
    out = []
    for r in radius:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            bound = third_bounds(model.member, Neighbourhood(x, y, offset, mode.reference, mode.factor, float(r), model.second))
            bound = np.where(np.isnan(bound), np.inf, bound)
            out.append(np.where(weight > 0.0, weight * bound / 6.0, 0.0))
    return [*out, np.full(y.size, np.inf)]


def _no_bound(mode: Mode, row: int, radius: float) -> str:
    x, y, offset, _ = passes.block(mode.model.rows, row, row + 1)
    d = x.shape[1] - mode.model.second
    x = x[:, :d]
    eta = float((x @ mode.reference[:d] + offset)[0])
    width = radius * float(np.linalg.norm(x @ mode.factor[:d]))
    return (
        f"row {row}: no bound on |f'''| is known for eta from {eta - width:.4g} to {eta + width:.4g} (y = {float(y[0]):g}); "
        "use a full-data sampler such as 'nuts', a narrower prior, or rescale a column with very large values."
    )

"""A remainder bound that the user gives for a model of their own: |l_i'''(theta)[v, v, v]| <= b_i(r) |v|^3 for |theta - theta*| <= r.

The gradient of the residual at distance |h| from the reference is at most b |h|^2 / 2, and the segment between two points stays
within the larger of their distances, so the residual changes by at most

    lambda_i = b_i(r) / 6 |h' - h| (|h|^2 + |h'|^2 + h . h'),    r = max(|h|, |h'|).

b_i is tabulated at a ladder of radii. Beyond the last there is no bound, and the sampler reads all rows.

Nothing proves such a bound, and a row whose bound is too small is seldom read. So all rows are searched for violations first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.pair_functions import cubic
from tallbayes.bounds.tables import draw_row, row_rate, total_rate
from tallbayes.engine import passes
from tallbayes.engine.ledger import record
from tallbayes.engine.random_rows import CHUNK, AliasTable, build, draw_item
from tallbayes.errors import CertificateError, ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.models.jax_model import UserModel
from tallbayes.streams import Stream, generator

CLOSELY = 1000  # rows nearest to their bound, and as many random ones, that are looked at along more lines
LINES = 20  # for each of them
LADDER = 1.5 ** np.arange(8)  # radii, in units of the root mean square distance of posterior draws from the reference


class Given(NamedTuple):
    """Tables of b_i / 6 at increasing radii."""

    radius: np.ndarray
    tables: tuple[AliasTable, ...]
    factor: np.ndarray  # h = factor w


@total_rate.register(Given)
def _given_total(bound: Given, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    here, there = bound.factor @ white, bound.factor @ other
    reach = max(np.linalg.norm(here), np.linalg.norm(there))
    k = int(np.searchsorted(bound.radius, reach))
    if k == bound.radius.size:
        return np.inf
    rates[0], rates[1] = cubic(here, there), k
    return bound.tables[k].cumulative[-1] * rates[0]


@draw_row.register(Given)
def _given_draw(rng: np.random.Generator, bound: Given, rates: np.ndarray, total: float) -> tuple[int, float]:
    table = bound.tables[int(rates[1])]
    row = draw_item(rng, table, 0, table.start.size - 1)
    return row, table.weight[row] * rates[0]


@row_rate.register(Given)
def _given_row(bound: Given, rates: np.ndarray, row: int) -> float:
    return bound.tables[int(rates[1])].weight[row] * rates[0]


def given(mode: Mode) -> Given:
    """The user's bound over all rows of a model, at the radii where draws will be."""
    model: Any = mode.model
    if not isinstance(model, UserModel) or model.bound is None:
        raise ModelError(
            f"there is no certified bound for this {model.family.name} model: give third_derivative_bound=, or use a sampler "
            "that needs none, such as 'nuts' or 'hmc-ecs'."
        )
    n = model.data.n
    assert model.program is not None
    typical = float(np.sqrt(np.trace(mode.covariance)))
    radius = typical * LADDER
    everywhere = _tabulate(model, np.inf)
    first = _tabulate(model, float(radius[0]))
    if np.isfinite(everywhere).all() and (everywhere <= first * (1.0 + 1e-12)).all():
        radius, weights = np.array([np.inf]), [everywhere]
    else:
        weights = [first, *(_tabulate(model, float(r)) for r in radius[1:])]
        finite = [bool(np.isfinite(w).all()) for w in weights]
        if not finite[0]:
            raise ModelError(
                f"third_derivative_bound is not finite within radius {radius[0]:.3g} of the mode, so no row could be skipped. "
                "Give a finite bound."
            )
        last = finite.index(False) if False in finite else len(finite)
        radius, weights = radius[:last], weights[:last]
    if model.bound_checked:
        for k in sorted({0, radius.size - 1}):
            search_violations(model, mode, float(min(radius[k], typical * LADDER[-1])), weights[k])
    values = np.concatenate(
        [passes.values_at(model.rows, np.arange(a, min(n, a + CHUNK)), mode.reference) for a in range(0, n, CHUNK)]
    )
    model.program.scale = max(1.0, float(np.abs(values).max()))
    return Given(radius, tuple(build(w / 6.0) for w in weights), np.ascontiguousarray(mode.factor))


def _tabulate(model: UserModel, radius: float) -> np.ndarray:
    n = model.data.n
    record(n)
    return np.concatenate([model.third_bounds(np.arange(a, min(n, a + CHUNK)), radius) for a in range(0, n, CHUNK)])


def search_violations(model: UserModel, mode: Mode, radius: float, limits: np.ndarray) -> None:
    """Refuse a bound, tabulated for all rows, that a third derivative within `radius` of the mode exceeds.

    One pass takes every row along its own gradient, the steepest line for functions of a linear predictor. The rows nearest to
    their bound, and some at random, are then taken along random lines too.
    """
    assert model.program is not None
    rng, n = generator(0, Stream.BOUND_CHECK), model.data.n
    record(2 * n)
    point = _point_within(rng, mode, radius)
    share = np.empty(n)
    for a in range(0, n, CHUNK):
        index = np.arange(a, min(n, a + CHUNK))
        share[index] = _largest_share(model, point, None, index, limits, radius)
    nearest = np.argpartition(share, -min(n, CLOSELY))[-min(n, CLOSELY) :]
    index = np.union1d(nearest, rng.choice(n, min(n, CLOSELY), replace=False))
    record(2 * LINES * index.size)
    for _ in range(LINES):
        point = _point_within(rng, mode, radius)
        line = rng.standard_normal(model.dim)
        _largest_share(model, point, None, index, limits, radius)
        _largest_share(model, point, line / np.linalg.norm(line), index, limits, radius)


def _point_within(rng: np.random.Generator, mode: Mode, radius: float) -> np.ndarray:
    """A point like a draw from the posterior, not further from the mode than the radius."""
    step = mode.factor @ rng.standard_normal(mode.reference.size)
    return mode.reference + step * min(1.0, radius / max(float(np.linalg.norm(step)), 1e-300)) * rng.random()


def _largest_share(
    model: UserModel, point: np.ndarray, line: np.ndarray | None, index: np.ndarray, limits: np.ndarray, radius: float
) -> np.ndarray:
    """Third derivatives of rows over their bounds along a line, or along their own gradients; refuses those above 1."""
    assert model.program is not None
    block = np.asarray(model.data.records[index, : model.data.d + 3], float)
    found = (
        model.program.call("steepest_third", point, block) if line is None else model.program.call("third", point, line, block)
    )
    third, limit = np.nan_to_num(np.abs(found), nan=0.0), limits[index]
    worst = int(np.argmax(np.where(np.isfinite(limit), third - limit, -np.inf)))
    if not third[worst] <= limit[worst] * (1.0 + 1e-9) + 1e-12:
        raise CertificateError(
            f"row {index[worst]}: a third derivative of {third[worst]:.4g} exceeds third_derivative_bound, {limit[worst]:.4g} "
            f"within radius {radius:.3g} of the mode, so exact samplers would be wrong. Correct the bound, or use a sampler "
            "that needs none, such as 'nuts'."
        )
    return np.divide(third, limit, out=np.zeros(index.size), where=limit > 0.0)

"""Ranges of what a proxy leaves out, the same for all rows: low <= Delta_i <= high for every row i.

Draws without replacement are uniform, so their test needs the largest lambda_i of a certificate of `catalogue`, where
weighted draws need the sum. `collapse` keeps the largest entries of the tables only. Further certificates are here:

| name | bound of |Delta_i| | proxy | needs |
|---|---|---|---|
| `Lipschitz`, order 0 | sup|f_i'| |a_i| |w' - w|, or Euclidean: sup|f_i'| |x_i| |theta' - theta| (S1) | none | bounded slope |
| `Lipschitz`, order 1 | sup|f_i''|/2 |a_i|^2 |w' - w| (|w| + |w'|) | order 1 | bounded curvature |
| `Extremes` | the exact range of a quadratic polynomial in y between the smallest and the largest y | any | normal samples |
| `PublishedGamma` | kappa max y e^(-min eta)/6 max|x_ij|^3 (|h|_1^3 + |h'|_1^3) (S0 8.2.1, on whole segments) | order 2 | gamma |
| `Oracle` | the range itself, by a pass over all rows that is counted apart | any | |

At order 1, Delta_i is the integral of f'(eta* + v) - f'(eta*) from s to s', at most sup|f''| |v| in size, and |v| is convex.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.tables import Classed, Local, Separable, draw_row, rate_count, row_rate, total_rate
from tallbayes.compile import generic, inlinable
from tallbayes.engine import passes
from tallbayes.engine.family_functions import third
from tallbayes.engine.random_rows import CHUNK, AliasTable, allocate, build, draw_item
from tallbayes.engine.survey import range_lowest
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode


class Lipschitz(NamedTuple):
    """lambda_i = c_i M(theta, theta') for proxies of order 0 and 1."""

    table: AliasTable
    order: int
    euclidean: bool
    factor: np.ndarray


@total_rate.register(Lipschitz)
def _lipschitz_total(bound: Lipschitz, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    gap, size, other_size = 0.0, 0.0, 0.0
    for j in range(white.size):
        change = other[j] - white[j]
        if bound.euclidean:
            change = 0.0
            for k in range(j + 1):
                change += bound.factor[j, k] * (other[k] - white[k])
        gap += change * change
        size += white[j] * white[j]
        other_size += other[j] * other[j]
    rates[0] = math.sqrt(gap)
    if bound.order == 1:
        rates[0] *= math.sqrt(size) + math.sqrt(other_size)
    return bound.table.cumulative[-1] * rates[0]


@draw_row.register(Lipschitz)
def _lipschitz_draw(rng: np.random.Generator, bound: Lipschitz, rates: np.ndarray, total: float) -> tuple[int, float]:
    row = draw_item(rng, bound.table, 0, bound.table.start.size - 1)
    return row, bound.table.weight[row] * rates[0]


@row_rate.register(Lipschitz)
def _lipschitz_row(bound: Lipschitz, rates: np.ndarray, row: int) -> float:
    return bound.table.weight[row] * rates[0]


def lipschitz(mode: Mode, order: int, euclidean: bool = False) -> Lipschitz:
    """The certificate of a proxy of order 0 or 1, from one pass over the rows."""
    model = mode.model
    name = ("slope", "second derivative")[order]
    if model.several_indices:
        raise ModelError(f"{model.family.name} has no certified {name} here; use order=2, or bound='oracle' for experiments.")
    rows, n = model.rows, model.data.n
    folder = None if model.data.store is None else model.data.store.parent
    weight = allocate((n,), np.float64, folder)
    factor = np.eye(model.data.d) if euclidean else mode.factor

    def work(start: int, stop: int) -> bool:
        norm, slope, curvature = passes.suprema(rows, start, stop, factor)
        weight[start:stop] = slope * norm if order == 0 else 0.5 * curvature * norm**2
        return bool(np.isfinite(slope if order == 0 else curvature).all())

    if not all(passes.over_chunks(n, CHUNK, work)):
        raise ModelError(
            f"a proxy of order {order} needs a bounded {name}, which the {model.family.name} family does not have; use "
            "order=2, or bound='oracle' for experiments."
        )
    return Lipschitz(build(weight, folder=folder), order, euclidean, np.ascontiguousarray(mode.factor))


class Extremes(NamedTuple):
    """Normal samples: Delta_i is a quadratic polynomial in y_i, so its range follows from the smallest and the largest y."""

    smallest: float
    largest: float


class Oracle(NamedTuple):
    """The true range, for studies."""


class PublishedGamma(NamedTuple):
    """The bound of S0 for gamma regression, taken over whole segments, with |x|_inf paired with |h|_1."""

    height: float  # kappa max y
    box: float  # max |x_ij|
    lowest: float  # min eta_i at the reference
    factor: np.ndarray


LOWEST = PublishedGamma._fields.index("lowest")


@inlinable
def _sum_norm(factor: np.ndarray, white: np.ndarray) -> float:
    total = 0.0
    for j in range(white.size):
        h = 0.0
        for k in range(j + 1):
            h += factor[j, k] * white[k]
        total += abs(h)
    return total


@total_rate.register(PublishedGamma)
def _gamma_total(bound: PublishedGamma, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    first, second = _sum_norm(bound.factor, white), _sum_norm(bound.factor, other)
    exponent = bound.box * max(first, second) - bound.lowest
    if exponent > 700.0:  # no bound, rather than an overflow
        return np.inf
    supremum = bound.height * math.exp(exponent)
    return supremum / 6.0 * bound.box**3 * (first**3 + second**3)


@generic
def largest_rate(bound: Any, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    """The largest lambda_i of a collapsed bound."""
    return total_rate(bound, white, other, rates)


@largest_rate.register(Classed)
def _classed_largest(bound: Classed, white: np.ndarray, other: np.ndarray, rates: np.ndarray) -> float:
    total_rate(bound, white, other, rates)
    largest = 0.0
    for k in range(bound.radius.size):
        largest = max(largest, rates[2 * k])
    return largest


@generic
def gap_range(
    bound: Any, reference: np.ndarray, order: int, theta: np.ndarray, other: np.ndarray, white: Any, other_white: Any
) -> Any:
    """low and high with low <= Delta_i <= high for every row, from a collapsed bound."""
    limit = largest_rate(bound, white, other_white, np.zeros(rate_count(bound)))
    return -limit, limit


@inlinable
def _residual_polynomial(alpha: float, b: float, order: int) -> tuple[float, float, float]:
    """Coefficients in z = (y - mu*)/sigma* of the residual of a normal row, alpha = (mu - mu*)/sigma*, b = log sigma / sigma*."""
    e = math.expm1(-2.0 * b)
    square, linear, constant = -0.5 * e, alpha + alpha * e, -b - 0.5 * alpha * alpha * (1.0 + e)
    if order >= 1:
        square, linear, constant = -0.5 * (e + 2.0 * b), alpha * e, -0.5 * alpha * alpha * (1.0 + e)
    if order >= 2:
        square, linear, constant = square + b * b, linear + 2.0 * alpha * b, -0.5 * alpha * alpha * e
    return square, linear, constant


@gap_range.register(Extremes)
def _extremes_range(
    bound: Extremes, reference: np.ndarray, order: int, theta: np.ndarray, other: np.ndarray, white: Any, other_white: Any
) -> Any:
    centre, scale = reference[0], math.exp(reference[1])
    a0, b0, c0 = _residual_polynomial((theta[0] - centre) / scale, theta[1] - reference[1], order)
    a1, b1, c1 = _residual_polynomial((other[0] - centre) / scale, other[1] - reference[1], order)
    a, b, c = a1 - a0, b1 - b0, c1 - c0
    first, last = (bound.smallest - centre) / scale, (bound.largest - centre) / scale
    low, high = c + first * (b + a * first), c + last * (b + a * last)
    low, high = min(low, high), max(low, high)
    if a != 0.0 and first < -0.5 * b / a < last:
        vertex = c - 0.25 * b * b / a
        low, high = min(low, vertex), max(high, vertex)
    slack = 64 * 2.220446049250313e-16 * (1.0 + max(first * first, last * last))  # rounding of one row's difference
    return low - slack, high + slack


def extremes(mode: Mode) -> Extremes:
    """The smallest and the largest value of a normal sample; rows with weights or offsets are refused."""
    model = mode.model
    if not model.family.plain_sample:
        raise ModelError(
            f"bound='extremes' works for normal samples only, not {model.family.name}; use another bound or sampler."
        )

    def work(start: int, stop: int) -> tuple[float, float, bool]:
        x, y, offset, omega = passes.block(model.rows, start, stop)
        return float(y.min()), float(y.max()), bool((x == 1.0).all() and (offset == 0.0).all() and (omega == 1.0).all())

    parts = passes.over_chunks(model.data.n, CHUNK, work)
    if not all(p[2] for p in parts):
        raise ModelError("a normal sample with weights or offsets has no certified range; use sampler='exact-minibatch'.")
    return Extremes(min(p[0] for p in parts), max(p[1] for p in parts))


def published_gamma(mode: Mode) -> PublishedGamma:
    """The published bound of gamma regression, of any family with f''' = kappa y e^-eta: one pass."""
    model = mode.model

    def work(start: int, stop: int) -> tuple[float, float, float]:
        x, y, offset, omega = passes.block(model.rows, start, stop)
        return float((omega * y).max()), float(np.abs(x).max()), float((x @ mode.reference + offset).min())

    parts = passes.over_chunks(model.data.n, CHUNK, work)
    height = third(model.member, 0.0, 1.0) * max(p[0] for p in parts)
    return PublishedGamma(height, max(p[1] for p in parts), min(p[2] for p in parts), np.ascontiguousarray(mode.factor))


@generic
def moved(bound: Any, scale: float) -> Any:
    """The bound at another reference; `scale` is what `reference_scale` found there."""
    return bound


@generic
def reference_scale(bound: Any, rows: Any, reference: np.ndarray) -> float:
    """What a bound needs to know of a new reference, from a pass over all rows."""
    return 0.0


@generic
def reference_passes(bound: Any) -> int:
    """How many passes `reference_scale` takes."""
    return 0


@moved.register(PublishedGamma)
def _gamma_moved(bound: PublishedGamma, scale: float) -> Any:
    return PublishedGamma(bound.height, bound.box, scale, bound.factor)


@reference_passes.register(PublishedGamma)
def _gamma_passes(bound: PublishedGamma) -> int:
    return 1


@reference_scale.register(PublishedGamma)
def _gamma_scale(bound: PublishedGamma, rows: Any, reference: np.ndarray) -> float:
    return range_lowest(rows, 0, rows.records.shape[0], reference)


FREE_OF_REFERENCE = (Separable, Lipschitz, PublishedGamma, Oracle, Extremes)
"""Bounds that hold at any reference, after `moved`; T7 and T9 have tables made at one reference."""


def collapse(bound: Any) -> Any:
    """The same bound with its tables reduced to their largest entries: small, and all that uniform draws need."""
    if isinstance(bound, Separable | Lipschitz):
        return bound._replace(table=_largest(bound.table))
    if isinstance(bound, Local):
        return Local(*(_largest(table) for table in bound))
    if isinstance(bound, Classed):
        classes = [(bound.chunk[k], bound.chunk[k + 1]) for k in range(bound.radius.size)]
        local, globally = _by_class(bound.local, classes), _by_class(bound.globally, classes)
        nothing = np.empty(0, np.int64)
        return Classed(nothing, nothing, bound.radius, np.arange(len(classes) + 1), local, globally, bound.bounded)
    return bound


def _table(largest: list[float]) -> AliasTable:
    weight, count = np.asarray(largest), len(largest)
    cumulative = np.concatenate([[0.0], np.cumsum(weight)])
    return AliasTable(weight, np.ones(count), np.zeros(count, np.uint16), np.arange(count + 1), cumulative)


def _largest(table: AliasTable) -> AliasTable:
    return _table([float(table.weight.max(initial=0.0))])


def _by_class(table: AliasTable, classes: list[tuple[int, int]]) -> AliasTable:
    return _table([float(table.weight[table.start[a] : table.start[b]].max(initial=0.0)) for a, b in classes])

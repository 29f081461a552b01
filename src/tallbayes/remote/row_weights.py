"""Weights by which rows are drawn where they live: those of the certified bounds T6 and T9, by table and class.

Stream s of a bound is table s % tables of class s // tables. Every function here runs where a partition is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.catalogue import centred_weights, half_octave
from tallbayes.data.moments import Moments
from tallbayes.diagnostics.subsample_pilot import linear_scores
from tallbayes.engine import passes
from tallbayes.engine.random_rows import CHUNK
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.model import Model
from tallbayes.priors import normal
from tallbayes.streams import Stream, generator

CLASSES = 41  # half-octaves of the whitened norm, as in bound T9
TABLES = {"uniform": 1, "scores": 2, "T6": 1, "T9": 2}


@dataclass(frozen=True)
class Weighting:
    """A bound at a reference, in types that travel."""

    bound: str  # "T6" or "T9"; "uniform" for rows of equal probability; "scores" for these, and by the size of their residuals
    reference: np.ndarray
    factor: np.ndarray
    largest: float = 1.0  # whitened norm of all rows, from which classes are counted
    order: int = 2  # of the control variates whose residuals are scored

    @property
    def tables(self) -> int:
        """Weights of each row."""
        return TABLES[self.bound]

    @property
    def streams(self) -> int:
        """Tables of all classes."""
        return self.tables * (CLASSES if self.bound == "T9" else 1)

    def mode(self, model: Model) -> Mode:
        """A reference over the rows of a partition."""
        none = np.zeros(self.reference.size)
        mode = Mode(model, self.reference, 0.0, none, np.eye(none.size), np.eye(none.size), 0, 0)
        mode.__dict__["factor"] = self.factor
        return mode


class PartTotals(NamedTuple):
    """What a partition says of a bound."""

    counts: np.ndarray  # rows of each class
    radius: np.ndarray  # largest whitened norm of each class
    sums: np.ndarray  # total weight of each stream
    finite: np.ndarray  # of each table, whether all its weights are


class Request(NamedTuple):
    """Rows wanted of a partition: so many of a stream, for a block of a chain."""

    chain: int
    stream: int
    block: int
    size: int


def weigh(model: Model, weighting: Weighting, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (tables, rows) of a range, infinite where there is no bound; classes; whitened norms."""
    mode, size = weighting.mode(model), stop - start
    classes, norm = np.zeros(size, np.uint8), np.zeros(size)
    if weighting.bound == "uniform":
        return np.ones((1, size)), classes, norm
    if model.family.centred_third is not None:
        return centred_weights(mode, model.family.centred_third, start, stop)[None], classes, norm
    norm, curvature, supremum = passes.survey(model.rows, start, stop, weighting.factor, weighting.reference)
    cube = norm**3 / 6.0
    with np.errstate(invalid="ignore"):
        everywhere = np.where(cube > 0.0, supremum * cube, 0.0)
    if weighting.bound == "T6":
        return everywhere[None], classes, norm
    return np.stack([curvature * cube, everywhere]), half_octave(norm, max(weighting.largest, 1e-300)), norm


def part_totals(model: Model, weighting: Weighting, cores: int | None) -> PartTotals:
    """Sums of the weights of a partition, by stream."""
    tables, classes = weighting.tables, weighting.streams // weighting.tables
    if weighting.bound == "scores":
        sums, n = _scored(model, weighting, cores).sum(1), model.data.n
        return PartTotals(np.array([n]), np.zeros(1), sums, np.isfinite(sums))

    def work(start: int, stop: int) -> PartTotals:
        weight, kind, norm = weigh(model, weighting, start, stop)
        radius, finite = np.zeros(classes), np.isfinite(weight)
        np.maximum.at(radius, kind, norm)
        sums = [np.bincount(kind, np.where(f, w, 0.0), classes) for w, f in zip(weight, finite, strict=True)]
        return PartTotals(np.bincount(kind, minlength=classes), radius, np.stack(sums, 1).reshape(-1), finite.all(1))

    parts = passes.over_ranges(model.data.n, CHUNK, work, cores)
    return join_totals(parts, tables)


def _scored(model: Model, weighting: Weighting, cores: int | None) -> np.ndarray:
    """A row of ones, and the scores of all rows."""
    score = linear_scores(model.rows, model.family, weighting.factor, weighting.reference, weighting.order, cores)
    return np.stack([np.ones(score.size), score])


def join_totals(parts: list[PartTotals], tables: int) -> PartTotals:
    """Totals of several ranges or partitions, added in their order."""
    return PartTotals(
        np.sum([p.counts for p in parts], axis=0),
        np.max([p.radius for p in parts], axis=0),
        np.sum([p.sums for p in parts], axis=0),
        np.logical_and.reduce([p.finite for p in parts]).reshape(tables),
    )


def draw_requested(
    model: Model, weighting: Weighting, requests: list[Request], seed: int, part: int, cores: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of a partition for every request, i.i.d. in proportion to the weights of its stream, each with that weight.

    Numbers depend on the seed, the request and the number of the partition, and on nothing else.
    """
    if weighting.bound == "scores":
        weight, classes = _scored(model, weighting, cores), np.zeros(model.data.n, np.uint8)
    else:
        results = passes.over_ranges(model.data.n, CHUNK, lambda a, b: weigh(model, weighting, a, b), cores)
        weight, classes = np.concatenate([r[0] for r in results], axis=1), np.concatenate([r[1] for r in results])
    used, out = model.data.d + 3, []
    members: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for chain, stream, block, size in requests:
        if stream not in members:
            inside = np.flatnonzero(classes == stream // weighting.tables)
            members[stream] = inside, np.cumsum(weight[stream % weighting.tables, inside])
        inside, ends = members[stream]
        goals = generator(seed, Stream.STREAM_ROWS, chain, stream, block, part).random(size) * ends[-1]
        last = int(np.searchsorted(ends, ends[-1]))  # of positive weight: a goal may round up to the end
        rows = inside[np.minimum(np.searchsorted(ends, goals, side="right"), last)]
        out.append((np.array(model.data.records[rows, :used]), weight[stream % weighting.tables, rows]))
    return out


def norm_limit(moments: Moments, factor: np.ndarray) -> float:
    """At least |L'x| of every row, from the means and ranges of the columns.

    It is where classes of norms begin, which need not be at the largest norm itself, and spares a pass over the rows.
    """
    d = factor.shape[0]
    mean, low, high = moments.mean[:d], moments.low[:d], moments.high[:d]
    reach = np.maximum(high - mean, mean - low) @ np.linalg.norm(factor, axis=1)
    return float((np.linalg.norm(factor.T @ mean) + reach) * (1.0 + 1e-6))


def bound_of(model: Model, name: str) -> str:
    """The bound that streams use for a model, or a refusal."""
    family = model.family
    if not model.linear or model.grouped:
        raise ModelError("row streams support only models with linear predictors; read the rows on one machine for others.")
    if family.centred_third is None and model.several_indices:
        raise ModelError(
            f"there is no certified bound for this {family.name} model in partitions; use 'hmc-ecs', which needs none, or read its rows "
            "on one machine and use a full-data sampler such as 'nuts'."
        )
    best = "T9" if family.self_concordant else "T6"
    if name in ("auto", best) or (name == "T8" and best == "T6"):
        return best
    if name in ("T6", "T8") and best == "T9":
        return "T6"
    raise ModelError(f"streams of rows use bound {best} for {family.name}; give bound={best!r} or 'auto'.")


def partition_model(spec: Any, data: Any) -> Model:
    """The model over the rows of a partition; passes are over likelihoods, and the prior is added once, elsewhere."""
    return spec.model(data, normal(1.0))

"""Rows in partitions that stand for all of them, before there are chains: for pilots that measure estimators of the likelihood.

Where there are few rows all of them are sent. Otherwise TOP rows are drawn in proportion to their scores and REST uniformly, with
replacement, and row i has the weight 1 / (REST / n + TOP s_i / S), the inverse of its expected number of draws: sums over all rows are
estimated without bias, and the tails, which decide the bias of an estimator, are seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallbayes.data import records as packed
from tallbayes.diagnostics.subsample_pilot import POINTS, REST, TOP, Population, linear_scores, population
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.remote.row_weights import Weighting
from tallbayes.remote.supply import PILOT, StreamSupply
from tallbayes.streams import Stream, generator

if TYPE_CHECKING:
    from tallbayes.remote.partitions import Partitions


def draw_population(partitions: Partitions, mode: Mode, order: int, seed: int) -> Population:
    """All rows if they are few, otherwise a sample with weights."""
    model, n = partitions.model, partitions.n
    if not model.linear:
        raise ModelError("row streams support only models with linear predictors; read the rows on one machine for others.")
    factor = np.ascontiguousarray(mode.factor)
    if n <= TOP + REST:
        rows = model.rows_over(partitions.take(np.arange(n)).records)
        scores = linear_scores(rows, model.family, factor, mode.reference, order)
        whole = population(scores, generator(seed, Stream.STREAM_DEMAND))
        return Population(whole.index, whole.weight, whole.steepest, rows)
    weighting = Weighting("scores", mode.reference, factor, order=order)
    sums = np.stack([part.sums for part in partitions.part_totals(weighting)])
    uniform, scored = sums.sum(0)
    sizes = np.array([REST, TOP]) if scored > 0.0 else np.array([REST + TOP, 0])
    supply = StreamSupply(partitions, weighting, sums, sizes, seed, 0)
    sent = np.concatenate([supply.block(PILOT, int(s), 0)[0] for s in np.flatnonzero(sizes)])
    records = packed.empty(sent.shape[0], model.data.d, np.dtype(partitions.spec.dtype))
    records[:, : sent.shape[1]] = sent
    rows = model.rows_over(records)
    scores = linear_scores(rows, model.family, factor, mode.reference, order)
    weight = 1.0 / (sizes[0] / uniform + (sizes[1] * scores / scored if scored > 0.0 else 0.0))
    steepest = np.unique(scores, return_index=True)[1][::-1][:POINTS]
    return Population(np.arange(weight.size), weight * (n / weight.sum()), steepest, rows)

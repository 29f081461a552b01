"""Pairs of factors that both have an intercept: within a connected part of their levels one can rise and the other fall by the same.

Linear predictors do not change, so that only the priors of the levels decide. Two crossed factors have one part as a rule; a factor
nested in another has a part for each level of the outer one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.data.groups import CONSTANT
from tallbayes.models.group_effects import HierarchicalModel


class FactorPairs(NamedTuple):
    """Connected parts of the levels of every pair of factors with intercepts."""

    factors: np.ndarray  # (pairs, 2)
    counts: np.ndarray  # (pairs,): parts
    parts: np.ndarray  # (pairs, levels of all factors): the part of each level of the two
    begins: np.ndarray  # (factors,): number of levels before those of a factor


def factor_pairs(model: HierarchicalModel) -> FactorPairs:
    """The pairs of a model."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    sizes = [f.levels for f in model.factors]
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    chosen, counts, parts = [], [], []
    for k, first in enumerate(model.factors):
        for m in range(k + 1, len(model.factors)):
            second = model.factors[m]
            if CONSTANT not in first.terms or CONSTANT not in second.terms:
                continue
            total = first.levels + second.levels
            edges = np.unique(first.codes.astype(np.int64) * second.levels + second.codes)
            ends = edges // second.levels, first.levels + edges % second.levels
            graph = coo_matrix((np.ones(edges.size, np.int8), ends), shape=(total, total))
            count, labels = connected_components(graph, directed=False)
            own = np.zeros(sum(sizes), np.int64)
            own[begins[k] : begins[k] + first.levels] = labels[: first.levels]
            own[begins[m] : begins[m] + second.levels] = labels[first.levels :]
            chosen.append((k, m))
            counts.append(count)
            parts.append(own)
    return FactorPairs(
        np.array(chosen, np.int64).reshape(-1, 2),
        np.array(counts, np.int64),
        np.array(parts, np.int64).reshape(len(chosen), sum(sizes)),
        begins,
    )


def part_shifts(
    pairs: FactorPairs, pair: int, first: np.ndarray, second: np.ndarray, precisions: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Precision and linear term of the shift of every part, given Sigma^-1 b of the intercepts of both factors, and (Sigma^-1)_11."""
    k, m = pairs.factors[pair]
    parts = (
        pairs.parts[pair, pairs.begins[k] : pairs.begins[k] + first.size],
        pairs.parts[pair, pairs.begins[m] : pairs.begins[m] + second.size],
    )
    count = int(pairs.counts[pair])
    precision = precisions[0] * np.bincount(parts[0], minlength=count) + precisions[1] * np.bincount(parts[1], minlength=count)
    linear = np.bincount(parts[1], second, count) - np.bincount(parts[0], first, count)
    return precision, linear

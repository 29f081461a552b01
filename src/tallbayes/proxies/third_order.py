"""A Taylor proxy with third-order terms for pairs of positions near the reference.

Far from the reference a cubic is no proxy: it can hold a chain in the tails. So every position has its second-order value, and a pair of
positions, both within a distance of the reference, also has the difference of their third-order sums. Being near is a fact of the pair, the
same from either side: a ratio of a pair is the inverse of the ratio back.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tallbayes.bounds.pair_functions import norm
from tallbayes.compile import generic
from tallbayes.engine.cubic_sums import subtract_third, tensor_value, third_order_sum
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.proxies.taylor import Taylor, proxy_value, taylor


class ThirdOrder(NamedTuple):
    """Second-order sums, entries of the tensor of `engine.cubic_sums`, and the distance within which pairs use it."""

    second: Taylor
    entries: np.ndarray
    reach: float


@proxy_value.register(ThirdOrder)
def _second_order_value(proxy: ThirdOrder, white: np.ndarray) -> float:
    return proxy_value(proxy.second, white)


@generic
def pair_value(proxy: Any, white: np.ndarray, other: np.ndarray) -> float:
    """What the proxies of a pair add to the difference of their values: nothing, unless a proxy says otherwise."""
    return 0.0


@pair_value.register(ThirdOrder)
def _third_order_value(proxy: ThirdOrder, white: np.ndarray, other: np.ndarray) -> float:
    if max(norm(white), norm(other)) > proxy.reach:
        return 0.0
    return tensor_value(proxy.entries, other) - tensor_value(proxy.entries, white)


@generic
def subtract_pair_terms(
    proxy: Any,
    rows: Any,
    index: np.ndarray,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    white: np.ndarray,
    other_white: np.ndarray,
    out: np.ndarray,
) -> None:
    """Take what `pair_value` adds from the residuals of the indexed rows; points are theta, the other and the reference."""


@subtract_pair_terms.register(ThirdOrder)
def _subtract_third_order(
    proxy: ThirdOrder,
    rows: Any,
    index: np.ndarray,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    white: np.ndarray,
    other_white: np.ndarray,
    out: np.ndarray,
) -> None:
    if max(norm(white), norm(other_white)) <= proxy.reach:
        subtract_third(rows, index, points[0], points[1], points[2], out)


def reach_of(dimension: int) -> float:
    """Distance from the reference within which pairs use third-order terms: beyond nearly every draw."""
    return math.sqrt(dimension) + 4.0


def third_order(mode: Mode) -> ThirdOrder:
    """The proxy of a model at its mode; one more pass over the rows.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.ones(50))
    >>> mode = tb.find_mode(tb.models.poisson(data, tb.priors.flat()), progress=False)
    >>> third_order(mode).entries * 50**1.5  # f''' = -1 in every row, and a row is 50^(-1/2) in whitened coordinates
    array([-8.33333333])
    """
    model = mode.model
    family = model.family
    proven = family.self_concordant and family.fourth_concordant()
    if not model.linear or model.predictors != 1 or model.nuisances or not proven:
        raise ModelError(
            f"order=3 is for logistic, binomial, Poisson, gamma and negative binomial models with known parameters, not for this "
            f"{family.name} model; use order=2."
        )
    if model.partitions is not None:
        raise ModelError("order=3 needs the rows on this machine, but they are in partitions; use order=2.")
    entries = third_order_sum(model.rows, mode.factor, mode.reference)
    return ThirdOrder(taylor(mode), entries, reach_of(model.dim))

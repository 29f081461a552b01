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
from tallbayes.compile import declared, generic, inlinable
from tallbayes.engine.cubic_sums import add_tensor_gradient, subtract_third, tensor_value, third_order_sum
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
def higher_terms(proxy: Any, white: np.ndarray) -> float:
    """Terms of a proxy at a position that only pairs of near positions use: nothing, unless a proxy says otherwise."""
    return 0.0


@higher_terms.register(ThirdOrder)
def _third_order_terms(proxy: ThirdOrder, white: np.ndarray) -> float:
    return tensor_value(proxy.entries, white)


@generic
def pair_near(proxy: Any, white: np.ndarray, other: np.ndarray) -> bool:
    """Whether a pair of positions uses `higher_terms`."""
    return False


@pair_near.register(ThirdOrder)
def _within_reach(proxy: ThirdOrder, white: np.ndarray, other: np.ndarray) -> bool:
    return max(norm(white), norm(other)) <= proxy.reach


@inlinable
def pair_value(proxy: Any, white: np.ndarray, other: np.ndarray) -> float:
    """What the proxies of a pair add to the difference of their values."""
    return higher_terms(proxy, other) - higher_terms(proxy, white) if pair_near(proxy, white, other) else 0.0


@generic
def whole_value(proxy: Any, white: np.ndarray) -> float:
    """The proxy with all its terms, as one density of positions: -inf where not all of them are used."""
    return proxy_value(proxy, white)


@whole_value.register(ThirdOrder)
def _all_terms(proxy: ThirdOrder, white: np.ndarray) -> float:
    if norm(white) > proxy.reach:
        return -np.inf
    return proxy_value(proxy.second, white) + tensor_value(proxy.entries, white)


@generic
@declared
def whole_gradient(proxy: Any, white: np.ndarray, gradient: np.ndarray) -> float:
    """The same, its gradient written to `gradient`."""
    raise TypeError


@whole_gradient.register(Taylor)
def _second_order_gradient(proxy: Taylor, white: np.ndarray, gradient: np.ndarray) -> float:
    value = 0.0
    for j in range(white.size):
        slope = 0.0
        for k in range(white.size):
            slope += proxy.hessian[j, k] * white[k]
        gradient[j] = proxy.gradient[j] + slope
        value += (proxy.gradient[j] + 0.5 * slope) * white[j]
    return value


@whole_gradient.register(ThirdOrder)
def _third_order_gradient(proxy: ThirdOrder, white: np.ndarray, gradient: np.ndarray) -> float:
    value = whole_gradient(proxy.second, white, gradient)
    if norm(white) > proxy.reach:
        return -np.inf
    return value + add_tensor_gradient(proxy.entries, white, gradient)


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
    if pair_near(proxy, white, other_white):
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

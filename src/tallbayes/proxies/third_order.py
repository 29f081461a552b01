"""A Taylor proxy with third-order terms for pairs of positions near the reference.

Far from the reference a cubic is no proxy: it can hold a chain in the tails. So every position has its second-order value, and a pair of
positions, both within a distance of the reference, also has the difference of their third-order sums. Being near is a fact of the pair, the
same from either side: a ratio of a pair is the inverse of the ratio back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallbayes.bounds.pair_functions import norm
from tallbayes.compile import inlinable
from tallbayes.engine.cubic_sums import add_tensor_gradient, subtract_third, tensor_value, third_order_sum
from tallbayes.errors import ModelError
from tallbayes.mode.laplace import Mode
from tallbayes.proxies.taylor import ProxyTotal, proxy_value, taylor


@inlinable
def tensor_entries(proxy: ProxyTotal, dimension: int) -> np.ndarray:
    """Entries of the tensor of `engine.cubic_sums`, which follow the gradient and the Hessian."""
    return proxy.numbers[dimension * (dimension + 1) :]


@inlinable
def higher_terms(proxy: ProxyTotal, white: np.ndarray) -> float:
    """Terms of a proxy at a position that only pairs of near positions use: those of third order, if it has any."""
    return tensor_value(tensor_entries(proxy, white.size), white) if proxy.reach > 0.0 else 0.0


@inlinable
def pair_near(proxy: ProxyTotal, white: np.ndarray, other: np.ndarray) -> bool:
    """Whether a pair of positions uses `higher_terms`."""
    return proxy.reach > 0.0 and max(norm(white), norm(other)) <= proxy.reach


@inlinable
def pair_value(proxy: ProxyTotal, white: np.ndarray, other: np.ndarray) -> float:
    """What the proxies of a pair add to the difference of their values."""
    return higher_terms(proxy, other) - higher_terms(proxy, white) if pair_near(proxy, white, other) else 0.0


@inlinable
def whole_value(proxy: ProxyTotal, white: np.ndarray) -> float:
    """The proxy with all its terms, as one density of positions: -inf where not all of them are used."""
    if proxy.reach > 0.0 and norm(white) > proxy.reach:
        return -np.inf
    return proxy_value(proxy, white) + higher_terms(proxy, white)


@inlinable
def whole_gradient(proxy: ProxyTotal, white: np.ndarray, gradient: np.ndarray) -> float:
    """The same for Taylor proxies of order 2 and 3, the gradient written to `gradient`."""
    d, numbers, value = white.size, proxy.numbers, 0.0
    for j in range(d):
        slope, place = 0.0, d + j * d
        for k in range(d):
            slope += numbers[place + k] * white[k]
        gradient[j] = numbers[j] + slope
        value += (numbers[j] + 0.5 * slope) * white[j]
    if proxy.reach > 0.0:
        if norm(white) > proxy.reach:
            return -np.inf
        value += add_tensor_gradient(tensor_entries(proxy, white.size), white, gradient)
    return value


@inlinable
def subtract_pair_terms(
    proxy: ProxyTotal,
    rows: Any,
    index: np.ndarray,
    points: tuple[np.ndarray, np.ndarray, np.ndarray],
    white: np.ndarray,
    other_white: np.ndarray,
    out: np.ndarray,
) -> None:
    """Take what `pair_value` adds from the residuals of the indexed rows; points are theta, the other and the reference."""
    if pair_near(proxy, white, other_white):
        subtract_third(rows, index, points[0], points[1], points[2], out)


def reach_of(dimension: int) -> float:
    """Distance from the reference within which pairs use third-order terms: beyond nearly every draw."""
    return math.sqrt(dimension) + 4.0


def third_order(mode: Mode) -> ProxyTotal:
    """The proxy of a model at its mode; one more pass over the rows.

    >>> import numpy as np, tallbayes as tb
    >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.ones(50))
    >>> mode = tb.find_mode(tb.models.poisson(data, tb.priors.flat()), progress=False)
    >>> tensor_entries(third_order(mode), 1) * 50**1.5  # f''' = -1 in every row, and a row is 50^(-1/2) in whitened coordinates
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
    second = taylor(mode)
    return second._replace(numbers=np.concatenate([second.numbers, entries]), reach=reach_of(model.dim))

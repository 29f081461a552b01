"""Gaussian models by sufficient statistics: the whole likelihood, sigma unknown too, in O(d^2) and without reading a row.

With h = beta - beta*, SSE(beta) = SSE(beta*) - 2 (X'Wr*).h + h'X'WXh, expanded at the mode to avoid cancellation. Log sigma is the last
coordinate, so h = L w has the first d - 1 rows of the factor L alone, and both sums are kept in whitened coordinates.
"""

from __future__ import annotations

import math

import numpy as np

from tallbayes.engine import passes
from tallbayes.engine.rows import one_index
from tallbayes.mode.laplace import Mode
from tallbayes.proxies.taylor import ProxyTotal, proxy_function, proxy_total


@proxy_function("gaussian moments")
def _value(numbers: np.ndarray, white: np.ndarray) -> float:
    """From SSE(beta*), the sum of weights, log sigma*, then the last row of the factor, the cross terms and the Gram matrix."""
    d = white.size - 1
    start, weight, level = numbers[0], numbers[1], numbers[2]
    cross, gram = 3 + d + 1, 3 + d + 1 + d
    squares, scale = start, level
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += numbers[gram + j * d + k] * white[k]
        squares += white[j] * (inner - 2.0 * numbers[cross + j])
    for j in range(d + 1):
        scale += numbers[3 + j] * white[j]
    here = -weight * scale - 0.5 * squares * math.exp(-2.0 * scale)
    there = -weight * level - 0.5 * start * math.exp(-2.0 * level)
    return here - there


def gaussian_moments(mode: Mode) -> ProxyTotal:
    """One pass over the rows of a Gaussian model with unknown sigma."""
    model = mode.model
    at = mode.reference[:-1].copy()
    if model.partitions is not None:
        value, gradient, hessian = model.partitions.unit_scale_hessian(at)
    else:
        rows = one_index(model.unit_scale_member, model.data.records, model.data.d)
        value, gradient, hessian = passes.total_hessian(rows, at)
    factor = mode.factor[:-1, :-1]
    parts = [
        np.array([-2.0 * value, model.data.total_weight, mode.reference[-1]]),
        mode.factor[-1],
        factor.T @ gradient,
        (factor.T @ -hessian @ factor).ravel(),
    ]
    return proxy_total("gaussian moments", np.concatenate(parts), 0)

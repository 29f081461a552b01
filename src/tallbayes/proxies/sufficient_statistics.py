"""Gaussian models by sufficient statistics: the whole likelihood, sigma unknown too, in O(d^2) and without reading a row.

With h = beta - beta*, SSE(beta) = SSE(beta*) - 2 (X'Wr*).h + h'X'WXh, expanded at the mode to avoid cancellation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tallbayes.engine import passes
from tallbayes.engine.rows import one_index
from tallbayes.mode.laplace import Mode
from tallbayes.proxies.taylor import Whitening, proxy_value, unwhiten, whitening_of


class GaussianMoments(NamedTuple):
    """Weighted residual sum of squares around the mode and the sum of weights."""

    whitening: Whitening
    squares: float
    cross: np.ndarray
    gram: np.ndarray
    weight: float


@proxy_value.register(GaussianMoments)
def _value(proxy: GaussianMoments, white: np.ndarray) -> float:
    theta = np.empty(white.size)
    unwhiten(proxy.whitening, white, theta)
    reference, d = proxy.whitening.reference, white.size - 1
    squares = proxy.squares
    for j in range(d):
        inner = 0.0
        for k in range(d):
            inner += proxy.gram[j, k] * (theta[k] - reference[k])
        squares += (theta[j] - reference[j]) * (inner - 2.0 * proxy.cross[j])
    here = -proxy.weight * theta[d] - 0.5 * squares * math.exp(-2.0 * theta[d])
    there = -proxy.weight * reference[d] - 0.5 * proxy.squares * math.exp(-2.0 * reference[d])
    return here - there


def gaussian_moments(mode: Mode) -> GaussianMoments:
    """One pass over the rows of a Gaussian model with unknown sigma."""
    model = mode.model
    at = mode.reference[:-1].copy()
    if model.partitions is not None:
        value, gradient, hessian = model.partitions.unit_scale_hessian(at)
    else:
        rows = one_index(model.unit_scale_member, model.data.records, model.data.d)
        value, gradient, hessian = passes.total_hessian(rows, at)
    return GaussianMoments(whitening_of(mode), -2.0 * value, gradient, -hessian, model.data.total_weight)

"""The surrogate posterior as a density for moves: proxies of all rows and the prior, in whitened coordinates. Reads no row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.moves.linear import upper_times
from tallbayes.moves.move import log_density, log_density_gradient
from tallbayes.priors import LogPrior, prior_gradient, prior_value
from tallbayes.proxies.taylor import Whitening, factor_of, unwhiten
from tallbayes.proxies.third_order import whole_gradient, whole_value


class Surrogate(NamedTuple):
    """Proxies with all their terms, and the prior; with third-order terms only within their reach."""

    proxy: Any
    whitening: Whitening
    prior: LogPrior


@log_density.register(Surrogate)
def _value(density: Surrogate, white: np.ndarray) -> float:
    theta = np.empty(white.size)
    unwhiten(density.whitening, white, theta)
    return whole_value(density.proxy, white) + prior_value(density.prior, theta)


@log_density_gradient.register(Surrogate)
def _gradient(density: Surrogate, white: np.ndarray, gradient: np.ndarray) -> float:
    theta, prior, turned = np.empty(white.size), np.zeros(white.size), np.empty(white.size)
    unwhiten(density.whitening, white, theta)
    value = prior_gradient(density.prior, theta, prior)
    upper_times(factor_of(density.whitening), prior, turned)
    value += whole_gradient(density.proxy, white, gradient)
    for j in range(white.size):
        gradient[j] += turned[j]
    return value

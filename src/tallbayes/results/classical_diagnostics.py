"""Diagnostics that papers print: the potential scale reduction of Gelman and Rubin, and effective sizes by an autoregression.

`fit.r_hat` and `fit.ess` are rank-normalised and split (Vehtari et al. 2021). Those here are for tables beside published ones.
"""

from __future__ import annotations

import numpy as np


def gelman_rubin(theta: np.ndarray) -> np.ndarray:
    """Potential scale reduction of each coordinate of (chains, draws, dim): neither split nor rank-normalised (Robert and Casella 2004).

    sqrt((1 - 1/T) + B / W): W the mean variance of a chain, B the variance of their means.

    >>> draws = np.random.default_rng(0).standard_normal((4, 1000, 1))
    >>> bool(gelman_rubin(draws)[0] < 1.01), bool(gelman_rubin(draws + np.arange(4.0)[:, None, None])[0] > 1.5)
    (True, True)
    """
    within = theta.var(axis=1, ddof=1).mean(axis=0)
    between = theta.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(1.0 - 1.0 / theta.shape[1] + between / within)


def spectrum_at_zero(values: np.ndarray) -> float:
    """Spectral density at frequency zero of a series by an autoregression, as `spectrum0.ar` of R's coda estimates it.

    Yule-Walker fits of every order up to 10 log10 T, the order with the least AIC, v / (1 - sum phi)^2. It is T times the variance
    of the mean of the series.
    """
    size = values.size
    centred = values - values.mean()
    most = max(0, min(size - 1, int(10.0 * np.log10(size))))
    autocovariance = np.array([centred[: size - k] @ centred[k:] for k in range(most + 1)]) / size
    best, noise, coefficients = (
        (size * np.log(autocovariance[0]) + 2.0, autocovariance[0], np.zeros(0)),
        autocovariance[0],
        np.zeros(0),
    )
    for order in range(1, most + 1):  # Levinson and Durbin
        reflection = (autocovariance[order] - coefficients @ autocovariance[order - 1 : 0 : -1]) / noise
        coefficients = np.append(coefficients - reflection * coefficients[::-1], reflection)
        noise *= 1.0 - reflection * reflection
        criterion = size * np.log(noise) + 2.0 * order + 2.0
        if criterion < best[0]:
            best = (criterion, noise, coefficients)
    _, noise, coefficients = best
    noise *= size / (size - coefficients.size - 1.0)
    return float(noise / (1.0 - coefficients.sum()) ** 2)


def autoregressive_sizes(theta: np.ndarray) -> np.ndarray:
    """Effective size of each coordinate of (chains, draws, dim) by `spectrum_at_zero`, added over chains; 0 for one that never moved.

    >>> draws = np.random.default_rng(0).standard_normal((2, 2000, 1))
    >>> bool(abs(autoregressive_sizes(draws)[0] / 4000 - 1) < 0.15)
    True
    """
    size = theta.shape[1]
    found = np.zeros(theta.shape[2])
    for chain in theta:
        for j in np.flatnonzero(np.ptp(chain, axis=0) > 0.0):
            found[j] += size * chain[:, j].var(ddof=1) / spectrum_at_zero(chain[:, j])
    return found

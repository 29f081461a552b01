"""Posterior moments by importance sampling from the Laplace fit: an answer that owes nothing to any Markov chain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tallbayes.mode.laplace import Mode
from tallbayes.mode.search import find_mode
from tallbayes.model import Model
from tallbayes.streams import Stream, generator


@dataclass(frozen=True, eq=False)
class ImportanceEstimate:
    """Means and standard deviations with their Monte Carlo errors, and how good the proposal was."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    ess: float
    draws: int


def importance_moments(
    model: Model, draws: int = 2000, seed: int = 0, df: float = 10.0, mode: Mode | None = None
) -> ImportanceEstimate:
    """Self-normalised importance sampling from a multivariate t around the mode; `draws` full passes over the data.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import importance_moments
    >>> data = tb.Dataset.from_arrays(np.ones((10, 1)), np.arange(10.0))
    >>> estimate = importance_moments(tb.models.gaussian(data, tb.priors.flat(), sigma=2.0))
    >>> abs(estimate.mean[0] - 4.5) < 6 * estimate.mean_error[0]
    np.True_
    """
    rng = generator(seed, Stream.IMPORTANCE)
    mode = find_mode(model, progress=False) if mode is None else mode
    d = model.dim
    noise = rng.standard_normal((draws, d)) * np.sqrt(df / rng.chisquare(df, draws))[:, None]
    theta = mode.reference + noise @ mode.factor.T
    proposal = -0.5 * (df + d) * np.log1p((noise**2).sum(1) / df)
    log_weight = np.array([model.log_posterior(t) for t in theta]) - proposal
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ theta
    centred = theta - mean
    variance = weight @ centred**2
    sd = np.sqrt(variance)
    mean_error = np.sqrt((weight**2) @ centred**2)
    sd_error = np.sqrt((weight**2) @ (centred**2 - variance) ** 2) / (2 * sd)
    return ImportanceEstimate(mean, sd, mean_error, sd_error, 1.0 / math.fsum(weight**2), draws)

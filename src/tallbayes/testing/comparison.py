"""Laws compared: effective sizes of draws, and z-scores between two fits of one posterior."""

from __future__ import annotations

import numpy as np

from tallbayes.results import Fit, cost


def effective_sizes(draws: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Bulk effective size of each coordinate of draws (chains, draws, dim); 0 for one that never moved.

    With weights (chains, draws), signed or not, the effective size of weighted means.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).standard_normal((4, 500, 2))
    >>> bool((effective_sizes(draws) > 1500).all()), effective_sizes(np.ones((4, 500, 1)))
    (True, array([0.]))
    """
    return cost.effective_sizes(draws, weights)


def all_draws(fit: Fit) -> np.ndarray:
    """Draws of the parameters and then of all levels of a hierarchical model, (chains, draws, coordinates).

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import all_draws, fit_from_draws
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0)), sigma=1.0)
    >>> all_draws(fit_from_draws(model, np.zeros((2, 5, 1)))).shape
    (2, 5, 1)
    """
    return np.concatenate([fit.theta, *(levels.values for levels in fit.levels.values())], axis=2)


def largest_disagreement(first: Fit, second: Fit) -> float:
    """Largest z-score between two fits of one model: of means, mean squares, and probabilities of the tails of 1 %.

    Each has the effective size of its own draws, that of the indicator for tails. Levels of groups count as coordinates.

    >>> import numpy as np, tallbayes as tb
    >>> from tallbayes.testing import THRESHOLD, fit_from_draws, largest_disagreement
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((9, 1)), np.arange(9.0)), sigma=1.0)
    >>> rng = np.random.default_rng(0)
    >>> one, same, other = (fit_from_draws(model, m + rng.standard_normal((4, 2000, 1))) for m in (0.0, 0.0, 0.2))
    >>> largest_disagreement(one, same) < THRESHOLD < largest_disagreement(one, other)
    True
    """
    a, b = all_draws(first), all_draws(second)
    pairs = [(a, b), (a**2, b**2)]
    both = np.concatenate([a.reshape(-1, a.shape[2]), np.resize(b.reshape(-1, b.shape[2]), (a[..., 0].size, b.shape[2]))])
    for p in (0.01, 0.99):
        cut = np.quantile(both, p, axis=0)
        pairs.append(((a < cut).astype(float), (b < cut).astype(float)))
    scores = []
    for one, other in pairs:
        noise = one.var((0, 1)) / effective_sizes(one) + other.var((0, 1)) / effective_sizes(other)
        scores.append(np.abs((one.mean((0, 1)) - other.mean((0, 1))) / np.sqrt(noise)).max())
    return float(max(scores))

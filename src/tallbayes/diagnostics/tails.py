"""Tails of the posterior beside those of the normal law at the mode, from which independent proposals come.

A proposal w' ~ N(0, I), and a first stage that decides by the quadratic proxy, seldom leave a point where the posterior is much
larger than both: the chain stays for exp(log posterior - log normal) iterations, and visits such points as seldom. Means of
finite runs then miss the tails, and effective sizes and R-hat, which know only what was visited, look good. Two things show it:
draws outside the region that holds 99.99 % of the normal law, and the density at the most extreme draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from tallbayes.proxies.taylor import Whitening, factor_of, reference_of

REGION = 1e-4  # probability of the normal law outside the region
HEAVY = 50.0  # times that share: integrated autocorrelation times are near 2 below 10 times and above 10 beyond 50
FEWEST = 20  # draws outside before anything is said
JUDGED = 400  # draws in all before densities are looked at
EXTREMES = 3  # draws whose density is looked at
EXCESS = 3.5  # log of posterior over normal density, less two standard errors: stays of thirty iterations


def heavy_tails(
    whitening: Whitening,
    theta: np.ndarray,
    excess: Callable[[np.ndarray], Iterable[tuple[float, float]]],
    remedy: str,
    df: float | None = None,
) -> list[str]:
    """A sentence if draws (chains, draws, dim) show heavier tails than the normal law, or Student's t with `df`, of the proposals.

    `excess` estimates the log of the posterior over the normal density at whitened points, both 1 at the mode, each with its error.

    >>> white = np.random.default_rng(0).standard_t(3, (4, 1000, 2))
    >>> from tallbayes.proxies.taylor import whitening_at
    >>> law = whitening_at(np.zeros(2), np.eye(2))
    >>> heavy_tails(law, white, lambda points: [(0.0, 0.0)] * len(points), "Use 'nuts'.")[0][:57]
    '5 % of the draws are outside the region that holds 99.99 '
    >>> heavy_tails(law, white / 4, lambda points: [(0.0, 0.0)] * len(points), "Use 'nuts'.")
    []
    >>> heavy_tails(law, white / 4, lambda points: [(4.0, 0.1)] * len(points), "Use 'nuts'.")[0][:62]
    'at a draw 10.9 standard deviations from the mode the posterior'
    """
    d = theta.shape[2]
    white = solve_triangular(factor_of(whitening), (theta.reshape(-1, d) - reference_of(whitening)).T, lower=True).T
    square = (white**2).sum(1)
    outside = square > chdtri(d, REGION)
    share = float(outside.mean())
    consequence = f"the sampler explores these tails poorly, and the reported ESS is too high. {remedy}"
    law = "the Gaussian approximation" if df is None else f"Student's t with {df:.3g} degrees of freedom"
    if df is None and outside.sum() >= FEWEST and share > HEAVY * REGION:
        region = f"the region that holds {100.0 * (1.0 - REGION):.4g} % of the Gaussian approximation at the mode"
        return [f"{100.0 * share:.2g} % of the draws are outside {region}: {consequence}"]
    if square.size < JUDGED:
        return []
    _, first = np.unique(square, return_index=True)
    places = first[::-1][:EXTREMES]
    for place, (log_ratio, error) in zip(places, excess(white[places]), strict=True):
        if df is not None:
            log_ratio += _normal_over_student(float(square[place]), d, df)
        if log_ratio - 2.0 * error > EXCESS:
            return [
                f"at a draw {math.sqrt(square[place]):.1f} standard deviations from the mode the posterior density is about "
                f"{math.exp(min(log_ratio, 100.0)):.2g} times that of {law} there: {consequence}"
            ]
    return []


def _normal_over_student(square: float, d: int, df: float) -> float:
    """Log of the normal density over that of Student's t at this squared distance, 0 at d, where most of the posterior is."""
    tails = 0.5 * (df + d) * (math.log1p(square / df) - math.log1p(d / df))
    return tails - 0.5 * (square - d)

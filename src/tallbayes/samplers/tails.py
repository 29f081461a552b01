"""Tails of the draws beside those of the normal law at the mode, from which independent proposals come.

A proposal w' ~ N(0, I), and a first stage that decides by the quadratic proxy, seldom leave a point where the posterior is much
larger than both: the chain stays for exp(log posterior - log normal) iterations, and visits such points as seldom. Means of
finite runs then miss the tails, and effective sizes and R-hat, which know only what was visited, look good. What is visited
still shows it: of a normal posterior one draw in 10,000 is outside the region that holds 99.99 % of it.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from tallbayes.proxies.taylor import Whitening

REGION = 1e-4  # probability of the normal law outside the region
FEWEST = 20  # draws outside before anything is said
HEAVY = 50.0  # times that share: integrated autocorrelation times are near 2 below 10 times and above 10 beyond 50


def heavy_tails(whitening: Whitening, theta: np.ndarray, remedy: str) -> list[str]:
    """A sentence if draws (chains, draws, dim) are outside the region far more often than those of the normal law.

    >>> white = np.random.default_rng(0).standard_t(3, (4, 1000, 2))
    >>> heavy_tails(Whitening(np.zeros(2), np.eye(2)), white, "Use 'nuts'.")[0][:57]
    '5 % of the draws are outside the region that holds 99.99 '
    >>> heavy_tails(Whitening(np.zeros(2), np.eye(2)), white / 4, "Use 'nuts'.")
    []
    """
    d = theta.shape[2]
    white = solve_triangular(whitening.factor, (theta.reshape(-1, d) - whitening.reference).T, lower=True)
    outside = (white**2).sum(0) > chdtri(d, REGION)
    share = float(outside.mean())
    if outside.sum() < FEWEST or share <= HEAVY * REGION:
        return []
    return [
        f"{100.0 * share:.2g} % of the draws are outside the region that holds {100.0 * (1.0 - REGION):.4g} % of the normal law at "
        f"the mode: proposals from that law rarely reach or leave such tails, and effective sizes are too optimistic. {remedy}"
    ]

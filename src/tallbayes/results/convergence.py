"""Whether chains have converged, as far as their draws can tell: split R-hat, effective sizes, longest stay and divergences.

All are computed for every run, of one chain and of few draws too; R-hat of one chain compares its parts. Numbers of short runs are
noisy, so they are judged by what chains that have converged would show:

* R-hat above 1.01 counts if there are 4,000 draws or more. Fewer have to exceed what the means of half chains of the same
  autocorrelation reach once in ten thousand runs: R-hat^2 - 1 is about chi^2(k - 1) / (k - 1) / e for k half chains of e effective
  draws, where e is not taken to be more than a tenth of their draws. Half chains of fewer than 20 draws tell nothing.
* The smallest effective size, bulk or tail, counts below 400, or below a fiftieth of the draws if that is less; not for fewer
  than 80 draws. Below 20 the bulk counts in every run of 300 draws or more.
* A stay at one point counts if it takes more than a tenth of the run and more than 60 iterations; Metropolis-Hastings that
  accepts a quarter of its proposals stays so long once in ten million iterations.
* Divergences count if there is more than one in a thousand iterations, of Firefly more than one in fifty: the density of its bright
  rows is zero where they touch their bound, and steps that come close diverge and are rejected, as they should be.

What counts is said in one sentence each: when the run ends, in `fit.meta["warnings"]`, by the summary and in the report.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import chdtri

from tallbayes.results.cost import mean_sizes, parts

if TYPE_CHECKING:
    from tallbayes.results.fit import Fit

APART = 1.01  # R-hat above which chains disagree
LONG = 4000  # draws in all from which R-hat is compared with that number alone
DISJOINT = 1.75  # R-hat of ranks is 1.83 for two chains that do not overlap, however far they are apart
CHANCE = 1e-4  # probability that shorter chains are called apart by chance
SHORTEST = 20  # draws of a half chain from which R-hat is more than noise
SLOW = 10  # draws for an effective one that are taken for granted in short chains
FEW = 400  # effective size below which quantiles are not to be trusted (Vehtari et al. 2021)
SHARE = 50  # draws for an effective one from which a run of any length is too short
LEAST, LEAST_OF = 20, 300  # effective size that tells next to nothing, and draws from which its estimate can be believed
STAY = 60  # iterations at one point that are no chance
STAY_SHARE = 0.1  # of the run
MOVED = 40  # iterations after which every coordinate should have moved
DIVERGENT, DIVERGENT_LIGHTS = 1e-3, 0.02  # share of diverging iterations, and of Firefly


class Convergence(NamedTuple):
    """What the draws tell: arrays hold a number for each coordinate, NaN where there are too few draws."""

    r_hat: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    longest_stay: int  # iterations without a move of theta, in the worst chain
    still: np.ndarray  # whether a coordinate never moved in at least one chain
    divergences: int


def measure(fit: Fit) -> Convergence:
    """The numbers by which a fit is judged.

    >>> import numpy as np, tallbayes as tb
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=1.0)
    >>> fit = tb.sample(model, "hmc", draws=100, warmup=100, chains=1, seed=1, progress=False)
    >>> numbers = measure(fit)
    >>> bool(numbers.r_hat[0] < 1.1), bool(numbers.ess_bulk[0] > 40), numbers.longest_stay < 10, numbers.divergences
    (True, True, True, 0)
    """
    divergences = int(fit.stats["diverging"].sum()) if "diverging" in fit.stats else 0
    still = (np.ptp(fit.theta, axis=1) == 0.0).any(axis=0)
    return Convergence(fit.r_hat, fit.ess, fit.ess_tail, longest_stay(fit.theta) * fit.thin, still, divergences)


def longest_stay(theta: np.ndarray) -> int:
    """Draws of the longest piece of a chain (chains, draws, dim) in which theta does not move.

    >>> longest_stay(np.array([[[1.0], [2.0], [2.0], [2.0], [3.0]]]))
    3
    """
    moved = (np.diff(theta, axis=1) != 0.0).any(axis=2)
    ends = (np.flatnonzero(np.concatenate([[True], chain, [True]])) for chain in moved)
    return max(int(np.diff(places).max()) for places in ends)


def doubts(fit: Fit) -> list[str]:
    """What the draws give reason to doubt, in sentences; empty for chains that have converged, as far as they can tell.

    >>> import numpy as np, tallbayes as tb
    >>> from dataclasses import replace
    >>> model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=1.0)
    >>> fit = tb.sample(model, "hmc", draws=100, warmup=100, chains=2, seed=1, progress=False)
    >>> doubts(fit)
    []
    >>> print(doubts(replace(fit, theta=fit.theta + np.array([0.0, 1.0])[:, None, None]))[0][:64])
    the chains disagree about 'x0' (R-hat ...
    """
    chains, draws, _ = fit.theta.shape
    total, iterations = chains * draws, chains * draws * fit.thin
    numbers, other = measure(fit), _other(fit)
    sentences = []
    if numbers.still.any() and draws * fit.thin >= MOVED:
        name = fit.names[int(np.argmax(numbers.still))]
        sentences.append(
            f"{name!r} never moved in at least one chain of {draws:,} draws: the draws do not describe the posterior. "
            f"{other[0].upper() + other[1:]}, or take smaller steps."
        )
    elif numbers.longest_stay > max(STAY, STAY_SHARE * draws * fit.thin):
        sentences.append(
            f"a chain stayed at one point for {numbers.longest_stay:,} of {draws * fit.thin:,} iterations: means and intervals depend on "
            f"where it stayed. Run longer; if that does not help, {other}, or take smaller steps."
        )
    apart = np.flatnonzero(numbers.r_hat > r_hat_limits(fit.theta, numbers.r_hat))
    sizes = np.fmin(numbers.ess_bulk, numbers.ess_tail)
    floor = min(FEW, total / SHARE)
    if total >= LEAST_OF and np.nanmin(numbers.ess_bulk, initial=np.inf) < LEAST:
        sizes, floor = numbers.ess_bulk, max(floor, LEAST)
    if apart.size:
        worst = int(apart[np.argmax(numbers.r_hat[apart])])
        who = "the chains disagree" if chains > 1 else "the parts of the chain disagree"
        sentences.append(
            f"{who} about {fit.names[worst]!r} (R-hat {numbers.r_hat[worst]:.4g}): the draws do not describe the posterior yet. "
            f"Run longer; if that does not help, {other}."
        )
    elif total >= 4 * SHORTEST and np.nanmin(sizes, initial=np.inf) < floor and not numbers.still.any():
        worst = int(np.nanargmin(sizes))
        sentences.append(
            f"{fit.names[worst]!r} has {sizes[worst]:,.3g} effective draws of {total:,}, fewer than {floor:,.3g}: means and intervals "
            f"are rough. Run longer; if that does not help, {other}."
        )
    lights = fit.meta.get("sampler_name") == "firefly"
    if numbers.divergences > (DIVERGENT_LIGHTS if lights else DIVERGENT) * iterations:
        sentences.append(
            f"{numbers.divergences:,} of {iterations:,} iterations diverged: the draws may miss a part of the posterior. Raise "
            "acceptance= of the move, or write the model with other parameters."
        )
    return sentences


def r_hat_limits(theta: np.ndarray, r_hat: np.ndarray) -> np.ndarray:
    """R-hat of each coordinate above which draws (chains, draws, dim) have not converged.

    >>> draws = np.random.default_rng(0).standard_normal((4, 1000, 1))
    >>> r_hat_limits(draws, np.array([1.2])), r_hat_limits(draws[:, :100], np.array([1.2])).round(1)
    (array([1.01]), array([1.4]))
    """
    chains, draws, dim = theta.shape
    limits = np.full(dim, APART)
    if chains * draws >= LONG:
        return limits
    halves = parts(parts(theta) if chains == 1 else theta)
    count, length, _ = halves.shape
    if length < SHORTEST:
        return np.full(dim, np.inf)
    for k in np.flatnonzero(r_hat > APART):
        size = max(1.0, min(mean_sizes(halves[:, :, k]), length / SLOW))
        noise = float(chdtri(count - 1, CHANCE / dim)) / (count - 1) / size
        limits[k] = min(max(APART, math.sqrt(1.0 + noise)), DISJOINT)
    return limits


def sentences(fit: Fit) -> list[str]:
    """All warnings for a reader of the fit: what the run kept, and what the draws show."""
    kept = list(fit.meta.get("warnings", []))
    return kept + [sentence for sentence in doubts(fit) if sentence not in kept]


def _other(fit: Fit) -> str:
    """The remedy that is left if a longer run is none."""
    if fit.meta.get("sampler_name") == "nuts":
        return "write the model with other parameters"
    return "use another sampler such as 'nuts'"
